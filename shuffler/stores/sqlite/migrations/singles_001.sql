-- One row per window of helper mode that has a vector. ``fixed``: 1 once the set of rows is decided for ever, before any pad is given.
CREATE TABLE single_window (
  task_id BLOB NOT NULL CHECK (length(task_id) = 32),
  window INTEGER NOT NULL CHECK (window >= 0),
  secret BLOB NOT NULL CHECK (length(secret) = 32),
  fixed INTEGER NOT NULL DEFAULT 0 CHECK (fixed IN (0, 1)),
  PRIMARY KEY (task_id, window)
) STRICT, WITHOUT ROWID;

-- A device's one vector, in order of HMAC-SHA256(secret, device key). ``place``: its row in the window's file.
CREATE TABLE single (
  task_id BLOB NOT NULL,
  window INTEGER NOT NULL,
  device BLOB NOT NULL CHECK (length(device) = 32),
  place INTEGER NOT NULL CHECK (place >= 0),
  digest BLOB NOT NULL CHECK (length(digest) = 32),
  seed BLOB NOT NULL CHECK (length(seed) = 32),
  left_out INTEGER NOT NULL DEFAULT 0 CHECK (left_out IN (0, 1)),
  PRIMARY KEY (task_id, window, device),
  FOREIGN KEY (task_id, window) REFERENCES single_window (task_id, window)
) STRICT, WITHOUT ROWID;

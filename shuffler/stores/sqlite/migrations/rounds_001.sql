-- One row per window of rounds that has a complete vector: the key of its hashes. Gone with the window.
CREATE TABLE secret (
  task_id BLOB NOT NULL CHECK (length(task_id) = 32),
  window INTEGER NOT NULL CHECK (window >= 0),
  secret BLOB NOT NULL CHECK (length(secret) = 32),
  PRIMARY KEY (task_id, window)
) STRICT, WITHOUT ROWID;

-- HMAC-SHA256(secret, device key) of every device whose vector was complete. In order of the hash, so nothing says who came when.
CREATE TABLE admitted (
  task_id BLOB NOT NULL,
  window INTEGER NOT NULL,
  device BLOB NOT NULL CHECK (length(device) = 32),
  PRIMARY KEY (task_id, window, device),
  FOREIGN KEY (task_id, window) REFERENCES secret (task_id, window)
) STRICT, WITHOUT ROWID;

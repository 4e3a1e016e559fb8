-- Windows that are summed in rounds have no batch: a release belongs to a window's batch or to its rounds. SQLite can't drop a foreign
-- key, so the tables are copied; what was signed stays byte for byte.
CREATE TABLE new_releases (
  task_id BLOB NOT NULL CHECK (length(task_id) = 32),
  window INTEGER NOT NULL CHECK (window >= 0),
  release BLOB NOT NULL,
  signature BLOB NOT NULL CHECK (length(signature) = 64),
  epsilon REAL NOT NULL CHECK (epsilon >= 0),
  delta REAL NOT NULL CHECK (delta > 0 AND delta < 1),
  loss_law BLOB REFERENCES loss_laws (hash),
  PRIMARY KEY (task_id, window)
) STRICT, WITHOUT ROWID;
INSERT INTO new_releases SELECT * FROM releases;

CREATE TABLE new_tallies (
  task_id BLOB NOT NULL,
  window INTEGER NOT NULL,
  tally BLOB NOT NULL,
  PRIMARY KEY (task_id, window),
  FOREIGN KEY (task_id, window) REFERENCES new_releases (task_id, window)
) STRICT, WITHOUT ROWID;
INSERT INTO new_tallies SELECT * FROM tallies;

DROP TABLE tallies;
DROP TABLE releases;
ALTER TABLE new_releases RENAME TO releases;
ALTER TABLE new_tallies RENAME TO tallies;

CREATE TRIGGER releases_never_change BEFORE UPDATE ON releases
BEGIN SELECT RAISE (ABORT, 'a release never changes'); END;
CREATE TRIGGER releases_never_go BEFORE DELETE ON releases
BEGIN SELECT RAISE (ABORT, 'a release is never deleted'); END;

-- One row per finished round: what all its survivors add up to, their noise included. vector: int64, little-endian, in grid steps.
-- Those of a window that was withheld are deleted with that decision; order of arrival is not kept.
CREATE TABLE sums (
  task_id BLOB NOT NULL CHECK (length(task_id) = 32),
  window INTEGER NOT NULL CHECK (window >= 0),
  round_id BLOB NOT NULL UNIQUE CHECK (length(round_id) = 32),
  survivors INTEGER NOT NULL CHECK (survivors >= 2),
  vector BLOB NOT NULL CHECK (length(vector) > 0 AND length(vector) % 8 = 0),
  PRIMARY KEY (task_id, window, round_id)
) STRICT, WITHOUT ROWID;

-- How many rounds of a window ended without a sum, by reason.
CREATE TABLE aborted_rounds (
  task_id BLOB NOT NULL CHECK (length(task_id) = 32),
  window INTEGER NOT NULL CHECK (window >= 0),
  reason TEXT NOT NULL,
  count INTEGER NOT NULL CHECK (count >= 1),
  PRIMARY KEY (task_id, window, reason)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER sums_never_change BEFORE UPDATE ON sums
BEGIN SELECT RAISE (ABORT, 'a sum never changes'); END;
CREATE TRIGGER sums_come_before_the_release BEFORE INSERT ON sums
WHEN EXISTS (SELECT 1 FROM releases WHERE task_id = new.task_id AND window = new.window)
BEGIN SELECT RAISE (ABORT, 'the window is released: no sum is added to it any more'); END;

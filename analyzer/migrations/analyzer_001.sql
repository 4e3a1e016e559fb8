-- One row per (task, window): the batch that was accepted for it. States: 1 RECEIVING, 2 PROCESSING, 3 DONE.
-- No times and no order of arrival: WITHOUT ROWID tables, keyed by what they are about.
CREATE TABLE batches (
  task_id BLOB NOT NULL CHECK (length(task_id) = 32),
  window INTEGER NOT NULL CHECK (window >= 0),
  manifest BLOB NOT NULL,
  manifest_hash BLOB NOT NULL UNIQUE CHECK (length(manifest_hash) = 32),
  state INTEGER NOT NULL CHECK (state IN (1, 2, 3)),
  PRIMARY KEY (task_id, window)
) STRICT, WITHOUT ROWID;

-- Laws of privacy losses, for composition: one per task and minimum batch, shared by its windows (hash = SHA-256 of law).
CREATE TABLE loss_laws (
  hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
  law BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- The signed bytes of what was published or withheld, and what opening the batch is charged in the composition.
CREATE TABLE releases (
  task_id BLOB NOT NULL,
  window INTEGER NOT NULL,
  release BLOB NOT NULL,
  signature BLOB NOT NULL CHECK (length(signature) = 64),
  epsilon REAL NOT NULL CHECK (epsilon >= 0),
  delta REAL NOT NULL CHECK (delta > 0 AND delta < 1),
  loss_law BLOB REFERENCES loss_laws (hash),
  PRIMARY KEY (task_id, window),
  FOREIGN KEY (task_id, window) REFERENCES batches (task_id, window)
) STRICT, WITHOUT ROWID;

-- The sums behind a published release; none is kept of a withheld one.
CREATE TABLE tallies (
  task_id BLOB NOT NULL,
  window INTEGER NOT NULL,
  tally BLOB NOT NULL,
  PRIMARY KEY (task_id, window),
  FOREIGN KEY (task_id, window) REFERENCES releases (task_id, window)
) STRICT, WITHOUT ROWID;

-- What the shuffler gets, every time that it asks.
CREATE TABLE acks (
  task_id BLOB NOT NULL,
  window INTEGER NOT NULL,
  ack BLOB NOT NULL,
  signature BLOB NOT NULL CHECK (length(signature) = 64),
  PRIMARY KEY (task_id, window),
  FOREIGN KEY (task_id, window) REFERENCES batches (task_id, window)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER releases_never_change BEFORE UPDATE ON releases
BEGIN SELECT RAISE (ABORT, 'a release never changes'); END;
CREATE TRIGGER releases_never_go BEFORE DELETE ON releases
BEGIN SELECT RAISE (ABORT, 'a release is never deleted'); END;
CREATE TRIGGER acks_never_change BEFORE UPDATE ON acks
BEGIN SELECT RAISE (ABORT, 'an acknowledgement never changes'); END;
CREATE TRIGGER acks_never_go BEFORE DELETE ON acks
BEGIN SELECT RAISE (ABORT, 'an acknowledgement is never deleted'); END;
CREATE TRIGGER batches_stay_done BEFORE UPDATE ON batches
WHEN old.state = 3 OR old.task_id <> new.task_id OR old.window <> new.window OR old.manifest_hash <> new.manifest_hash
BEGIN SELECT RAISE (ABORT, 'a batch that is done stays so, and a batch keeps its manifest'); END;
CREATE TRIGGER batches_never_go BEFORE DELETE ON batches
BEGIN SELECT RAISE (ABORT, 'a batch is never deleted: its window can be counted only once'); END;

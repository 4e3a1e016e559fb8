-- A device's reports. The bytes of a queued report go when it is finished; the row stays, so that a window is answered once.
CREATE TABLE report (
    task_id   BLOB    NOT NULL CHECK (length(task_id) = 32),
    window    INTEGER NOT NULL CHECK (window >= 0),
    state     TEXT    NOT NULL CHECK (state IN ('queued', 'acked', 'refused', 'unknown')),
    kind      INTEGER,                                          -- the last failure (shoal.errors.Kind)
    attempts  INTEGER NOT NULL CHECK (attempts >= 0),
    doubtful  INTEGER NOT NULL CHECK (doubtful IN (0, 1)),      -- some attempt may have been stored
    expires_s INTEGER NOT NULL,                                 -- Unix seconds
    frame     BLOB,                                             -- the exact bytes of every attempt
    ack_key   BLOB CHECK (length(ack_key) = 32),                -- checks the receipt
    PRIMARY KEY (task_id, window),
    CHECK ((state = 'queued') = (frame IS NOT NULL)),
    CHECK ((frame IS NULL) = (ack_key IS NULL))
);

CREATE INDEX queued ON report (expires_s) WHERE state = 'queued';

-- The one key schedule that this device has seen for a task.
CREATE TABLE schedule (
    task_id BLOB NOT NULL PRIMARY KEY CHECK (length(task_id) = 32),
    digest  BLOB NOT NULL CHECK (length(digest) = 32)
);

-- One row per window that this device has answered in a round of secure aggregation. Never removed: a window is answered once.
CREATE TABLE answer (
    task_id  BLOB    NOT NULL CHECK (length(task_id) = 32),
    window   INTEGER NOT NULL CHECK (window >= 0),
    round_id BLOB    NOT NULL CHECK (length(round_id) = 32),
    sealed   BLOB    NOT NULL CHECK (length(sealed) = 32),      -- SHA-256 of the masked vector's bytes
    released BLOB    CHECK (length(released) = 32),             -- SHA-256 of the commit record that shares were given for
    outcome  TEXT    NOT NULL CHECK (outcome IN ('masked', 'counted', 'aborted', 'lost')),
    kind     INTEGER,                                           -- why it was not counted (shoal.errors.Kind)
    PRIMARY KEY (task_id, window)
) STRICT, WITHOUT ROWID;

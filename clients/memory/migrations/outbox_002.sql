-- A report may be withdrawn. SQLite changes no CHECK of a table, so the table is made anew.
CREATE TABLE report_2 (
    task_id   BLOB    NOT NULL CHECK (length(task_id) = 32),
    window    INTEGER NOT NULL CHECK (window >= 0),
    state     TEXT    NOT NULL CHECK (state IN ('queued', 'acked', 'refused', 'unknown', 'withdrawn')),
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

INSERT INTO report_2 SELECT task_id, window, state, kind, attempts, doubtful, expires_s, frame, ack_key FROM report;

DROP TABLE report;

ALTER TABLE report_2 RENAME TO report;

CREATE INDEX queued ON report (expires_s) WHERE state = 'queued';

-- Tasks for which two key schedules were seen: nothing of them is sent any more.
CREATE TABLE struck (task_id BLOB NOT NULL PRIMARY KEY CHECK (length(task_id) = 32)) STRICT, WITHOUT ROWID;

-- What every answered window cost, in nano-epsilon. Rows are only ever added.
CREATE TABLE charge (
    number    INTEGER NOT NULL PRIMARY KEY,
    task_id   BLOB    NOT NULL CHECK (length(task_id) = 32),
    window    INTEGER NOT NULL CHECK (window >= 0),
    nano      INTEGER NOT NULL CHECK (nano >= 0),
    permanent INTEGER NOT NULL CHECK (permanent IN (0, 1)),     -- of a memoized task; 0 nano if an earlier report was sent again
    UNIQUE (task_id, window)
) STRICT;

-- The same by task, so that a device with many windows needn't add them up each time.
CREATE TABLE tally (
    task_id BLOB    NOT NULL PRIMARY KEY,
    windows INTEGER NOT NULL,
    nano    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER charge_counts AFTER INSERT ON charge BEGIN INSERT INTO tally VALUES (NEW.task_id, 1, NEW.nano) ON CONFLICT (task_id) DO UPDATE SET windows = windows + 1, nano = nano + NEW.nano; END;

CREATE TRIGGER charge_stays BEFORE UPDATE ON charge BEGIN SELECT RAISE(ABORT, 'a charge is never changed'); END;

CREATE TRIGGER charge_remains BEFORE DELETE ON charge BEGIN SELECT RAISE(ABORT, 'a charge is never taken back'); END;

-- Permanent randomized reports of memoized tasks. The key names cells so that a row doesn't; it hides nothing from who reads this file.
CREATE TABLE memo_key (
    task_id BLOB NOT NULL PRIMARY KEY CHECK (length(task_id) = 32),
    secret  BLOB NOT NULL CHECK (length(secret) = 32)
) STRICT, WITHOUT ROWID;

CREATE TABLE memo (
    task_id BLOB    NOT NULL CHECK (length(task_id) = 32),
    tag     BLOB    NOT NULL CHECK (length(tag) = 32),          -- HMAC-SHA256(secret, cell as u32be)
    report  BLOB    NOT NULL,
    used    INTEGER NOT NULL,                                   -- the highest of a task was used last
    PRIMARY KEY (task_id, tag)
) STRICT, WITHOUT ROWID;

CREATE TABLE seen (
    task_id       BLOB NOT NULL PRIMARY KEY CHECK (length(task_id) = 32),
    name          TEXT NOT NULL,
    purpose       TEXT NOT NULL,
    authority     BLOB NOT NULL,
    epsilon0_nano INTEGER CHECK (epsilon0_nano >= 0),           -- NULL: infinite
    verdict       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX seen_purpose ON seen (purpose);

-- The owner's answers: by purpose, and to one task's large or infinite local epsilon.
CREATE TABLE consent (
    purpose TEXT NOT NULL PRIMARY KEY,
    answer  TEXT NOT NULL CHECK (answer IN ('allowed', 'denied'))
) STRICT, WITHOUT ROWID;

CREATE TABLE acceptance (
    task_id  BLOB NOT NULL PRIMARY KEY CHECK (length(task_id) = 32),
    epsilon0 REAL NOT NULL CHECK (epsilon0 > 0)
) STRICT, WITHOUT ROWID;

-- The ledger: a chain of hashes (shoal.clients.memory.ledger), appended to and never changed.
CREATE TABLE ledger (
    number INTEGER NOT NULL PRIMARY KEY,
    body   BLOB    NOT NULL,                                    -- canonical JSON
    hash   BLOB    NOT NULL CHECK (length(hash) = 32)
) STRICT;

CREATE TRIGGER ledger_grows BEFORE INSERT ON ledger WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM ledger) BEGIN SELECT RAISE(ABORT, 'the ledger grows at its end alone'); END;

CREATE TRIGGER ledger_stays BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is never changed'); END;

CREATE TRIGGER ledger_remains BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is never cut'); END;

-- SHA-256 of bytes that did not verify and were entered in the ledger.
CREATE TABLE problem (digest BLOB NOT NULL PRIMARY KEY CHECK (length(digest) = 32)) STRICT, WITHOUT ROWID;

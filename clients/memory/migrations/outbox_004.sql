-- What the owner confirmed as lost with a memory that was set back: spent all the same, and answered all the same.
CREATE TABLE lost (
    number   INTEGER NOT NULL PRIMARY KEY,
    before_s REAL    NOT NULL,                                  -- Unix seconds: windows that had begun by then may have been answered
    nano     INTEGER NOT NULL CHECK (nano >= 0)
) STRICT;

CREATE TRIGGER lost_stays BEFORE UPDATE ON lost BEGIN SELECT RAISE(ABORT, 'what was confirmed as lost is never changed'); END;

CREATE TRIGGER lost_remains BEFORE DELETE ON lost BEGIN SELECT RAISE(ABORT, 'what was confirmed as lost is never taken back'); END;

-- Every row ends with a mark over all of its columns (shoal.clients.memory.marks). What had one keeps it only if it fits.
UPDATE report SET mark = CASE WHEN frame IS NULL OR mark = row_mark('report', task_id, window, expires_s, frame, ack_key) THEN row_mark('report', task_id, window, state, kind, attempts, doubtful, expires_s, frame, ack_key) END;

ALTER TABLE schedule ADD COLUMN mark BLOB;

UPDATE schedule SET mark = row_mark('schedule', task_id, digest);

ALTER TABLE struck ADD COLUMN mark BLOB;

UPDATE struck SET mark = row_mark('struck', task_id);

DROP TRIGGER charge_stays;

UPDATE charge SET mark = CASE WHEN mark = row_mark('charge', task_id, window, nano, permanent) THEN row_mark('charge', number, task_id, window, nano, permanent) END;

CREATE TRIGGER charge_stays BEFORE UPDATE ON charge BEGIN SELECT RAISE(ABORT, 'a charge is never changed'); END;

-- The sums are written by the code that charges: a trigger has no function of ours.
DROP TRIGGER charge_counts;

ALTER TABLE tally ADD COLUMN mark BLOB;

UPDATE tally SET mark = row_mark('tally', task_id, windows, nano);

ALTER TABLE memo_key ADD COLUMN mark BLOB;

UPDATE memo_key SET mark = row_mark('memo_key', task_id, secret);

UPDATE memo SET mark = CASE WHEN mark = row_mark('memo', task_id, tag, report) THEN row_mark('memo', task_id, tag, report, used) END;

ALTER TABLE seen ADD COLUMN mark BLOB;

UPDATE seen SET mark = row_mark('seen', task_id, name, purpose, authority, epsilon0_nano, verdict);

ALTER TABLE consent ADD COLUMN mark BLOB;

UPDATE consent SET mark = row_mark('consent', purpose, answer);

ALTER TABLE acceptance ADD COLUMN mark BLOB;

UPDATE acceptance SET mark = row_mark('acceptance', task_id, epsilon0);

ALTER TABLE problem ADD COLUMN mark BLOB;

UPDATE problem SET mark = row_mark('problem', digest);

ALTER TABLE choice ADD COLUMN mark BLOB;

UPDATE choice SET mark = row_mark('choice', task_id, chosen);

DROP TRIGGER lost_stays;

ALTER TABLE lost ADD COLUMN mark BLOB;

UPDATE lost SET mark = row_mark('lost', number, before_s, nano);

CREATE TRIGGER lost_stays BEFORE UPDATE ON lost BEGIN SELECT RAISE(ABORT, 'what was confirmed as lost is never changed'); END;

-- What a report's row must hold as it was written: a flipped bit is never sent.
ALTER TABLE report ADD COLUMN mark BLOB;

UPDATE report SET mark = row_mark('report', task_id, window, expires_s, frame, ack_key) WHERE frame IS NOT NULL;

-- The same of what was charged and of what is kept.
DROP TRIGGER charge_stays;

ALTER TABLE charge ADD COLUMN mark BLOB;

UPDATE charge SET mark = row_mark('charge', task_id, window, nano, permanent);

CREATE TRIGGER charge_stays BEFORE UPDATE ON charge BEGIN SELECT RAISE(ABORT, 'a charge is never changed'); END;

ALTER TABLE memo ADD COLUMN mark BLOB;

UPDATE memo SET mark = row_mark('memo', task_id, tag, report);

-- ``head``: ``row_digest`` of task, window, round and survivors: how many devices a damaged sum had.
DROP TRIGGER sums_never_change;
ALTER TABLE sums ADD COLUMN head BLOB;
UPDATE sums SET head = row_digest(task_id, window, round_id, survivors)
  WHERE digest = row_digest(task_id, window, round_id, survivors, vector);
CREATE TRIGGER sums_never_change BEFORE UPDATE ON sums
BEGIN SELECT RAISE (ABORT, 'a sum never changes'); END;

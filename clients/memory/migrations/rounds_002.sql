-- Every row ends with a mark over all of its columns (shoal.clients.memory.marks).
ALTER TABLE answer ADD COLUMN mark BLOB;

UPDATE answer SET mark = row_mark('answer', task_id, window, round_id, sealed, released, outcome, kind);

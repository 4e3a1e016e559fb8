-- Of an open window: rows that were acknowledged, counted outside of the inbox, so that an inbox that lost some is found out.
-- ``damaged``: acknowledged rows that the disk lost. ``digest``: ``row_digest`` of all other columns.
ALTER TABLE window ADD COLUMN acked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE window ADD COLUMN damaged INTEGER NOT NULL DEFAULT 0;
ALTER TABLE window ADD COLUMN digest BLOB;
ALTER TABLE task ADD COLUMN digest BLOB;
UPDATE window SET digest = row_digest(task_id, window, state, outcome, reports, rows, row_size, rows_hash, manifest, acked, damaged);
UPDATE task SET digest = row_digest(task_id, schedule_hash);

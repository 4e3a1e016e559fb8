-- Nothing stored is trusted when it is read: ``row_digest`` of all other columns. ``count``: vectors that were acknowledged.
ALTER TABLE single_window ADD COLUMN count INTEGER NOT NULL DEFAULT 0;
UPDATE single_window SET count =
  (SELECT count(*) FROM single WHERE single.task_id = single_window.task_id AND single.window = single_window.window);
ALTER TABLE single_window ADD COLUMN row_check BLOB;
ALTER TABLE single ADD COLUMN row_check BLOB;
UPDATE single_window SET row_check = row_digest(task_id, window, secret, fixed, count);
UPDATE single SET row_check = row_digest(task_id, window, device, place, digest, seed, left_out);

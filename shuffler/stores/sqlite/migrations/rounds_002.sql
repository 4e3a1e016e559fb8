-- Nothing stored is trusted when it is read: ``row_digest`` of all other columns. ``count``: devices that were remembered.
ALTER TABLE secret ADD COLUMN count INTEGER NOT NULL DEFAULT 0;
UPDATE secret SET count =
  (SELECT count(*) FROM admitted WHERE admitted.task_id = secret.task_id AND admitted.window = secret.window);
ALTER TABLE secret ADD COLUMN row_check BLOB;
ALTER TABLE admitted ADD COLUMN row_check BLOB;
UPDATE secret SET row_check = row_digest(task_id, window, secret, count);
UPDATE admitted SET row_check = row_digest(task_id, window, device);

-- ``closed``: 1 once the window takes no more vectors, before the analyzer is shown any: none joins a set that was shown.
ALTER TABLE single_window ADD COLUMN closed INTEGER NOT NULL DEFAULT 0 CHECK (closed IN (0, 1));
UPDATE single_window SET closed = fixed, row_check = row_digest(task_id, window, secret, fixed, count, decided, fixed)
  WHERE row_check = row_digest(task_id, window, secret, fixed, count, decided);

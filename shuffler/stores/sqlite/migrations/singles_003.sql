-- ``decided``: how many rows the decided set has. One that is lost afterwards is missed, and no smaller set is ever summed.
ALTER TABLE single_window ADD COLUMN decided INTEGER NOT NULL DEFAULT 0;
UPDATE single_window SET decided = (SELECT count(*) FROM single
  WHERE single.task_id = single_window.task_id AND single.window = single_window.window AND NOT left_out) WHERE fixed;
UPDATE single_window SET row_check = row_digest(task_id, window, secret, fixed, count, decided)
  WHERE row_check = row_digest(task_id, window, secret, fixed, count);

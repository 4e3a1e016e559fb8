-- One row per task ever served here: a task never gets a second key schedule.
CREATE TABLE task (
  task_id BLOB PRIMARY KEY,
  schedule_hash BLOB NOT NULL
) WITHOUT ROWID;

-- One row per window that has had a report, or is over. Counts, never times.
CREATE TABLE window (
  task_id BLOB NOT NULL,
  window INTEGER NOT NULL,
  state INTEGER NOT NULL,
  outcome INTEGER NOT NULL DEFAULT 0,
  reports INTEGER NOT NULL DEFAULT 0,
  rows INTEGER NOT NULL DEFAULT 0,
  row_size INTEGER NOT NULL DEFAULT 0,
  rows_hash BLOB,
  manifest BLOB,
  PRIMARY KEY (task_id, window)
) WITHOUT ROWID;

-- How many of a window were acknowledged, outside of the file that holds them: durable before anybody hears that he counts.
-- ``row_check``: row_digest of the columns before it.
CREATE TABLE acknowledged (
  task_id BLOB NOT NULL CHECK (length(task_id) = 32),
  window INTEGER NOT NULL CHECK (window >= 0),
  count INTEGER NOT NULL CHECK (count >= 0),
  row_check BLOB,
  PRIMARY KEY (task_id, window)
) STRICT, WITHOUT ROWID;

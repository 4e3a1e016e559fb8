-- What the windows of discoveries ask: the signed step of a window, once and for ever. Window 0 has
-- none. ``digest``: ``row_digest`` of all columns before it.
CREATE TABLE steps (
  task_id BLOB NOT NULL CHECK (length(task_id) = 32),
  window INTEGER NOT NULL CHECK (window >= 1),
  step BLOB NOT NULL,
  digest BLOB NOT NULL,
  PRIMARY KEY (task_id, window)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER steps_never_change BEFORE UPDATE ON steps
BEGIN SELECT RAISE (ABORT, 'a step never changes'); END;
CREATE TRIGGER steps_never_go BEFORE DELETE ON steps
BEGIN SELECT RAISE (ABORT, 'a step is never deleted'); END;

-- Who serves now, each by its own word every few seconds. owner: the process; tasks: of the windows
-- that it still waits for, task id and hash of the key schedule, back to back.
CREATE TABLE replica (
  replica bytea PRIMARY KEY,
  owner bytea NOT NULL,
  seen timestamptz NOT NULL,
  tasks bytea[] NOT NULL
);

-- Which windows an operator gave up, at which replica: its line (services/given_up.py), for others to
-- read. What follows from it is decided by the line in that replica's data_dir.
CREATE TABLE given_up (
  task_id bytea NOT NULL,
  win integer NOT NULL,
  replica bytea NOT NULL,
  line text NOT NULL,
  PRIMARY KEY (task_id, win)
);

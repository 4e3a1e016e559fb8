-- What several shufflers of one task share. Rows and keys of reports never get here in the clear;
-- tables of a window's contents (inbox_, tag_, batch_) are made and dropped with it.

CREATE TABLE cluster (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  version integer NOT NULL,
  shuffler_key bytea NOT NULL
);

CREATE TABLE task (
  task_id bytea PRIMARY KEY,
  schedule_hash bytea NOT NULL
);

-- seats, epoch, found: how a window is filled to exactly its capacity (seats.py). emptied: how often
-- an open window's reports were deleted. batch_fence: under which claim the batch was written.
CREATE TABLE win (
  id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
  task_id bytea NOT NULL,
  win integer NOT NULL,
  state smallint NOT NULL,
  outcome smallint,
  epoch bigint NOT NULL DEFAULT 1,
  seats bigint NOT NULL DEFAULT 0,
  found bigint NOT NULL DEFAULT 0,
  emptied integer NOT NULL DEFAULT 0,
  check_value bytea NOT NULL DEFAULT '',
  reports bigint NOT NULL DEFAULT 0,
  row_count bigint NOT NULL DEFAULT 0,
  row_size integer NOT NULL DEFAULT 0,
  acked bigint NOT NULL DEFAULT 0,
  damaged bigint NOT NULL DEFAULT 0,
  rows_hash bytea,
  manifest bytea NOT NULL DEFAULT '',
  batch_fence bigint NOT NULL DEFAULT 0,
  changed timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (task_id, win)
);
CREATE INDEX win_changed ON win (changed);

-- Who works on a window. Apart from win: a window may be claimed before it has a row, and renewing a
-- claim waits for no report.
CREATE TABLE claim (
  task_id bytea NOT NULL,
  win integer NOT NULL,
  owner bytea NOT NULL,
  fence bigint NOT NULL,
  lease_until timestamptz NOT NULL,
  PRIMARY KEY (task_id, win)
);

-- Which machines still have which key files.
CREATE TABLE holder (
  replica bytea NOT NULL,
  task_id bytea NOT NULL,
  win integer NOT NULL,
  purpose text NOT NULL,
  PRIMARY KEY (replica, task_id, win, purpose)
);

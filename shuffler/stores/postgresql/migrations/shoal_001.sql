-- What several shufflers of one task share. Rows and keys of reports never get here in the clear;
-- tables of a window's contents are made and dropped with it.

CREATE TABLE cluster (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  version integer NOT NULL,
  shuffler_key bytea NOT NULL
);

CREATE TABLE task (
  task_id bytea PRIMARY KEY,
  schedule_hash bytea NOT NULL
);

CREATE TABLE win (
  id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
  task_id bytea NOT NULL,
  win integer NOT NULL,
  state smallint NOT NULL,
  outcome smallint,
  owner bytea,
  fence bigint NOT NULL DEFAULT 0,
  lease_until timestamptz NOT NULL DEFAULT '-infinity',
  seats bigint NOT NULL DEFAULT 0,
  epoch bigint NOT NULL DEFAULT 0,
  found bigint NOT NULL DEFAULT 0,
  check_value bytea,
  reports bigint NOT NULL DEFAULT 0,
  rows bigint NOT NULL DEFAULT 0,
  row_size integer NOT NULL DEFAULT 0,
  acked bigint NOT NULL DEFAULT 0,
  damaged bigint NOT NULL DEFAULT 0,
  rows_hash bytea,
  manifest bytea NOT NULL DEFAULT '',
  batch text,
  changed timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (task_id, win)
);
CREATE INDEX win_changed ON win (changed);

CREATE TABLE holder (
  replica bytea NOT NULL,
  task_id bytea NOT NULL,
  win integer NOT NULL,
  purpose text NOT NULL,
  PRIMARY KEY (replica, task_id, win, purpose)
);

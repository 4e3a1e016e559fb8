-- least: 5
-- What the windows of discoveries ask: of each the first signed step that a replica was told, for all
-- of them. name: of the question; data: the SignedDiscoveryStep, as devices are given it.
-- Versions before serve no discovery beside another replica, so they may go on.
CREATE TABLE step (
  task_id bytea NOT NULL,
  win integer NOT NULL CHECK (win > 0),
  name bytea NOT NULL CHECK (octet_length(name) = 32),
  data bytea NOT NULL CHECK (octet_length(data) <= 1048576),
  PRIMARY KEY (task_id, win)
);

-- The question that a window's reports answer: no block of another one gets in. '': it has none;
-- NULL: the window is from before this column.
ALTER TABLE win ADD COLUMN asked bytea;

-- Windows that are summed in rounds: who answered (answered_ID), and the vectors of helper mode
-- (vector_ID), in tables of the window's own, which are dropped with it. Devices are keyed hashes,
-- vectors and seeds are encrypted; the keys come from the window's hop key and are in no table.
-- taken: vectors that were acknowledged, also the next one's place. fixed: rows of the decided sum.
CREATE TABLE sums (
  id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
  task_id bytea NOT NULL,
  win integer NOT NULL,
  taken integer NOT NULL DEFAULT 0,
  closed boolean NOT NULL DEFAULT false,
  fixed integer,
  over boolean NOT NULL DEFAULT false,
  PRIMARY KEY (task_id, win)
);

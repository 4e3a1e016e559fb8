-- How many rows of each writer of a window were sealed, until it is shredded: a replica that promised
-- more than that tells (losses.py).
CREATE TABLE sealed_of (
  id bigint NOT NULL,
  writer bytea NOT NULL,
  rows bigint NOT NULL,
  PRIMARY KEY (id, writer)
);

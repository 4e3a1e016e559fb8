-- least: 1
-- Whether a program that knows fewer of these files may go on: of each file, "-- least: N" at its
-- beginning says from which version on programs may; without, only those that have the file.
-- The column is the largest of all that were carried out (schema.py).
ALTER TABLE cluster ADD COLUMN least integer NOT NULL DEFAULT 1;

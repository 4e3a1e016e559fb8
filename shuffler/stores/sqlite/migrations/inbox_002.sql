-- Enrolled devices that this window has admitted, by keyed hash: destroyed with the file. Kept in the order of the hashes, so that
-- neither row numbers nor places pair a device with a row of the inbox.
CREATE TABLE admitted (tag BLOB PRIMARY KEY) WITHOUT ROWID;

-- Reports as a commit brought them, many to a row: (storage key, sealed bytes) one after the other in the order of the keys, as many
-- as a page holds. Numbers have no gaps. crc: CRC-32 of number, length and body. The table inbox is of versions before: it is read, and
-- not written any more.
CREATE TABLE block (number INTEGER PRIMARY KEY, body BLOB NOT NULL, crc INTEGER NOT NULL);

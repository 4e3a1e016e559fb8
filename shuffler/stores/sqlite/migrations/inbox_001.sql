-- The secret that keys this window's storage keys: it is destroyed with the file.
CREATE TABLE secret (secret BLOB NOT NULL);

-- No index: rows go to the end; they are sorted once, at sealing.
CREATE TABLE inbox (key BLOB NOT NULL, sealed BLOB NOT NULL);

-- SHA-256 of the secret: one that a damaged disk changed is not taken for the window's.
ALTER TABLE secret ADD COLUMN digest BLOB;

-- CRC-32 of key and sealed bytes. NULL: of the version before, and verified by its key, which is a MAC of the bytes.
ALTER TABLE inbox ADD COLUMN crc INTEGER;

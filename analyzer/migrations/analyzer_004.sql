-- Nothing stored is trusted when it is read: ``digest`` is ``row_digest`` of all columns before it.
ALTER TABLE batches ADD COLUMN digest BLOB;
ALTER TABLE releases ADD COLUMN digest BLOB;
ALTER TABLE tallies ADD COLUMN digest BLOB;
ALTER TABLE acks ADD COLUMN digest BLOB;
ALTER TABLE sums ADD COLUMN digest BLOB;
ALTER TABLE aborted_rounds ADD COLUMN digest BLOB;
DROP TRIGGER releases_never_change;
DROP TRIGGER acks_never_change;
DROP TRIGGER sums_never_change;
DROP TRIGGER batches_stay_done;
UPDATE batches SET digest = row_digest(task_id, window, manifest, manifest_hash, state);
UPDATE releases SET digest = row_digest(task_id, window, release, signature, epsilon, delta, loss_law, lifetime);
UPDATE tallies SET digest = row_digest(task_id, window, tally);
UPDATE acks SET digest = row_digest(task_id, window, ack, signature);
UPDATE sums SET digest = row_digest(task_id, window, round_id, survivors, vector);
UPDATE aborted_rounds SET digest = row_digest(task_id, window, reason, count);
CREATE TRIGGER releases_never_change BEFORE UPDATE ON releases
BEGIN SELECT RAISE (ABORT, 'a release never changes'); END;
CREATE TRIGGER acks_never_change BEFORE UPDATE ON acks
BEGIN SELECT RAISE (ABORT, 'an acknowledgement never changes'); END;
CREATE TRIGGER sums_never_change BEFORE UPDATE ON sums
BEGIN SELECT RAISE (ABORT, 'a sum never changes'); END;

-- A batch that is still coming may be replaced by what is left of it, when the shuffler's disk lost rows.
CREATE TRIGGER batches_stay_done BEFORE UPDATE ON batches
WHEN old.state = 3 OR old.task_id <> new.task_id OR old.window <> new.window
  OR (old.manifest_hash <> new.manifest_hash AND NOT (old.state = 1 AND new.state = 1))
BEGIN SELECT RAISE (ABORT, 'a batch that is done stays so, and a batch keeps its manifest once it is whole'); END;

-- The public keys that releases of this store are signed with, so that whoever reads them can tell.
CREATE TABLE signer (
  key BLOB PRIMARY KEY,
  digest BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Of a memoized task: epsilon0 of the permanent reports that its windows repeat, so that their costs are never added up. NULL: fresh
-- randomness in every window.
ALTER TABLE releases ADD COLUMN lifetime REAL CHECK (lifetime IS NULL OR lifetime >= 0);

-- What mechanisms with a memory draw once per task: a hash function, a cohort, a set of buckets. Their permanent answers are in memo, by key.
CREATE TABLE choice (
    task_id BLOB NOT NULL PRIMARY KEY CHECK (length(task_id) = 32),
    chosen  BLOB NOT NULL
) STRICT, WITHOUT ROWID;

"""The life of a batch at the analyzer: received, opened, tallied, shredded."""

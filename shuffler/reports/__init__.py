"""The life of a report at the shuffler: in, stored, shuffled, out."""

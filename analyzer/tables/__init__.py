"""Tables for analysts, from releases alone: consistent marginals, and a synthetic table."""

"""The embedded store: SQLite files and flat files in one folder, for one process."""

"""The ``shoal`` command: thin; one file per group of commands."""

"""Disks and files: why a write failed, and whether what is read is what was written."""

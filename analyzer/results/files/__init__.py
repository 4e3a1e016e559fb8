"""Releases as files for other programs."""

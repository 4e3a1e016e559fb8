"""Shoal for an analyst, in Python and without services: what ``import shoal`` gives."""

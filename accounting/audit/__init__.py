"""Attacks on our own randomizers, measured and compared with what is claimed."""

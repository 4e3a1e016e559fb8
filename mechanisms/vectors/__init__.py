"""Mechanisms of vectors: a device's direction in one short report, whatever its dimension."""

"""Accuracy first: an error that may be, and what it costs with every mechanism."""

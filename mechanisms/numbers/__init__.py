"""Randomizers of numbers, one file each, and what is estimated from their reports."""

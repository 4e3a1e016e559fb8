"""Randomizers with a memory of their own, for questions that are asked in every window."""

"""Randomizers of places on a map."""

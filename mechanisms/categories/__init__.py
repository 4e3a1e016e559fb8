"""Randomizers of yes/no questions and of categories: one file each."""

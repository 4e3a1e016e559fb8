"""Means of vectors: the ways to ask for them, what each errs and costs, and the task file."""

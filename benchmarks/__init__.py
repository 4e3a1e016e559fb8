"""Benchmarks: each figure is a ratio to a bare limit, measured on the same machine in the same run.
See README.md here.
"""

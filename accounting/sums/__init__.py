"""Certificates of sums by secure aggregation."""

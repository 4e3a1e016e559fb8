"""A device's part in sums by secure aggregation."""

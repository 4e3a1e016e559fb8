"""Rounds of secure aggregation at the shuffler, and single vectors of helper mode."""

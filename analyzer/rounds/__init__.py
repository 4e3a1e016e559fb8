"""The analyzer's side of secure aggregation: rounds, sums and their release."""

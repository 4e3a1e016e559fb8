"""``shoal load``: many simulated devices against running services."""

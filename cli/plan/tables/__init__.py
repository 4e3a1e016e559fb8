"""``shoal tables``: how several answers go together, planned and played."""

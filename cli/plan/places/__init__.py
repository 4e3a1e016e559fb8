"""``shoal places``: where devices are, as a map, planned and played."""

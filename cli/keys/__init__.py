"""``shoal keys``: make keys, key schedules and certificates."""

"""``shoal epsilon``: the accountant alone."""

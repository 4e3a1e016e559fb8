"""``shoal results``: what an analyzer released."""

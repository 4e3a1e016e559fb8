"""``shoal audit``: attack our own randomizers."""

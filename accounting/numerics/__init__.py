"""The arithmetic below the bounds, erring to a stated side at every rounding."""

"""``shoal agent``: the device's side."""

"""Several messages per device: the seam, and dummies. No task reaches them yet."""

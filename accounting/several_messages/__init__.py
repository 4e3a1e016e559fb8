"""Several messages per device: the seam, dummies, and noise that adds up over devices."""

"""A device owner's console: what was asked of this device, what it answered, and what that cost."""

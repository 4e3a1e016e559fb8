"""Who may answer: what a device shows, and what a shuffler verifies."""

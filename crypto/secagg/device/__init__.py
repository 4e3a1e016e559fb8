"""A device's part in a round: its steps, and what it checks before each."""

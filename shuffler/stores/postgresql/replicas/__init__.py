"""What replicas of one database know of one another, and of what it lost."""

"""What several devices of one person give away together."""

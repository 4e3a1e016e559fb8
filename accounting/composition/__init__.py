"""What several releases about the same devices give away together."""

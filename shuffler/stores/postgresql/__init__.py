"""Reports in PostgreSQL, for several shufflers that serve one task together."""

"""Mathematics that secure aggregation stands on, and that knows nothing of rounds."""

"""The analyzer: takes sealed batches, opens them, and publishes one signed release per window."""

"""Sealed batches in an object store, beside the shared store. The tables stay its own."""

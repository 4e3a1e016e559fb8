"""Releases of several messages per device: what they promise, by proofs of its own."""

"""A discovery planned, and played with made-up devices."""

"""Noise that many devices add together: exact samplers of one device's share. Pure."""

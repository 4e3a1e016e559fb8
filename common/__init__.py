"""Shoal: statistics from fleets of devices in the shuffle model of differential privacy."""

__version__ = "0.1.0"

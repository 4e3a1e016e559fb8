"""Mechanisms of several messages per device: the value itself, hidden in a mixture."""

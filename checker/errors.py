"""What the checker raises."""

from __future__ import annotations


class UnreadableError(Exception):
    """Something can't be read or computed here: one sentence for people."""

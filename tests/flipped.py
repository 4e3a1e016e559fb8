"""Damaged bytes that surely differ from the good ones.

A last byte that is set to a fixed value damages nothing where it had that value: of what is sealed
or signed that is one run in 256.
"""

from __future__ import annotations


def last_bit_flipped(good: bytes) -> bytes:
    """The bytes with the lowest bit of the last one turned over."""
    return good[:-1] + bytes((good[-1] ^ 1,))

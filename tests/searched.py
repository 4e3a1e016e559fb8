"""Whether one of many secrets is in many bytes, such as all that a server has on disk: in one pass
over the bytes, where ``any(one in data for one in many)`` takes a pass for each.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

_HEAD = 2  # bytes of a needle that are looked up first: a table of all their values


def any_within(needles: Iterable[bytes], data: bytes) -> bool:
    """As ``any(one in data for one in needles)``; each needle has two bytes or more."""
    by_head: dict[bytes, list[bytes]] = {}
    for needle in needles:
        assert len(needle) >= _HEAD, "too short to be looked for"
        by_head.setdefault(needle[:_HEAD], []).append(needle)
    wanted = np.zeros(1 << 8 * _HEAD, dtype=np.bool_)
    wanted[[int.from_bytes(head, "little") for head in by_head]] = True
    for shift in range(_HEAD):
        count = max(0, len(data) - shift) // _HEAD
        heads = np.frombuffer(data, dtype="<u2", count=count, offset=shift if count else 0)
        for place in (np.flatnonzero(wanted[heads]) * _HEAD + shift).tolist():
            tails = by_head[data[place : place + _HEAD]]
            if any(data.startswith(needle, place) for needle in tails):
                return True
    return False

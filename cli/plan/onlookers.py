"""Whom an epsilon does not hold against, below a table of ways."""

from __future__ import annotations

from collections.abc import Iterable


def sizes_lines(titles: Iterable[str]) -> list[str]:
    """A line if there are any: of mechanisms whose noise is of + and -
    (``mechanisms.several.protocol.sizes_tell``).
    """
    named = ", ".join(titles)
    if not named:
        return []
    return [
        f"{named}: epsilon holds against everybody who reads the release but the shuffler, which "
        "knows how many messages each device sent."
    ]

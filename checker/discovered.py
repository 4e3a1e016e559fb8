"""What a discovery says that it found: whether that can be what its signed task asks.

Words are written again here, from the symbols: 26 letters, apostrophe, hyphen, space, any digit,
anything else, end (docs/WIRE.md, 4.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal.checker.discovered_places import discovered_places, shown_map
from shoal.checker.findings import Outcome, Statement
from shoal.protos import release_pb2, task_pb2

_LETTERS = "abcdefghijklmnopqrstuvwxyz'- #?"
_END = len(_LETTERS)
_GOES_ON = "\u2026"
_OTHERS = "another, or none"


def shown_level(release: release_pb2.Release) -> dict[str, Any] | None:
    """What the part for readers must have of it."""
    if not release.HasField("discovered"):
        return None
    found = release.discovered
    places = found.HasField("parts")
    whole = [one[-1:] == bytes((_END,)) for one in found.beginnings]
    return {
        "level": found.level,
        "levels": found.levels,
        "threshold": found.threshold,
        "no_room": found.no_room,
        **(shown_map(found) if places else {"whole": whole}),
    }


def discovered(release: release_pb2.Release, task: task_pb2.Task) -> Iterator[Statement]:
    """Nothing of a task that is no discovery."""
    asked, found = task.domain.discovery, release.discovered
    if not task.domain.HasField("discovery"):
        if release.HasField("discovered"):
            yield _said("no words are told by a task that asks for none", False, "it tells some")
        return
    if release.withheld:
        return  # "a release that is withheld shows nothing"
    if asked.HasField("parts"):
        yield from discovered_places(release, asked)
        return
    levels, depth = asked.longest - asked.first + 1, asked.first + found.level
    yield _said(
        "the level is one of the discovery's",
        found.levels == levels and found.level < levels,
        f"level {found.level} of {levels}",
    )
    rows, beginnings = list(release.estimates), list(found.beginnings)
    labels = [*map(_label, beginnings), _OTHERS]
    yield _said(
        "every estimate is of the beginning that it names",
        [row.label for row in rows] == labels and len(set(beginnings)) == len(beginnings),
        f"{len(beginnings):,} beginnings",
    )
    yield _said(
        "every beginning is as long as the level asks",
        all(_fits(one, depth) for one in beginnings),
        f"{depth} symbols, or whole words",
    )
    told = [row.value >= found.threshold for row in rows[:-1]]
    yield _said("every beginning reaches the threshold", all(told), f"{found.threshold:,} devices")
    going_on = sum(one[-1] != _END for one in beginnings if one)
    last = found.level == levels - 1
    yield _said(
        "no more beginnings are followed than the task allows",
        last or going_on <= asked.most,
        f"{going_on:,} of {asked.most:,}",
    )


def _label(symbols: bytes) -> str:
    text = "".join(_LETTERS[one] for one in symbols if one < _END)
    return text if symbols[-1:] == bytes((_END,)) else text + _GOES_ON


def _fits(symbols: bytes, depth: int) -> bool:
    if not symbols or max(symbols) > _END or _END in symbols[:-1]:
        return False
    return len(symbols) == depth or (len(symbols) < depth and symbols[-1] == _END)


def _said(what: str, holds: bool, why: str) -> Statement:
    return Statement(what, Outcome.HOLDS if holds else Outcome.WRONG, why)

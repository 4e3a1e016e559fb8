"""How values are written on pages: numbers, bounds, dates and ages, in words that people read."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import Any

from shoal.accounting.meaning import best_guess, bound_text, percent_text
from shoal.pictures.axes import number

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def whole(value: float) -> str:
    """A count: rounded, with thousands separated."""
    return f"{round(value):,}"


def figure(value: float, counted: bool) -> str:
    """An estimate: a number of devices in whole ones, anything else as ``number`` has it."""
    return whole(value) if counted else number(value)


def day(seconds: float) -> str:
    """The UTC day of a Unix time: "3 May 2026"."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment.day} {moment:%b %Y}"


def moment(seconds: float) -> str:
    """A Unix time to the minute: "3 May 2026, 14:05 UTC"."""
    return f"{day(seconds)}, {datetime.fromtimestamp(seconds, UTC):%H:%M} UTC"


def span(start: float, end: float) -> str:
    """From one Unix time to another, as short as it is clear."""
    if end - start < _DAY:
        first, last = (datetime.fromtimestamp(at, UTC) for at in (start, end))
        if first.date() == last.date():
            clock = "%H:%M" if end - start >= 2 * _MINUTE else "%H:%M:%S"
            return f"{day(start)}, {first:{clock}} to {last:{clock}} UTC"
        return f"{moment(start)} to {moment(end)}"
    return f"{day(start)} to {day(end - 1)}"


def ago(seconds: float) -> str:
    """How long ago something was: "40 seconds ago"."""
    for unit, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (1, "second")):
        count = int(seconds // unit)
        if count >= 1:
            return f"{count:,} {name}{'' if count == 1 else 's'} ago"
    return "just now"


def size(count: float) -> str:
    """Bytes, in the unit that fits."""
    if count == 1:
        return "1 byte"
    for name in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {name}"
        count /= 1024
    return f"{count:,.1f} TiB"


def plural(count: int, one: str, many: str = "") -> str:
    """ "1 window", "2 windows"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def odds(epsilon: float | None, delta: float) -> str:
    """How often somebody who would bet 50:50 is right at most, rounded up; None is no bound."""
    return "100 %" if epsilon is None else percent_text(best_guess(epsilon, delta))


def share(part: float, n: float) -> str:
    """A number of devices as a part of ``n``."""
    return f"{100.0 * part / n:.1f} %" if n else ""


def sentence(text: str) -> str:
    """One of our lines as a sentence: a capital letter and a full stop. A file's name stays as it
    is.
    """
    first = text.partition(" ")[0].rstrip(".:")
    start = text[:1] if "." in first else text[:1].upper()
    return f"{start}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


FILTERS: dict[str, Any] = {
    "number": number,
    "whole": whole,
    "figure": figure,
    "up": bound_text,
    "down": functools.partial(bound_text, up=False),
    "day": day,
    "moment": moment,
    "ago": ago,
    "size": size,
    "plural": plural,
    "sentence": sentence,
}

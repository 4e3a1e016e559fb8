"""Figures for people: with the digits that say something, whether a thing is tiny or huge."""

from __future__ import annotations

from shoal.limits import KIB, MIB


def figure(value: float) -> str:
    """Three digits that count below 100, whole above: "0.012", "1.5", "99.9", "1,234"."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def counted(number: int, thing: str) -> str:
    """ "1 question", "2 questions"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def duration(seconds: float) -> str:
    """Rounded to tenths: "under 1 s", "1.5 s", "1,234.5 s"."""
    return "under 1 s" if seconds < 1 else f"{seconds:,.1f} s"


def volume(size: int) -> str:
    """Bytes in the largest unit of which there is one: "512 bytes", "1.2 KiB", "3.0 GiB"."""
    for unit, name in ((1024 * MIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size} bytes"

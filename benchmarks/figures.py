"""What a benchmark says: figures with all their repetitions, goals where there are some, and
nothing rounded away.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

RATIO = "x"  # subject / bare limit
RATE = "/s"
MICROSECONDS = "us"
MILLISECONDS = "ms"
SECONDS = "s"
MEGABYTES = "MB"
BYTES_PER_BYTE = "B/B"


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the median; exactly one side is set."""

    at_least: float | None = None
    at_most: float | None = None

    def met(self, value: float) -> bool:
        """Whether the value is on the right side of the goal."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is None or value <= self.at_most

    def __str__(self) -> str:
        return f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """``values``: one per repetition, in ``unit``. ``goal`` is about their median."""

    what: str
    values: tuple[float, ...]
    unit: str = RATIO
    goal: Goal | None = None

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"{self.what}: a figure has at least one value")

    @property
    def median(self) -> float:
        """Of the values."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """None where there is no goal."""
        return None if self.goal is None else self.goal.met(self.median)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as ``--json`` writes them."""
        return {
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "values": list(self.values),
            "goal": str(self.goal) if self.goal else None,
            "met": self.met,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """One benchmark's figures, ratios first, and what a reader must know of how they came about."""

    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as ``--json`` writes them."""
        return {"figures": [figure.to_json() for figure in self.figures], "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed run: ``units`` of work in ``wall`` seconds, costing ``cpu`` core-seconds (0 where
    not measured).
    """

    units: int
    wall: float
    cpu: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Units per second of wall time."""
        return self.units / self.wall

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU per unit."""
        return self.cpu / self.units * 1e6


@dataclass(frozen=True, slots=True)
class Pairs:
    """Runs in the order limit, subject, limit, ..., subject, limit: every subject stands between
    two limits.
    """

    limits: tuple[Sample, ...]
    subjects: tuple[Sample, ...]

    def against(self, value: Callable[[Sample], float]) -> tuple[float, ...]:
        """Per subject: its value / the mean of those of the two limits around it, so that slow
        drift cancels.
        """
        around = [
            (value(a) + value(b)) / 2 for a, b in zip(self.limits, self.limits[1:], strict=False)
        ]
        return tuple(
            value(subject) / limit for subject, limit in zip(self.subjects, around, strict=True)
        )

    def rates(self) -> tuple[float, ...]:
        """Our rate over the limit's, a ratio per pair."""
        return self.against(lambda sample: sample.rate)


def alternate(
    repetitions: int, limit: Callable[[], Sample], subject: Callable[[], Sample]
) -> Pairs:
    """Run both in turn. What must be warm has been warmed up by the caller."""
    limits, subjects = [limit()], []
    for _ in range(repetitions):
        subjects.append(subject())
        limits.append(limit())
    return Pairs(tuple(limits), tuple(subjects))


def spread(
    what: str, samples: Sequence[Sample], value: Callable[[Sample], float], unit: str
) -> Figure:
    """A measured value, beside the ratios."""
    return Figure(what, tuple(value(sample) for sample in samples), unit)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def show(name: str, title: str, outcome: Outcome) -> str:
    """A table of one benchmark, for people."""
    lines = [f"{name}: {title}"]
    for figure in outcome.figures:
        low, high = number(min(figure.values)), number(max(figure.values))
        between = (
            f"({low} to {high}, {len(figure.values)} runs)" if len(figure.values) > 1 else "(1 run)"
        )
        goal = (
            ""
            if figure.goal is None
            else f"goal {figure.goal}: {'met' if figure.met else 'MISSED'}"
        )
        lines.append(
            (
                f"  {figure.what:<58} {number(figure.median):>9} {figure.unit:<4} "
                f"{between:<32} {goal}"
            ).rstrip()
        )
    lines.extend(f"  note: {note}" for note in outcome.notes)
    return "\n".join(lines)


def number(value: float) -> str:
    """Three digits that matter; thousands in groups."""
    if value >= 1000:
        return f"{value:,.0f}"
    return (
        f"{value:.0f}"
        if value >= 100
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
        if value >= 0.1
        else f"{value:.3g}"
    )

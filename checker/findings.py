"""What was checked, and how it came out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """``OPEN``: not decided here; what it rests on is said in words."""

    HOLDS = "holds"
    WRONG = "wrong"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Decision:
    """``how``: what decided it, or what stood in the way: one line."""

    outcome: Outcome
    how: str


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a release. ``what``: the statement. ``why``: how it was decided, or what is
    missing.
    """

    what: str
    outcome: Outcome
    why: str


def worst(checked: Iterable[Statement]) -> Outcome:
    """WRONG if anything is, else OPEN if anything is, else HOLDS."""
    outcomes = {one.outcome for one in checked}
    for outcome in (Outcome.WRONG, Outcome.OPEN):
        if outcome in outcomes:
            return outcome
    return Outcome.HOLDS

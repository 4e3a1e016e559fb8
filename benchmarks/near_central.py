"""Counts by several messages per device, released by real services: what they err by, beside what
the account says, and what their certificates say, beside values that were computed elsewhere.

Central (1, 1e-6). A fleet draws, seals and sends with the code of real devices; a shuffler and an
analyzer in processes of their own store, mix, open and release. What was released less what is true
has mean 0, so its root mean square over all cells and windows estimates the standard deviation. The
error of that estimate follows from the law's cumulants: 2 % take some 3,200 cells of cancelling
noise, and 1,250 of dummies. Rows where it is larger have no goal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Goal, Outcome
from shoal.cli.demo.workspace import prepare
from shoal.mechanisms.several.protocol import Noisy
from tests.worlds.services.releasing import (
    PPM,
    Counting,
    Spread,
    Window,
    ask,
    released,
    spread_of,
)

TITLE = "released counts: standard deviation / the account's"
_ENOUGH = 0.021  # error of a measured standard deviation with which it can be judged
_WITHIN = 0.05
_OF_REFERENCE = 0.01


@dataclass(frozen=True, slots=True)
class Reference:
    """A design for the same target by a second implementation in floating point, written apart from
    this one, whose formulas were held against enumeration in rationals: floods or dummies of a
    cell, messages of a device on average, and slots, all without empty messages. Its noise alone
    takes 95 % of delta.
    """

    noise: float
    mean: float
    slots: int


_CANCELLING, _HEAVIER, _DUMMIES = 192.9645, 65.24795, 42.65  # a cell, s = .45, s = .4
_REFERENCES = {
    ("cancelling", 16, 10_000, None): Reference(_CANCELLING, 2.549347, 63),
    ("cancelling", 16, 100_000, None): Reference(_CANCELLING, 1.154935, 44),
    ("cancelling", 1_024, 10_000, 0.4): Reference(_HEAVIER, 34.82336, 183),
    ("cancelling", 1_024, 100_000, None): Reference(_CANCELLING, 10.91582, 117),
    ("dummies", 16, 10_000, None): Reference(_DUMMIES, 1.06824, 8),
    ("dummies", 16, 100_000, None): Reference(_DUMMIES, 1.006824, 6),
    ("dummies", 1_024, 10_000, None): Reference(_DUMMIES, 5.36736, 27),
    ("dummies", 1_024, 100_000, None): Reference(_DUMMIES, 1.436736, 13),
}
_TINY = (Counting("dummies", 16, 200, 2), Counting("signed_count", 2, 300, 1))
_QUICK = (
    Counting("cancelling", 16, 2_000, 4),
    Counting("cancelling", 1_024, 10_000, 1, s=0.4),
    Counting("dummies", 16, 2_000, 4),
    Counting("dummies", 1_024, 10_000, 1),
)
_FULL = (
    # with s = .45 a device would send more messages than a report may have
    Counting("cancelling", 1_024, 10_000, 4, s=0.4),
    Counting("cancelling", 1_024, 100_000, 4),
    Counting("cancelling", 1_024, 100_000, 1, honest_ppm=900_000),
    Counting("dummies", 1_024, 10_000, 2),
    Counting("dummies", 1_024, 100_000, 2),
    Counting("dummies", 16, 10_000, 80),
    Counting("signed_count", 2, 1_000, 400),
    Counting("cancelling", 16, 100_000, 8),
    Counting("dummies", 16, 100_000, 8),
    Counting("cancelling", 16, 10_000, 200),
)


@dataclass(frozen=True, slots=True)
class _Row:
    counting: Counting
    mechanism: Noisy
    spread: Spread
    upper: float
    lower: float
    opened: int

    @property
    def what(self) -> str:
        one = self.counting
        s = "" if one.s is None else f", s = {one.s:g}"
        honest = "" if one.honest_ppm == PPM else f", honest {one.honest_ppm / PPM:g}"
        return f"{one.name}{s}, {one.cells:,} cells, {one.devices:,} devices{honest}"

    @property
    def reference(self) -> Reference | None:
        one = self.counting
        if one.honest_ppm != PPM:
            return None
        return _REFERENCES.get((one.name, one.cells, one.devices, one.s))

    def figures(self) -> list[Figure]:
        judged = self.spread.uncertain <= _ENOUGH
        off = abs(self.spread.ratio - 1.0)
        return [
            Figure(f"{self.what}: s.d.", (self.spread.ratio,)),
            Figure("  apart from 1", (off,), goal=Goal(at_most=_WITHIN) if judged else None),
            Figure("  epsilon_upper / target", (self.upper,), goal=Goal(at_most=1.0)),
            Figure(
                "  epsilon_lower / upper",
                (self.lower / self.upper,),
                goal=Goal(at_least=1 - _OF_REFERENCE),
            ),
            *self._beside_reference(),
        ]

    def _beside_reference(self) -> list[Figure]:
        found, law = self.reference, self.mechanism.noise
        if found is None:
            return []
        noise = float(law.floods if law.signed else law.dummies) / found.noise
        mean = float(law.bare.mean_messages) / found.mean  # which hides no numbers of messages
        goal = Goal(at_most=_OF_REFERENCE)
        return [
            Figure("  noise of a cell / reference, apart from 1", (abs(noise - 1.0),), goal=goal),
            Figure(
                "  mean messages, no empty ones / reference, apart from 1",
                (abs(mean - 1.0),),
                goal=goal,
            ),
        ]

    def note(self) -> str:
        one, spread, law = self.counting, self.spread, self.mechanism.noise
        sent = self.opened / one.devices / one.windows
        found = self.reference
        beside = "" if found is None else f" (reference {found.mean:.4g} and {found.slots})"
        return (
            f"{self.what}: s.d. {spread.measured:.4f} released, {spread.expected:.4f} accounted, "
            f"ratio {spread.ratio:.3f} +- {spread.ratio * spread.uncertain:.3f} of "
            f"{spread.count:,} errors in {one.windows} windows; epsilon {self.lower:.5f} to "
            f"{self.upper:.7f}; {self.opened:,} rows opened, {sent:.4f} a device, law "
            f"{float(law.mean_messages):.4f} on average and {law.slots} slots{beside}"
        )


def run(bench: Bench) -> Outcome:
    """Windows for 3,200 errors of cancelling noise, and 1,280 of dummies, where that many devices
    can be had.
    """
    rows = list[_Row]()
    for number, one in enumerate(bench.pick(_TINY, _QUICK, _FULL)):
        row = _measured(bench.folder / f"near-central-{number}", one, bench.cores)
        print(
            f"near_central: {row.note()}", flush=True
        )  # all of them take the better part of an hour
        rows.append(row)
    return Outcome(
        tuple(figure for row in rows for figure in row.figures()),
        (
            *(row.note() for row in rows),
            "the noise is split over floor(honest_fraction x min_batch) devices, and all of them "
            "answer; devices are honest, all of them, where nothing else is said",
        ),
    )


def _measured(folder: Path, counting: Counting, cores: int) -> _Row:
    folder.mkdir(parents=True)
    site = prepare(folder)
    asked = ask(site, counting)
    windows = asyncio.run(released(site, asked, processes=cores))
    return _Row(
        counting,
        asked.mechanism,
        spread_of(counting, asked.mechanism, windows),
        *_certified(windows),
        sum(one.rows for one in windows),
    )


def _certified(windows: Sequence[Window]) -> tuple[float, float]:
    """(upper, lower) of all releases. Raises RuntimeError if they differ."""
    found = {
        (one.release["privacy"]["epsilon_upper"], one.release["privacy"]["epsilon_lower"])
        for one in windows
    }
    if len(found) != 1:
        raise RuntimeError(f"releases of one law say different things: {sorted(found)}")
    return found.pop()

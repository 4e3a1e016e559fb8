"""Simulated batches in pieces that any process can do, in any order: a stretch is some devices of a
batch, or several small batches, and comes to one tally for each batch. Tallies add.

Devices are drawn in blocks. A block draws from an entropy of its own, so a seeded simulation comes
to the same figures wherever its stretches are done.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from shoal.analyzer.planner.simulation.crowd import Crowd
from shoal.arrays import np
from shoal.entropy import Entropy, part_of
from shoal.mechanisms import Mechanism, Tally
from shoal.mechanisms.several.protocol import Bundles, Several

_BLOCK_BYTES = 1 << 24  # of reports at a time
_MOST_BLOCK = 1 << 18  # devices at a time
MOST_BLOCKS = 16  # of a stretch: seconds at most, for common mechanisms
# Reports times cells of a stretch: seconds too, where each report is held against each cell.
_MOST_WORK = 1 << 33
MOST_CELLS = 1 << 17  # of all tallies of a stretch of several batches: 1 MiB
_LEAST = 256  # stretches of a simulation, if there are blocks for so many: for all workers


@dataclass(frozen=True, slots=True)
class Stretch:
    """``devices`` of each batch of ``runs``: all of them, or a part of one batch. They begin where
    a block does.
    """

    runs: range
    devices: range

    @property
    def size(self) -> int:
        """Reports to make."""
        return len(self.runs) * len(self.devices)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What is simulated. ``entropy``: the system's, or a seeded one, of which each block has a part
    of its own.
    """

    mechanism: Mechanism | Several
    crowd: Crowd
    entropy: Entropy


Done = tuple[Stretch, list[Tally]]


class Engine(Protocol):
    """Where stretches are done."""

    def tallies(self, work: Rehearsal, stretches: Iterable[Stretch]) -> Generator[Done]:
        """Each stretch with ``tallies_of`` it, in any order. Whoever takes them closes it."""
        ...


class InProcess:
    """One after the other, here."""

    def tallies(self, work: Rehearsal, stretches: Iterable[Stretch]) -> Generator[Done]:
        """See ``Engine.tallies``."""
        for stretch in stretches:
            yield stretch, tallies_of(work, stretch)


def block_of(mechanism: Mechanism | Several) -> int:
    """Devices of a block: what their reports take in memory is bounded, and the time for them."""
    by_bytes = _BLOCK_BYTES // (mechanism.messages * mechanism.report_size)
    return max(1, min(_MOST_BLOCK, by_bytes, _MOST_WORK // cells_of(mechanism)))


def most_of(mechanism: Mechanism | Several) -> int:
    """Reports of a stretch, at most: whole blocks."""
    block = block_of(mechanism)
    return block * max(1, min(MOST_BLOCKS, _MOST_WORK // (block * cells_of(mechanism))))


def cells_of(mechanism: Mechanism | Several) -> int:
    """Of its tallies."""
    return mechanism.tally(np.zeros((0, mechanism.report_size), dtype=np.uint8)).counts.size


def stretches_of(mechanism: Mechanism | Several, n: int, runs: int) -> Iterator[Stretch]:
    """Every device of every batch once."""
    block = block_of(mechanism)
    wanted = max(1, n * runs // _LEAST)
    if n > block:
        step = block * max(1, min(most_of(mechanism) // block, wanted // block))
        for run in range(runs):
            for start in range(0, n, step):
                yield Stretch(range(run, run + 1), range(start, min(n, start + step)))
        return
    most = min(most_of(mechanism) // n, MOST_CELLS // cells_of(mechanism))
    step = max(1, min(most, wanted // n))
    for run in range(0, runs, step):
        yield Stretch(range(run, min(runs, run + step)), range(n))


def tallies_of(work: Rehearsal, stretch: Stretch) -> list[Tally]:
    """One per batch of the stretch: the production randomizer and tally."""
    return [_tally(work, run, stretch.devices) for run in stretch.runs]


def _tally(work: Rehearsal, run: int, devices: range) -> Tally:
    mechanism, block = work.mechanism, block_of(work.mechanism)
    total: Tally | None = None
    for start in range(devices.start, devices.stop, block):
        among = range(start, min(devices.stop, start + block))
        entropy = part_of(work.entropy, f"batch {run} device {start}")
        drawn = mechanism.randomize(work.crowd.cells(among, entropy), entropy)
        reports = drawn.rows if isinstance(drawn, Bundles) else drawn
        part = mechanism.tally(np.ascontiguousarray(reports.reshape(-1, mechanism.report_size)))
        total = part if total is None else total + part
    if total is None:
        raise ValueError("a stretch has at least one device")
    return total

"""Simulated batches in pieces: every device once, the same figures wherever the pieces are done."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pytest

from shoal.analyzer.planner import (
    Frequencies,
    Mean,
    Quantiles,
    Question,
    Simulation,
    simulate,
)
from shoal.analyzer.planner.question import Shape
from shoal.analyzer.planner.simulation import stretches
from shoal.analyzer.planner.simulation.crowd import ByCounts, Crowd, Shaped
from shoal.analyzer.planner.simulation.processes import Processes
from shoal.analyzer.planner.simulation.simulate import HERE
from shoal.analyzer.planner.simulation.stretches import (
    MOST_CELLS,
    Done,
    Engine,
    Rehearsal,
    Stretch,
    block_of,
    cells_of,
    stretches_of,
    tallies_of,
)
from shoal.domain import Domain, Numeric, YesNo
from shoal.entropy import SYSTEM, Entropy, SeededEntropy, part_of
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Mechanism, create, design
from tests.cases import for_each
from tests.unit.analyzer.planner.questions import cells

ONE = YesNo()
MANY = Numeric(0.0, 8.0, 5)


def made(name: str, domain: Domain, epsilon0: float = 2.0) -> Mechanism:
    return create(design(name, domain, epsilon0), domain)


class Backwards:
    """The last stretch first."""

    def tallies(self, work: Rehearsal, stretches: Iterable[Stretch]) -> Generator[Done]:
        for stretch in reversed(list(stretches)):
            yield stretch, tallies_of(work, stretch)


def test_a_stretch_takes_seconds_also_where_each_report_meets_each_cell() -> None:
    """A worker does one after the other, and may have a batch to open. Planted: the bytes of
    reports alone looked at -> 32 times the work, fails.
    """
    mechanism = made("local_hash", cells(65_536))
    for stretch in stretches_of(mechanism, 50_000_000, 3):
        assert stretch.size * cells_of(mechanism) <= 1 << 33


@for_each(
    "n, runs",
    [(1, 2), (500, 2), (500, 1_000), (10_000, 33), (262_144, 3), (262_145, 2), (100_000_000, 2)],
)
def test_every_device_of_every_batch_is_simulated_once(n: int, runs: int) -> None:
    """And blocks lie the same however stretches do. Planted: a last stretch that is cut off, steps
    that are no whole blocks -> each fails.
    """
    for mechanism in (made("binary_rr", ONE), made("unary", cells(900))):
        block, done = block_of(mechanism), dict.fromkeys(range(runs), 0)
        for stretch in stretches_of(mechanism, n, runs):
            assert stretch.devices.start % block == 0
            assert len(stretch.runs) == 1 or stretch.devices == range(n)
            assert len(stretch.runs) * cells_of(mechanism) <= MOST_CELLS
            assert stretch.size <= stretches.most_of(mechanism) <= stretches.MOST_BLOCKS * block
            for run in stretch.runs:
                assert stretch.devices.start == done[run]
                done[run] = stretch.devices.stop
        assert done == dict.fromkeys(range(runs), n)


@for_each("among", [range(7), range(3, 7), range(0, 1), range(4, 5), range(6, 7)])
def test_some_devices_are_those_of_all(among: range) -> None:
    """Planted: a block that begins at its first cell's first device -> fails."""
    counts = np.array([2, 0, 3, 1, 1])
    everybody = np.repeat(np.arange(5), counts)
    assert (
        ByCounts(counts).cells(among, SYSTEM).tolist()
        == everybody[among.start : among.stop].tolist()
    )
    spread = Shaped(7, Shape.UNIFORM, (0, 7))  # a bin for each
    assert spread.cells(among, SYSTEM).tolist() == list(among)


def test_a_fleet_takes_no_memory_before_it_is_asked_for() -> None:
    """The last devices lie a little below the last level, and are rounded down in 1.3 % of all
    draws: the seed is fixed. Planted: all cells made at once -> 8 GB, which is not there.
    """
    fleet = ByCounts(np.array([300_000_000, 700_000_000]))
    assert fleet.cells(range(299_999_998, 300_000_002), SYSTEM).tolist() == [0, 0, 1, 1]
    shaped = Shaped(fleet.n, Shape.SKEWED, (5, 0))
    seeded = SeededEntropy("a large fleet")
    assert shaped.cells(range(fleet.n - 3, fleet.n), seeded).tolist() == [4, 4, 4]


ASKED: list[tuple[Question, Mechanism, Domain]] = [
    (Frequencies(ONE), made("binary_rr", ONE), ONE),
    (Mean(0.0, 8.0), made("kmean", MANY), MANY),
    (Quantiles(0.0, 8.0), made("kmean", MANY), MANY),
]


@for_each("question, mechanism, domain", ASKED)
def test_figures_are_the_same_wherever_stretches_are_done(
    question: Question,
    mechanism: Mechanism,
    domain: Domain,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: one entropy for all blocks, drawn from as they come; squares in the order in which
    batches end -> each fails.
    """

    def figures(engine: Engine) -> Simulation:
        seeded = SeededEntropy("anywhere")
        return simulate(question, mechanism, domain, 950, 20, entropy=seeded, engine=engine)

    monkeypatch.setattr(stretches, "_MOST_BLOCK", 100)
    expected = figures(HERE)
    monkeypatch.setattr(stretches, "_LEAST", 3)
    assert figures(HERE) == expected
    assert figures(Backwards()) == expected


def test_blocks_are_drawn_independently(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of 400 batches in ten blocks each is that of 400 whole ones: within 10 % of the
    prediction (a chi-squared variable of 400 degrees: 5e-3 at a seed that is free; it is fixed).
    Each block is a stretch. Planted: the same draws in every block -> more than twice as large;
    a batch estimated from its last stretch -> each fails.
    """
    mechanism = made("krr", cells(4))
    monkeypatch.setattr(stretches, "_LEAST", 1 << 30)
    found = []
    for block in (1 << 18, 50):
        monkeypatch.setattr(stretches, "_MOST_BLOCK", block)
        found.append(
            simulate(
                Frequencies(cells(4)), mechanism, cells(4), 500, 400, entropy=SeededEntropy("apart")
            )
        )
    for each in found:
        assert abs(each.observed / each.predicted - 1.0) < 0.1
    assert found[0].observed != found[1].observed


def test_every_processor_comes_to_the_same() -> None:
    """In processes of their own, spawned. Planted: a process that forgets the seed -> fails."""

    def figures(engine: Engine) -> Simulation:
        told: list[int] = []
        result = simulate(
            Frequencies(ONE),
            made("binary_rr", ONE),
            ONE,
            600_000,
            3,
            entropy=SeededEntropy(3),
            tell=told.append,
            engine=engine,
        )
        assert sum(told) == 3 * 600_000
        return result

    assert figures(Processes(2, ready=True)) == figures(Processes(1)) == figures(HERE)


@dataclass(frozen=True)
class Deadly:
    """Devices whose process dies."""

    n: int

    def cells(self, among: range, entropy: Entropy) -> np.ndarray:
        os._exit(len(among) % 2 + 1 + (entropy is None))


def test_a_process_that_dies_is_told_of() -> None:
    """Planted: the pool's own error let through -> fails."""
    crowd: Crowd = Deadly(1_000)
    work = Rehearsal(made("binary_rr", ONE), crowd, SYSTEM)
    with pytest.raises(ShoalError) as caught:
        list(Processes(1, ready=True)._spread(work, stretches_of(work.mechanism, 1_000, 2)))
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "--processes" in str(caught.value)


def test_whoever_stops_leaves_no_process() -> None:
    """As Ctrl-C does. Planted: a pool that is left open -> its processes are there, fails."""
    work = Rehearsal(made("binary_rr", ONE), ByCounts(np.array([10**9, 0])), SYSTEM)
    engine, others = Processes(2, ready=True), _children()  # those of other tests may go on
    with closing(engine.tallies(work, stretches_of(work.mechanism, 10**9, 2))) as answers:
        assert len(list(islice(answers, 2))) == 2
        mine = _children() - others
        assert len(mine) >= 2
    assert not mine & _children()


def _children() -> set[int]:
    """Spawned processes of this one, but for multiprocessing's tracker."""
    found = set()
    for entry in os.scandir("/proc"):
        try:
            with open(f"/proc/{entry.name}/stat", encoding="ascii", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{entry.name}/cmdline", "rb") as file:
                line = file.read()
        except (OSError, ValueError):
            continue
        if parent == os.getpid() and b"spawn_main" in line:
            found.add(int(entry.name))
    return found


def test_parts_of_a_seed_are_others_and_the_systems_is_itself() -> None:
    """Planted: a part that goes on where the whole is -> the order counts, fails."""
    seeded = SeededEntropy(1)
    first = part_of(seeded, "a").bytes(16)
    seeded.bytes(16)
    assert part_of(seeded, "a").bytes(16) == first
    assert len({first, part_of(seeded, "b").bytes(16), SeededEntropy(1).bytes(16)}) == 3
    assert SeededEntropy.keyed(SeededEntropy(1).key).bytes(8) == SeededEntropy(1).bytes(8)
    assert part_of(SYSTEM, "a") is SYSTEM

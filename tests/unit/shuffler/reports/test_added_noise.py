"""Batches to which the shuffler adds noise, under a clock that a test moves: once, mixed, and never
counted as reports.

What devices sealed are random bytes here, which do not open; noise does, with the analyzer's key.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shoal import failpoints
from shoal.cli.services.noise import DrawnNoise
from shoal.codec import Manifest, decode_manifest
from shoal.crypto.envelope import NONCE_SIZE, open_report, report_info
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.joined import rows_of
from shoal.task import MechanismSpec, Task
from tests.sizes import size
from tests.unit.shuffler.reports.test_lifecycle import DEADLINE, POINTS, Line
from tests.worlds.services.shuffler import GRACE, LENGTH, START, Published

S = WindowState
REACH = 27
NOISE: dict[str, Any] = {
    "mechanism": MechanismSpec.of("shuffler_noise", k=2, q=2605029350, reach=REACH)
}
MOST = 2 * 2 * REACH


class Counted:
    """The production's source, and how often it was asked."""

    def __init__(self) -> None:
        self.drawn: list[list[bytes]] = []
        self._source = DrawnNoise(SeededEntropy("added noise"))

    def check(self, task: Task) -> None:
        self._source.check(task)

    def draw(self, task: Task) -> Sequence[bytes]:
        self.drawn.append(list(self._source.draw(task)))
        return self.drawn[-1]


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    one = Line(tmp_path)
    one.noise = Counted()
    yield one
    failpoints.arm("")
    await one.stop()


def drawn(line: Line) -> list[list[bytes]]:
    assert isinstance(line.noise, Counted)
    return line.noise.drawn


def manifest(line: Line, published: Published) -> Manifest:
    record = line.record(published)
    assert record is not None
    return decode_manifest(record.manifest)


def opened(line: Line, published: Published, window: int = 0) -> list[bytes | None]:
    """The delivered rows in order: what was noise, and None for what a device sent."""
    key = published.analyzer_keys[window]
    info = report_info(published.task_id, window, key.config.key_id)
    rows = line.sink.batches[WindowId(published.task_id, window)]
    found = list[bytes | None]()
    for row in rows_of(rows, len(published.sealed())):
        try:
            found.append(open_report(key, info, row))
        except ShoalError:
            found.append(None)
    return found


async def test_noise_is_in_the_batch_and_no_report(line: Line) -> None:
    """Rows are the devices' and what was drawn, each under a nonce of its own; the manifest counts
    devices. Planted: noise counted as reports -> fails; one nonce for all -> fails; sealed for the
    other window's key -> nothing opens, fails.
    """
    published = line.world.publish(**NOISE)
    line.start()
    await line.submit(published, 5)
    line.answers.append(False)
    await line.tick(DEADLINE, times=1)
    said = manifest(line, published)
    (noise,) = drawn(line)
    assert (said.reports, said.rows, said.damaged) == (5, 5 + len(noise), 0)
    await line.tick(times=3)
    assert line.state(published) is S.SHREDDED
    rows = opened(line, published)
    plain = [row for row in rows if row is not None]
    assert rows.count(None) == 5
    assert Counter(row[NONCE_SIZE:] for row in plain) == Counter(noise)
    assert len({row[:NONCE_SIZE] for row in plain}) == len(noise)
    record = line.record(published)
    assert record is not None
    assert (record.outcome, record.reports) == (S.ACKNOWLEDGED, 5)


async def test_each_window_has_noise_of_its_own(line: Line) -> None:
    """Planted: noise kept for the task -> fails."""
    published = line.world.publish(**NOISE)
    line.start()
    await line.submit(published, 3, window=0)
    await line.submit(published, 3, window=1)
    await line.tick(DEADLINE + LENGTH, times=4)
    assert [opened(line, published, window).count(None) for window in (0, 1)] == [3, 3]
    assert len(drawn(line)) == 2
    assert Counter(drawn(line)[0]) != Counter(drawn(line)[1])


async def test_noise_makes_no_batch_large_enough(line: Line) -> None:
    """Two devices, some 56 rows, and min_batch is 3. Planted: the decision made by rows, or noise
    drawn into the inbox before it -> SEALED, fails.
    """
    published = line.world.publish(**NOISE)
    line.start()
    await line.submit(published, 2)
    await line.tick(DEADLINE, times=2)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome, record.reports) == (S.SHREDDED, S.WITHHELD, 2)
    assert not line.sink.batches


async def test_a_window_without_a_report_has_no_noise(line: Line) -> None:
    published = line.world.publish(count=1, **NOISE)
    line.start()
    await line.tick(DEADLINE, times=2)
    assert line.state(published) is S.SHREDDED
    assert drawn(line) == []


async def test_a_shuffler_without_a_source_refuses_the_task(line: Line) -> None:
    """In a line, at the start, and serves the others; and so it does integers that do not fit.
    Planted: refused when the window is sealed -> reports are taken, fails.
    """
    wrong: dict[str, Any] = {
        "mechanism": MechanismSpec.of("shuffler_noise", k=4, q=1 << 31, reach=5)
    }
    first, second = line.world.publish(name="noisy", **NOISE), line.world.publish(name="plain")
    bad = line.world.publish(name="wrong", **wrong)
    line.noise = None
    line.start()
    assert line.book.served.keys() == {second.task_id}
    told = [condition.message for condition in line.book.conditions()]
    assert len(told) == 2
    assert all("has no source of noise" in text for text in told)
    await line.stop()
    line.noise = Counted()
    line.start()
    assert line.book.served.keys() == {first.task_id, second.task_id}
    (text,) = [condition.message for condition in line.book.conditions()]
    assert '"k" is 4, but the domain has 2 cells' in text
    assert bad.task_id not in line.book.served


async def test_a_source_that_draws_too_much_seals_nothing(line: Line) -> None:
    """Nor one that draws messages of another length: the window waits. Planted: unchecked -> a
    manifest that the analyzer refuses for ever, fails.
    """

    class Wrong(Counted):
        def draw(self, task: Task) -> Sequence[bytes]:
            return [b"\0"] * (MOST + 1) if not self.drawn else super().draw(task)

    line.noise = Wrong()
    published = line.world.publish(**NOISE)
    line.start()
    await line.submit(published, 3)
    await line.tick(DEADLINE, times=2)
    assert line.state(published) is S.CLOSING
    assert [kind for kind, _ in line.lifecycle.trouble().values()] == [Kind.INTERNAL]


async def test_noise_is_there_exactly_once_whatever_fails(tmp_path: Path) -> None:
    """At every durable step between closing and the end, and around the draw, the disk fails once
    and the shuffler starts again; then the batch has noise of one draw. (Kills of processes:
    tests/faults/test_shuffler_failpoints.py.)

    Planted: noise appended to the inbox -> twice the noise, fails at seal.write; a batch that is
    taken as it is after a restart, with what was drawn before and its rows as reports -> fails.
    """
    for number, point in enumerate(("noise.draw", "noise.drawn", *POINTS)):
        line = Line(tmp_path / str(number))
        line.noise = Counted()
        published = line.world.publish(count=1, **NOISE)
        line.start()
        await line.submit(published, 4)
        failpoints.arm(f"{point}=eio@1")
        await line.tick(DEADLINE, times=2)
        failpoints.arm("")
        await line.stop()
        batches = dict(line.sink.batches)
        line.start()
        await line.tick(DEADLINE + 3_600, times=4)
        assert line.state(published) is S.SHREDDED, point
        line.sink.batches.update(batches)
        rows = opened(line, published)
        assert rows.count(None) == 4, point
        told = Counter(row[NONCE_SIZE:] for row in rows if row is not None)
        assert told in [Counter(one) for one in drawn(line)], point
        record = line.record(published)
        assert record is not None
        assert record.reports == 4, point
        await line.stop()


async def test_what_finds_no_room_is_tried_again_with_the_same_noise(line: Line) -> None:
    """The disk is full for three attempts. Planted: drawn anew at each attempt -> whether it fits
    chooses the noise: four draws, fails.
    """
    published = line.world.publish(count=1, **NOISE)
    line.start()
    await line.submit(published, 3)
    failpoints.arm("seal.write=enospc@1,seal.flush=enospc@1,seal.rename=enospc@1")
    for attempt in range(5):
        await line.tick(DEADLINE + 900 * attempt, times=2)
    assert line.state(published) is S.SHREDDED
    (noise,) = drawn(line)
    told = Counter(row[NONCE_SIZE:] for row in opened(line, published) if row is not None)
    assert told == Counter(noise)
    assert not line.lifecycle._noise._drawn


async def test_a_batch_whose_state_is_lost_counts_no_noise(line: Line) -> None:
    """state.db forgot the window and its inbox is gone: of the rows as many may be noise as the
    task says, so too few reports are sure, and the batch is withheld. Planted: all rows are reports
    -> a batch of noise alone would be delivered, fails.
    """
    published = line.world.publish(**NOISE)
    line.start()
    await line.submit(published, 5)
    line.answers += [False] * 4
    await line.tick(DEADLINE, times=2)
    assert line.state(published) is S.DELIVERING
    await line.stop()
    for path in line.world.data_dir.glob("state.db*"):
        path.unlink()
    line.start()
    await line.tick(DEADLINE + 60, times=3)
    record = line.record(published)
    assert record is not None
    assert (record.outcome, record.reports) == (S.WITHHELD, 0)


async def test_nobody_finds_the_noise_in_the_order_of_delivery(line: Line) -> None:
    """The places of noise among all rows, over some batches: their mean, and how often a row of
    noise follows another, are those of a uniform order. A false alarm in 1e-5 of runs: keys are of
    the window's own secret. Planted: noise written behind the sorted reports -> fails; keys of
    noise under another secret are uniform too, and no defect.
    """
    batches, devices = size(6, 40), 60
    published = line.world.publish(count=batches, min_batch=10, **NOISE)
    line.start()
    for window in range(batches):
        await line.submit(published, devices, window=window)
    last = START + batches * LENGTH + GRACE
    await line.tick(last, times=4)
    ranks, spread, follows, wanted, varies = 0.0, 0.0, 0.0, 0.0, 0.0
    for window in range(batches):
        rows = [row is not None for row in opened(line, published, window)]
        total, noise = len(rows), sum(rows)
        ranks += sum(place for place, is_noise in enumerate(rows) if is_noise)
        ranks -= noise * (total - 1) / 2
        spread += noise * devices * (total + 1) / 12
        runs = 1 + sum(a != b for a, b in pairwise(rows))
        follows += runs
        mean = 1 + 2 * noise * devices / total
        wanted += mean
        varies += (mean - 1) * (mean - 2) / (total - 1)
    assert abs(ranks) < 4.5 * math.sqrt(spread)
    assert abs(follows - wanted) < 4.5 * math.sqrt(varies)


def test_a_window_has_room_for_its_noise() -> None:
    """Planted: rows of noise forgotten -> a full batch would not fit, fails."""
    assert Capacity(1, 0, 1_000).reports == 1_000
    assert Capacity(1, 0, 1_000, added=162).reports == 838
    assert Capacity(1, 900, 1_000, added=162).reports == 838
    assert Capacity(1, 500, 1_000, added=162).reports == 500

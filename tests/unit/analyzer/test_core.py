"""The rules of a batch: every field of a manifest, every way in which a chunk may be wrong, both
ends of every threshold.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from shoal.analyzer import core
from shoal.analyzer.core import Batch, BatchState, check_chunk, check_manifest, check_same, withheld
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, TaskId
from shoal.limits import LIMITS
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.worlds.services.analyzer import LENGTH, START, World, make_world

WORLD = make_world(min_batch=20)
ROWS = [bytes(WORLD.row_size())] * 20


def refusal(error: pytest.ExceptionInfo[ShoalError]) -> Kind:
    assert "\n" not in str(error.value)
    return error.value.kind


def test_a_manifest_that_fits_is_taken() -> None:
    check_manifest(WORLD.batch(ROWS).manifest, WORLD.served, WORLD.after)


@for_each(
    "field, value, kind",
    [
        ("task_id", TaskId(bytes(32)), Kind.MISMATCH),
        ("window", 2, Kind.MISMATCH),
        ("rows", 19, Kind.TOO_FEW),
        ("row_size", WORLD.row_size() + 1, Kind.MISMATCH),
        ("row_size", WORLD.row_size() - 1, Kind.MISMATCH),
        ("analyzer_key_id", KeyId(bytes(8)), Kind.MISMATCH),
        ("analyzer_key_id", WORLD.keys[1].config.key_id, Kind.MISMATCH),
        ("hop_key_id", KeyId(bytes(8)), Kind.MISMATCH),
        ("schedule_hash", Digest(bytes(32)), Kind.MISMATCH),
    ],
)
def test_every_field_of_a_manifest_is_compared(field: str, value: Any, kind: Kind) -> None:
    """Planted: any one comparison left out of check_manifest -> the case of its field fails."""
    manifest = replace(WORLD.batch(ROWS).manifest, **{field: value})
    with pytest.raises(ShoalError) as error:
        check_manifest(manifest, WORLD.served, WORLD.after)
    assert refusal(error) is kind


NOISY = World(
    replace(WORLD.task, mechanism=MechanismSpec.of("shuffler_noise", k=2, q=1 << 31, reach=3))
)


@for_each(
    "rows, reports, words",
    [
        (32, 20, None),
        (20, 20, None),  # it may be that no cell has any
        (32, 0, "counted apart from rows"),
        (33, 20, "adds 12 messages at most"),
        (31, 19, "fewer than min_batch"),
    ],
)
def test_noise_of_the_shuffler_is_counted_apart(rows: int, reports: int, words: str | None) -> None:
    """A program that knows nothing of such tasks adds no noise and counts no reports: its batch is
    refused, not released. Planted: reports asked for by the number of messages alone -> the first
    is refused, and exact counts would be released, fails.
    """
    manifest = NOISY.batch([bytes(NOISY.row_size())] * rows, reports=reports).manifest
    if words is None:
        check_manifest(manifest, NOISY.served, NOISY.after)
        return
    with pytest.raises(ShoalError, match=words):
        check_manifest(manifest, NOISY.served, NOISY.after)


@for_each(
    "max_batch, rows, now, taken",
    [
        (0, 20, START + LENGTH - 60, True),  # over, by a clock that may be off by skew_s = 60
        (0, 20, START + LENGTH - 61, False),
        (0, 5_000, START, False),  # no max_batch: however many rows
        (30, 30, START, True),  # full: any time in the window
        (30, 30, START - 61, False),
        (30, 29, START + LENGTH - 61, False),  # not full, so it waits for the end
        (30, 29, START + LENGTH - 60, True),
    ],
)
def test_a_batch_comes_after_its_window_or_full(
    max_batch: int, rows: int, now: float, taken: bool
) -> None:
    """Planted: the comparison with max_batch left out -> a single report's arrival would set the
    time of a release, and this fails.
    """
    world = make_world(min_batch=20, max_batch=max_batch)
    manifest = world.batch([bytes(world.row_size())] * rows).manifest
    if taken:
        check_manifest(manifest, world.served, now)
    else:
        with pytest.raises(ShoalError) as error:
            check_manifest(manifest, world.served, now)
        assert refusal(error) is Kind.TOO_EARLY


@pytest.mark.parametrize(("now", "over"), [(-1.0, False), (0.0, True), (1.0, True)])
def test_retention_ends_at_a_time(now: float, over: bool) -> None:
    for window in range(2):
        assert core.retention_over(WORLD.task, window, WORLD.expiry(window) + now) is over
    if over:
        with pytest.raises(ShoalError) as error:
            core.check_retention(WORLD.task, 0, WORLD.expiry(0) + now)
        assert refusal(error) is Kind.WINDOW_CLOSED
    else:
        core.check_retention(WORLD.task, 0, WORLD.expiry(0) + now)


def test_one_window_has_one_batch() -> None:
    batch = WORLD.batch(ROWS)
    known = Batch(batch.manifest, batch.manifest_hash, BatchState.DONE)
    check_same(None, batch.manifest_hash)
    check_same(known, batch.manifest_hash)
    with pytest.raises(ShoalError) as error:
        check_same(known, Digest(bytes(32)))
    assert refusal(error) is Kind.CONFLICT


@for_each(
    "received, first, size, kind",
    [
        (0, 0, 0, Kind.INVALID),  # nothing
        (0, 0, 81, Kind.INVALID),  # no whole rows
        (0, 1, 80, Kind.INVALID),  # a gap
        (5, 4, 80, Kind.INVALID),  # an overlap
        (0, 0, 21 * 80, Kind.INVALID),  # beyond the end
        (20, 20, 80, Kind.INVALID),  # beyond the end of a complete batch
        (0, 0, LIMITS.chunk_bytes + 1, Kind.OVERSIZE),
    ],
)
def test_chunks_that_do_not_fit_are_refused(
    received: int, first: int, size: int, kind: Kind
) -> None:
    manifest = replace(WORLD.batch(ROWS).manifest, row_size=80, rows=20)
    with pytest.raises(ShoalError) as error:
        check_chunk(manifest, received, first, size)
    assert refusal(error) is kind


def test_chunks_that_fit_are_counted_in_rows() -> None:
    manifest = replace(WORLD.batch(ROWS).manifest, row_size=80, rows=20)
    assert check_chunk(manifest, 0, 0, 80) == 1
    assert check_chunk(manifest, 5, 5, 15 * 80) == 15


@for_each(
    "n, epsilon, reason",
    [
        (19, 0.5, core.WITHHELD_TOO_FEW),
        (20, 0.5, None),
        (21, 0.5, None),
        (20, math.nextafter(0.5, 1), core.WITHHELD_EPSILON),
        (20, math.nan, core.WITHHELD_EPSILON),
        (0, 0.5, core.WITHHELD_TOO_FEW),
    ],
)
def test_what_is_withheld(n: int, epsilon: float, reason: str | None) -> None:
    """Planted: ``n <= min_batch`` or ``epsilon < target`` -> a boundary case fails."""
    assert withheld(n, 20, epsilon, 0.5) == reason

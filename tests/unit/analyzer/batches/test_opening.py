"""Opening a batch in worker processes: every row judged, every nonce once, the same tally as
counting by hand.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shoal.analyzer.batches import opening
from shoal.analyzer.batches.chunk_source import FileSource
from shoal.analyzer.batches.executor import ProcessExecutor
from shoal.analyzer.batches.key_delivery import InMemoryDelivery
from shoal.analyzer.batches.opening import Opened, open_batch
from shoal.analyzer.batches.row_opening import RowContext
from shoal.analyzer.core import DUPLICATE, INVALID_VALUE, UNOPENABLE, WRONG_LENGTH
from shoal.crypto.envelope import report_info, seal_report
from shoal.crypto.hpke import HpkePrivateKey, generate, seal
from shoal.crypto.suites import SuiteId
from shoal.domain import Categories, Numeric, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.services.workers import WorkerPool
from tests.cases import for_each
from tests.flipped import last_bit_flipped
from tests.sizes import size
from tests.worlds.services.analyzer import World, make_world
from tests.worlds.services.analyzer_service import shared_pool

WORLD = make_world()


def context_of(world: World, window: int = 0) -> RowContext:
    key_id = world.keys[window].config.key_id
    return RowContext.of(world.task, world.task_id, window, key_id, world.row_size())


async def opened(
    folder: Path,
    rows: list[bytes],
    world: World = WORLD,
    window: int = 0,
    pool: WorkerPool | None = None,
) -> Opened:
    path = folder / "batch.rows"
    path.write_bytes(b"".join(rows))
    return await open_file(path, context_of(world, window), world.keys[window], pool)


async def open_file(
    path: Path, context: RowContext, key: HpkePrivateKey, pool: WorkerPool | None = None
) -> Opened:
    executor = ProcessExecutor(pool or shared_pool())
    with FileSource(path, context.row_size) as source:
        return await open_batch(source, context, key, executor, InMemoryDelivery())


@pytest.fixture(params=[LIMITS.repeat_rows, 16], ids=["memory", "disk"])
def small_chunks(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Chunks of 8 rows, so that a few hundred rows go through everything that millions do; repeats
    found in memory, and over parts on disk.
    """
    changed = replace(LIMITS, open_chunk_rows=8, repeat_rows=request.param)
    monkeypatch.setattr(opening, "LIMITS", changed)


@for_each("suite", [1, 2, 3])
@for_each(
    "domain, mechanism",
    [(YesNo(), "binary_rr"), (Categories(tuple("abcdef")), "krr"), (Numeric(0, 20, 21), "kmean")],
    ids=str,
)
async def test_the_tally_is_that_of_the_reports(
    tmp_path: Path, domain: object, mechanism: str, suite: int
) -> None:
    world = make_world(domain=domain, mechanism=mechanism, suite=suite)
    cells = np.arange(120, dtype=np.int64) % world.task.domain.size
    reports = world.mechanism.randomize(cells, SeededEntropy("tally"))[:, 0, :]
    result = await opened(tmp_path, [world.seal(report.tobytes()) for report in reports], world)
    assert result == Opened(world.mechanism.tally(reports), {})


def hostile_rows(world: World) -> dict[str, list[bytes]]:
    """Rows that must cost one count each, by the reason that they must be counted under; all have
    the right size.
    """
    size, key, task = world.row_size(), world.keys[0].config, world.task_id
    good, nonce = world.report(1), secrets.token_bytes(16)

    def bound(info: bytes) -> bytes:
        return seal(key, nonce + good, info)

    sealed = world.seal(good)
    return {
        UNOPENABLE: [
            bytes(size),
            b"\xff" * size,
            secrets.token_bytes(size),
            last_bit_flipped(sealed),  # tag
            bytes([sealed[0] ^ 1]) + sealed[1:],  # encapsulated key
            seal_report(key, task, 1, nonce, good),  # bound to another window
            seal_report(key, type(task)(bytes(32)), 0, nonce, good),  # another task
            bound(report_info(task, 0, world.keys[1].config.key_id)),  # another key id
            bound(b""),
            seal_report(
                generate(SuiteId.X25519_AES128).config, task, 0, nonce, good
            ),  # another key
        ],
        INVALID_VALUE: [world.seal(bytes([value])) for value in (7, 8, 255)],
    }


async def test_hostile_rows_cost_one_count_each_and_never_the_batch(tmp_path: Path) -> None:
    """Planted: an exception other than ShoalError from opening not caught, or valid() not asked ->
    this fails.
    """
    hostile = hostile_rows(WORLD)
    cells = [i % 7 for i in range(60)]
    rows = WORLD.seal_cells(cells)
    for group in hostile.values():
        for row in group:
            rows.insert(secrets.randbelow(len(rows) + 1), row)
    result = await opened(tmp_path, rows)
    assert result.rejected == {reason: len(group) for reason, group in hostile.items()}
    assert result.tally.counts.tolist() == np.bincount(cells, minlength=7).tolist()


@for_each("length", [0, 9, 16, 18, 400])
async def test_a_plaintext_of_another_length_costs_one_count(tmp_path: Path, length: int) -> None:
    """Rows of the task's size can't hold one, so these batches have rows of another size; 17 bytes
    would be right.

    Planted: the comparison with the width left out -> numpy raises or shifts every later row, and
    this fails.
    """
    context = context_of(WORLD)
    rows = [seal(WORLD.keys[0].config, bytes(length), context.info) for _ in range(3)]
    rows.append(secrets.token_bytes(len(rows[0])))
    path = tmp_path / "batch.rows"
    path.write_bytes(b"".join(rows))
    result = await open_file(path, replace(context, row_size=len(rows[0])), WORLD.keys[0])
    assert result.rejected == {WRONG_LENGTH: 3, UNOPENABLE: 1}
    assert result.tally.rows == 0


@pytest.mark.usefixtures("small_chunks")
async def test_each_nonce_counts_once_and_the_first_row_is_the_one(tmp_path: Path) -> None:
    """Planted: keep the last row of a nonce, or count all of them -> this fails."""
    nonces = [secrets.token_bytes(16) for _ in range(50)]
    plan = [
        (nonces[int(i)], int(cell))
        for i, cell in zip(np.arange(300) * 7 % 50, np.arange(300) % 7, strict=True)
    ]
    rows = [WORLD.seal(WORLD.report(cell), nonce=nonce) for nonce, cell in plan]
    first: dict[bytes, int] = {}
    for nonce, cell in plan:
        first.setdefault(nonce, cell)
    result = await opened(tmp_path, rows)
    assert result.rejected == {DUPLICATE: 250}
    assert result.tally.counts.tolist() == np.bincount(list(first.values()), minlength=7).tolist()


@pytest.mark.usefixtures("small_chunks")
async def test_equal_beginnings_of_different_nonces_all_count(tmp_path: Path) -> None:
    """The eight-byte prefix only says where to look. Planted: duplicates decided by prefix alone ->
    this fails.
    """
    start = secrets.token_bytes(8)
    rows = [WORLD.seal(WORLD.report(i % 7), nonce=start + i.to_bytes(8, "big")) for i in range(100)]
    rows.append(WORLD.seal(WORLD.report(0), nonce=start + (5).to_bytes(8, "big")))
    result = await opened(tmp_path, rows)
    assert result.rejected == {DUPLICATE: 1}
    assert result.tally.rows == 100


@pytest.mark.usefixtures("small_chunks")
async def test_a_row_that_is_rejected_does_not_use_its_nonce_up(tmp_path: Path) -> None:
    """An invalid value with somebody's nonce must not push the valid row out. Planted: every row
    that opens taken as good -> this fails.
    """
    nonces = [secrets.token_bytes(16) for _ in range(30)]
    rows = [WORLD.seal(b"\xff", nonce=nonce) for nonce in nonces] + [
        WORLD.seal(WORLD.report(3), nonce=nonce) for nonce in nonces
    ]
    result = await opened(tmp_path, rows)
    assert result.rejected == {INVALID_VALUE: 30}
    assert result.tally.counts.tolist() == [0, 0, 0, 30, 0, 0, 0]


@pytest.mark.usefixtures("small_chunks")
async def test_everything_at_once_equals_counting_by_hand(tmp_path: Path) -> None:
    """Good, hostile and repeated rows in a random order (seed from the name), against a plain loop
    with the same key.
    """
    draw = np.random.default_rng(20_190)
    pool = [secrets.token_bytes(16) for _ in range(200)]
    rows = [
        WORLD.seal(WORLD.report(int(draw.integers(0, 9))), nonce=pool[int(draw.integers(0, 200))])
        for _ in range(400)
    ]
    rows += [row for group in hostile_rows(WORLD).values() for row in group]
    rows = [rows[int(i)] for i in draw.permutation(len(rows))]
    seen: set[bytes] = set()
    counts, rejected = Counter[int](), Counter[str]()
    info = report_info(WORLD.task_id, 0, WORLD.keys[0].config.key_id)
    for row in rows:
        try:
            plaintext = WORLD.keys[0].open(row, info)
        except ShoalError:
            rejected[UNOPENABLE] += 1
            continue
        nonce, cell = plaintext[:16], plaintext[16]
        if cell >= 7:
            rejected[INVALID_VALUE] += 1
        elif nonce in seen:
            rejected[DUPLICATE] += 1
        else:
            seen.add(nonce)
            counts[cell] += 1
    result = await opened(tmp_path, rows)
    assert result.rejected == dict(rejected)
    assert result.tally.counts.tolist() == [counts[cell] for cell in range(7)]


async def test_a_batch_of_which_nothing_opens(tmp_path: Path) -> None:
    result = await opened(tmp_path, [bytes(WORLD.row_size())] * 25)
    assert result.rejected == {UNOPENABLE: 25}
    assert result.tally.rows == 0


async def test_workers_that_die_are_unavailable_and_come_back(tmp_path: Path) -> None:
    """Planted: BrokenProcessPool let through -> not a ShoalError, and this fails."""
    pool = WorkerPool(1)
    rows = WORLD.seal_cells([1] * 10)
    try:
        (pid,) = {await pool.run(os.getpid) for _ in range(3)}
        os.kill(pid, 9)
        kinds = set()
        for _ in range(20):
            try:
                result = await opened(tmp_path, rows, pool=pool)
                break
            except ShoalError as error:
                kinds.add(error.kind)
                await asyncio.sleep(0)
        assert kinds == {Kind.UNAVAILABLE}
        assert result.tally.rows == 10
    finally:
        pool.close()


@pytest.mark.usefixtures("small_chunks")
async def test_memory_does_not_hold_the_batch(tmp_path: Path) -> None:
    """What the parent allocates stays far below the batch: chunks on their way, and 17 bytes a row
    while nonces are compared.

    Planted: all chunks submitted at once, or the file read whole -> more than the batch, and this
    fails.
    """
    world = make_world(suite=3)  # long rows: 1,169 bytes
    count = size(4_000, 40_000)
    rows = world.seal_cells([i % 7 for i in range(count)])
    await opened(tmp_path, rows[:200], world)  # imports, pools, caches
    path = tmp_path / "batch.rows"
    path.write_bytes(b"".join(rows))
    del rows
    context = context_of(world)
    tracemalloc.start()
    try:
        result = await open_file(path, context, world.keys[0])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.tally.rows == count
    assert peak < 1_000_000 + 40 * count < count * world.row_size() / 3

"""The suite of the three seams of opening together: a batch has one result, bit for bit. Subclass
``OpeningSuite``, give ``make``, and name the class Test*.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shoal.analyzer.batches import opening
from shoal.analyzer.batches.chunk_source import ChunkSource, FileSource
from shoal.analyzer.batches.executor import Executor
from shoal.analyzer.batches.key_delivery import KeyDelivery
from shoal.analyzer.batches.opening import Opened, open_batch
from shoal.analyzer.batches.row_opening import RowContext
from shoal.analyzer.core import DUPLICATE, INVALID_VALUE, UNOPENABLE
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from tests.conformance.opening.worker_tasks import (
    ATTEMPTS,
    Rows,
    die,
    results,
    single_rows,
)
from tests.worlds.services.analyzer import World, make_world


def plain(world: World, rows: list[bytes], context: RowContext) -> Opened:
    """The same batch opened in one loop of one process, by the rules of the protocol."""
    seen: set[bytes] = set()
    rejected: dict[str, int] = {}
    counted: list[bytes] = []
    for row in rows:
        try:
            plaintext = world.keys[0].open(row, context.info)
        except ShoalError:
            why = UNOPENABLE
        else:
            nonce, report = plaintext[:16], plaintext[16:]
            matrix = np.frombuffer(report, dtype=np.uint8).reshape(1, -1)
            if not world.mechanism.valid(matrix)[0]:
                why = INVALID_VALUE
            elif nonce in seen:
                why = DUPLICATE
            else:
                seen.add(nonce)
                counted.append(report)
                continue
        rejected[why] = rejected.get(why, 0) + 1
    reports = np.frombuffer(b"".join(counted), dtype=np.uint8)
    return Opened(world.mechanism.tally(reports.reshape(len(counted), -1)), rejected)


def mixed_rows(world: World, count: int, seed: int) -> list[bytes]:
    """Good rows, repeated nonces, values that no report has, and bytes that open nothing."""
    draw = np.random.default_rng(seed)
    nonces = [secrets.token_bytes(16) for _ in range(count // 2)]
    rows = [
        world.seal(world.report(int(draw.integers(0, 9))), nonce=nonces[int(draw.integers(0, 40))])
        if draw.random() < 0.4
        else world.seal(world.report(int(draw.integers(0, 2))))
        for _ in range(count)
    ]
    rows += [secrets.token_bytes(world.row_size()) for _ in range(count // 10)]
    return [rows[int(i)] for i in draw.permutation(len(rows))]


WORLDS: list[tuple[Domain, str]] = [
    (YesNo(), "binary_rr"),
    (Categories(tuple("abcdef")), "krr"),
    (Categories(tuple("abcdef")), "unary"),
    (Numeric(0, 20, 21), "kmean"),
]


class OpeningSuite:
    """``make``: an executor and a delivery to its workers, as a fixture; ``source``: a source of
    rows, a local file where nothing else is given.
    """

    @pytest.fixture
    def make(self) -> tuple[Executor, KeyDelivery]:
        raise NotImplementedError

    def source(
        self, folder: Path, data: bytes, row_size: int
    ) -> AbstractContextManager[ChunkSource]:
        path = folder / "batch.rows"
        path.write_bytes(data)
        return FileSource(path, row_size)

    def context(self, world: World) -> RowContext:
        key_id = world.keys[0].config.key_id
        return RowContext.of(world.task, world.task_id, 0, key_id, world.row_size())

    async def test_the_same_tally_bit_for_bit_for_chunks_of_any_size(
        self,
        make: tuple[Executor, KeyDelivery],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """As a plain loop in one process. Planted: a chunk counted twice, the last one left out, or
        another row of a nonce counted -> this fails.
        """
        executor, delivery = make
        for number, (domain, mechanism) in enumerate(WORLDS):
            world = make_world(domain=domain, mechanism=mechanism)
            rows, context = mixed_rows(world, 120, number), self.context(world)
            wanted = plain(world, rows, context)
            assert wanted.rejected.get(DUPLICATE), mechanism
            with self.source(tmp_path, b"".join(rows), context.row_size) as source:
                for chunk_rows in (1, 7, len(rows), 10 * len(rows)):
                    monkeypatch.setattr(
                        opening, "LIMITS", replace(LIMITS, open_chunk_rows=chunk_rows)
                    )
                    found = await open_batch(source, context, world.keys[0], executor, delivery)
                    assert found.tally.to_bytes() == wanted.tally.to_bytes(), (
                        mechanism,
                        chunk_rows,
                    )
                    assert found.rejected == wanted.rejected, (mechanism, chunk_rows)

    async def test_a_batch_without_rows(
        self, make: tuple[Executor, KeyDelivery], tmp_path: Path
    ) -> None:
        executor, delivery = make
        world = make_world()
        with self.source(tmp_path, b"", world.row_size()) as source:
            found = await open_batch(source, self.context(world), world.keys[0], executor, delivery)
        assert (found.tally.rows, found.rejected) == (0, {})

    async def test_opened_again_after_a_death_or_a_cancellation_it_is_the_same(
        self,
        make: tuple[Executor, KeyDelivery],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Planted: what came before the interruption kept for the next time -> this fails."""
        executor, delivery = make
        world = make_world()
        rows, context = mixed_rows(world, 300, 7), self.context(world)
        wanted = plain(world, rows, context)
        monkeypatch.setattr(opening, "LIMITS", replace(LIMITS, open_chunk_rows=8))
        with self.source(tmp_path, b"".join(rows), context.row_size) as source:
            task = asyncio.create_task(
                open_batch(source, context, world.keys[0], executor, delivery)
            )
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            kinds = set()
            with pytest.raises(ShoalError):
                await results(executor, die, (), Rows(1), single_rows(1))
            for _ in range(ATTEMPTS):
                try:
                    found = await open_batch(source, context, world.keys[0], executor, delivery)
                    break
                except ShoalError as error:
                    kinds.add(error.kind)
        assert kinds <= {Kind.UNAVAILABLE}
        assert found.tally.to_bytes() == wanted.tally.to_bytes()
        assert found.rejected == wanted.rejected

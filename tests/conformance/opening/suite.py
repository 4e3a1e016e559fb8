"""The suites that the three seams of opening a batch inherit: where rows come from, where they are
opened, and how the window's key gets there. Subclass one, give ``make``, and name the class Test*.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import pickle
import secrets
from contextlib import AbstractContextManager, aclosing
from pathlib import Path

import pytest

from shoal.analyzer.batches.chunk_source import Chunk, ChunkSource
from shoal.analyzer.batches.executor import Executor
from shoal.analyzer.batches.key_delivery import KeyDelivery
from shoal.crypto.hpke import HpkePrivateKey, generate
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from tests.conformance.opening.worker_tasks import (
    ATTEMPTS,
    WIDTH,
    Rows,
    alive,
    die,
    die_once,
    echo,
    files_of,
    keeps,
    raise_invalid,
    redeemed_key_id,
    results,
    single_rows,
    writes_to,
)


class ExecutorSuite:
    """``make``: an executor that is ready, as a fixture."""

    @pytest.fixture
    def make(self) -> Executor:
        raise NotImplementedError

    async def test_results_come_in_the_order_of_the_chunks_whatever_their_size(
        self, make: Executor
    ) -> None:
        """Planted: results taken as they come, or the rows of a scattered chunk in another order
        -> this fails.
        """
        source = Rows(100)
        cases: list[list[Chunk]] = [
            [],
            single_rows(100),
            [(range(first, min(first + 7, 100)),) for first in range(0, 100, 7)],
            [(range(100),)],
            [
                [range(9, 10), range(3, 4), range(50, 60)],
                (range(1),),
                [range(2, 3), range(99, 100)],
            ],
        ]
        for chunks in cases:
            wanted = [
                b"word" + b"".join(source.data[row] for rows in chunk for row in rows)
                for chunk in chunks
            ]
            assert await results(make, echo, (b"word",), source, chunks) == wanted, chunks[:3]

    async def test_a_bounded_number_of_chunks_is_under_way(self, make: Executor) -> None:
        """Planted: every chunk read before the first result is given -> this fails."""
        source = Rows(2_000)
        async with aclosing(make.over_chunks(echo, (b"",), source, single_rows(2_000))) as found:
            async for _ in found:
                break
            await asyncio.sleep(0)
            assert source.reads < 200

    async def test_a_failure_is_told_and_the_executor_goes_on(self, make: Executor) -> None:
        """Of the source, and of the work. Planted: either one swallowed -> this fails."""
        with pytest.raises(OSError, match="planted"):
            await results(make, echo, (b"",), Rows(50, broken=30), single_rows(50))
        with pytest.raises(ShoalError) as caught:
            await results(make, raise_invalid, (), Rows(50), single_rows(50))
        assert caught.value.kind is Kind.INVALID
        assert len(await results(make, echo, (b"",), Rows(50), single_rows(50))) == 50

    async def test_a_worker_that_dies_is_unavailable_and_comes_back(
        self, make: Executor, tmp_path: Path
    ) -> None:
        """Planted: the pool's own exception let through, or results of a broken run returned ->
        this fails.
        """
        source, mark, kinds = Rows(20), str(tmp_path / "died"), set()
        for _ in range(ATTEMPTS):
            try:
                found = await results(make, die_once, (mark,), source, single_rows(20))
                break
            except ShoalError as error:
                kinds.add(error.kind)
        assert found == source.data
        assert kinds <= {Kind.UNAVAILABLE}
        assert os.listdir(tmp_path) == ["died"]

    async def test_cancelling_ends_the_work(self, make: Executor) -> None:
        """Planted: reading goes on after the cancellation -> this fails."""
        source, began = Rows(50_000), asyncio.Event()

        async def consume() -> None:
            async with aclosing(
                make.over_chunks(echo, (b"",), source, single_rows(50_000))
            ) as found:
                async for _ in found:
                    began.set()

        task = asyncio.create_task(consume())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        reads = source.reads
        assert reads < source.rows
        assert len(await results(make, echo, (b"",), Rows(50), single_rows(50))) == 50
        assert source.reads <= reads + 1  # a thread that was reading may end


class ChunkSourceSuite:
    """``make(folder, data, row_size)``: a source of these bytes; ``shrink`` takes its last row
    away.
    """

    def make(self, folder: Path, data: bytes, row_size: int) -> AbstractContextManager[ChunkSource]:
        raise NotImplementedError

    def shrink(self, folder: Path, row_size: int) -> None:
        raise NotImplementedError

    def test_any_range_is_a_slice_of_the_rows(self, tmp_path: Path) -> None:
        data = secrets.token_bytes(40 * WIDTH)
        with self.make(tmp_path, data, WIDTH) as source:
            assert (source.rows, source.row_size) == (40, WIDTH)
            for first in range(41):
                for last in (first, min(first + 1, 40), min(first + 13, 40), 40):
                    wanted = data[first * WIDTH : last * WIDTH]
                    assert source.read(range(first, last)) == wanted, (first, last)

    def test_no_rows_and_a_torn_one(self, tmp_path: Path) -> None:
        """Planted: rows counted by rounding up -> this fails."""
        for data, rows in ((b"", 0), (bytes(WIDTH - 1), 0), (bytes(3 * WIDTH + 2), 3)):
            with self.make(tmp_path, data, WIDTH) as source:
                assert source.rows == rows, len(data)

    def test_rows_that_are_not_there_are_an_error(self, tmp_path: Path) -> None:
        """Never fewer bytes than asked for. Planted: a short read returned -> this fails."""
        with self.make(tmp_path, bytes(10 * WIDTH), WIDTH) as source:
            with pytest.raises(OSError):
                source.read(range(8, 11))
            self.shrink(tmp_path, WIDTH)
            with pytest.raises(OSError):
                source.read(range(9, 10))
            assert len(source.read(range(9))) == 9 * WIDTH

    async def test_several_threads_read_at_once(self, tmp_path: Path) -> None:
        """Planted: a shared file position (seek, then read) -> this fails."""
        data = secrets.token_bytes(2_000 * WIDTH)
        with self.make(tmp_path, data, WIDTH) as source:
            parts = [range(first, first + 10) for first in range(0, 2_000, 10)]
            found = await asyncio.gather(*(asyncio.to_thread(source.read, part) for part in parts))
        assert b"".join(found) == data


class KeyDeliverySuite:
    """``make``: an executor and a delivery to its workers, as a fixture. Workers run in a folder
    of their own, which is TMPDIR too, so that a test can read all that they write.
    """

    @pytest.fixture
    def make(self) -> tuple[Executor, KeyDelivery]:
        raise NotImplementedError

    async def test_a_worker_gets_the_very_key(self, make: tuple[Executor, KeyDelivery]) -> None:
        executor, delivery = make
        for suite in SuiteId:
            key = generate(suite)
            async with delivery.lend(key) as lent:
                arguments = (suite, *lent.arguments())
                (found,) = await results(
                    executor, redeemed_key_id, arguments, Rows(1), single_rows(1)
                )
            assert found == key.config.key_id.raw, suite

    async def test_two_keys_at_once_stay_apart(self, make: tuple[Executor, KeyDelivery]) -> None:
        executor, delivery = make
        suite = SuiteId.X25519_AES128
        keys = [generate(suite) for _ in range(3)]

        async def work(key: HpkePrivateKey) -> set[bytes]:
            async with delivery.lend(key) as lent:
                arguments = (suite, *lent.arguments())
                return set(
                    await results(executor, redeemed_key_id, arguments, Rows(30), single_rows(30))
                )

        assert await asyncio.gather(*map(work, keys)) == [{key.config.key_id.raw} for key in keys]

    async def test_no_worker_keeps_it(self, make: tuple[Executor, KeyDelivery]) -> None:
        """Not when the loan ends well, nor when it ends by a failure. Planted: redeemed keys cached
        -> this fails.
        """
        executor, delivery = make
        for failing in (False, True):
            key = generate(SuiteId.X25519_AES128)
            try:
                async with delivery.lend(key) as lent:
                    arguments = (SuiteId.X25519_AES128, *lent.arguments())
                    await results(executor, redeemed_key_id, arguments, Rows(40), single_rows(40))
                    if failing:
                        raise ShoalError(Kind.UNAVAILABLE, "planted")
            except ShoalError:
                assert failing
            digest = hashlib.sha256(key.to_raw_secret()).digest()
            found = await self.over_workers(executor, digest)
            assert not any(found), failing
            with pytest.raises(ShoalError) as caught:
                lent.arguments()
            assert caught.value.kind is Kind.INTERNAL

    @staticmethod
    async def over_workers(executor: Executor, digest: bytes) -> list[bool]:
        """``keeps`` in every worker: many more chunks than there are workers."""
        chunks = single_rows(8)
        async with aclosing(executor.over_chunks(keeps, (digest,), Rows(8), chunks)) as found:
            return [result async for result in found]

    async def test_it_is_not_shown_pickled_logged_or_written(
        self,
        make: tuple[Executor, KeyDelivery],
        caplog: pytest.LogCaptureFixture,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        """Planted: a dataclass's repr, pickling allowed, or the ticket in a file -> this fails."""
        executor, delivery = make
        caplog.set_level(logging.DEBUG)
        key = generate(SuiteId.X25519_AES128)
        secret = key.to_raw_secret()
        async with delivery.lend(key) as lent:
            _, ticket = lent.arguments()
            shown = repr(lent) + str(lent) + f"{lent}"
            with pytest.raises(TypeError):
                pickle.dumps(lent)
            arguments = (SuiteId.X25519_AES128, *lent.arguments())
            await results(executor, redeemed_key_id, arguments, Rows(9), single_rows(9))
            with pytest.raises(ShoalError) as caught:
                await results(executor, die, (), Rows(1), single_rows(1))
            await alive(executor)
            places = await results(executor, writes_to, (), Rows(9), single_rows(9))
            written = b"".join(
                files_of(Path(folder)) for folder in set(b"\0".join(places).decode().split("\0"))
            )
        said = capfd.readouterr()
        told = shown + caplog.text + said.out + said.err + str(caught.value)
        for one in (secret, ticket):
            assert one.hex() not in told
            assert repr(one) not in told
            assert one not in written
            assert one.hex().encode() not in written

"""Whatever bytes come to the Delivery service: a typed refusal of an allowed kind and nothing
changed, or exactly what was signed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.analyzer.batches.ingest import Ingest
from shoal.analyzer.batches.spool import Spools, spool_path
from shoal.analyzer.core import Batch
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from shoal.protos import delivery_pb2
from shoal.rpc.call import Call
from tests.worlds.services.analyzer import make_world

WORLD = make_world()
GOOD = WORLD.batch(WORLD.seal_cells([i % 7 for i in range(30)]))
CALL = cast(Call, None)  # these handlers don't look at it
OFFER_KINDS = {
    Kind.INVALID,
    Kind.UNKNOWN_TASK,
    Kind.BAD_SIGNATURE,
    Kind.MISMATCH,
    Kind.TOO_FEW,
    Kind.TOO_EARLY,
    Kind.CONFLICT,
    Kind.OVERSIZE,
}
CHUNK_KINDS = {Kind.INVALID, Kind.NOT_FOUND, Kind.OVERSIZE, Kind.MISMATCH}


async def nothing(_: Batch) -> None:
    raise AssertionError("nothing is ever done here")


@dataclass
class Desk:
    """The handlers alone, on a real disk."""

    store: AnalyzerStore
    folder: Path
    ingest: Ingest

    def state(self) -> list[str]:
        return [
            *self.store._db.iterdump(),
            *(f"{p.name} {p.stat().st_size}" for p in sorted(self.folder.glob("*.rows"))),
        ]

    def outcome(self, work: Callable[[], Awaitable[bytes]]) -> bytes | ShoalError:
        async def run() -> bytes | ShoalError:
            try:
                return await work()
            except ShoalError as error:
                return error

        return asyncio.run(run())


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    WORLD.write(folder)
    store = AnalyzerStore(folder / FILE_NAME)
    tasks = AnalyzerTasks(folder / "tasks", {WORLD.authority.public}, WORLD.analyzer.public)
    ingest = Ingest(
        store=store,
        tasks=tasks,
        keys=KeyFolder(folder / "keys"),
        spools=Spools(folder),
        clock=FakeClock(WORLD.after),
        complete=lambda _: None,
        clean=nothing,
    )
    yield Desk(store, folder, ingest)
    store.close()


def mutated(good: bytes) -> st.SearchStrategy[bytes]:
    """Arbitrary bytes, or the good ones with some replaced, cut out, doubled, or put behind
    them.
    """
    at = st.integers(0, len(good))
    return st.one_of(
        st.binary(max_size=400),
        st.tuples(at, st.binary(min_size=1, max_size=8)).map(
            lambda t: good[: t[0]] + t[1] + good[t[0] + len(t[1]) :]
        ),
        st.tuples(at, st.integers(1, 40)).map(lambda t: good[: t[0]] + good[t[0] + t[1] :]),
        st.tuples(at, at).map(lambda t: good[: t[0]] + good[t[1] :]),
        st.binary(max_size=20).map(lambda tail: good + tail),
    )


def message_of(error: ShoalError) -> None:
    assert "\n" not in error.message
    assert error.message


@given(request=mutated(GOOD.signed))
@example(request=b"")
def test_offers(desk: Desk, request: bytes) -> None:
    """Planted: DecodeError let through by the codec -> this fails."""
    before = desk.state()
    result = desk.outcome(lambda: desk.ingest.offer(request, CALL))
    if isinstance(result, ShoalError):
        assert result.kind in OFFER_KINDS
        message_of(result)
        assert desk.state() == before
    else:  # the signed bytes came through whole, whatever stood around them
        message = delivery_pb2.SignedManifest.FromString(request)
        assert message.manifest == GOOD.manifest_bytes
        assert desk.store.batch(GOOD.manifest_hash) is not None


@given(request=mutated(GOOD.chunk(3, 4)))
@example(request=b"")
def test_chunks(desk: Desk, request: bytes) -> None:
    """After three good rows. A chunk that is taken has whole rows and begins where the last one
    ended.
    """
    desk.outcome(lambda: desk.ingest.offer(GOOD.signed, CALL))
    path = spool_path(desk.folder, GOOD.manifest_hash)

    async def deliver(*chunks: bytes) -> bytes:
        async def stream() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        return await desk.ingest.deliver(stream(), CALL)

    path.unlink(missing_ok=True)
    # as after a restart: every example begins with nothing received
    desk.ingest._spools.forget(GOOD.manifest_hash)
    assert not isinstance(desk.outcome(lambda: deliver(GOOD.chunk(0, 3))), ShoalError)
    before = desk.state()
    result = desk.outcome(lambda: deliver(request))
    if isinstance(result, ShoalError):
        assert result.kind in CHUNK_KINDS
        message_of(result)
        if result.kind is not Kind.MISMATCH:
            assert desk.state() == before
    else:
        chunk, size = delivery_pb2.Chunk.FromString(request), WORLD.row_size()
        assert chunk.first_row == 3
        assert path.read_bytes() == b"".join(GOOD.rows[:3]) + chunk.rows
        assert (
            delivery_pb2.DeliverReply.FromString(result).received_rows
            == path.stat().st_size // size
        )

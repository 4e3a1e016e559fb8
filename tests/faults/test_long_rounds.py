"""Long vectors, and services and devices that die inside a segment: an exact sum or none, nobody in
it twice, and one set of survivors for the masks of a round.

As ``test_rounds_failpoints``, which has the steps of short vectors. A vector here is three uploads
and five segments long, and no upload ends where a segment does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.clients.rounds.participation import RoundState
from shoal.clients.transports.rounds_transport import RoundTransport
from shoal.crypto.secagg.device.machine import DeviceState
from shoal.crypto.secagg.exchange import (
    open_reply,
    open_request,
    seal_reply,
    seal_request,
)
from shoal.crypto.secagg.records import Commit, Status
from shoal.entropy import SYSTEM
from shoal.ids import Digest
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from tests.faults.rounds_services import SIGKILL, Part, Smithy, serving
from tests.faults.test_rounds_failpoints import (
    LEAST,
    REFUSED,
    SEATS,
    Strike,
    frames_of,
    ledger_of,
    live,
    rest_goes_on,
)
from tests.sizes import FULL
from tests.worlds.rounds.services import World

LONG = {
    "dimension": 150_000,  # of 32 bits
    "segment_words": 30_000,
    "devices": SEATS,
    "survivors_min": LEAST,
    "target_epsilon": 1e15,  # every coordinate may be as large as the clip
}
# (service, point, the passing at which to strike, ways); a window has 3 SEATS chunks of uploads,
# and as many bytes of a delivery
STRIKES = (
    ("shuffler", "vectors.write", 2 * SEATS, ("exit", "enospc")),
    ("shuffler", "rounds.chunk", SEATS, ("exit", "eio")),
    ("analyzer", "analyzer.rounds.chunk", SEATS, ("exit", "eio")),
    ("analyzer", "analyzer.sum_file.rename", 1, ("exit", "enospc")),
    ("analyzer", "analyzer.sum_file.renamed", 1, ("exit",)),
    ("analyzer", "analyzer.totals.rename", 1, ("exit", "enospc")),
    ("analyzer", "analyzer.totals.renamed", 1, ("exit",)),
    ("analyzer", "analyzer.sums.finish.done", 1, ("exit",)),
)


@pytest.fixture(scope="module")
def smithy() -> Iterator[Smithy]:
    one = Smithy()
    yield one
    one.close()


class Witness:
    """Reads what passes between devices and the shuffler (a test holds the hop key), for the law
    that privacy stands on: the masks of a round are opened for one set of survivors, and cover one
    vector of each device.
    """

    def __init__(self, inner: RoundTransport, world: World) -> None:
        self.inner, self.world = inner, world
        self.commits: dict[Digest, set[bytes]] = {}  # that shares were given for, by round
        self.shown: dict[bytes, bytes] = {}  # the last one, by session
        self.uploads: dict[bytes, bytearray] = {}  # bytes that left, by session

    async def exchange(self, frame: bytes, deadline_s: float) -> bytes:
        data, key = open_request(self.world.published.hop, frame)
        step = pairwise_pb2.Step.FromString(data)
        if step.HasField("unmask"):
            record = self.shown[step.session]
            self.commits.setdefault(Commit.decode(record).round_id, set()).add(record)
        if step.HasField("upload"):
            sent, part = self.uploads.setdefault(step.session, bytearray()), step.upload
            known = bytes(sent[part.offset : part.offset + len(part.chunk)])
            assert part.chunk.startswith(known), "two vectors under the same masks"
            assert part.offset <= len(sent)
            sent += part.chunk[len(known) :]
        reply = await self.inner.exchange(frame, deadline_s)
        answer = pairwise_pb2.Answer.FromString(open_reply(key, reply))
        if answer.HasField("commit"):
            self.shown[step.session] = answer.commit.record
        return reply

    async def close(self) -> None:
        await self.inner.close()

    def check(self) -> None:
        """Of every window so far."""
        several = [name.hex for name, records in self.commits.items() if len(records) > 1]
        assert not several, f"rounds with shares for several sets: {several}"


def strikes() -> Iterator[Strike]:
    for role, point, at, ways in STRIKES:
        for way in ways:
            yield from (
                Strike(role, point, way, one)
                for one in (range(1, at + 1) if FULL and way == "exit" else (at,))
            )


@pytest.mark.timeout(1_200)
async def test_services_that_die_or_fail_inside_a_segment(
    smithy: Smithy, memory_folder: Path
) -> None:
    """The shuffler with half of the uploads, either of them in the middle of a row that is
    delivered, the analyzer with a sum or a release half written.

    Planted: half a row added to the sum by an analyzer whose call broke off (Collector.feed) -> no
    sum at analyzer.rounds.chunk=eio: fails.
    """
    broken, windows = list[str](), list(strikes())
    async with serving(smithy, memory_folder, windows=len(windows), **LONG) as services:
        services.transport = witness = Witness(services.transport, services.world)  # type: ignore[assignment]
        for window, strike in enumerate(windows):
            try:
                await live(services, window, Mode.DEFAULT, strike)
                witness.check()
            except (AssertionError, TimeoutError, ExceptionGroup) as error:
                broken.append(f"{strike}: {type(error).__name__}: {error}")
    assert broken == []
    assert len(witness.commits) >= len(windows)


async def test_a_device_that_dies_inside_a_segment_costs_the_others_nothing(
    smithy: Smithy, memory_folder: Path
) -> None:
    """With part of its vector at the shuffler. The sum is that of the others; started again, the
    device sends not one frame: its keys are gone, and another mask would be a second vector.

    Planted: a device that asks its ledger no more -> it has a seat again, and waits in it: fails.
    """
    async with serving(smithy, memory_folder, windows=2, **LONG) as services:
        services.transport = witness = Witness(services.transport, services.world)  # type: ignore[assignment]
        for window, at in enumerate((2, 3)):  # after one and two of three uploads
            services.begin(window)
            first, *others = services.parts(range(SEATS))
            folder = services.folder_of(first, window)
            pid = smithy.start("device", folder, f"client.round.chunk=exit@{at}")
            rest = asyncio.create_task(services.together(others, window))
            assert await smithy.gone(pid) == SIGKILL
            await rest_goes_on(services, others, DeviceState.MASKED)
            await rest
            assert {part.outcomes[-1].state for part in others} == {RoundState.COUNTED}
            sent = frames_of(folder)
            for _ in range(2):
                assert await smithy.gone(smithy.start("device", folder)) == REFUSED
            assert (len(ledger_of(folder)), frames_of(folder)) == (1, sent)
            await services.finish(window)
            assert services.check(window, [first, *others]) == [set(range(1, SEATS))]
        witness.check()
        for records in witness.commits.values():
            (record,) = records
            assert Commit.decode(record).statuses.count(Status.DROPPED) == 1


class TwoFaced:
    """Shows every session another commit of one round."""

    def __init__(self, world: World) -> None:
        self.world, self.shown = world, 0

    async def exchange(self, frame: bytes, _: float) -> bytes:
        key = open_request(self.world.published.hop, frame)[1]
        self.shown += 1
        statuses = bytes([Status.ALIVE] * self.shown + [Status.DROPPED] * (4 - self.shown))
        record = Commit(Digest(bytes(32)), statuses).encode()
        answer = pairwise_pb2.Answer(commit=pairwise_pb2.SignedRecord(record=record))
        return seal_reply(key, answer.SerializeToString())

    async def close(self) -> None: ...


async def test_the_witness_sees_two_sets_and_two_vectors(tmp_path: Path) -> None:
    """So the tests here can fail: shares given for two commits of a round, other bytes of a vector
    than left before.
    """
    world = World(tmp_path)
    witness = Witness(TwoFaced(world), world)

    async def send(**kind: object) -> None:
        step = pairwise_pb2.Step(**kind)  # type: ignore[arg-type]
        data = step.SerializeToString()
        await witness.exchange(seal_request(world.published.hop.config, data, SYSTEM).frame, 1.0)

    for session in (b"a", b"b"):
        witness.check()
        await send(session=session, poll=pairwise_pb2.Poll())
        await send(session=session, unmask=pairwise_pb2.Unmask())
    with pytest.raises(AssertionError, match="several sets"):
        witness.check()
    await send(session=b"c", upload=pairwise_pb2.Upload(offset=0, chunk=b"one"))
    with pytest.raises(AssertionError, match="two vectors"):
        await send(session=b"c", upload=pairwise_pb2.Upload(offset=1, chunk=b"me"))


async def test_too_many_that_stop_inside_a_segment_end_the_window_clearly(
    smithy: Smithy, memory_folder: Path
) -> None:
    """More than the task bears: no commit, so nobody gives a share, and what was uploaded stays
    covered. The others hear why, their window is answered, and the release is withheld.

    Planted: two survivors are enough (RoundTerms.survivors) -> a commit is signed, and what stops
    the devices is the number of their neighbours: fails.
    """
    stopped = SEATS - LEAST + 1
    async with serving(smithy, memory_folder, windows=1, **LONG) as services:
        services.transport = witness = Witness(services.transport, services.world)  # type: ignore[assignment]
        services.begin(0)
        parts = services.parts(range(SEATS))
        silent = [services.folder_of(part, 0) for part in parts[:stopped]]
        pids = [smithy.start("device", one, "client.round.chunk=exit@2") for one in silent]
        rest = asyncio.create_task(services.together(parts[stopped:], 0))
        for pid in pids:
            assert await smithy.gone(pid) == SIGKILL
        await rest_goes_on(services, parts[stopped:], DeviceState.MASKED)
        await rest
        ended(parts[stopped:])
        await services.finish(0)
        assert services.check(0, parts) == []
        assert witness.commits == {}
        (aborted,) = services.release(0).rounds.aborted
        assert (aborted.reason, aborted.count) == ("too few vectors came", 1)


def ended(parts: list[Part]) -> None:
    for part in parts:
        (outcome,) = part.outcomes
        assert (outcome.state, outcome.charged) == (RoundState.ABORTED, True), outcome
        assert "too few vectors came" in outcome.message

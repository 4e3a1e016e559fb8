"""The suite that a next hop inherits: subclass ``NextHopSuite``, give ``make``, and name the class
Test*.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest

from shoal import codec
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import delivery_pb2
from shoal.shuffler.reports.next_hop import HopProgress, NextHop, OfferAnswer
from tests.worlds.services.shuffler import Published, World

ROWS = 40


@dataclass
class Site:
    """A way to a hop that is there, and a batch for it. ``stop``: nobody is there any more;
    ``held``: the rows that the hop holds of the batch.
    """

    world: World
    published: Published
    hop: NextHop
    held: Callable[[Digest], bytes]
    stop: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        keys = self.published.served.keys
        self.rows = [self.published.sealed() for _ in range(ROWS)]
        self.manifest = codec.encode_manifest(
            codec.Manifest(
                task_id=self.published.task_id,
                window=0,
                rows=ROWS,
                row_size=len(self.rows[0]),
                analyzer_key_id=keys.analyzer_keys[0].key_id,
                hop_key_id=keys.hop_keys[0].key_id,
                schedule_hash=keys.digest,
                rows_hash=Digest.of(b"".join(self.rows)),
            )
        )
        self.digest = Digest.of(self.manifest)

    async def offer(self, key: SigningKey | None = None) -> OfferAnswer:
        signature = (key or self.world.shuffler).sign(SigningContext.MANIFEST, self.manifest)
        return await self.hop.offer(self.manifest, signature)

    async def deliver(
        self, spans: Sequence[tuple[int, int]], broken: Exception | None = None
    ) -> None:
        async def chunks() -> AsyncIterator[tuple[int, bytes]]:
            for first, last in spans:
                yield first, b"".join(self.rows[first:last])
            if broken is not None:
                raise broken

        await self.hop.deliver(self.digest, chunks())


class NextHopSuite:
    """``make``: a site whose hop is there, as a fixture."""

    @pytest.fixture
    def make(self) -> Site:
        raise NotImplementedError

    async def test_a_batch_is_taken_and_acknowledged_under_the_key_of_the_task(
        self, make: Site
    ) -> None:
        """Planted: the shuffler's key, or another task's, given as the hop's -> this fails."""
        first = await make.offer()
        assert (first.progress, first.received_rows) == (HopProgress.RECEIVING, 0)
        await make.deliver([(0, 7), (7, 8), (8, ROWS)])
        last = await make.offer()
        assert (last.progress, last.received_rows) == (HopProgress.ACKNOWLEDGED, ROWS)
        key = make.hop.key(make.published.task)
        assert key not in make.published.task.hops
        verify(key, SigningContext.ACK, last.ack, last.signature)
        told = delivery_pb2.Ack.FromString(last.ack).manifest_hash
        assert told == hashlib.sha256(make.manifest).digest()
        assert make.held(make.digest) == b"".join(make.rows)

    async def test_offers_may_be_repeated_and_say_where_to_go_on(self, make: Site) -> None:
        """Planted: an answer without the number of rows that are held -> this fails."""
        for first, last in [(0, 1), (1, 30), (30, ROWS)]:
            for _ in range(2):
                answer = await make.offer()
                assert (answer.progress, answer.received_rows) == (HopProgress.RECEIVING, first)
                assert (answer.ack, answer.signature) == (b"", b"")
            await make.deliver([(first, last)])
        answers = [await make.offer() for _ in range(3)]
        assert {(one.progress, one.ack, one.signature) for one in answers} == {
            (HopProgress.ACKNOWLEDGED, answers[0].ack, answers[0].signature)
        }

    async def test_a_source_that_breaks_is_told_as_it_is(self, make: Site) -> None:
        """Planted: the transport's own word for it (a cancellation) let through -> this fails."""
        await make.offer()
        for broken in (OSError("planted"), ShoalError(Kind.INTERNAL, "planted")):
            held = (await make.offer()).received_rows
            with pytest.raises(type(broken), match="planted"):
                await make.deliver([(held, held + 1)], broken)
        held = (await make.offer()).received_rows
        await make.deliver([(held, ROWS)])
        assert (await make.offer()).progress is HopProgress.ACKNOWLEDGED

    async def test_what_the_hop_refuses_has_its_kind(self, make: Site) -> None:
        with pytest.raises(ShoalError) as refused:
            await make.offer(SigningKey.generate())
        assert refused.value.kind is Kind.BAD_SIGNATURE

    async def test_nobody_there(self, make: Site) -> None:
        await make.stop()
        for call in (make.offer(), make.deliver([(0, ROWS)])):
            with pytest.raises(ShoalError) as refused:
                await call
            assert refused.value.kind in (Kind.UNAVAILABLE, Kind.DEADLINE)

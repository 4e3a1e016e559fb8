"""The end of the analyzer's round: bundles of shares, the sum, or an abort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.crypto import hpke
from shoal.crypto.secagg.exchange import shares_info
from shoal.crypto.secagg.records import Reason
from shoal.crypto.secagg.ring import encode_seats
from shoal.crypto.secagg.shares import decode_bundle, encode_bundle
from shoal.crypto.secagg.shuffler.coordinator import Coordinator
from shoal.crypto.secagg.shuffler.effects import AskCommit, AskStart, AskUnmask
from shoal.errors import Kind
from shoal.protos import pairwise_pb2
from tests.flipped import last_bit_flipped
from tests.unit.crypto.secagg.analyzer.test_collector import (
    WORLD,
    Held,
    changed,
    held_at,
    kind_of,
)
from tests.worlds.rounds.secagg import NOW, Play, Step, World


def one_request(play: Held, **fields: Any) -> Any:
    (request,) = play.held.requests
    return changed(request, **fields)


def test_one_sum() -> None:
    """Bundles may come in parts and again; the sum is made once, with ``last``; then every call
    says what it said before.
    """
    play = held_at(AskUnmask, [Step.MASK, *[Step.NONE] * 4])
    one, request = play.collector, one_request(play)
    assert kind_of(one.unmask, changed(request, bundles=[b"\x00\x00"])) is Kind.INVALID
    part = changed(request, bundles=list(request.bundles[:2]), last=False)
    for _ in range(2):
        reply = one.unmask(part)
        assert (reply.done, reply.reason, list(reply.blamed)) == (False, "", [])
    reply = one.unmask(request)
    assert (reply.done, reply.reason, list(reply.blamed)) == (True, "", [])
    assert one.result is not None
    np.testing.assert_array_equal(one.result.vector, play.vectors[1:].sum(axis=0))
    assert one.result.survivors == 4
    assert one.unmask(changed(request, bundles=[])) == reply
    one.abort(Reason.RESTARTED)  # an ended round stays as it is
    assert (one.ended, one.reason) == (True, None)
    assert not one._begun.total.any()  # type: ignore[union-attr]
    assert one._begun.collected is None  # type: ignore[union-attr]
    assert one._nonce == b""
    one.forget()
    assert one.result is None
    assert one.unmask(request) == reply


def test_too_few_bundles() -> None:
    """The reply says so for good, to every further request; everything else is refused as
    ABORTED.
    """
    play = held_at(AskUnmask)
    one, request = play.collector, one_request(play)
    few = changed(request, bundles=list(request.bundles[:2]))
    for ask in (few, request, few):
        reply = one.unmask(ask)
        assert (reply.done, reply.reason) == (False, Reason.TOO_FEW_SHARES.value)
    assert one.result is None
    assert kind_of(one.start, pairwise_pb2.StartRoundRequest()) is Kind.ABORTED
    assert kind_of(one.add_vectors, []) is Kind.ABORTED
    assert kind_of(one.commit, pairwise_pb2.CommitRoundRequest()) is Kind.ABORTED
    assert not one._begun.total.any()  # type: ignore[union-attr]


@pytest.mark.parametrize("spoilt", [0, 2])
def test_a_bundle_that_does_not_open_is_its_positions_fault(spoilt: int) -> None:
    """The others are enough. Planted: ``_take`` that lets the error out -> fails."""
    play = held_at(AskUnmask)
    bundles = list(one_request(play).bundles)
    bundles[spoilt] = last_bit_flipped(bundles[spoilt])
    reply = play.collector.unmask(one_request(play, bundles=bundles))
    assert reply.done
    assert list(reply.blamed) == [int.from_bytes(bundles[spoilt][:4], "big")]


def test_nobody_speaks_for_another_position() -> None:
    """A bundle counts for the position that the shuffler had it from; one that says another is
    ignored.
    """
    play = held_at(AskUnmask)
    bundles = list(one_request(play).bundles)
    at = {int.from_bytes(one[:4], "big"): one[4:] for one in bundles}
    forged = [
        *(position.to_bytes(4, "big") + at[position] for position in (0, 1, 2, 3)),
        (4).to_bytes(4, "big") + at[0],
    ]
    reply = play.collector.unmask(one_request(play, bundles=forged))
    assert reply.done
    assert list(reply.blamed) == [4]


def test_wrong_shares_through_the_whole_machine() -> None:
    """A device that lies about every share: outvoted, blamed, and the shuffler is told. Planted:
    see test_unmasking.
    """

    class Liar(Play):
        def bundles(self, number: int, message: pairwise_pb2.Unmask) -> pairwise_pb2.Unmask:
            if self.coordinator._seating.members[self.devices[number].session].position != 0:
                return message
            assert self.collector.round_id is not None
            config = self.world.window_key.config
            info = shares_info(self.collector.round_id, config.key_id)
            bundle = decode_bundle(hpke.open_sealed(self.world.window_key, message.sealed, info), 6)
            items = [(kind, bytes(33) if kind else b"") for kind, _ in bundle.items]
            return pairwise_pb2.Unmask(
                sealed=hpke.seal(config, encode_bundle(bundle.position, items), info)
            )

    play = Liar(World(7, dropout_ppm=0, honest_ppm=850_000)).run()
    assert play.check()
    assert play.coordinator.blamed == (0,) == (play.result and play.result.blamed)


def test_a_wrong_sum_is_an_abort() -> None:
    """A device outside the protocol (another sum than its masks say): caught by the check words,
    typed, and nothing is published.
    """
    play = held_at(AskUnmask)
    begun = play.collector._begun
    assert begun is not None
    for word in range(len(begun.total)):
        fresh = held_at(AskUnmask)
        total = fresh.collector._begun.total  # type: ignore[union-attr]
        total[word] += 1
        reply = fresh.collector.unmask(one_request(fresh))
        wrong_check = word >= WORLD.dimension
        # A device may poison a coordinate of its own vector (documented: there is no range proof);
        # it cannot poison how it is masked.
        assert (reply.reason == Reason.WRONG_SUM.value) == wrong_check
        assert (fresh.collector.result is None) == wrong_check


def test_aborting() -> None:
    play = held_at(AskCommit)
    one = play.collector
    one.abort(Reason.UNREACHABLE)
    one.abort(Reason.OTHER)
    assert one.reason is Reason.UNREACHABLE
    assert one.unmask(pairwise_pb2.UnmaskRoundRequest()).reason == Reason.UNREACHABLE.value
    assert kind_of(one.commit, play.held.request) is Kind.ABORTED


def test_seats_come_sorted_whoever_was_first() -> None:
    """The analyzer cannot tell the order of joining. Planted: an ``encode_seats`` that does not
    sort -> fails.
    """
    play = Play(WORLD)
    for number in (3, 1, 4, 0, 2):
        play.join(number)
    (ask,) = play.coordinator.tick(NOW)
    assert isinstance(ask, AskStart)
    assert isinstance(play.coordinator, Coordinator)
    assert ask.request.seats == encode_seats(play.coordinator._seating.seats())
    assert ask.request.seats == b"".join(
        sorted(ask.request.seats[i : i + 96] for i in range(0, 480, 96))
    )

"""The shuffler's machine of a round and the analyzer's answers: honest ones, wrong ones, late ones;
and the order of the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shoal.crypto.secagg.records import Commit, Reason, Start, Status
from shoal.crypto.secagg.shuffler.analyzer_calls import REQUEST_BYTES
from shoal.crypto.secagg.shuffler.effects import AskCommit, AskStart, AskUnmask, Deliver, End
from shoal.crypto.signing import SigningContext
from shoal.entropy import SeededEntropy, shuffled
from shoal.ids import Digest
from shoal.protos import pairwise_pb2
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.rounds.secagg import NOW, Play, Step, World

WORLD = World(5)


def changed(message: Any, **fields: bytes) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


class Lying(Play):
    """An analyzer whose answers to one kind of question are changed by ``lie``."""

    about: type = object
    lie: Callable[[Any], Any] = staticmethod(lambda reply: reply)
    asked: list[Any]

    def ask(self, effect: Any) -> Any:
        self.asked = [*getattr(self, "asked", []), effect]
        if not isinstance(effect, self.about):
            return super().ask(effect)
        c = self.coordinator
        match effect:
            case AskStart(request):
                return c.started(self.lie(self.collector.start(request)), self.now)
            case AskCommit(request):
                return c.committed(self.lie(self.collector.commit(request)), self.now)
            case AskUnmask(requests):
                return c.unmasked(
                    self.lie([self.collector.unmask(request) for request in requests][-1]), self.now
                )
            case Deliver(sessions):
                rows = [self.uploads[one] for one in sessions]
                return c.delivered(
                    self.lie(pairwise_pb2.VectorsReply(unusable=self.collector.add_vectors(rows))),
                    self.now,
                )
        raise AssertionError(effect)


def lying(about: type, lie: Callable[[Any], Any]) -> Play:
    play = Lying(WORLD)
    play.about, play.lie = about, lie
    play.run()
    assert not play.check()
    assert play.ended == ([play.coordinator.reason] if play.ended else [])
    return play


def other_start(**fields: Any) -> Callable[[Any], Any]:
    def lie(reply: pairwise_pb2.StartRoundReply) -> pairwise_pb2.StartRoundReply:
        start = replace(Start.decode(reply.start), **fields).encode()
        return pairwise_pb2.StartRoundReply(
            start=start,
            analyzer_signature=WORLD.analyzer_key.sign(SigningContext.ROUND_START, start),
        )

    return lie


@for_each(
    "lie",
    [
        lambda reply: changed(reply, analyzer_signature=bytes(64)),
        lambda reply: changed(reply, start=reply.start[:-1]),
        other_start(offer_id=Digest.of(b"")),
        other_start(devices=4),
        other_start(ring_root=Digest.of(b"")),
        other_start(shuffler_nonce=bytes(32)),
        other_start(analyzer_nonce=bytes(32)),
        other_start(list_hash=Digest.of(b"")),
    ],
)
def test_a_wrong_start(lie: Callable[[Any], Any]) -> None:
    """Signed or not, another start than the shuffler's own computation gives. Planted: no
    comparison in ``started`` -> fails.
    """
    assert lying(AskStart, lie).coordinator.reason is Reason.DISAGREE


def test_an_analyzer_that_chooses_its_nonce_late() -> None:
    """A whole start, consistent in itself, from a nonce that the analyzer did not commit to: it
    could have tried many rings.
    """
    play = Play(WORLD)
    for number in range(5):
        play.join(number)
    (ask,) = play.coordinator.tick(NOW)
    assert isinstance(ask, AskStart)
    play.collector._nonce = b"\x07" * 32
    reply = play.collector.start(ask.request)
    assert play.coordinator.started(reply, NOW) == [End(Reason.DISAGREE)]


@pytest.mark.parametrize("unusable", [[5], [0, 0], [0, 99]])
def test_wrong_unusable_rows(unusable: list[int]) -> None:
    play = lying(Deliver, lambda _: pairwise_pb2.VectorsReply(unusable=unusable))
    assert play.coordinator.reason is Reason.DISAGREE


def test_rows_that_the_analyzer_calls_unusable_count_as_dropped() -> None:
    """The shuffler believes it, the commit says so; the analyzer that then counts otherwise refuses
    its own numbers.
    """
    play = Lying(WORLD)
    play.about, play.lie = Deliver, lambda _: pairwise_pb2.VectorsReply(unusable=[2])
    play.run()
    (commit,) = [effect.request for effect in play.asked if isinstance(effect, AskCommit)]
    (rows,) = [effect.rows for effect in play.asked if isinstance(effect, Deliver)]
    assert sorted(Commit.decode(commit.commit).statuses) == [1, 2, 2, 2, 2]
    assert list(commit.left_out) == [2]
    assert len(commit.commitments) == 5 * 32
    assert play.statuses[[d.session for d in play.devices].index(rows[2])] is Status.DROPPED


def test_too_many_unusable_rows() -> None:
    play = lying(Deliver, lambda _: pairwise_pb2.VectorsReply(unusable=[0, 1, 2, 3]))
    assert play.coordinator.reason is Reason.TOO_FEW_VECTORS


def test_a_commit_that_the_analyzer_did_not_sign_is_shown_to_nobody() -> None:
    """Planted: the signature not verified -> fails."""
    play = lying(AskCommit, lambda reply: changed(reply, analyzer_signature=bytes(64)))
    assert play.coordinator.reason is Reason.DISAGREE
    assert not play.answer(0).HasField("commit")


@pytest.mark.parametrize(
    ("reply", "reason", "ended"),
    [
        (pairwise_pb2.UnmaskRoundReply(), Reason.DISAGREE, [Reason.DISAGREE]),
        (
            pairwise_pb2.UnmaskRoundReply(reason=Reason.WRONG_SUM.value, blamed=[1, 1, 0, 99]),
            Reason.WRONG_SUM,
            [],
        ),
        (pairwise_pb2.UnmaskRoundReply(reason="\x1b[31mwhatever a peer says"), Reason.OTHER, []),
    ],
)
def test_no_sum(reply: pairwise_pb2.UnmaskRoundReply, reason: Reason, ended: list[Reason]) -> None:
    """A reason ends the round on both sides; one that is not known is not repeated to anybody."""
    play = Lying(WORLD)
    play.about, play.lie = AskUnmask, lambda _: reply
    play.run()
    assert (play.coordinator.reason, play.ended) == (reason, ended)
    assert play.coordinator.blamed == ((0, 1) if reply.blamed else ())
    assert "whatever" not in play.answer(0).reason


def test_answers_out_of_turn_change_nothing() -> None:
    """A driver that hands an answer in twice, or late."""
    play = Play(WORLD).run_to(Step.MASK)
    c = play.coordinator
    assert c.started(pairwise_pb2.StartRoundReply(), NOW) == []
    assert c.delivered(pairwise_pb2.VectorsReply(unusable=[0]), NOW) == []
    assert c.committed(pairwise_pb2.CommitRoundReply(), NOW) == []
    assert c.unmasked(pairwise_pb2.UnmaskRoundReply(reason="no"), NOW) == []
    assert c.phase == pairwise_pb2.PHASE_MASK
    play.phase(Step.MASK, play.mask)
    play.phase(Step.UNMASK, play.unmask)
    assert play.check()


def test_rows_are_in_random_order() -> None:
    """All orders of four, equally often: chi-square with 23 degrees of freedom below 59.1 (false
    alarm 5e-5; the seed is fixed).

    Planted: rows in order of arrival, sorted by session, or ``uniform_below(last)`` -> fails.
    """
    trials, items = size(2_400, 48_000), [bytes([i]) for i in range(4)]
    entropy = SeededEntropy("order")
    seen = Counter(tuple(shuffled(items, entropy)) for _ in range(trials))
    assert len(seen) == 24
    assert sum((count - trials / 24) ** 2 / (trials / 24) for count in seen.values()) < 59.1
    order = {tuple(played_rows(f"order {i}")) for i in range(5)}
    assert len(order) > 1


def played_rows(seed: str) -> list[int]:
    play = Play(replace(WORLD, seed=seed)).run_to(Step.MASK)
    for number in range(5):
        play.mask(number)
    (deliver,) = play.coordinator.tick(NOW)
    assert isinstance(deliver, Deliver)
    return [[d.session for d in play.devices].index(one) for one in deliver.rows]


def test_large_bundles_travel_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request within the limit, the last one marked, and the sum is the same."""
    monkeypatch.setattr("shoal.crypto.secagg.shuffler.analyzer_calls.REQUEST_BYTES", 500)
    asked: list[AskUnmask] = []

    class Watched(Play):
        def ask(self, effect: Any) -> Any:
            if isinstance(effect, AskUnmask):
                asked.append(effect)
            return super().ask(effect)

    play = Watched(WORLD).run()
    assert play.check()
    (ask,) = asked
    assert [request.last for request in ask.requests] == [False] * (len(ask.requests) - 1) + [True]
    assert len(ask.requests) > 1
    assert all(sum(map(len, request.bundles)) <= 500 for request in ask.requests)
    assert REQUEST_BYTES == 1 << 20


def test_nothing_secret_outlives_the_round() -> None:
    """Ciphertexts, bundles and the nonce are gone at the end."""
    for fates in ([Step.NONE] * 5, [Step.MASK] * 4 + [Step.NONE]):
        play = Play(WORLD, fates).run()
        assert play.coordinator._nonce == b""
        assert all(m.shares is None and m.bundle is None for m in play.coordinator._seating)

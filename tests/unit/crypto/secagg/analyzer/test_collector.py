"""The analyzer's machine of a round: one list, one commit, one sum; rows and bundles that are no
good; nothing said twice differently.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoal.crypto import hpke
from shoal.crypto.secagg.analyzer.collector import Collector
from shoal.crypto.secagg.exchange import vector_info
from shoal.crypto.secagg.records import Commit, Offer, Reason, Start, nonce_commitment, verify_both
from shoal.crypto.secagg.shuffler.effects import AskCommit, AskStart, Deliver
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2
from tests.worlds.rounds.secagg import Play, Step, World

WORLD = World(5)


def kind_of(act: Callable[..., object], *arguments: object) -> Kind:
    with pytest.raises(ShoalError) as caught:
        act(*arguments)
    return caught.value.kind


def changed(message: Any, **fields: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    for name, value in fields.items():
        if isinstance(value, list):
            copy.ClearField(name)
            getattr(copy, name).extend(value)
        else:
            setattr(copy, name, value)
    return copy


class Held(Play):
    """A round in which the requests to the analyzer are held back: ``held`` is the next one."""

    held: Any = None

    def ask(self, effect: Any) -> Any:
        self.held = effect
        return []

    def go_on(self) -> None:
        """Ask after all."""
        for effect in super().ask(self.held):
            self.do([effect])


def held_at(effect: type, fates: Sequence[Step] = (), world: World = WORLD) -> Held:
    """A round that stands before this request."""
    play = Held(world, fates)
    for step in (Step.JOIN, Step.SHARE, Step.CHECK, Step.MASK, Step.UNMASK):
        play.phase(step, play.act(step))
        while play.held is not None:
            if isinstance(play.held, effect):
                return play
            play.held, held = None, play.held
            play.do(Play.ask(play, held))
    raise AssertionError("the round ended before")


def rows_of(play: Held) -> list[bytes]:
    return [play.uploads[session] for session in play.held.rows]


# --- the offer and the start ----------------------------------------------------------------------


def test_the_offer() -> None:
    """Both commitments, this task and window, signed; the analyzer's key must be the window's."""
    nonce, theirs = secrets.token_bytes(32), nonce_commitment(bytes(32))
    one = Collector(WORLD.terms, WORLD.window_key, WORLD.analyzer_key, nonce, theirs)
    verify(
        WORLD.analyzer_key.public,
        SigningContext.ROUND_OFFER,
        one.offered.offer,
        one.offered.analyzer_signature,
    )
    offer = Offer.decode(one.offered.offer)
    assert (offer.shuffler_commitment, offer.analyzer_commitment) == (
        theirs,
        nonce_commitment(nonce),
    )
    assert (offer.task_id, offer.window, offer.schedule_hash) == (
        WORLD.terms.task_id,
        3,
        WORLD.terms.schedule_hash,
    )
    assert nonce not in one.offered.offer
    assert nonce.hex() not in repr(one)
    other = hpke.generate(SuiteId.X25519_AES128)
    assert (
        kind_of(Collector, WORLD.terms, other, WORLD.analyzer_key, nonce, theirs) is Kind.MISMATCH
    )
    assert (
        kind_of(Collector, WORLD.terms, WORLD.window_key, WORLD.analyzer_key, b"short", theirs)
        is Kind.INVALID
    )
    assert (
        kind_of(Collector, WORLD.terms, WORLD.window_key, WORLD.analyzer_key, nonce, b"short")
        is Kind.INVALID
    )


def test_before_the_start() -> None:
    one = held_at(AskStart).collector
    assert (one.rows, one.unusable, one.round_id, one.ended) == (0, (), None, False)
    assert kind_of(one.add_vectors, []) is Kind.TOO_EARLY
    assert kind_of(one.commit, pairwise_pb2.CommitRoundRequest()) is Kind.TOO_EARLY
    assert kind_of(one.unmask, pairwise_pb2.UnmaskRoundRequest()) is Kind.TOO_EARLY


def test_a_round_is_started_once() -> None:
    """The same bytes again: the same answer. Another list, though valid: CONFLICT. Planted: the
    second list started too -> fails.
    """
    play = held_at(AskStart)
    request, one = play.held.request, play.collector
    reply = one.start(request)
    assert one.start(request) == reply
    start = Start.decode(reply.start)
    assert (
        nonce_commitment(start.analyzer_nonce)
        == Offer.decode(one.offered.offer).analyzer_commitment
    )
    verify(
        WORLD.analyzer_key.public, SigningContext.ROUND_START, reply.start, reply.analyzer_signature
    )
    before = one.round_id
    for other in (
        changed(request, seats=request.seats[96:]),
        changed(request, shuffler_nonce=bytes(32)),
        changed(request, seats=b""),
    ):
        assert kind_of(one.start, other) is Kind.CONFLICT
    assert one.round_id == before


def test_what_is_not_started() -> None:
    """Nothing of these reveals the analyzer's nonce, and the round can still be started. Planted:
    each check left out -> fails.
    """
    play = held_at(AskStart, world=replace(WORLD, cohort_min=4))
    request, one = play.held.request, play.collector
    seats = [request.seats[i : i + 96] for i in range(0, len(request.seats), 96)]
    # another seat with the pad key of the first
    twin_key = seats[1][:32] + seats[0][32:64] + seats[1][64:]
    sixth = b"\xff" * 32 + secrets.token_bytes(64)
    cases = {
        Kind.MISMATCH: [
            changed(request, offer_id=bytes(32)),
            changed(request, shuffler_nonce=bytes(32)),
            changed(request, seats=b"".join(seats[:3])),  # fewer than cohort_min
            changed(request, seats=b"".join(seats) + sixth),  # more than cohort_max
        ],
        Kind.INVALID: [
            changed(request, seats=b""),
            changed(request, seats=request.seats[:-1]),
            changed(request, seats=b"".join(seats[::-1])),
            changed(request, seats=b"".join([seats[0], *seats])[: 96 * 5]),  # a device twice
            changed(request, seats=b"".join([seats[0], twin_key, *seats[2:]])),
            changed(request, shuffler_nonce=b"short"),
        ],
    }
    for kind, requests in cases.items():
        for bad in requests:
            assert kind_of(one.start, bad) is kind
            assert one.round_id is None
    assert one.start(request).start


# --- vectors --------------------------------------------------------------------------------------


def test_rows_that_are_no_good_are_told_and_left_out() -> None:
    """Garbage, another round's, another window's key, another length, a repeat: not in the sum; all
    others are. O(d) memory.

    Planted: rows added before their length is looked at; a repeat added -> fails.
    """
    play = held_at(Deliver)
    one, rows = play.collector, rows_of(play)
    assert one.round_id is not None
    key, length = WORLD.window_key.config, WORLD.terms.vector_bytes
    plain = secrets.token_bytes(length)
    one_off = hpke.seal(key, plain, vector_info(Digest.of(b"another round"), key.key_id))
    foreign = hpke.seal(
        hpke.generate(SuiteId.X25519_AES128).config, plain, vector_info(one.round_id, key.key_id)
    )
    short = hpke.seal(key, plain[:-1], vector_info(one.round_id, key.key_id))
    before = one._begun.total.copy()  # type: ignore[union-attr]
    for bad in (secrets.token_bytes(one.row_bytes), b"", one_off):
        fresh = held_at(Deliver)
        assert fresh.collector.add_vectors([bad, *rows_of(fresh)[:4]]) == (0,)
    assert one.add_vectors([rows[0], foreign, rows[0], short]) == (1, 2, 3)
    assert one.add_vectors(rows[1:2], start=4) == (1, 2, 3)
    total = one._begun.total  # type: ignore[union-attr]
    info = vector_info(one.round_id, key.key_id)
    opened = [
        np.frombuffer(hpke.open_sealed(WORLD.window_key, row, info), "<u4") for row in rows[:2]
    ]
    np.testing.assert_array_equal(total - before, opened[0] + opened[1])
    assert (one.rows, one.unusable) == (5, (1, 2, 3))


def test_deliveries_may_be_repeated_and_resumed() -> None:
    """Whole or in part, with the same rows in the same order. Planted: repeated rows added again ->
    fails (the sum does not check).
    """
    play = held_at(Deliver)
    one, rows = play.collector, rows_of(play)
    assert one.add_vectors(rows[:2]) == ()
    assert one.add_vectors(rows[:2]) == ()
    assert one.rows == 2
    assert one.add_vectors(iter(rows)) == ()
    assert one.add_vectors(rows[3:], start=3) == ()
    assert one.rows == 5
    assert kind_of(one.add_vectors, [rows[1]]) is Kind.CONFLICT
    assert kind_of(one.add_vectors, [rows[1]], 6) is Kind.INVALID  # a gap
    assert kind_of(one.add_vectors, [rows[1]], -1) is Kind.INVALID
    assert kind_of(one.add_vectors, [b"a sixth of five devices"], 5) is Kind.INVALID
    assert one.rows == 5
    play.go_on()
    play.do(Play.ask(play, play.held))
    play.phase(Step.UNMASK, play.unmask)
    play.do(Play.ask(play, play.held))
    assert play.check()


# --- the commit -----------------------------------------------------------------------------------


def test_one_commit_is_signed() -> None:
    """Equivocation: the same bytes again are answered, any other commit of the round is refused,
    whoever signed it.

    Planted: a second commit signed -> fails. What devices hold against two commits is in
    test_device.
    """
    play = held_at(AskCommit)
    one, request = play.collector, play.held.request
    reply = one.commit(request)
    assert one.commit(request) == reply
    verify_both(
        SigningContext.ROUND_COMMIT,
        request.commit,
        WORLD.shuffler_key.public,
        request.shuffler_signature,
        WORLD.analyzer_key.public,
        reply.analyzer_signature,
    )
    commit = Commit.decode(request.commit)
    other = Commit(commit.round_id, bytes([1, 2, 2, 2, 2])).encode()
    signed = changed(
        request,
        commit=other,
        shuffler_signature=WORLD.shuffler_key.sign(SigningContext.ROUND_COMMIT, other),
    )
    assert kind_of(one.commit, signed) is Kind.CONFLICT
    assert kind_of(one.commit, changed(request, commitments=bytes(32 * 5))) is Kind.CONFLICT
    # a vector after the commit is never taken
    assert kind_of(one.add_vectors, [b"late"], 5) is Kind.CONFLICT


def resigned(request: Any, statuses: bytes, round_id: Digest | None = None, **fields: Any) -> Any:
    commit = Commit(round_id or Commit.decode(request.commit).round_id, statuses).encode()
    return changed(
        request,
        commit=commit,
        shuffler_signature=WORLD.shuffler_key.sign(SigningContext.ROUND_COMMIT, commit),
        **fields,
    )


def test_what_is_not_committed() -> None:
    """Planted: each comparison of ``commit`` left out -> fails."""
    play = held_at(
        AskCommit,
        [Step.SHARE, Step.MASK, Step.NONE, Step.NONE, Step.NONE],
        replace(WORLD, dropout_ppm=400_000),
    )
    one, request = play.collector, play.held.request
    commit = Commit.decode(request.commit)
    assert sorted(commit.statuses) == [0, 1, 2, 2, 2]
    forged = SigningKey.generate().sign(SigningContext.ROUND_COMMIT, request.commit)
    never = commit.statuses.index(0)
    all_zero = [request.commitments[i * 32 : i * 32 + 32] for i in range(5)]
    all_zero[commit.statuses.index(2)] = bytes(32)
    extra = [request.commitments[i * 32 : i * 32 + 32] for i in range(5)]
    extra[never] = b"\x01" * 32
    cases = {
        Kind.BAD_SIGNATURE: [
            changed(request, shuffler_signature=forged),
            changed(request, commit=request.commit[:-1]),
        ],
        Kind.MISMATCH: [
            resigned(request, commit.statuses, Digest.of(b"another round")),
            resigned(request, commit.statuses + b"\x00"),
            resigned(request, commit.statuses.replace(b"\x01", b"\x02")),  # four alive, three rows
            resigned(
                request, commit.statuses.replace(b"\x02", b"\x01", 1)
            ),  # two alive, three rows
            changed(request, left_out=[0]),
        ],
        Kind.INVALID: [
            changed(request, commitments=request.commitments[:-1]),
            changed(request, commitments=b"".join(all_zero)),
            changed(request, commitments=b"".join(extra)),
            resigned(request, commit.statuses.replace(b"\x00", b"\x01")),  # without a commitment
        ],
    }
    for kind, requests in cases.items():
        for bad in requests:
            assert kind_of(one.commit, bad) is kind
    assert not one.ended
    assert one.commit(request).analyzer_signature
    assert kind_of(one.unmask, pairwise_pb2.UnmaskRoundRequest(round_id=bytes(32))) is Kind.MISMATCH


def test_fewer_survivors_than_the_plan_says_end_the_round() -> None:
    """Even if the shuffler would go on: the analyzer counts for itself. Planted: no look at
    survivors_min -> fails.
    """
    play = held_at(Deliver, world=replace(WORLD, survivors_min=3))
    one, rows = play.collector, rows_of(play)
    one.add_vectors([rows[0], rows[1], rows[0]])
    assert one.round_id is not None
    commit = Commit(one.round_id, bytes([2, 2, 1, 1, 1])).encode()
    request = pairwise_pb2.CommitRoundRequest(
        commit=commit,
        shuffler_signature=WORLD.shuffler_key.sign(SigningContext.ROUND_COMMIT, commit),
        left_out=[2],
        commitments=b"\x01" * 160,
    )
    assert kind_of(one.commit, request) is Kind.ABORTED
    assert one.reason is Reason.TOO_FEW_VECTORS
    assert kind_of(one.commit, request) is Kind.ABORTED

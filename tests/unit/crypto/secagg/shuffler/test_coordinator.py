"""The shuffler's machine of a round: every message, late, malformed, repeated and contradicted;
every phase's end; every wrong answer.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shoal.crypto.admission.enrolment import issue
from shoal.crypto.secagg.device.machine import DeviceRound
from shoal.crypto.secagg.records import Offer, Reason, nonce_commitment
from shoal.crypto.secagg.shuffler.opening import countersign, open_request
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.entropy import SeededEntropy
from shoal.errors import Kind
from shoal.ids import Digest, KeyId, TaskId
from shoal.protos import pairwise_pb2
from tests.cases import for_each
from tests.unit.crypto.secagg.shuffler.coordinators import STRICT, WORLD, kind_of, session
from tests.worlds.rounds.secagg import DAY, NOW, Play, Step, World, identity

PHASE = {
    Step.JOIN: pairwise_pb2.PHASE_JOIN,
    Step.SHARE: pairwise_pb2.PHASE_SHARE,
    Step.MASK: pairwise_pb2.PHASE_MASK,
}


def a_join(play: Play, number: int = 0) -> pairwise_pb2.Join:
    return play.devices[number].join(play.offer, NOW)


def resigned(join: pairwise_pb2.Join, number: int, **changes: bytes) -> pairwise_pb2.Join:
    """With other fields, signed by the device itself."""
    fields = {
        name: changes.get(name, getattr(join, name))
        for name in ("offer_id", "certificate", "pad_key", "share_key")
    }
    data = fields["offer_id"] + fields["pad_key"] + fields["share_key"]
    return pairwise_pb2.Join(
        signature=identity(number).key.sign(SigningContext.ROUND_KEYS, data), **fields
    )


# --- the offer ------------------------------------------------------------------------------------


def test_countersign_checks_everything() -> None:
    """Planted: any one comparison of ``countersign`` left out -> fails."""
    terms, nonce = WORLD.terms, bytes(range(32))
    key = WORLD.analyzer_key
    good = Offer(
        terms.task_id,
        3,
        terms.analyzer_config.key_id,
        terms.schedule_hash,
        nonce_commitment(nonce),
        nonce_commitment(b"\x01" * 32),
    )

    def reply(offer: Offer, signer: SigningKey = key) -> pairwise_pb2.OpenRoundReply:
        data = offer.encode()
        return pairwise_pb2.OpenRoundReply(
            offer=data, analyzer_signature=signer.sign(SigningContext.ROUND_OFFER, data)
        )

    signed = countersign(terms, nonce, reply(good), WORLD.shuffler_key)
    assert signed.offer == good.encode()
    assert open_request(terms, nonce).shuffler_commitment == good.shuffler_commitment
    for wrong in (
        replace(good, task_id=TaskId.of(b"another")),
        replace(good, window=4),
        replace(good, analyzer_key_id=KeyId(bytes(8))),
        replace(good, schedule_hash=Digest.of(b"another")),
        replace(good, shuffler_commitment=bytes(32)),
        replace(
            good, analyzer_commitment=good.shuffler_commitment
        ),  # the shuffler's own, handed back
    ):
        assert kind_of(countersign, terms, nonce, reply(wrong), WORLD.shuffler_key) is Kind.MISMATCH
    forged = reply(good, SigningKey.generate())
    assert kind_of(countersign, terms, nonce, forged, WORLD.shuffler_key) is Kind.BAD_SIGNATURE
    assert kind_of(open_request, terms, b"short") is Kind.INVALID


def test_invite() -> None:
    play = Play(WORLD)
    assert play.coordinator.invite(NOW).offer == play.offer
    assert play.coordinator.invite(NOW + 30).phase == pairwise_pb2.PHASE_NONE
    for number in range(5):
        play.join(number)
    full = play.coordinator.invite(NOW)
    assert full.phase == pairwise_pb2.PHASE_NONE
    assert not full.HasField("offer")


# --- joining --------------------------------------------------------------------------------------


def test_one_seat_per_device_session_and_key() -> None:
    """Planted: any of the three sets not looked at -> fails."""
    play = Play(WORLD)
    play.join(0)
    join, again = a_join(play), a_join(play)
    # the same bytes, the same answer
    assert play.coordinator.join(session(play), again, NOW) == identity(0).key.public
    fresh = DeviceRound(WORLD.terms, identity(0), SeededEntropy("fresh keys")).join(play.offer, NOW)
    for twice in (join, fresh):  # another session of the device
        assert kind_of(play.coordinator.join, bytes(16), twice, NOW) is Kind.CONFLICT
    other = a_join(play, 1)
    # another Join of the session
    assert kind_of(play.coordinator.join, session(play), other, NOW) is Kind.CONFLICT
    for stolen in (
        {"pad_key": join.pad_key},
        {"share_key": join.share_key},
        {"pad_key": join.share_key},
    ):
        theft = resigned(other, 1, **stolen)
        assert kind_of(play.coordinator.join, bytes(16), theft, NOW) is Kind.CONFLICT
    one_key = resigned(other, 1, pad_key=other.share_key)
    assert kind_of(play.coordinator.join, bytes(16), one_key, NOW) is Kind.CONFLICT
    assert play.coordinator.counts()["joined"] == 1


def test_who_may_join() -> None:
    """A certified device, with keys that it signed for this offer and that nobody's neighbour
    stumbles over.

    Planted: the certificate or the signature not verified; no ``agree`` in ``take``; another offer
    accepted -> each fails.
    """
    play = Play(WORLD)
    join, key = a_join(play), identity(0).key
    root = SigningKey.generate()
    stranger = issue(root, key.public, int(NOW) - DAY, int(NOW) + DAY)
    changed = pairwise_pb2.Join()
    changed.CopyFrom(join)
    changed.pad_key = a_join(play, 1).pad_key
    refused = {
        Kind.NOT_FOUND: [resigned(join, 0, offer_id=bytes(32))],
        Kind.INVALID: [
            resigned(join, 0, pad_key=join.pad_key[:-1]),
            resigned(join, 0, share_key=b""),
            resigned(join, 0, pad_key=bytes(32)),  # of low order
            resigned(join, 0, share_key=b"\x01" + bytes(31)),
            resigned(
                join, 0, share_key=join.share_key[:-1] + bytes((join.share_key[-1] | 0x80,))
            ),  # a second spelling
        ],
        Kind.UNAUTHENTICATED: [
            resigned(join, 0, certificate=stranger),
            resigned(join, 0, certificate=b"no certificate"),
        ],
        Kind.BAD_SIGNATURE: [changed, resigned(join, 1)],
    }
    for kind, messages in refused.items():
        for message in messages:
            assert kind_of(play.coordinator.join, session(play), message, NOW) is kind
    for length in (0, 15, 17):
        assert kind_of(play.coordinator.join, bytes(length), join, NOW) is Kind.INVALID
    assert play.coordinator.counts()["joined"] == 0
    assert play.coordinator.identify(join, NOW) == key.public
    assert play.coordinator.counts()["joined"] == 0


def test_the_joining_ends() -> None:
    play = Play(World(3))
    assert (
        kind_of(play.coordinator.join, session(play), a_join(play), NOW + 30) is Kind.WINDOW_CLOSED
    )
    for number in range(3):
        play.join(number)
    extra = DeviceRound(play.world.terms, identity(7), SeededEntropy("seven"))
    late = extra.join(play.offer, NOW)
    assert kind_of(play.coordinator.join, extra.session, late, NOW) is Kind.WINDOW_CLOSED  # full
    # a repeat is never late
    assert play.coordinator.join(session(play), a_join(play), NOW + 99) == identity(0).key.public


# --- phases ---------------------------------------------------------------------------------------


@for_each(
    "step, seconds",
    [(Step.JOIN, 30), (Step.SHARE, 60), (Step.CHECK, 60), (Step.MASK, 120), (Step.UNMASK, 60)],
)
@for_each("strict", [False, True])
def test_deadlines(step: Step, seconds: float, strict: bool) -> None:
    """A phase that is not complete ends at its deadline, not a moment before; every device's step
    is refused from then on.

    In strict mode endorsing and unmasking share unmask_s, half each. Planted: > for >= in ``tick``
    -> fails.
    """
    play = Play(replace(STRICT if strict else WORLD)).run_to(step)
    coordinator, begun = play.coordinator, play.now
    for number in range(4):
        play.act(step)(number)
    phase = coordinator.phase
    length = seconds / 2 if strict and step is Step.UNMASK else seconds
    assert coordinator.deadline() == begun + length
    assert coordinator.tick(begun + length - 0.001) == []
    assert coordinator.phase == phase
    play.now = begun + length
    last = Play.attempt
    last(play, 4, play.act(step))
    if step is not Step.JOIN:
        assert play.errors[4][0].kind is Kind.WINDOW_CLOSED
    play.do(coordinator.tick(play.now))
    assert coordinator.phase != phase or coordinator.ended
    play.fates = [Step.NONE] * 4 + [step]
    play.go_on_from(Step(step + 1))
    assert play.check()


@pytest.mark.parametrize("strict", [False, True])
def test_endorsing_ends(strict: bool) -> None:
    play = Play(STRICT if strict else WORLD).run_to(Step.ENDORSE)
    assert play.coordinator.phase == (
        pairwise_pb2.PHASE_ENDORSE if strict else pairwise_pb2.PHASE_UNMASK
    )
    assert play.coordinator.deadline() == play.now + (30 if strict else 60)


def test_complete_phases_end_at_once() -> None:
    play = Play(STRICT).run()
    assert play.now == NOW
    assert play.check()
    assert play.coordinator.deadline() is None


@for_each(
    "step, lost, reason",
    [
        (Step.JOIN, 4, Reason.TOO_FEW_JOINED),
        (Step.SHARE, 3, Reason.TOO_FEW_SHARED),
        (Step.MASK, 3, Reason.TOO_FEW_VECTORS),
        (Step.ENDORSE, 4, Reason.TOO_FEW_ENDORSED),
        (Step.UNMASK, 5, Reason.TOO_FEW_SHARES),
    ],
)
def test_too_few(step: Step, lost: int, reason: Reason) -> None:
    """One device fewer than the plan's minimum at each stage: a typed abort that the analyzer hears
    of, and that devices are told.
    """
    world = replace(
        STRICT, devices=6, cohort_min=3, survivors_min=4 if step in (Step.SHARE, Step.MASK) else 3
    )
    world = replace(world, cohort_min=4) if world.survivors_min == 4 else world
    play = Play(world, [step] * lost + [Step.NONE] * (6 - lost)).run()
    assert play.coordinator.reason is reason
    assert play.ended == [reason]
    assert not play.check()
    seats = [number for number in range(6) if step is not Step.JOIN or number >= lost]
    for number in seats:
        answer = play.answer(number)
        assert answer.phase == pairwise_pb2.PHASE_ABORTED
        assert (answer.kind, reason.value in answer.reason) == (Kind.ABORTED.value, True)
        for act in (play.share, play.mask, play.unmask):
            act(number)  # nothing is offered any more
    late = pairwise_pb2.Unmask(sealed=b"late")
    assert kind_of(play.coordinator.unmask, session(play, seats[0]), late, play.now) is Kind.ABORTED
    assert kind_of(play.coordinator.join, bytes(16), pairwise_pb2.Join(), play.now) is Kind.ABORTED
    assert play.coordinator.tick(math.inf) == []
    assert play.coordinator.failed(Reason.OTHER) == []
    assert play.coordinator.reason is reason


def test_a_cohort_without_parameters_is_not_started() -> None:
    """Three devices of which one may be lost and one is corrupt: nothing fits. A lint of the task
    forbids it; nobody starts it.
    """
    play = Play(World(3, dropout_ppm=340_000, honest_ppm=650_000)).run()
    assert play.coordinator.reason is Reason.OTHER

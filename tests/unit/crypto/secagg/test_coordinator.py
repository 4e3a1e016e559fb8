"""The shuffler's machine of a round: every message, late, malformed, repeated and contradicted;
every phase's end; every wrong answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shoal.crypto.admission.enrolment import issue
from shoal.crypto.secagg.coordinator import countersign, open_request
from shoal.crypto.secagg.device import DeviceRound
from shoal.crypto.secagg.effects import Deliver
from shoal.crypto.secagg.phases import WAIT_LEAST_MS, WAIT_MOST_MS, State, refusal, wait_ms
from shoal.crypto.secagg.records import Offer, Reason, nonce_commitment
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from tests.cases import for_each
from tests.worlds.secagg import DAY, NOW, Play, Step, World, identity

WORLD = World(5)
STRICT = World(5, Mode.STRICT)
PHASE = {
    Step.JOIN: pairwise_pb2.PHASE_JOIN,
    Step.SHARE: pairwise_pb2.PHASE_SHARE,
    Step.MASK: pairwise_pb2.PHASE_MASK,
}
STRANGER = bytes(16)


def kind_of(act: Callable[..., object], *arguments: object) -> Kind:
    with pytest.raises(ShoalError) as caught:
        act(*arguments)
    return caught.value.kind


def session(play: Play, number: int = 0) -> bytes:
    return play.devices[number].session


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


# --- steps ----------------------------------------------------------------------------------------


def test_unknown_sessions() -> None:
    play = Play(STRICT).run_to(Step.UNMASK)
    c = play.coordinator
    for act in (
        lambda: c.shares(STRANGER, pairwise_pb2.Shares(), NOW),
        lambda: c.expects_upload(STRANGER, NOW),
        lambda: c.uploaded(STRANGER, Digest.of(b""), NOW),
        lambda: c.endorse(STRANGER, pairwise_pb2.Endorse(), NOW),
        lambda: c.unmask(STRANGER, pairwise_pb2.Unmask(), NOW),
        lambda: c.answer(STRANGER, NOW),
    ):
        assert kind_of(act) is Kind.NOT_FOUND


STEPS: dict[Step, tuple[str, Any, Any]] = {
    # what the device sends, as this class's method takes it; another one of the same kind
    Step.SHARE: (
        "shares",
        lambda p: p.devices[0].share(p.answer(0).started, NOW),
        lambda m: changed(m, ciphertexts=m.ciphertexts[::-1]),
    ),
    Step.ENDORSE: (
        "endorse",
        lambda p: p.devices[0].endorse(p.answer(0).commit),
        lambda m: changed(m, signature=bytes(64)),
    ),
    Step.UNMASK: (
        "unmask",
        lambda p: p.devices[0].unmask(
            p.answer(0).commit, list(p.answer(0).endorsements), p.ledgers[0]
        ),
        lambda m: changed(m, sealed=m.sealed[::-1]),
    ),
}


def changed(message: Any, **fields: bytes) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


@pytest.mark.parametrize("step", STEPS)
def test_early_repeated_contradicted_late(step: Step) -> None:
    """Before its phase TOO_EARLY; the same bytes again always fine; other bytes CONFLICT; after its
    phase WINDOW_CLOSED.
    """
    name, make, other = STEPS[step]
    play = Play(STRICT).run_to(step)
    message = make(play)
    early = Play(STRICT).run_to(Step(step - 1))
    if step is Step.SHARE:
        early.join(0)
    assert kind_of(getattr(early.coordinator, name), session(early), message, NOW) is Kind.TOO_EARLY
    send = getattr(play.coordinator, name)
    for _ in range(2):
        send(session(play), message, NOW)
    before = play.coordinator.counts()
    assert kind_of(send, session(play), other(message), NOW) is Kind.CONFLICT
    assert play.coordinator.counts() == before
    for number in range(1, 4):
        getattr(play, step.name.lower())(number)
    play.finish()
    assert kind_of(send, session(play, 4), message, play.now) is Kind.WINDOW_CLOSED
    if not play.coordinator.ended:
        send(session(play), message, play.now)  # a repeat is never late


def test_malformed_steps_change_nothing() -> None:
    play = Play(STRICT).run_to(Step.SHARE)
    good = play.devices[0].share(play.answer(0).started, NOW)
    for wrong in (
        changed(good, ciphertexts=good.ciphertexts[:-1]),
        changed(good, ciphertexts=good.ciphertexts[:-82]),
        changed(good, ciphertexts=good.ciphertexts + bytes(82)),
        changed(good, ciphertexts=b""),
        changed(good, commitment=b""),
        changed(good, commitment=bytes(32)),
    ):
        assert kind_of(play.coordinator.shares, session(play), wrong, NOW) is Kind.INVALID
    other = play.devices[1].share(play.answer(1).started, NOW)
    for wrong in (
        changed(good, signature=b""),
        changed(good, signature=other.signature),
        changed(good, commitment=other.commitment),
        other,
    ):
        assert kind_of(play.coordinator.shares, session(play), wrong, NOW) is Kind.BAD_SIGNATURE
    assert play.coordinator.counts()["shared"] == 0
    play.phase(Step.SHARE, play.share)
    play.phase(Step.CHECK, play.check_shares)
    play.phase(Step.MASK, play.mask)
    for signature in (
        b"",
        bytes(64),
        identity(1).key.sign(SigningContext.ROUND_ENDORSE, play.answer(0).commit.record),
    ):
        message = pairwise_pb2.Endorse(signature=signature)
        assert kind_of(play.coordinator.endorse, session(play), message, NOW) is Kind.BAD_SIGNATURE
    assert play.coordinator.counts()["endorsed"] == 0
    play.phase(Step.ENDORSE, play.endorse)
    sealed = (
        play.devices[0]
        .unmask(play.answer(0).commit, list(play.answer(0).endorsements), play.ledgers[0])
        .sealed
    )
    for bundle in (b"", sealed[:-1], sealed + b"\x00"):
        bad = pairwise_pb2.Unmask(sealed=bundle)
        assert kind_of(play.coordinator.unmask, session(play), bad, NOW) is Kind.INVALID
    assert play.coordinator.counts()["answered"] == 0
    play.phase(Step.UNMASK, play.unmask)
    assert play.check()


def test_a_vector_counts_once_and_never_late() -> None:
    """The same upload again is fine, another one CONFLICT; after the phase it is refused and not
    among the rows.

    Planted: ``expects_upload`` that looks at no deadline; ``_deliver`` that names sessions twice ->
    fails.
    """
    play = Play(WORLD).run_to(Step.MASK)
    for number in range(4):
        play.mask(number)
    c, digest = play.coordinator, Digest.of(play.uploads[session(play)])
    assert not c.expects_upload(session(play), NOW)
    c.uploaded(session(play), digest, NOW)
    assert kind_of(c.uploaded, session(play), Digest.of(b"another"), NOW) is Kind.CONFLICT
    late = play.now = c.deadline() or 0.0
    for after in (False, True):
        assert kind_of(c.expects_upload, session(play, 4), late) is Kind.WINDOW_CLOSED
        assert kind_of(c.uploaded, session(play, 4), Digest.of(b"late"), late) is Kind.WINDOW_CLOSED
        if not after:
            effects = c.tick(late)
    (deliver,) = effects
    assert isinstance(deliver, Deliver)
    assert sorted(deliver.rows) == sorted(session(play, number) for number in range(4))
    c.uploaded(session(play), digest, late)  # a repeat is never late
    play.do(effects)
    assert play.answer(4).kind == Kind.WINDOW_CLOSED.value
    play.fates = [Step.NONE] * 4 + [Step.MASK]
    play.phase(Step.UNMASK, play.unmask)
    assert play.check()


def test_uploads_before_and_without_shares() -> None:
    play = Play(WORLD, [Step.SHARE] + [Step.NONE] * 4)
    play.phase(Step.JOIN, play.join)
    assert kind_of(play.coordinator.uploaded, session(play), Digest.of(b""), NOW) is Kind.TOO_EARLY
    play.phase(Step.SHARE, play.share)
    assert (
        kind_of(play.coordinator.uploaded, session(play), Digest.of(b""), play.now)
        is Kind.TOO_EARLY
    )
    play.phase(Step.CHECK, play.check_shares)
    assert (
        kind_of(play.coordinator.uploaded, session(play), Digest.of(b""), play.now)
        is Kind.WINDOW_CLOSED
    )
    answer = play.answer(0)
    assert answer.kind == Kind.WINDOW_CLOSED.value
    assert not answer.HasField("roster")
    assert play.coordinator.counts()["uploaded"] == 0


def test_only_devices_in_the_sum_endorse_and_unmask() -> None:
    """Planted: ``_has_part`` left out of ``unmask`` -> fails."""
    play = Play(STRICT, [Step.MASK] + [Step.NONE] * 4).run_to(Step.ENDORSE)
    signature = identity(0).key.sign(SigningContext.ROUND_ENDORSE, play.answer(1).commit.record)
    message = pairwise_pb2.Endorse(signature=signature)
    assert kind_of(play.coordinator.endorse, session(play), message, play.now) is Kind.WINDOW_CLOSED
    assert not play.answer(0).HasField("commit")
    play.phase(Step.ENDORSE, play.endorse)
    sealed = play.devices[1].unmask(
        play.answer(1).commit, list(play.answer(1).endorsements), play.ledgers[1]
    )
    assert kind_of(play.coordinator.unmask, session(play), sealed, play.now) is Kind.WINDOW_CLOSED


# --- what devices are told ------------------------------------------------------------------------


def test_answers_phase_by_phase() -> None:
    """Each seat is told what its next step needs, and nothing twice."""
    play = Play(STRICT)
    play.join(0)
    assert [f.name for f, _ in play.answer(0).ListFields()] == ["phase", "wait_ms"]
    for number in range(1, 5):
        play.join(number)
    play.finish()
    needs = {
        Step.SHARE: "started",
        Step.CHECK: "roster",
        Step.MASK: "roster",
        Step.ENDORSE: "commit",
        Step.UNMASK: "commit",
    }
    for step, what in needs.items():
        answer = play.answer(0)
        assert answer.phase == getattr(pairwise_pb2, f"PHASE_{step.name}")
        assert {f.name for f, _ in answer.ListFields()} & {"started", "roster", "commit"} == {what}
        assert len(answer.endorsements) == (4 if step is Step.UNMASK else 0)
        assert answer.received == (WORLD.terms.sealed_vector_bytes if step > Step.MASK else 0)
        play.act(step)(0)
        assert not {f.name for f, _ in play.answer(0).ListFields()} & {
            "started",
            "roster",
            "commit",
            "endorsements",
        }
        for number in range(1, 5):
            play.act(step)(number)
        play.finish()
    assert [f.name for f, _ in play.answer(0).ListFields()] == ["phase"]
    assert play.answer(0).phase == pairwise_pb2.PHASE_DONE


def test_received_is_what_the_driver_holds_until_all_has_come() -> None:
    play = Play(WORLD).run_to(Step.MASK)
    assert play.coordinator.answer(session(play), NOW, received=17).received == 17
    play.mask(0)
    assert (
        play.coordinator.answer(session(play), NOW, received=17).received
        == WORLD.terms.sealed_vector_bytes
    )


def test_sizes_say_nothing() -> None:
    """What a device sends has one length in a round, whoever it is and whoever was lost."""
    sizes: dict[str, set[int]] = {}

    class Sizes(Play):
        def shares(self, number: int, message: pairwise_pb2.Shares) -> pairwise_pb2.Shares:
            sizes.setdefault("shares", set()).add(message.ByteSize())
            return message

        def seals(self, number: int, sealed: bytes) -> bytes:
            sizes.setdefault("vector", set()).add(len(sealed))
            return sealed

        def bundles(self, number: int, message: pairwise_pb2.Unmask) -> pairwise_pb2.Unmask:
            sizes.setdefault("bundle", set()).add(message.ByteSize())
            return message

    for fates in (
        [Step.NONE] * 6,
        [Step.SHARE, *[Step.NONE] * 5],
        [Step.MASK, Step.SHARE, *[Step.NONE] * 4],
        [Step.UNMASK, *[Step.NONE] * 5],
    ):
        Sizes(World(6, dropout_ppm=400_000, honest_ppm=10**6), fates).run()
    assert {what: len(found) for what, found in sizes.items()} == {
        "shares": 1,
        "vector": 1,
        "bundle": 1,
    }


def test_waiting() -> None:
    """Between the bounds, shorter towards the phase's end, spread over sessions, never beyond the
    deadline by more than the least wait.
    """
    plan = WORLD.plan
    for left in (120.0, 10.0, 1.0, 0.0, -5.0, math.inf):
        waits = [wait_ms(bytes([i]) * 16, State.MASK, plan, left) for i in range(200)]
        assert WAIT_LEAST_MS <= min(waits) <= max(waits) <= WAIT_MOST_MS
        assert max(waits) <= max(WAIT_LEAST_MS, 1000 * left * 0.63)
        if left >= 10:
            assert len(set(waits)) > 50
            assert max(waits) <= 1000 * 120 / 20 * 1.25
    assert wait_ms(STRANGER, State.SUMMING, plan, math.inf) <= 60 / 20 * 1250


def test_refusal() -> None:
    answer = refusal(ShoalError(Kind.CONFLICT, "no"))
    assert (answer.phase, answer.kind, answer.reason) == (
        pairwise_pb2.PHASE_UNSPECIFIED,
        Kind.CONFLICT.value,
        "no",
    )
    assert refusal(Reason.RESTARTED.error).phase == pairwise_pb2.PHASE_ABORTED


@pytest.mark.parametrize("lost", [Step.SHARE, Step.MASK])
def test_a_round_that_loses_more_than_its_share_ends_before_the_commit(lost: Step) -> None:
    """k and t are made for floor(.2 * 10) = 2 lost, whatever survivors_min says. Planted:
    survivors_min alone looked at -> TOO_FEW_SHARES.

    Devices would refuse to unmask; here nobody signs a commit that they refuse.
    """
    play = Play(World(devices=10), [lost] * 3 + [Step.NONE] * 7).run()
    assert not play.check()
    assert play.coordinator.reason is (
        Reason.TOO_FEW_SHARED if lost is Step.SHARE else Reason.TOO_FEW_VECTORS
    )
    assert Play(World(devices=10), [lost] * 2 + [Step.NONE] * 8).run().check()

"""Every message to the shuffler's machine of a round, and what devices are told."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoal.crypto.secagg.records import Reason
from shoal.crypto.secagg.shuffler.effects import Deliver
from shoal.crypto.secagg.shuffler.phases import (
    WAIT_LEAST_MS,
    WAIT_MOST_MS,
    Stage,
    refusal,
    wait_ms,
)
from shoal.crypto.signing import SigningContext
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2
from tests.unit.crypto.secagg.shuffler.coordinators import (
    STRANGER,
    STRICT,
    WORLD,
    changed,
    kind_of,
    session,
)
from tests.worlds.rounds.secagg import NOW, Play, Step, World, identity

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
        waits = [wait_ms(bytes([i]) * 16, Stage.MASK, plan, left) for i in range(200)]
        assert WAIT_LEAST_MS <= min(waits) <= max(waits) <= WAIT_MOST_MS
        assert max(waits) <= max(WAIT_LEAST_MS, 1000 * left * 0.63)
        if left >= 10:
            assert len(set(waits)) > 50
            assert max(waits) <= 1000 * 120 / 20 * 1.25
    assert wait_ms(STRANGER, Stage.SUMMING, plan, math.inf) <= 60 / 20 * 1250


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

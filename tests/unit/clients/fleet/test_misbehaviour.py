"""Each breach is exactly the one it says it is, held against the shuffler's own rules; and shares
give exact numbers.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import pytest

from shoal.clients.core import Assignment, assign, seal
from shoal.clients.drawing import draw
from shoal.clients.fleet.misbehaviour import (
    HOSTILE,
    HOSTILE_TO_ENROLLED,
    MALFORMED,
    Carrier,
    Conduct,
    Shares,
    conducts,
    craft,
    expected,
    mix,
    mute,
    over_window,
)
from shoal.crypto.admission.enrolled import EnrolledProver
from shoal.crypto.admission.enrolment import enrol
from shoal.crypto.admission.open import OPEN
from shoal.crypto.envelope import (
    HopContent,
    frame_header,
    open_frame,
    open_report,
    report_info,
    sealed_size,
)
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.task import Admission
from tests.cases import for_each
from tests.worlds.devices.clients import World, make_world

WINDOW, LATE = 2, 1
ROOT = SigningKey.generate()


def world_of(admission: Admission = Admission.OPEN) -> World:
    # weeks: windows 0 and 1 are over, 3 is open
    world = make_world(start=int(time.time()) - 21 * 86_400)
    if admission is Admission.ENROLLED:
        return replace(
            world, task=replace(world.task, admission=admission, enrolment_key=ROOT.public)
        )
    return world


def assignment_of(world: World) -> Assignment:
    trusted = trust_task(world.signed_task, world.authorities)
    return assign(trusted, trust_schedule(world.signed_schedule, trusted))


def made(conduct: Conduct, world: World, seed: int = 1) -> tuple[bytes, bytes]:
    """(frame, ack key)."""
    assignment, entropy = assignment_of(world), SeededEntropy(f"{conduct.name} {seed}")
    enrolled = world.task.admission is Admission.ENROLLED
    identity = enrol(ROOT, int(time.time()) - 60, int(time.time()) + 60)
    prover = EnrolledProver(identity) if enrolled else OPEN
    crafted = craft(
        conduct, assignment, WINDOW, draw(assignment, 2, entropy), prover, LATE, entropy
    )
    return crafted.frame, crafted.ack_key


def judged(frame: bytes, world: World) -> HopContent | Kind:
    """What a shuffler's opening says."""
    try:
        return open_frame(world.hop, frame)
    except ShoalError as error:
        return error.kind


@for_each("conduct", [*MALFORMED, Conduct.OVERSIZED])
def test_broken_frames_do_not_open_for_the_reason_they_say(conduct: Conduct) -> None:
    """Planted: return the frame as it is -> it opens."""
    world = world_of()
    for seed in range(20):
        frame, _ = made(conduct, world, seed)
        kind = judged(frame, world)
        assert isinstance(kind, Kind)
        assert kind in expected(conduct, Carrier.RELAY)
        if conduct is Conduct.DAMAGED:
            assert frame_header(frame).key_id == world.hop.config.key_id
        if conduct is Conduct.OVERSIZED:
            assert len(frame) > LIMITS.submit_bytes
        if conduct is Conduct.TRUNCATED:
            assert 1 <= len(frame) < LIMITS.frame_sizes[0]


def test_garbage_is_good_for_the_shuffler_and_opens_nothing_for_the_analyzer() -> None:
    world = world_of()
    frame, ack_key = made(Conduct.GARBAGE, world)
    honest = open_frame(
        world.hop, seal(assignment_of(world), WINDOW, draw(assignment_of(world), 2)).frame
    )
    content = open_frame(world.hop, frame)
    assert content.ack_key == ack_key
    assert (content.task_id, content.window, content.analyzer_key_id) == (
        world.task_id,
        WINDOW,
        world.analyzer.config.key_id,
    )
    assert [len(message) for message in content.sealed] == [
        len(message) for message in honest.sealed
    ]
    with pytest.raises(ShoalError):
        open_report(
            world.analyzer,
            report_info(world.task_id, WINDOW, content.analyzer_key_id),
            content.sealed[0],
        )


def test_well_formed_breaches_break_one_rule() -> None:
    world = world_of()
    stranger, misshapen, late = (
        open_frame(world.hop, made(one, world)[0])
        for one in (Conduct.STRANGER, Conduct.MISSHAPEN, Conduct.LATE)
    )
    size = sealed_size(world.analyzer.config.suite, world.task.report_size)
    assert stranger.task_id != world.task_id
    assert (stranger.window, len(stranger.sealed[0])) == (WINDOW, size)
    assert (misshapen.task_id, misshapen.window, len(misshapen.sealed[0])) == (
        world.task_id,
        WINDOW,
        size + 1,
    )
    assert (late.task_id, late.window, len(late.sealed[0])) == (world.task_id, LATE, size)


def test_enrolled_breaches() -> None:
    """SECOND is a report like any other; UNENROLLED lacks the proof alone."""
    world = world_of(Admission.ENROLLED)
    second, without = (
        open_frame(world.hop, made(one, world)[0]) for one in (Conduct.SECOND, Conduct.UNENROLLED)
    )
    assert second.admission
    assert not without.admission
    assert open_frame(world.hop, made(Conduct.GARBAGE, world)[0]).admission


@pytest.mark.parametrize("conduct", [Conduct.HONEST, Conduct.DUPLICATE])
def test_nothing_is_crafted_for_the_well_bred(conduct: Conduct) -> None:
    with pytest.raises(ShoalError) as caught:
        made(conduct, world_of())
    assert caught.value.kind is Kind.INVALID


def test_late_clients_want_a_window_that_is_over() -> None:
    world = world_of()
    now = time.time()
    assert over_window(assignment_of(world), now) == 1  # window 2 ended just now, its grace has not
    assert over_window(assignment_of(world), now + 3_700) == 2
    with pytest.raises(ShoalError) as caught:
        over_window(assignment_of(make_world(start=int(now) - 10)), now)
    assert caught.value.kind is Kind.INVALID


def test_shares_are_exact_and_kinds_take_turns() -> None:
    shares = Shares(duplicates=0.1, late=0.05, malformed=0.02, hostile=0.013)
    counts = mix(shares, 1_000, enrolled=False)
    assert counts[Conduct.DUPLICATE] == 100
    assert counts[Conduct.LATE] == 50
    assert [counts[one] for one in MALFORMED] == [4] * 5
    assert [counts[one] for one in HOSTILE] == [4, 3, 3, 3]
    assert counts[Conduct.SECOND] == counts[Conduct.UNENROLLED] == 0
    assert counts.total() == 1_000
    assert [mix(shares, 1_000, enrolled=True)[one] for one in HOSTILE_TO_ENROLLED] == [
        3,
        2,
        2,
        2,
        2,
        2,
    ]
    assert mix(Shares(), 5, enrolled=False) == {Conduct.HONEST: 5}
    assert mix(Shares(late=1e-9), 5, enrolled=False) == {Conduct.HONEST: 4, Conduct.LATE: 1}


def test_conducts_are_shuffled_and_as_many_as_the_mix() -> None:
    """Planted: leave them in front -> fails."""
    shares = Shares(0.2, 0.1, 0.1, 0.1)
    drawn = conducts(shares, 2_000, False, SeededEntropy("conducts"))
    assert Counter(map(Conduct, drawn)) == mix(shares, 2_000, enrolled=False)
    assert 400 < sum(one != Conduct.HONEST for one in drawn[:1_000]) < 600
    assert drawn != conducts(shares, 2_000, False, SeededEntropy("others"))
    assert conducts(Shares(), 3, False) == bytes(3)


@for_each("parts", [(-0.1, 0, 0, 0), (0, 1.1, 0, 0), (0.5, 0.5, 0.1, 0), (float("nan"), 0, 0, 0)])
def test_wrong_shares_are_refused(parts: tuple[float, float, float, float]) -> None:
    with pytest.raises(ShoalError) as caught:
        Shares(*parts)
    assert caught.value.kind is Kind.INVALID


def test_too_few_devices_are_refused() -> None:
    with pytest.raises(ShoalError) as caught:
        mix(Shares(0.01, 0.01, 0.01, 0.01), 3, enrolled=False)
    assert caught.value.kind is Kind.INVALID


def test_silence_is_right_over_mqtt_alone_and_for_frames_that_do_not_open() -> None:
    for conduct in Conduct:
        if conduct is not Conduct.HONEST:
            assert not mute(conduct, Carrier.GRPC)
            assert Kind.DEADLINE not in expected(conduct, Carrier.RELAY)
    assert all(mute(conduct, Carrier.MQTT) for conduct in (*MALFORMED, Conduct.OVERSIZED))
    assert not any(
        mute(conduct, Carrier.MQTT)
        for conduct in (Conduct.GARBAGE, Conduct.STRANGER, Conduct.SECOND, Conduct.DUPLICATE)
    )

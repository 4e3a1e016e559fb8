"""The device's rules: what a frame shows, which window, what each answer means, when to try
again.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.clients.core import (
    ACTION_OF,
    NOT_STORED,
    Action,
    Assignment,
    ReportState,
    assign,
    expiry,
    judge,
    pause,
    window_at,
)
from shoal.clients.drawing import prepare
from shoal.crypto.envelope import open_frame
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Domain, Numeric, Value, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import RETRYABLE, STATUS_OF, Kind, ShoalError
from shoal.limits import LIMITS
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.devices.clients import START, VISITS, WEEK, World, make_world


def assignment_of(world: World) -> Assignment:
    trusted = trust_task(world.signed_task, world.authorities)
    return assign(trusted, trust_schedule(world.signed_schedule, trusted))


@pytest.mark.parametrize(
    ("domain", "mechanism", "values"),
    [
        (YesNo(), "binary_rr", [True, False, None, "yes", "maybe", 7]),
        (VISITS, "krr", [0, 3, 10_000, None, "junk", -1, "€" * 1_000, float("nan")]),
        (Numeric(0, 20, 21), "kmean", [0, 20, 7.3, 1e300, None, "no", float("inf")]),
    ],
)
def test_every_value_gives_a_frame_of_one_length_that_opens_to_a_valid_report(
    domain: Domain, mechanism: str, values: list[Value]
) -> None:
    """Nothing about a value shows in a length, and none is skipped. Planted: seal without padding
    -> lengths differ.
    """
    world = make_world(domain=domain, mechanism=mechanism)
    assignment = assignment_of(world)
    lengths: set[int] = set()
    sealed_lengths: set[int] = set()
    for value in values * size(3, 300):
        for window in (0, 3):
            prepared = prepare(assignment, window, value)
            lengths.add(len(prepared.frame))
            content = open_frame(world.hop, prepared.frame)
            assert (content.task_id, content.window, content.ack_key) == (
                world.task_id,
                window,
                prepared.ack_key,
            )
            sealed_lengths.update(len(one) for one in content.sealed)
            assert [len(report) for report in world.reports(prepared.frame)] == [
                world.task.report_size
            ] * world.task.messages
    assert len(lengths) == 1
    assert lengths <= set(LIMITS.frame_sizes)
    assert len(sealed_lengths) == 1


def test_two_reports_share_no_secret() -> None:
    """Fresh nonce, acknowledgement key and encapsulations each time. Planted: a constant nonce ->
    the set below shrinks.
    """
    world = make_world()
    assignment = assignment_of(world)
    frames = [prepare(assignment, 0, 3) for _ in range(20)]
    assert len({one.ack_key for one in frames}) == len({one.frame for one in frames}) == 20
    contents = [open_frame(world.hop, one.frame) for one in frames]
    assert len({content.sealed[0][:32] for content in contents}) == 20
    assert len({world.opened(one.frame)[0][:16] for one in frames}) == 20


def test_a_report_follows_the_mechanism() -> None:
    """With a seeded entropy the share of true answers is that of the thresholds: krr, k = 7,
    epsilon0 = 3: 0.770.

    1,000 draws: standard error 0.0133; the bounds are 4.5 of them: false alarms 7e-6. Planted: send
    the cell itself -> 1.0.
    """
    world = make_world()
    assignment, entropy = assignment_of(world), SeededEntropy("reports")
    count = size(1_000, 10_000)
    same = sum(
        world.reports(prepare(assignment, 0, 3, entropy).frame)[0] == b"\x03" for _ in range(count)
    )
    assert abs(same / count - 0.7700) < 4.5 * (0.77 * 0.23 / count) ** 0.5


def test_nothing_secret_prints() -> None:
    prepared = prepare(assignment_of(make_world()), 0, 3)
    assert prepared.frame.hex() not in repr(prepared)
    assert prepared.ack_key.hex() not in repr(prepared)
    assert repr(prepared.ack_key)[2:-1] not in repr(prepared)


def test_a_task_that_misstates_its_reports_is_refused() -> None:
    """Planted: leave the comparison out -> frames of an unexpected length, and this fails."""
    world = make_world()
    world.task = replace(world.task, report_size=2)
    world.sign()
    with pytest.raises(ShoalError) as caught:
        assignment_of(world)
    assert caught.value.kind is Kind.MISMATCH


def test_a_window_beyond_the_schedule_is_refused() -> None:
    assignment = assignment_of(make_world(count=2))
    for window in (-1, 2):
        with pytest.raises(ShoalError) as caught:
            prepare(assignment, window, 3)
        assert caught.value.kind is Kind.INVALID


def test_the_clock_names_the_window() -> None:
    """Both edges of every window. Planted: round instead of floor -> fails."""
    plan = make_world().task.windows
    for window in range(4):
        assert window_at("visits", plan, START + window * WEEK) == window
        assert window_at("visits", plan, START + (window + 1) * WEEK - 0.001) == window
    with pytest.raises(ShoalError) as early:
        window_at("visits", plan, START - 0.001)
    assert early.value.kind is Kind.TOO_EARLY
    assert "2027-01-15 08:00:00 UTC" in early.value.message
    with pytest.raises(ShoalError) as late:
        window_at("visits", plan, START + 4 * WEEK)
    assert late.value.kind is Kind.WINDOW_CLOSED


def test_a_report_expires_only_when_no_service_can_hold_its_window() -> None:
    task = make_world().task
    assert expiry(task, 1) == START + WEEK + task.retention_s + task.windows.skew_s
    short = replace(task, retention_s=WEEK + task.windows.grace_s + LIMITS.delivery_s)
    assert (
        expiry(short, 1) == short.windows.deadline_of(1) + LIMITS.delivery_s + task.windows.skew_s
    )


# --- failure -> action ----------------------------------------------------------------------------

WIRE = Path(__file__).resolve().parents[3] / "docs" / "WIRE.md"


def test_every_kind_has_the_action_that_the_wire_document_states() -> None:
    """Planted: BAD_SIGNATURE -> DROP (a forged receipt would end a report) -> fails."""
    rows = re.findall(
        r"^\| (\d+) \| ([A-Z_]+) \| ([A-Z_]+) \|.*\| (\w+) \|$", WIRE.read_text(), re.MULTILINE
    )
    assert {Kind(int(number)): (name, status) for number, name, status, _ in rows} == {
        kind: (kind.name, STATUS_OF[kind]) for kind in Kind
    }
    assert {Kind[name]: Action(action) for _, name, _, action in rows} == dict(ACTION_OF)
    assert all(ACTION_OF[kind] in {Action.RETRY, Action.REFRESH} for kind in RETRYABLE)


@for_each("kind", list(Kind))
@for_each("doubtful", [False, True])
def test_a_refusal_after_a_doubtful_attempt_is_unknown(kind: Kind, doubtful: bool) -> None:
    """Whoever lost a reply can't tell "full, without you" from "full, you are in". Planted: REFUSED
    always -> fails.
    """
    verdict = judge(kind, doubtful)
    if verdict.action is Action.DROP:
        assert verdict.state is (ReportState.UNKNOWN if doubtful else ReportState.REFUSED)
    else:
        assert verdict.state is ReportState.QUEUED
        assert verdict.doubtful == (doubtful or kind not in NOT_STORED)


def test_only_answers_that_promise_it_leave_no_doubt() -> None:
    assert not NOT_STORED & {Kind.UNAVAILABLE, Kind.DEADLINE, Kind.INTERNAL, Kind.BAD_SIGNATURE}


def test_a_pause_is_no_shorter_than_what_was_asked_and_nobody_is_parked() -> None:
    """Up to a quarter more than was asked, so that not all come back at once; a server that asks
    for years is not obeyed.

    Planted: asked_s left out, or no cap -> this fails.
    """
    entropy = SeededEntropy("asked")
    pauses = [pause(1, entropy, 1.0, 100.0, 40.0) for _ in range(200)]
    assert all(40.0 <= one <= 50.0 for one in pauses)
    assert max(pauses) - min(pauses) > 5.0
    assert all(pause(30, entropy, 1.0, 100.0, 0.0) <= 100.0 for _ in range(50))
    assert max(pause(1, entropy, 1.0, 100.0, 1e9) for _ in range(200)) <= 125.0
    assert (
        max(pause(1, entropy, 0.1, 2.0, 1e9) for _ in range(200))
        <= 1.25 * LIMITS.retry_after_most_s
    )


def test_pauses_double_up_to_a_limit_with_full_jitter() -> None:
    """The mean over many draws is half the bound: 1,000 draws, 4.5 standard errors of 0.2887 bound
    / sqrt(1000).

    Planted: no jitter -> the spread is 0; bound not doubled -> the means don't grow.
    """
    entropy = SeededEntropy("pauses")
    for attempts, bound in (
        (1, 1.0),
        (2, 2.0),
        (5, 16.0),
        (12, 2_048.0),
        (13, 3_600.0),
        (10_000, 3_600.0),
    ):
        draws = [pause(attempts, entropy) for _ in range(1_000)]
        assert min(draws) >= 0.0
        assert max(draws) < bound
        # each fails by chance with probability 0.95^1000 = 5e-23
        assert min(draws) < 0.05 * bound < 0.95 * bound < max(draws)
        assert abs(sum(draws) / 1_000 - bound / 2) < 4.5 * bound * 0.2887 / 1_000**0.5

"""The rules: transitions, the closing of windows, the decision, admission, each at its boundary."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from shoal.crypto.admission.admission import Verifier
from shoal.crypto.admission.enrolled import EnrolledVerifier
from shoal.crypto.admission.open import OPEN
from shoal.crypto.envelope import HopContent
from shoal.crypto.hpke import generate
from shoal.crypto.suites import SuiteId
from shoal.domain import Norm, Vector, YesNo
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.limits import LIMITS
from shoal.secagg import Mode, PairwisePlan
from shoal.shuffler import core
from shoal.shuffler.core import Capacity, Effect, WindowEvent, WindowId, WindowState
from shoal.task import Aggregator
from tests.cases import for_each
from tests.worlds.services.shuffler import GRACE, LENGTH, START, Published, World
from tests.worlds.words import words_world

S, E = WindowState, WindowEvent
ALLOWED = {
    (S.OPEN, E.DUE): (S.CLOSING, (Effect.SEAL,)),
    (S.CLOSING, E.ENOUGH): (S.SEALED, (Effect.DESTROY_INBOX, Effect.DELIVER)),
    (S.CLOSING, E.TOO_FEW): (S.WITHHELD, (Effect.SHRED,)),
    (S.CLOSING, E.EXPIRED): (S.EXPIRED, (Effect.SHRED,)),
    (S.SEALED, E.OFFERED): (S.DELIVERING, (Effect.DESTROY_INBOX, Effect.DELIVER)),
    (S.SEALED, E.TOO_FEW): (S.WITHHELD, (Effect.SHRED,)),
    (S.DELIVERING, E.TOO_FEW): (S.WITHHELD, (Effect.SHRED,)),
    (S.SEALED, E.EXPIRED): (S.EXPIRED, (Effect.SHRED,)),
    (S.DELIVERING, E.ACKNOWLEDGED): (S.ACKNOWLEDGED, (Effect.SHRED,)),
    (S.DELIVERING, E.EXPIRED): (S.EXPIRED, (Effect.SHRED,)),
    (S.ACKNOWLEDGED, E.SHREDDED): (S.SHREDDED, ()),
    (S.WITHHELD, E.SHREDDED): (S.SHREDDED, ()),
    (S.EXPIRED, E.SHREDDED): (S.SHREDDED, ()),
}


@for_each("state, event", list(product(WindowState, WindowEvent)))
def test_every_pair_of_state_and_event(state: WindowState, event: WindowEvent) -> None:
    """Planted: allowing OPEN + ENOUGH -> fails."""
    assert core.possible(state, event) == ((state, event) in ALLOWED)
    if (state, event) in ALLOWED:
        after, effects = core.step(state, event)
        assert (after, effects) == ALLOWED[state, event]
        assert core.resume(after) == effects  # after a crash the same effects are found again
    else:
        with pytest.raises(ShoalError) as refused:
            core.step(state, event)
        assert refused.value.kind is Kind.INTERNAL


def test_a_batch_reaches_the_analyzer_only_by_way_of_the_decision() -> None:
    """No path from OPEN to DELIVERING avoids CLOSING and ENOUGH."""
    reached, frontier = set(), {WindowState.OPEN}
    while frontier:
        state = frontier.pop()
        reached.add(state)
        for (before, event), (after, _) in ALLOWED.items():
            if before is state and event is not WindowEvent.ENOUGH and after not in reached:
                frontier.add(after)
    assert reached == {
        WindowState.OPEN,
        WindowState.CLOSING,
        WindowState.WITHHELD,
        WindowState.EXPIRED,
        WindowState.SHREDDED,
    }


@for_each("reports, event", [(0, E.TOO_FEW), (99, E.TOO_FEW), (100, E.ENOUGH), (101, E.ENOUGH)])
def test_the_decision_at_its_boundary(reports: int, event: WindowEvent) -> None:
    """Planted: > for >= in ``verdict`` -> fails at 100."""
    assert core.verdict(reports, 100) is event


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def published(world: World) -> Published:
    return world.publish()


def test_a_window_is_due_at_the_end_of_its_grace_or_when_full(world: World) -> None:
    deadline = START + LENGTH + GRACE
    without, limited = world.task(), world.task(max_batch=10)
    times = (deadline - 1, deadline - 0.001, deadline, deadline + 1)
    assert [core.due(without, 0, now, 10**9) for now in times] == [False, False, True, True]
    assert core.due(without, 1, deadline, 0) is False
    for now in (START, None):
        assert [core.due(limited, 0, now, distinct) for distinct in (0, 9, 10, 11)] == [
            False,
            False,
            True,
            True,
        ]
    assert core.due(without, 0, None, 10**9) is False


def test_retention_runs_from_the_start_of_the_window(world: World) -> None:
    task = world.task(retention_s=9_000)
    assert [core.expired(task, 1, START + LENGTH + seconds) for seconds in (0, 8_999, 9_000)] == [
        False,
        False,
        True,
    ]


def test_capacity(world: World) -> None:
    assert Capacity.of(world.task()) == Capacity(1, 0, LIMITS.batch_rows)
    assert Capacity.of(world.task(max_batch=10)) == Capacity(1, 10, LIMITS.batch_rows)


@pytest.mark.parametrize("window", [-1, LIMITS.windows])
def test_a_window_number_out_of_range(window: int) -> None:
    with pytest.raises(ShoalError) as refused:
        WindowId(TaskId(bytes(32)), window)
    assert refused.value.kind is Kind.INVALID


# --- admission ------------------------------------------------------------------------------------


def refusal(
    published: Published,
    now: float = START + 1,
    state: WindowState | None = None,
    hop: KeyId | None = None,
    reports: int = 0,
    **changes: Any,
) -> Kind | None:
    content, messages = published.content(**changes), list[str]()
    try:
        core.admit(
            published.served, state, content, hop or published.hop.config.key_id, now, reports
        )
    except ShoalError as error:
        messages.append(error.message)
        kind = error.kind
    else:
        return None
    assert len(messages[0]) < 160
    assert "\n" not in messages[0]
    return kind


CONTENTS: list[tuple[str, Callable[[Published], dict[str, Any]], Kind | None]] = [
    ("as it should be", lambda _: {}, None),
    (
        "the next window's key",
        lambda p: {"analyzer_key_id": p.served.keys.analyzer_keys[1].key_id},
        Kind.UNKNOWN_KEY,
    ),
    (
        "a foreign analyzer key",
        lambda _: {"analyzer_key_id": generate(SuiteId.X25519_AES128).config.key_id},
        Kind.UNKNOWN_KEY,
    ),
    (
        "one byte short",
        lambda p: {"sealed": (secrets.token_bytes(core.row_size(p.task) - 1),)},
        Kind.INVALID,
    ),
    (
        "one byte long",
        lambda p: {"sealed": (secrets.token_bytes(core.row_size(p.task) + 1),)},
        Kind.INVALID,
    ),
    ("two messages", lambda p: {"sealed": (p.sealed(), p.sealed())}, Kind.INVALID),
    ("a window that the task lacks", lambda _: {"window": 2}, Kind.INVALID),
    ("a window far away", lambda _: {"window": 2**32 - 1}, Kind.INVALID),
]


@pytest.mark.parametrize(
    ("changes", "kind"), [entry[1:] for entry in CONTENTS], ids=[entry[0] for entry in CONTENTS]
)
def test_what_a_frame_holds(
    published: Published, changes: Callable[[Published], dict[str, Any]], kind: Kind | None
) -> None:
    """Planted: dropping any one check of ``admit`` -> its row fails."""
    fields = changes(published)
    if "sealed" in fields:
        content_fields = dict(fields)
        sealed = content_fields.pop("sealed")
        content = published.content(**content_fields)
        object.__setattr__(content, "sealed", sealed)
        with pytest.raises(ShoalError) as refused:
            core.admit(published.served, None, content, published.hop.config.key_id, START + 1)
        assert refused.value.kind is kind
    else:
        assert refusal(published, **fields) is kind


def test_a_task_that_is_summed_in_rounds_takes_no_frames(
    world: World, published: Published
) -> None:
    """Planted: the aggregator not looked at -> fails."""
    summed = Vector(4, Norm.L2, 1.0, 1_000, ("a", "b", "c", "d"), "")
    plan = PairwisePlan(Mode.DEFAULT, 8, 64, 6, 100_000, 32, 60, 60, 60, 60)
    task = world.enrolled(
        domain=summed,
        aggregator=Aggregator.PAIRWISE,
        pairwise=plan,
        report_size=plan.vector_bytes(4),
        min_batch=8,
    )
    with pytest.raises(ShoalError, match="rounds") as refused:
        core.admit(
            replace(published.served, task=task),
            None,
            published.content(),
            published.hop.config.key_id,
            START + 1,
        )
    assert refused.value.kind is Kind.INVALID


def test_who_a_frame_is_of(world: World, published: Published) -> None:
    """A task for anybody wants no proof. Another one: the tag of the device, or UNAUTHENTICATED in
    one line.

    What a proof is bound to, and every way to get it wrong: tests/conformance/admission,
    tests/unit/crypto/admission and the vectors. Planted: ``OPEN`` for every task -> fails.
    """
    device = world.device()
    proven, bare = published.proven(device), published.content()
    enrolled = EnrolledVerifier(world.root.public)

    def tag(verifier: Verifier, content: HopContent, now: float = START) -> bytes:
        return verifier.verify(
            content.admission, content.task_id, content.window, content.sealed, now
        )

    assert tag(OPEN, bare) == b""
    assert tag(enrolled, proven) == device.key.public
    stranger = EnrolledVerifier(world.authority.public)
    cases: list[tuple[Verifier, HopContent, float, Kind]] = [
        (OPEN, proven, START, Kind.INVALID),
        (enrolled, bare, START, Kind.UNAUTHENTICATED),
        (enrolled, replace(proven, window=1), START, Kind.UNAUTHENTICATED),
        (enrolled, replace(proven, task_id=TaskId(bytes(32))), START, Kind.UNAUTHENTICATED),
        (enrolled, replace(proven, sealed=bare.sealed), START, Kind.UNAUTHENTICATED),
        (enrolled, proven, START + 86_401, Kind.UNAUTHENTICATED),
        (stranger, proven, START, Kind.UNAUTHENTICATED),
    ]
    for verifier, content, now, kind in cases:
        with pytest.raises(ShoalError) as refused:
            tag(verifier, content, now)
        assert refused.value.kind is kind
        assert "\n" not in refused.value.message


def test_a_frame_under_another_hop_key_than_the_schedules(published: Published) -> None:
    assert refusal(published, hop=generate(SuiteId.X25519_AES128).config.key_id) is Kind.UNKNOWN_KEY


@pytest.mark.parametrize(
    ("window", "now", "kind"),
    [
        (0, START - 61, Kind.TOO_EARLY),
        (0, START - 60.001, Kind.TOO_EARLY),
        (0, START - 60, None),
        (0, START + LENGTH + GRACE - 0.001, None),
        (0, START + LENGTH + GRACE, Kind.WINDOW_CLOSED),
        (1, START + LENGTH - 61, Kind.TOO_EARLY),
        (1, START + LENGTH - 60, None),
        (1, START + 2 * LENGTH + GRACE, Kind.WINDOW_CLOSED),
        (0, START - 10**9, Kind.TOO_EARLY),
        (0, START + 10**12, Kind.WINDOW_CLOSED),
    ],
)
def test_early_and_late(published: Published, window: int, now: float, kind: Kind | None) -> None:
    """Planted: <= for < at either end -> fails."""
    assert refusal(published, now, window=window) is kind


@pytest.mark.parametrize("state", [state for state in WindowState if state is not WindowState.OPEN])
def test_a_decided_window_takes_nothing_whatever_the_clock_says(
    world: World, state: WindowState
) -> None:
    """And says why: only one that was full was FULL. Planted: a decided window is always called
    full -> the second fails.
    """
    most = 10
    published = world.publish(max_batch=most)
    # of a task without max_batch
    assert refusal(world.publish(), state=state, reports=10**6) is Kind.WINDOW_CLOSED
    assert refusal(published, state=WindowState.OPEN) is None
    for reports, kind in (
        (0, Kind.WINDOW_CLOSED),
        (most - 1, Kind.WINDOW_CLOSED),
        (most, Kind.WINDOW_FULL),
        (most + 1, Kind.WINDOW_FULL),
    ):
        assert refusal(published, state=state, reports=reports) is kind
    assert refusal(published, START + 10**6, state=state, reports=most) is Kind.WINDOW_CLOSED


@pytest.mark.parametrize("suite", [1, 2, 3])
def test_sizes_follow_the_suite(world: World, suite: int) -> None:
    published = world.publish(suite=suite, report_size=40)
    assert refusal(published) is None
    assert core.row_size(published.task) == SuiteId(suite).overhead + 16 + 40


def test_all_reports_of_a_window_answer_its_one_question() -> None:
    """Else a device that was told another one would have no noise but its own in cells that the
    others lack. Planted: the task's id taken in every window; any known name taken -> fails.
    """
    world = words_world()
    first, second = (WindowId(world.task_id, window) for window in (1, 2))
    start = WindowId(world.task_id, 0)
    core.check_asked(world.task, start, None)
    core.check_asked(world.task, first, first)
    for window, named in ((first, None), (first, second), (start, start), (start, first)):
        with pytest.raises(ShoalError) as refused:
            core.check_asked(world.task, window, named)
        assert refused.value.kind is Kind.INVALID
    plain = replace(world.task, domain=YesNo())
    core.check_asked(plain, first, None)
    with pytest.raises(ShoalError):
        core.check_asked(plain, first, first)

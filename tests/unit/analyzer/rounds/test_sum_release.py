"""The release of a window of rounds: totals that are right with errors that are right, one round's
guarantee, and nothing too much.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from shoal.accounting.sums.pairwise import certify_sum
from shoal.accounting.sums.spent import spent_by
from shoal.accounting.sums.sum_task import check_sum
from shoal.accounting.sums.windows import epsilon_of_task
from shoal.analyzer import core
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.rounds import sum_release
from shoal.analyzer.rounds.sum_release import (
    standard_errors,
    sums_hash,
)
from shoal.crypto.signing import SigningContext, verify
from shoal.domain import Vector
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.mechanisms.quantize import bounds
from shoal.protos import delivery_pb2, release_pb2
from shoal.secagg import Mode
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.unit.analyzer.rounds.windows_of_sums import (
    ANALYZER,
    SERVED,
    outcome,
    rounds,
    serve,
    shown,
)
from tests.worlds.tasks import PLAN, TASK, pairwise

GUARANTEED = check_sum(SERVED.task)


# --- what it says ---------------------------------------------------------------------------------


def test_the_shape_is_the_published_one() -> None:
    """Other programs rely on exactly these keys; those of a shuffled release come first, and are
    the same.
    """
    release = shown(
        rounds(90, 110, 100), aborted={"too few joined": 2, "the sum does not check": 1}
    )
    assert list(release) == [
        *(
            "task_id",
            "name",
            "window",
            "n",
            "rejected",
            "estimates",
            "privacy",
            "damaged",
            "manifest_hash",
            "withheld",
            "rounds",
        ),
    ]
    assert list(release["rounds"]) == [
        *(
            "mode",
            "rounds",
            "aborted",
            "noise_stderr",
            "one_round_noise_stderr",
            "rounding_stderr",
            "epsilon_analyzer",
            "epsilon_together",
        ),
    ]
    assert release["rounds"]["aborted"] == {"the sum does not check": 1, "too few joined": 2}
    assert (release["rounds"]["mode"], release["rounds"]["rounds"]) == ("default", 3)
    assert (release["task_id"], release["name"], release["window"], release["n"]) == (
        SERVED.task_id.hex,
        "moments",
        1,
        300,
    )
    assert [row["label"] for row in release["estimates"]] == ["visits", "visits squared", "answers"]
    assert release["withheld"] is None


def test_release_and_acknowledgement_are_signed_for_what_they_are() -> None:
    """Planted: the release signed as an acknowledgement -> this fails."""
    made = outcome(rounds(100, 100))
    verify(ANALYZER.public, SigningContext.RELEASE, made.release, made.release_signature)
    verify(ANALYZER.public, SigningContext.ACK, made.ack, made.ack_signature)
    message = delivery_pb2.Ack.FromString(made.ack)
    assert message.manifest_hash == decode_release(made.release).manifest_hash
    assert made.tally is None


def test_the_hash_names_task_window_and_rounds_in_any_order() -> None:
    """Two windows without any round differ too. Planted: the window left out, or the rounds not
    sorted -> this fails.
    """
    sums = rounds(90, 100)
    expected = (
        b"shoal/v1/secagg/window\x00"
        + SERVED.task_id.raw
        + bytes([0, 0, 0, 1])
        + b"".join(sorted(s.round_id.raw for s in sums))
    )
    assert sums_hash(SERVED.task_id, 1, sums).raw == hashlib.sha256(expected).digest()
    assert sums_hash(SERVED.task_id, 1, sums[::-1]) == sums_hash(SERVED.task_id, 1, sums)
    others = {sums_hash(SERVED.task_id, w, sums[:n]) for w in (0, 1) for n in (0, 1, 2)} | {
        sums_hash(TaskId(bytes(32)), 1, sums)
    }
    assert len(others) == 7


# --- what it guarantees ---------------------------------------------------------------------------


def test_the_guarantee_is_that_of_the_smallest_sum_allowed() -> None:
    """However many survived, the stated epsilon is fixed before collection. Planted: the received
    figure in its place -> this fails.
    """
    for sums in (rounds(80, 120), rounds(120, 120, 120)):
        privacy = shown(sums)["privacy"]
        assert privacy["epsilon_upper"] == GUARANTEED.epsilon_upper
        assert (privacy["epsilon_lower"], privacy["epsilon0"]) == (
            GUARANTEED.epsilon_lower,
            GUARANTEED.epsilon0,
        )
        assert (privacy["n_certified"], privacy["honest_fraction"], privacy["delta"]) == (
            70,
            0.9,
            1e-8,
        )
        assert privacy["relation"] == "replace-one"
        assert privacy["unit"] == "one vector of one device in one window"
        assert privacy["assumptions"][:-1] == list(GUARANTEED.assumptions)


@for_each("sizes", [(80, 120), (120, 80, 100), (120, 111), (100, 120, 120)])
def test_the_received_figure_is_that_of_the_smallest_round(sizes: tuple[int, ...]) -> None:
    """A device may have been in any of the rounds, so the worst counts. Planted: the largest, or
    the sum of them -> this fails.
    """
    task = SERVED.task
    assert isinstance(task.domain, Vector)
    alone = certify_sum(
        task.mechanism,
        bounds(task.domain),
        3,
        survivors=min(sizes),
        honest_fraction=Fraction(7, 8),
        delta=1e-8,
        mode=Mode.DEFAULT,
    )
    received = shown(rounds(*sizes))["privacy"]["epsilon_at_received_n"]
    assert received == min(alone.epsilon_upper, GUARANTEED.epsilon_upper)
    assert (received < GUARANTEED.epsilon_upper) == (min(sizes) > 80)


def test_modes_promise_what_they_can() -> None:
    """Against both servers: the guarantee in strict mode, one share's in the others. Planted: the
    analyzer's for both -> fails.
    """
    for mode in Mode:
        release = shown(rounds(100, 100), serve(pairwise(pairwise=replace(PLAN, mode=mode))))
        told = release["rounds"]
        assert told["mode"] == mode.name.lower()
        assert told["epsilon_analyzer"] == release["privacy"]["epsilon_upper"]
        expected = release["privacy"]["epsilon_upper" if mode is Mode.STRICT else "epsilon0"]
        assert told["epsilon_together"] == expected


def test_a_window_is_charged_once_whatever_its_rounds() -> None:
    """A device is in one round of a window: rounds do not add up, windows do. Planted: a charge per
    round -> this fails.
    """
    for sums in (rounds(80), rounds(100, 100, 100, 100)):
        assert outcome(sums).spending == Spending(
            SERVED.task_id, GUARANTEED.epsilon_upper, 1e-8, spent_by(SERVED.task)
        )
    earlier = [
        Spending(SERVED.task_id, GUARANTEED.epsilon_upper, 1e-8),
        Spending(TaskId(bytes(32)), 0.25, 1e-9),
    ]
    privacy = shown(rounds(100, 100), earlier=earlier)["privacy"]
    assert (privacy["windows_composed"], privacy["tasks_composed"]) == (3, 2)
    assert privacy["delta_cumulative"] == pytest.approx(2.1e-8, rel=1e-12)
    assert (
        GUARANTEED.epsilon_upper
        < privacy["epsilon_cumulative_upper"]
        <= 2 * GUARANTEED.epsilon_upper + 0.25
    )


def test_windows_of_one_task_compose_by_what_they_are_certified_by() -> None:
    """Far below what their (epsilon, delta) prove, and what the task's account says. Planted: the
    law not kept with the charge -> the larger figure, fails.
    """
    earlier = [outcome(rounds(100)).spending] * 5
    privacy = shown(rounds(100, 100), earlier=earlier)["privacy"]
    composed = privacy["epsilon_cumulative_upper"]
    assert composed == pytest.approx(epsilon_of_task(SERVED.task, 6, 6e-8), rel=1e-9)
    known = [Spending(SERVED.task_id, GUARANTEED.epsilon_upper, 1e-8)] * 5
    apart = shown(rounds(100, 100), earlier=known)["privacy"]["epsilon_cumulative_upper"]
    assert composed < 0.8 * apart


def test_a_sum_of_too_few_is_composed_by_what_it_was_charged() -> None:
    """It cost more than the certificate is about. Planted: the certificate's law kept all the same
    -> fails.
    """
    spending = outcome(rounds(79)).spending
    assert spending.epsilon_upper > GUARANTEED.epsilon_upper
    assert spending.law is None


# --- what is withheld -----------------------------------------------------------------------------


def assert_withheld(release: dict[str, Any], made: WindowOutcome, reason: str) -> None:
    assert release["withheld"] == reason
    assert release["estimates"] == []
    assert made.tally is None
    assert made.spending.epsilon_upper >= GUARANTEED.epsilon_upper  # the analyzer has seen the sums


@for_each(
    "sizes, withheld",
    [
        ((100, 99), True),
        ((100, 100), False),
        ((119,), True),
        ((80,), True),
        ((80, 119), True),
        ((80, 120), False),
    ],
)
def test_fewer_survivors_than_min_batch_are_withheld(
    sizes: tuple[int, ...], withheld: bool
) -> None:
    """min_batch is 200, of all rounds together. Planted: ``<=``, or the largest round alone counted
    -> this fails.
    """
    made, release = outcome(rounds(*sizes)), shown(rounds(*sizes))
    if withheld:
        assert_withheld(release, made, core.WITHHELD_TOO_FEW)
    else:
        assert release["withheld"] is None
        assert len(release["estimates"]) == 3


def test_a_guarantee_above_the_target_is_withheld_however_many_came() -> None:
    """Received epsilon would be below the target: it does not count. Planted: withheld decided by
    what was received -> this fails.
    """
    served = serve(pairwise(target_epsilon=GUARANTEED.epsilon_upper * (1 - 1e-9)))
    assert_withheld(
        shown(rounds(120, 120), served), outcome(rounds(120, 120), served), core.WITHHELD_EPSILON
    )
    assert (
        shown(rounds(120, 120), served)["privacy"]["epsilon_at_received_n"]
        < served.task.target_epsilon
    )
    assert (
        shown(rounds(120, 120), serve(pairwise(target_epsilon=GUARANTEED.epsilon_upper)))[
            "withheld"
        ]
        is None
    )


def test_a_window_without_a_sum_is_withheld_and_says_why() -> None:
    release = shown([], aborted={"too few joined": 3})
    assert_withheld(release, outcome([]), sum_release.NO_SUMS)
    assert release["n"] == 0
    assert (
        release["rounds"]["rounds"]
        == release["rounds"]["noise_stderr"]
        == release["rounds"]["one_round_noise_stderr"]
        == 0
    )
    assert release["rounds"]["aborted"] == {"too few joined": 3}
    assert release["privacy"]["epsilon_at_received_n"] == GUARANTEED.epsilon_upper


@for_each("least", [79, 40, 2, 1])
def test_a_sum_of_too_few_is_never_published_and_charged_by_what_it_was(least: int) -> None:
    """No honest party makes one; were there one, the certificate would not be about it. A single
    device is charged at epsilon0.

    Planted: the survivors moved up to survivors_min before they are certified -> this fails.
    """
    sums = rounds(least, 120, 120)
    release = shown(sums)
    assert_withheld(release, outcome(sums), sum_release.TOO_FEW_SURVIVORS)
    charged = outcome(sums).spending.epsilon_upper
    assert charged == release["privacy"]["epsilon_at_received_n"] > GUARANTEED.epsilon_upper
    assert release["rounds"]["epsilon_analyzer"] == charged
    assert release["rounds"]["epsilon_together"] >= charged
    assert release["privacy"]["epsilon_cumulative_upper"] >= charged
    if least == 1:
        assert charged == GUARANTEED.epsilon0


def test_a_sum_of_too_many_for_its_words_is_never_published() -> None:
    """121 of at most 120: the total may have wrapped without anybody noticing. Planted: ``>=``, or
    no such check -> this fails.
    """
    assert shown(rounds(120, 120))["withheld"] is None
    assert_withheld(
        shown(rounds(120, 121)), outcome(rounds(120, 121)), sum_release.TOO_MANY_SURVIVORS
    )


def test_a_task_that_does_not_hold_is_not_released() -> None:
    """Noise for more than the guaranteed survivors: nothing is signed. So is a task without
    rounds.
    """
    wrong = serve(pairwise(mechanism=MechanismSpec.of("skellam", shares=80, variance=118_000_000)))
    for served in (wrong, serve(TASK)):
        with pytest.raises(ShoalError) as caught:
            outcome(rounds(100, 100), served)
        assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError, match="not summed"):
        standard_errors(TASK, 5)


def test_an_epsilon_that_is_none_is_null() -> None:
    """JSON has no infinity. Planted: ``_finite`` left out for any of these -> ``allow_nan=False``
    raises.
    """
    message = decode_release(outcome(rounds(100, 100)).release)
    for part, names in (
        (message.privacy, ("epsilon0", "epsilon_at_received_n", "epsilon_cumulative_upper")),
        (message.rounds, ("epsilon_analyzer", "epsilon_together")),
    ):
        for name in names:
            setattr(part, name, math.inf)
    made = to_json(release_pb2.Release.FromString(message.SerializeToString()))
    assert json.loads(json.dumps(made, allow_nan=False))["privacy"]["epsilon0"] is None
    assert made["rounds"]["epsilon_together"] is made["rounds"]["epsilon_analyzer"] is None
    assert (
        made["privacy"]["epsilon_at_received_n"]
        is made["privacy"]["epsilon_cumulative_upper"]
        is None
    )


def test_a_sum_of_too_few_is_charged_by_the_honest_devices_that_may_be_in_it() -> None:
    """No honest party makes it, so all 12 corrupt devices of the largest round may be among its
    survivors; and it composes by its epsilon alone. Planted: the share of honest survivors of a
    round as planned -> another figure; the law of the task's rounds -> fails.
    """
    task = SERVED.task
    assert isinstance(task.domain, Vector)
    for small, honest in ((60, 48), (79, 67)):
        alone = certify_sum(
            task.mechanism,
            bounds(task.domain),
            3,
            survivors=small,
            honest_fraction=Fraction(honest, small),
            delta=1e-8,
            mode=Mode.DEFAULT,
        )
        spending = outcome(rounds(small, 120)).spending
        assert spending.law is None
        assert spending.epsilon_upper == alone.epsilon_upper > GUARANTEED.epsilon_upper
    assert outcome(rounds(12, 120)).spending.epsilon_upper == GUARANTEED.epsilon0

"""Findings about tasks of sums: errors refuse to be signed, warnings are read; each appears when it
should and not before.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from shoal.accounting.guarantee import Remaining
from shoal.accounting.lint import sums as sum_lint
from shoal.accounting.lint.task import lint
from shoal.accounting.meaning import bound_text, sum_sentences
from shoal.accounting.sums.pairwise import SumBound
from shoal.accounting.sums.sum_task import check_sum
from shoal.domain import Norm, Vector
from shoal.limits import LIMITS
from shoal.secagg import Mode
from shoal.task import MechanismSpec, Task
from tests.cases import for_each
from tests.worlds.tasks import PAIRWISE, PLAN, pairwise


def strict(**changes: Any) -> Task:
    return pairwise(pairwise=replace(PLAN, mode=Mode.STRICT), **changes)


def test_a_sound_task_has_nothing_but_the_word_about_its_mode() -> None:
    """Strict mode withstands both servers, so nothing is said. Planted: the warning of the mode
    given to strict mode -> fails.
    """
    result = lint(strict())
    assert result.findings == ()
    assert isinstance(result.guarantee, SumBound)
    assert result.guarantee == check_sum(strict())
    assert lint(PAIRWISE).errors == ()


@for_each("phase", ["join_s", "share_s", "mask_s", "unmask_s"])
@for_each("mode, least", [(Mode.STRICT, 2), (Mode.DEFAULT, 1)])
def test_a_phase_that_far_devices_cannot_keep_is_a_warning(
    phase: str, mode: Mode, least: int
) -> None:
    """LIMITS.phase_far_s passes, twice that for the two steps of strict mode's last phase. Planted:
    join_s left out -> this fails.
    """
    enough = LIMITS.phase_far_s * (least if phase == "unmask_s" else 1)

    def said(seconds: int) -> set[str]:
        changes: dict[str, Any] = {"mode": mode, phase: seconds}
        made = replace(PLAN, **changes)
        return {one.message for one in lint(pairwise(pairwise=made)).findings}

    (new,) = said(enough - 1) - said(enough)
    assert "slow links" in new
    short: dict[str, Any] = {phase: 1}
    assert lint(pairwise(pairwise=replace(PLAN, **short))).errors == ()


def test_a_target_out_of_reach_is_an_error() -> None:
    """At the certificate it is met, a hair below it is not. Planted: ``>=`` or ``<`` for ``>`` ->
    this fails.
    """
    reached = check_sum(PAIRWISE).epsilon_upper
    assert lint(pairwise(target_epsilon=reached)).errors == ()
    (error,) = lint(pairwise(target_epsilon=reached * (1 - 1e-12))).errors
    assert "target_epsilon" in error
    assert bound_text(reached) in error


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": MechanismSpec.of("skellam", shares=73, variance=118_000_000)},
        {"mechanism": MechanismSpec.of("krr", k=3)},
        {
            "pairwise": replace(PLAN, word_bits=16),
            "report_size": replace(PLAN, word_bits=16).vector_bytes(3),
        },
    ],
    ids=["shares", "mechanism", "words"],
)
def test_what_check_sum_refuses_is_an_error_without_a_certificate(changes: dict[str, Any]) -> None:
    result = lint(pairwise(**changes))
    assert len(result.errors) == 1
    assert result.guarantee is None


def test_a_delta_that_gives_a_vector_away_is_a_warning() -> None:
    """1 / survivors_min itself passes. Planted: 1 / min_batch or ``>=`` -> this fails."""

    def warned(delta: float) -> bool:
        return any("1 / survivors_min" in text for text in lint(strict(delta=delta)).warnings)

    assert not warned(1 / 80)
    assert warned(1 / 79)


def test_a_phase_too_short_for_a_vector_is_a_warning() -> None:
    """Over 1 Mbit/s; a phase that is just long enough passes. Planted: bits for bytes -> fails."""
    dimension = 1_000_000
    seconds = -(-PLAN.vector_bytes(dimension) // 125_000)

    def warned(mask_s: int) -> bool:
        plan = replace(PLAN, mask_s=mask_s, share_s=31, segment_words=1_000)
        task = pairwise(
            pairwise=plan,
            domain=Vector(dimension, Norm.L2, 10.0, 1_000),
            report_size=plan.vector_bytes(dimension),
        )
        return any("raise mask_s" in text for text in lint(task).warnings)

    assert 31 < seconds < 120
    assert not warned(seconds)
    assert warned(seconds - 1)


def test_rounds_without_room_for_a_loss_are_a_warning() -> None:
    tight = replace(PLAN, mode=Mode.STRICT, cohort_min=80)
    assert any(
        "survivors_min equals cohort_min" in text
        for text in lint(pairwise(pairwise=tight)).warnings
    )


def test_modes_that_promise_nothing_against_both_say_so() -> None:
    """Where one share alone proves nothing. Planted: ``isfinite`` without ``not`` -> this fails."""
    real = check_sum(PAIRWISE)
    nothing = replace(real, epsilon0=math.inf, remaining=Remaining(real.epsilon_upper, math.inf))
    with mock.patch.object(sum_lint, "check_sum", return_value=nothing):
        assert any(
            "mode default: shuffler and analyzer together" in text
            for text in lint(PAIRWISE).warnings
        )
        assert not any("together" in text for text in lint(strict()).warnings)
    assert nothing.to_json()["epsilon0"] is None
    json.dumps(nothing.to_json(), allow_nan=False)


def test_a_helper_task_that_could_never_be_released_is_an_error() -> None:
    """One sum per window, of cohort_max devices at most. In rounds many sums add up: there it is
    lawful. Planted: ``>=`` -> fails.
    """
    helper = replace(PLAN, mode=Mode.HELPER)
    assert lint(pairwise(pairwise=helper, min_batch=120)).errors == ()
    (error,) = lint(pairwise(pairwise=helper, min_batch=121)).errors
    assert "no window could be released" in error
    assert lint(pairwise(min_batch=121)).errors == ()


# --- in plain words -------------------------------------------------------------------------------


def test_words_say_against_whom_it_holds() -> None:
    """Only strict mode promises something against both. Planted: ``<`` for ``<=`` in
    ``sum_sentences`` -> this fails.
    """
    same = "the same holds if shuffler and analyzer work together"
    assert any(same in line for line in sum_sentences(1.0, 1e-8, 72, 1.0, "strict"))
    for together in (None, 23.1, float("inf")):
        lines = sum_sentences(1.0, 1e-8, 72, together, "default")
        assert not any(same in line for line in lines)
        assert any("they could read each device's vector" in line for line in lines)


def test_words_round_upper_bounds_up() -> None:
    """0.99991 is not 0.9999, and the best guess of epsilon 1 is 73.106 %. Planted: rounding to
    nearest -> this fails.
    """
    text = " ".join(sum_sentences(0.99991, 1e-8, 72, None, "helper"))
    assert "epsilon <= 1 at delta = 1e-08" in text
    assert "at most 73.2 % of the time" in text
    assert "72 honest devices" in text


def test_no_bound_is_said_to_be_none() -> None:
    assert bound_text(None) == "none"
    assert bound_text(float("inf")) == "inf"
    assert bound_text(None, up=False) == "none"

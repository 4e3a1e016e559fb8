"""Memoized tasks of mechanisms with a memory: both epsilons, what lint and the plain words say, and
exact views of small fleets.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import Any

from shoal.accounting.composition.memoized import (
    ALONE_KEPT,
    PROMISE,
    PROMISE_KEPT,
    RECOGNISED_KEPT,
    REPEATED_KEPT,
    check_memoized,
    lifetime_epsilon,
    promised,
    recognised,
    sentences,
)
from shoal.accounting.lint.task import lint
from shoal.domain import Categories
from shoal.mechanisms import create, design
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.privacy import epsilon0_upper
from shoal.task import Task
from tests.cases import for_each
from tests.worlds.services.analyzer import make_task

NAMES = ("l_unary", "dbitflip", "loloha", "rappor")
SIX = Categories(("a", "b", "c", "d", "e"))
Law = dict[Any, Fraction]


def task(name: str, memoized: bool = True) -> tuple[Task, Longitudinal]:
    spec = design(name, SIX, 1.0)
    mechanism = create(spec, SIX)
    assert isinstance(mechanism, Longitudinal)
    made = make_task(domain=SIX, min_batch=2_000, target_epsilon=1.0, windows=9)
    return replace(
        made, mechanism=spec, memoized=memoized, report_size=mechanism.report_size
    ), mechanism


@for_each("name", NAMES)
def test_the_lifetime_epsilon_is_that_of_choice_and_permanent_answer(name: str) -> None:
    """Planted: ``privacy()`` asked -> half of it for chained unary encoding, and this fails."""
    made, mechanism = task(name)
    check_memoized(made, mechanism)
    assert (
        lifetime_epsilon(made, mechanism)
        == epsilon0_upper(mechanism.permanent())
        >= epsilon0_upper(mechanism.privacy())
    )
    assert promised(mechanism) == (PROMISE_KEPT, ALONE_KEPT, REPEATED_KEPT)
    assert recognised(made, mechanism) == RECOGNISED_KEPT


def test_lint_says_both_epsilons_and_what_is_wasted() -> None:
    """Planted: one figure; no word on a mechanism whose memory is not used -> fails."""
    from shoal.accounting.meaning import bound_text

    made, mechanism = task("l_unary")
    result = lint(made)
    assert not result.errors
    one, all_windows = (
        bound_text(epsilon0_upper(law)) for law in (mechanism.privacy(), mechanism.permanent())
    )
    assert any(
        f"epsilon0 {one}, an unchanged value over all windows {all_windows}" in text
        for text in result.warnings
    )
    assert any(RECOGNISED_KEPT in text for text in result.warnings)
    assert result.guarantee is not None
    assert result.guarantee == lint(replace(made, memoized=False)).guarantee, (
        "one window's figure is that of one report"
    )
    assert any("memoized is not set" in text for text in lint(task("l_unary", False)[0]).warnings)
    assert not any(
        "memoized is not set" in text for text in lint(task("dbitflip", False)[0]).warnings
    ), "it has no noise to waste"
    plan = replace(made.windows, count=1)
    assert not any(
        "memoized is not set" in text
        for text in lint(replace(made, memoized=False, windows=plan)).warnings
    )


def test_plain_words_say_both_figures_and_never_round_down() -> None:
    one, two = sentences(2.34567, 1, 1.23456), sentences(2.34567, 2, 1.23456)
    assert all(
        "1.235" in lines[0] and "2.346" in lines[0] and PROMISE_KEPT in lines[0]
        for lines in (one, two)
    )
    assert "lifetime epsilon = 2.346" in one[1]
    assert "epsilon <= 2.346" in two[1]
    assert "permanent answers" in two[2]
    assert PROMISE in sentences(1.0, 2, 1.0)[0], (
        "where the report is the permanent answer, it is the same in every window"
    )
    assert sentences(1.0, 2, 1.0) == sentences(1.0, 2) == sentences(1.0, 2, None)


# --- views ----------------------------------------------------------------------------------------

# A permanent answer of 3 values and reports of 2, by hand: P(answer | value), P(report | answer),
# in eighths.
ANSWER = {0: (1, 6, 1), 1: (3, 2, 3)}
REPORT = {0: (7, 1), 1: (4, 4), 2: (1, 7)}


def seen(pattern: tuple[int, ...]) -> Law:
    """The law of one device's reports; ``pattern``: the value in each window. Each value's answer
    is drawn once.
    """
    values, law = sorted(set(pattern)), defaultdict(Fraction)  # type: tuple[list[int], Law]
    for answers in itertools.product(range(3), repeat=len(values)):
        kept = dict(zip(values, answers, strict=True))
        chance = math.prod(
            (Fraction(ANSWER[value][kept[value]], 8) for value in values), start=Fraction(1)
        )
        for reports in itertools.product(range(2), repeat=len(pattern)):
            noise = (Fraction(REPORT[kept[v]][r], 8) for v, r in zip(pattern, reports, strict=True))
            law[reports] += chance * math.prod(noise, start=Fraction(1))
    return law


def worst(one: Law, two: Law) -> Fraction:
    return max(max(one[view] / two[view], two[view] / one[view]) for view in one)


PERMANENT = max(Fraction(max(pair), min(pair)) for pair in zip(*ANSWER.values(), strict=True))


def test_what_windows_show_together_is_bounded_by_the_permanent_answer_and_by_nothing_else() -> (
    None
):
    """One report shows nothing at all here (epsilon0 = 0), two show something, and many approach
    all of the permanent law: windows times one report's epsilon0 bounds nothing. Planted: an answer
    drawn anew in each window -> nothing is ever shown, and this fails.
    """
    found = [worst(seen((0,) * windows), seen((1,) * windows)) for windows in (1, 2, 3, 8)]
    assert found[0] == 1
    assert 1 < found[1] <= found[2] < found[3] <= PERMANENT
    assert found[3] > Fraction(9, 10) * PERMANENT


def test_histories_that_change_alike_differ_by_the_permanent_law_for_each_value() -> None:
    """Whether a value changed is not bounded so: what tells that grows with the windows."""
    same = worst(seen((0, 0, 1, 1)), seen((1, 1, 0, 0)))
    assert same <= PERMANENT**2
    changes = [worst(seen((0,) * n), seen((0, 1) * (n // 2))) for n in (2, 4, 8)]
    assert changes[0] < changes[1] < changes[2]

"""What a way to ask costs: against enumeration at small sizes, and against what composes it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from shoal.accounting.accountant import certify
from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.planner.deployments.accounts import account
from shoal.domain import Categories
from shoal.mechanisms import create, design
from shoal.mechanisms.several.names import CANCELLING
from shoal.mechanisms.several.registry import create as create_several
from shoal.privacy import KaryLaw, epsilon0_upper

DOMAIN = Categories(("a", "b"))  # and no answer: three cells
N, DELTA, WINDOWS, PER_DAY = 400, 1e-6, 3, 2


def pattern(history: tuple[int, ...]) -> tuple[int, ...]:
    """In which windows the value was the same as in which."""
    return tuple(history.index(value) for value in history)


def chances(history: tuple[int, ...], law: KaryLaw) -> dict[tuple[int, ...], Fraction]:
    """Of everything that is seen of a device that keeps one answer for each value."""
    values, seen = sorted(set(history)), dict[tuple[int, ...], Fraction]()
    for kept in itertools.product(range(3), repeat=len(values)):
        chance = Fraction(1)
        for value, answer in zip(values, kept, strict=True):
            chance *= Fraction(law.same if value == answer else law.other, law.total)
        answers = dict(zip(values, kept, strict=True))
        told = tuple(answers[value] for value in history)
        seen[told] = seen.get(told, Fraction(0)) + chance
    return seen


def test_kept_answers_cost_what_enumeration_says() -> None:
    """All pairs of histories of three windows whose values change in the same ones: the largest
    ratio is epsilon0 for each distinct value, and so much is said of a run. Planted: epsilon0 once
    for a value that changes -> below the largest ratio, fails.
    """
    made = create(design("krr", DOMAIN, 0.7), DOMAIN)
    law = made.privacy()
    assert isinstance(law, KaryLaw)
    found = account(made, 3, N, DELTA, windows=WINDOWS, per_day=PER_DAY, memoized=True)
    assert found.unchanged is not None
    worst = dict[int, Fraction]()
    for one, other in itertools.product(itertools.product(range(3), repeat=WINDOWS), repeat=2):
        if pattern(one) != pattern(other):
            continue
        under, beside = chances(one, law), chances(other, law)
        ratio = max(chance / beside[told] for told, chance in under.items())
        distinct = len(set(one))
        worst[distinct] = max(worst.get(distinct, ratio), ratio)
    for distinct, said in ((1, found.unchanged.run), (3, found.together.run)):
        largest = math.log(worst[distinct])
        assert largest <= said <= largest * (1 + 1e-9)
    # at most so many distinct values as a day has windows, or as there are cells
    assert found.together.day == pytest.approx(2 * found.epsilon0)
    assert found.together.year == pytest.approx(3 * found.epsilon0)
    assert found.unchanged.year == found.epsilon0 == found.together.window
    assert found.apart.window == certify(law, N, DELTA).epsilon_upper < found.epsilon0
    assert (found.apart.day, found.apart.run, found.apart.year) == (
        found.together.day,
        found.together.run,
        found.together.year,
    )


def test_fresh_answers_add_up() -> None:
    """Against both together window by window; apart by their laws, at least as much as one window
    and at most the sum. Planted: a year of one window; a day of one report -> fails.
    """
    made = create(design("krr", DOMAIN, 0.7), DOMAIN)
    found = account(made, 3, N, DELTA, windows=WINDOWS, per_day=PER_DAY, memoized=False)
    epsilon0 = epsilon0_upper(made.privacy())
    together = found.together
    assert (together.window, together.day, together.run, together.year) == (
        epsilon0,
        2 * epsilon0,
        3 * epsilon0,
        730 * epsilon0,
    )
    apart = found.apart
    assert apart.window == certify(made.privacy(), N, DELTA).epsilon_upper
    assert apart.window < apart.day < apart.run < apart.year < together.year
    assert apart.run < 3 * apart.window
    assert found.unchanged is None


def test_several_messages_hide_nothing_from_both_together() -> None:
    """Planted: epsilon of the batch for both together -> a finite figure, fails; null is what
    machines read.
    """
    spec = design_several(CANCELLING, DOMAIN, N, 1.0, DELTA, windows=730)
    made = create_several(spec, DOMAIN)
    found = account(made, 3, N, DELTA, windows=WINDOWS, per_day=PER_DAY, memoized=False)
    assert found.to_json()["together"] == dict.fromkeys(("window", "day", "run", "year"))
    assert found.to_json()["epsilon0"] is None
    assert 0.9 < found.apart.window <= 1.0 < found.apart.day < found.apart.run < found.apart.year
    assert found.apart.run <= 3.0

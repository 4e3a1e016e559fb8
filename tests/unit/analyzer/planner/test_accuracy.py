"""Accuracy first: the epsilon that an error costs, against the planner, the accountant and brute
force.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from shoal.accounting.accountant import simplest, upper_bound
from shoal.analyzer.planner import Frequencies, Mean, Quantiles, Request, Sum, plan
from shoal.analyzer.planner.accuracy.answers import AccuracyAnswer, answers, half_width, request_for
from shoal.analyzer.planner.accuracy.central import LAPLACE, central, deviation
from shoal.analyzer.planner.accuracy.worst import ALL_TRIED, worst_count
from shoal.analyzer.planner.candidates import candidates, of_family
from shoal.analyzer.planner.heaps import Heaped
from shoal.analyzer.planner.quantiles import (
    drawn_cells,
    predict_quantiles,
    quantiles_of,
    ranked_quantiles,
)
from shoal.analyzer.planner.question import SMOOTH, Question
from shoal.domain import Categories, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from tests.cases import for_each

DELTA = 1e-8
ALIKE = 1.005  # epsilons so close are alike: the smaller report wins


def named(cells: int) -> Categories:
    return Categories(tuple(f"c{i}" for i in range(cells - 1)))


@cache
def asked(question: Question, n: int, error: float, **more: object) -> tuple[AccuracyAnswer, ...]:
    return tuple(answers(request_for(question, n, error, DELTA, **more)))  # type: ignore[arg-type]


YES_NO = (Frequencies(YesNo(), heavy=1.0), 10_000, 200.0)
FOUR = (Frequencies(named(4)), 5_000, 125.0)
MEAN = (Mean(0.0, 50.0, levels=(2, 4)), 2_000, 2.0)
MEDIAN = (Quantiles(0.0, 100.0, (0.5,), levels=(4, 8)), 2_000, 6.0)


def nine_tenths(question: Question, n: int, error: float) -> tuple[AccuracyAnswer, ...]:
    """With so many honest devices: solved once, for all tests that look at it."""
    return asked(question, n, error, honest_fraction=Fraction(9, 10))


@for_each("question, n, error", [YES_NO, FOUR, MEAN, MEDIAN])
def test_every_option_is_proven_and_reaches_the_error(
    question: Question, n: int, error: float
) -> None:
    """Planted: n for n_honest -> the bound is below the accountant's. Planted: a single cell's
    error for the worst one -> the error is exceeded.
    """
    request = request_for(question, n, error, DELTA, honest_fraction=Fraction(9, 10))
    every = nine_tenths(question, n, error)
    last = every[-1]
    assert last.done
    assert last.plan is not None
    for option in last.options:
        mechanism = option.candidate.build(option.epsilon0)
        proven = upper_bound(simplest(mechanism.privacy()), request.n_honest, DELTA)[0]
        # epsilon0 is computed from the integers, and may lie a hair below the one asked for
        assert option.epsilon_upper == pytest.approx(proven, rel=1e-6)
        assert half_width(option) <= error * (1 + 1e-12)
    for answer in every[:-1]:
        assert not answer.done
        if answer.options:  # coarse, and on the safe side
            assert answer.options[0].epsilon_upper * ALIKE >= last.plan.choice.epsilon_upper
    assert [each.epsilon_upper for each in last.options[1:]] == sorted(
        each.epsilon_upper for each in last.options[1:]
    )


@for_each("question, n, error", [YES_NO, FOUR, MEAN, MEDIAN])
def test_the_choice_is_what_the_planner_has_at_that_epsilon(
    question: Question, n: int, error: float
) -> None:
    """To the digit for the same error; the other way around the search ends 0.05 % off. Planted: a
    95 % interval of two standard errors -> both fail.
    """
    last = nine_tenths(question, n, error)[-1]
    assert last.plan is not None
    choice = last.plan.choice
    only = replace(last.plan.request, mechanisms=(choice.candidate.mechanism,))
    same = plan(only).choice
    assert (same.epsilon_upper, same.epsilon0) == (choice.epsilon_upper, choice.epsilon0)
    assert same.spec == choice.spec
    back = plan(replace(only, error=None, epsilon=choice.epsilon_upper)).choice
    assert back.errors is not None
    assert 1.959963984540054 * back.errors.ranked == pytest.approx(error, rel=3e-3)


def test_more_error_and_more_devices_cost_less_fewer_honest_ones_more() -> None:
    """Planted: the honest fraction left out -> the last comparison fails."""

    def cost(n: int, share: float, **more: object) -> float:
        more["mechanisms"] = ("binary_rr",)
        found = asked(YES_NO[0], n, share * n, **more)[-1].plan
        assert found is not None
        return found.choice.epsilon_upper

    usual = cost(10_000, 0.02)
    assert cost(10_000, 0.05) < usual < cost(10_000, 0.01)
    assert cost(40_000, 0.02) < usual < cost(2_500, 0.02)
    assert usual < cost(10_000, 0.02, honest_fraction=Fraction(1, 2))


def test_a_curve_falls_and_runs_through_its_solution() -> None:
    """Planted: the error of the epsilon0 next to it -> a step upwards, and this fails."""
    for question, n, error in (YES_NO, FOUR, MEAN):
        last = nine_tenths(question, n, error)[-1]
        assert last.plan is not None
        for option in last.options:
            points = last.curves[option.candidate.mechanism].points
            errors = [point.error for point in points]
            assert errors == sorted(errors, reverse=True), option.candidate.title
            near = min(points, key=lambda point: abs(point.epsilon - option.epsilon_upper))
            if near.epsilon == pytest.approx(option.epsilon_upper, rel=1e-6):
                assert near.error == pytest.approx(half_width(option), rel=1e-6)
            else:  # one of a smaller epsilon errs less, where the setting picks another integer
                assert near.epsilon < option.epsilon_upper


def test_the_worst_count_is_the_worst_of_all_placements() -> None:
    """Every way in which 10 devices can answer. Planted: all in one cell alone -> mechanisms whose
    worst lies in between err more than is said.
    """
    n = 10
    for cells in (2, 3, 4):
        question = Frequencies(YesNo() if cells == 2 else named(cells))
        every, _ = candidates(Request(question, n, DELTA, 1.0))
        places = [
            np.array([*counts, n - sum(counts)])
            for counts in itertools.product(range(n + 1), repeat=cells - 1)
            if sum(counts) <= n
        ]
        for candidate in every:
            mechanism = candidate.build(2.0)
            if not mechanism.spec.parameters:
                continue
            worst = max(float(mechanism.expected_stderr(each).max()) for each in places)
            assert worst_count(mechanism, cells, n) == pytest.approx(worst), candidate.title
            some = [each for each in places if each.max() <= 0.7 * n]
            bounded = max(float(mechanism.expected_stderr(each).max()) for each in some)
            assert worst_count(mechanism, cells, n, 0.7) >= bounded * (1 - 1e-9), candidate.title


def test_cells_that_differ_are_not_guessed_at() -> None:
    """Planted: no comparison of the cells -> rappor of 40 cells gets an error that is too small."""
    question = Frequencies(named(ALL_TRIED + 8))
    every, _ = candidates(Request(question, 100, DELTA, 1.0, mechanisms=("rappor",)))
    with pytest.raises(ShoalError) as caught:
        worst_count(every[0].build(1.0), question.domain.size, 100)
    assert caught.value.kind is Kind.INVALID


def test_yes_no_counts_are_within_the_error_as_often_as_is_said() -> None:
    """The exact law of binary randomized response, for every number of yes. A count is a lattice,
    and 95 % is met to half a step of it. Planted: one standard error -> 68 %, and this fails.
    """
    n = 400
    found = asked(YES_NO[0], n, 40.0, mechanisms=("binary_rr",))[-1].plan
    assert found is not None
    integers = dict(found.choice.spec.parameters) if found.choice.spec else {}
    p, q = (integers[name] / 2**64 for name in ("yes_if_yes", "yes_if_no"))
    for yes in (0, 100, 200, 399):
        law = np.convolve(_binomial(yes, p), _binomial(n - yes, q))
        estimates = (np.arange(n + 1) - n * q) / (p - q)
        half_step = 0.5 / (p - q)
        inside = law[np.abs(estimates - yes) <= 40.0 + half_step].sum()
        assert inside >= 0.95


def _binomial(n: int, p: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    ways = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(n + 1)]
    return np.exp([way + i * math.log(p) + (n - i) * math.log1p(-p) for i, way in enumerate(ways)])


def test_what_cant_be_reached_is_refused_with_what_could_be() -> None:
    """With as many devices as are named it can be, with a tenth fewer not. Planted: a share of few
    devices as a number of more -> never enough.
    """
    question = Frequencies(YesNo(), heavy=1.0)
    capped = {"most_epsilon0": 0.5, "mechanisms": ("krr", "kmean", "one_bit_mean")}
    for kind, error, per_device in ((question, 10.0, 0.01), (MEAN[0], 0.5, 0.0)):
        reach = asked(kind, 1_000, error, **capped)[-1].reach
        assert reach is not None
        assert reach.error > error
        assert reach.devices is not None
        enough, fewer = reach.devices, reach.devices * 9 // 10
        for n, there in ((enough, True), (fewer, False)):
            again = asked(kind, n, per_device * n or error, **capped)[-1]
            assert (again.plan is not None) is there
        # the least error that is named can be had
        assert asked(kind, 1_000, reach.error * 1.001, **capped)[-1].plan is not None


def test_the_central_line() -> None:
    """Laplace noise by its own sums, Gaussian noise by the integral of what it lets through.
    Planted: a sensitivity of 1 for categories -> half of it, and this fails.
    """
    for cells, shift in ((2, 1), (9, 2)):
        question = Frequencies(YesNo() if cells == 2 else named(cells))
        for epsilon in (0.05, 0.3, 2.0):
            line = central(question, 1_000, epsilon, DELTA)
            assert line.noise == LAPLACE
            a = math.exp(-epsilon / shift)
            law = [(1 - a) / (1 + a) * a**i for i in range(4_000)]
            beyond = [2 * math.fsum(law[t + 1 :]) for t in range(2_000)]
            whole = next(t for t, miss in enumerate(beyond) if miss <= 0.05)
            assert math.ceil(line.error - 1e-9) == whole
    for epsilon, delta in ((0.2, 1e-6), (1.0, 1e-8)):
        sigma = deviation(1.0, epsilon, delta)
        x = np.linspace(-12.0 * sigma, 12.0 * sigma, 400_001)
        density, shifted = (np.exp(-0.5 * ((x - at) / sigma) ** 2) for at in (0.0, 1.0))
        scale = (x[1] - x[0]) / (sigma * math.sqrt(2 * math.pi))
        through = float(np.maximum(shifted - math.exp(epsilon) * density, 0.0).sum() * scale)
        assert through == pytest.approx(delta, rel=1e-3)
    mean, total = (central(kind(0.0, 10.0), 500, 0.5, DELTA).error for kind in (Mean, Sum))
    assert total == pytest.approx(500 * mean)
    assert mean == pytest.approx(10.0 / 500 * math.log(20.0) / 0.5)


@for_each(
    "question, error, said",
    [
        (Quantiles(0.0, 1.0), 0.5, "asks nothing"),
        (Frequencies(YesNo()), 0.0, "a finite number above 0"),
        (Frequencies(YesNo()), math.nan, "a finite number above 0"),
        (Frequencies(YesNo()), 2e6, "ask for less"),
    ],
)
def test_wrong_questions_are_refused(question: Question, error: float, said: str) -> None:
    """Planted: no check of the error -> a plan for an infinite one."""
    with pytest.raises(ShoalError, match=said):
        request_for(question, 1_000, error, DELTA)


def test_quantiles_are_ranked_by_the_worst_of_them_under_the_worst_smooth_shape() -> None:
    """Planted: the mean over the quantiles -> fails. Planted: the first shape alone -> fails."""
    question = Quantiles(0.0, 100.0, (0.25, 0.5, 0.9), levels=(6,), worst=True)
    candidate = next(each for each in of_family("kmean", question, all_settings=False))
    mechanism = candidate.build(2.0)
    heap = replace(question, shape=Heaped((0.2,), (0.5,)))
    squares, _ = predict_quantiles(heap, mechanism, candidate.domain, 3_000)
    of_heap = ranked_quantiles(heap, mechanism, candidate.domain, 3_000)
    assert of_heap == pytest.approx(math.sqrt(max(squares)))
    alone = [
        ranked_quantiles(
            Quantiles(0.0, 100.0, (at,), levels=(6,), shape=shape),
            mechanism,
            candidate.domain,
            3_000,
        )
        for at in question.at
        for shape in SMOOTH
    ]
    found = ranked_quantiles(question, mechanism, candidate.domain, 3_000)
    assert found == pytest.approx(max(alone), rel=1e-6)
    assert found > 1.2 * alone[1]
    # what is skewed the other way errs at the other end
    few, many = (
        ranked_quantiles(
            Quantiles(0.0, 100.0, (at,), levels=(6,), shape=shape),
            mechanism,
            candidate.domain,
            3_000,
        )
        for at, shape in ((0.1, SMOOTH[2]), (0.9, SMOOTH[3]))
    )
    assert few == pytest.approx(many, rel=1e-3)


def test_what_is_decoded_by_em_has_no_plan_for_an_error() -> None:
    """At epsilon 0 it says the middle, which is the median of a bell: such a plan would promise an
    error of nothing at an epsilon of nothing. Planted: it is planned all the same -> fails.
    """
    with pytest.raises(ShoalError, match="ask for an epsilon instead of an error"):
        plan(Request(Quantiles(0.0, 100.0, (0.5,), levels=(8,)), 1_000, DELTA, error=2.0,
                     mechanisms=("square_wave",)))  # fmt: skip


def test_few_levels_that_cant_reach_an_error_are_no_reason_to_stop() -> None:
    """Rounding to 2, 3, 4 or 6 levels errs more than is wanted here, whatever epsilon is. Planted:
    patience with such rungs -> "not to be had", and this fails.
    """
    question = Mean(0.0, 50.0, levels=(2, 3, 4, 6, 16))
    last = asked(question, 2_000, 0.12, mechanisms=("kmean",))[-1]
    assert last.plan is not None
    assert last.plan.choice.candidate.title == "kmean, 16 levels"


def test_a_quantile_is_within_the_error_as_often_as_is_said() -> None:
    """Under the smooth shape that is worst for it, 300 batches: fewer than 268 within the error has
    a probability below 1e-4 if each is with 0.95. Planted: one standard error for 1.96 -> some 200
    are, and this fails.
    """
    n, error = 2_000, 8.0
    asked_for = Quantiles(0.0, 96.0, (0.9,), levels=(6,))
    plan_of = asked(asked_for, n, error, mechanisms=("krr",))[-1].plan
    assert plan_of is not None
    choice = plan_of.choice
    mechanism, domain = choice.candidate.build(choice.epsilon0), choice.candidate.domain
    worst = max(
        (replace(asked_for, shape=shape) for shape in SMOOTH),
        key=lambda question: ranked_quantiles(question, mechanism, domain, n),
    )
    entropy = SeededEntropy("quantiles within the error")
    within = 0
    for _ in range(300):
        reports = mechanism.randomize(drawn_cells(worst, domain, n, entropy), entropy)
        tally = mechanism.tally(reports.reshape(n, -1))
        off = quantiles_of(mechanism, domain, tally, worst) - worst.values()
        within += int(abs(off[0]) <= error)
    assert within >= 268

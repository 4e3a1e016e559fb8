"""Sums, quantiles and repeated questions: predicted against the production code, and what windows
cost both ways.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from shoal.accounting.accountant import certify
from shoal.analyzer.planner import (
    Frequencies,
    Mean,
    Quantiles,
    Request,
    Shape,
    Standing,
    Sum,
    plan,
    simulate,
)
from shoal.analyzer.planner.candidates import Candidate, candidates
from shoal.analyzer.planner.numbers import answer, at_value
from shoal.analyzer.planner.predict import ranked
from shoal.analyzer.planner.quantiles import (
    _Mixture,
    _rows,
    drawn_cells,
    predict_quantiles,
    quantiles_of,
)
from shoal.analyzer.planner.question import domains
from shoal.analyzer.planner.repeated import over_windows
from shoal.analyzer.planner.search import largest
from shoal.domain import Categories, Numeric, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, Estimate, create, design, serves
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.mechanisms.numbers.distribution import Distributed
from shoal.privacy import KaryLaw, epsilon0_upper
from tests.cases import for_each
from tests.sizes import size

DELTA = 1e-6


# --- sums -----------------------------------------------------------------------------------------


def test_a_sum_counts_a_device_without_an_answer_as_said() -> None:
    """Three of ten devices are silent. Planted: the silent ones left out of the low end -> this
    fails.
    """
    silent = Estimate.wald(("mean", "no answer"), np.array([20.0, 3.0]), np.ones(2))
    assert answer(Sum(0.0, 50.0), silent, 10) == pytest.approx(7 * 20.0)
    assert answer(Sum(10.0, 50.0), silent, 10) == pytest.approx(7 * 20.0 + 3 * 10.0)
    assert answer(Mean(10.0, 50.0), silent, 10) == 20.0
    middle = Estimate.wald(("mean, no answer as the middle",), np.array([20.0]), np.ones(1))
    assert answer(Sum(10.0, 50.0), middle, 10) == pytest.approx(200.0)


def test_a_sum_is_estimated_right_and_its_error_is_that_of_a_linear_estimate() -> None:
    """Exact against the law's rows: the weights that make it unbiased, and their variance, cell by
    cell.
    """
    domain, question = Numeric(-2.0, 6.0, 5), Sum(-2.0, 6.0, (5,))
    law = create(design("kmean", domain, 2.0), domain)
    kary = law.privacy()
    assert isinstance(kary, KaryLaw)
    rows = (
        np.full((6, 6), kary.other / kary.total) + np.eye(6) * (kary.same - kary.other) / kary.total
    )
    values = np.array([-2.0, 0.0, 2.0, 4.0, 6.0, 0.0])
    weights = np.linalg.solve(rows, values)
    variance = 1_000 * float(rows[3] @ weights**2 - values[3] ** 2)
    assert at_value(law, domain, 1_000, 4.0, question) == pytest.approx(
        math.sqrt(variance), rel=1e-9
    )


@pytest.mark.parametrize("low", [0.0, 10.0])
def test_a_sum_errs_by_n_times_what_a_mean_does(low: float) -> None:
    """By a little more: the number of answers is estimated too. The same levels win."""
    few = ("kmean",)
    mean = plan(
        Request(Mean(low, low + 24.0, levels=(4, 8, 12)), 5_000, DELTA, epsilon=1.0, mechanisms=few)
    ).choice
    total = plan(
        Request(Sum(low, low + 24.0, levels=(4, 8, 12)), 5_000, DELTA, epsilon=1.0, mechanisms=few)
    ).choice
    assert mean.errors is not None
    assert total.errors is not None
    assert mean.candidate == total.candidate
    assert 1.0 <= total.errors.ranked / (5_000 * mean.errors.ranked) <= 1.15


# --- quantiles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", list(Shape))
def test_a_shape_is_the_density_that_it_says(shape: Shape) -> None:
    density = {
        Shape.UNIFORM: lambda t: 1.0 + 0.0 * t,
        Shape.BELL: lambda t: 6 * t * (1 - t),
        Shape.SKEWED: lambda t: 3 * (1 - t) ** 2,
    }
    places = shape.quantiles(np.array([0.0, 0.1, 0.5, 0.93, 1.0]))
    grid = np.linspace(0.0, 1.0, 20_001)
    below = np.concatenate(
        [
            [0.0],
            np.cumsum((density[shape](grid)[1:] + density[shape](grid)[:-1]) / 2)
            * (grid[1] - grid[0]),
        ]
    )
    assert np.interp(places, grid, below) == pytest.approx([0.0, 0.1, 0.5, 0.93, 1.0], abs=1e-6)


def test_quantiles_are_asked_of_levels_and_of_ordered_bins() -> None:
    """Bins end at whole numbers, as a task's lower bounds do. Planted: bins of any width -> this
    fails.
    """
    found = domains(Quantiles(0.0, 24.0, levels=(4, 5, 8)))
    bins = [domain for domain in found if isinstance(domain, Categories)]
    assert [domain.lower_bounds for domain in bins] == [
        (0, 6, 12, 18),
        (0, 3, 6, 9, 12, 15, 18, 21),
    ]
    assert bins[0].encode(24.0) == 3
    assert not any(isinstance(domain, Categories) for domain in domains(Quantiles(0.0, 1.0)))


def test_drawn_cells_are_those_that_devices_encode() -> None:
    question = Quantiles(0.0, 10.0, shape=Shape.SKEWED)
    domain = Numeric(0.0, 10.0, 6)
    found = np.bincount(drawn_cells(question, domain, 40_000, SeededEntropy("cells")), minlength=6)
    values = 10.0 * Shape.SKEWED.quantiles((np.arange(40_000) + 0.5) / 40_000)
    entropy = SeededEntropy("devices")
    real = np.bincount(
        [domain.encode(value, entropy) for value in values[::10].tolist()], minlength=6
    )
    assert np.abs(found / 40_000 - real / 4_000).max() < 0.03  # 4 standard errors or so


def test_counts_of_bins_give_the_quantiles_of_their_projection() -> None:
    domain = Categories(("0 to 1", "1 to 2", "2 to 3", "3 to 4"), (0, 1, 2, 3))
    law = create(design("krr", domain, 30.0), domain)
    cells = np.repeat([0, 1, 2, 3], [10, 20, 30, 40])
    tally = law.tally(law.randomize(cells, SeededEntropy(1))[:, 0, :])
    assert quantiles_of(law, domain, tally, Quantiles(0.0, 4.0, (0.1, 0.5, 0.9))) == pytest.approx(
        [1.0, 2.0 + 20 / 30, 3.75]
    )


# --- predicted against observed, for the new kinds ------------------------------------------------

RUNS = size(250, 1_500)
KINDS: tuple[Request, ...] = (
    Request(
        Sum(0.0, 50.0, levels=(6,), value=11.0), 1_000, DELTA, epsilon=1.0, mechanisms=("kmean",)
    ),
    Request(
        Sum(10.0, 50.0, levels=(5,), value=33.0),
        600,
        DELTA,
        epsilon=1.0,
        mechanisms=("one_bit_mean",),
    ),
    Request(
        Mean(0.0, 24.0, levels=(4,), value=7.7), 300, DELTA, epsilon=0.6, mechanisms=("hybrid",)
    ),
    Request(
        Quantiles(0.0, 96.0, levels=(12, 16)),
        4_000,
        DELTA,
        epsilon=1.0,
        mechanisms=("krr", "kmean"),
    ),
    Request(
        Quantiles(0.0, 1.0, (0.5,), levels=(8,)), 3_000, DELTA, epsilon=1.0, mechanisms=("kmean",)
    ),
    Request(
        Quantiles(0.0, 96.0, (0.25, 0.9), levels=(12,), shape=Shape.SKEWED),
        4_000,
        DELTA,
        epsilon=2.0,
        mechanisms=("krr",),
    ),
)


def test_so_many_runs_let_a_correct_planner_pass() -> None:
    """The squared errors of R runs add up to sigma^2 times a chi-squared variable of R degrees of
    freedom or more: the probability that any of the observed errors lies outside the band of the
    test below is under 1e-3 (full size: 10 %; else 20 %).
    """
    band = size(20, 10) / 100

    def at_most(ratio: float) -> float:
        return float(mpmath.gammainc(RUNS / 2, 0, RUNS * ratio**2 / 2, regularized=True))

    assert len(KINDS) * (at_most(1 / (1 + band)) + 1.0 - at_most(1 / (1 - band))) < 1e-3


@for_each("request_", KINDS)
def test_predicted_errors_of_the_new_kinds_are_observed(request_: Request) -> None:
    """Planted: a sum's n^2 forgotten -> this fails. (What rounding adds to a quantile's variance is
    too little to be seen: the next.)
    """
    made = plan(request_)
    law, domain = made.choice.candidate.build(made.choice.epsilon0), made.choice.candidate.domain
    found = simulate(
        request_.question, law, domain, request_.n, RUNS, entropy=SeededEntropy("new kinds")
    )
    assert abs(found.predicted / found.observed - 1.0) <= size(20, 10) / 100


def test_a_report_varies_by_its_rounding_too() -> None:
    """Device by device: its report is drawn from one of two rows, by the coin that rounds. Planted:
    that coin left out of ``variance``, or of ``covariance`` (the mean of what the two rows vary) ->
    this fails.
    """
    question, domain = Quantiles(0.0, 10.0, shape=Shape.SKEWED), Numeric(0.0, 10.0, 4)
    rows = _rows(create(design("kmean", domain, 3.0), domain).privacy())
    mixed, at = (
        _Mixture.of(question, domain, 50, rows),
        3 * Shape.SKEWED.quantiles((np.arange(50) + 0.5) / 50),
    )
    laws = [
        (1 - place % 1) * rows[int(place)] + place % 1 * rows[int(place) + 1]
        for place in at.tolist()
    ]
    expected = np.mean([np.diag(each) - np.outer(each, each) for each in laws], axis=0)
    assert mixed.covariance() == pytest.approx(expected, abs=1e-12)
    weights = np.array([-1.0, 0.5, 2.0, 7.0, 0.0])
    assert mixed.variance(weights) == pytest.approx(weights @ expected @ weights)


_EIGHT_LEVELS = Numeric(0.0, 1.0, 8)
_TELL = ("square_wave",)  # how a number is distributed; kmean does, too, and has tests of its own


def test_no_other_mechanism_tells_a_distribution() -> None:
    """A new one has to be listed above. Planted: none listed -> fails."""
    built = {
        name: create(design(name, _EIGHT_LEVELS, 4.0), _EIGHT_LEVELS)
        for name in REGISTRY
        if serves(name, _EIGHT_LEVELS)
    }
    assert {name for name, law in built.items() if isinstance(law, Distributed)} == {
        "kmean",
        *_TELL,
    }


@pytest.mark.parametrize("name", _TELL)
def test_every_distribution_is_predicted(name: str) -> None:
    """Whatever else tells how a number is distributed, by drawn tallies: 40 batches, within 35 %
    (chi-squared of 40 degrees or more, one for each quantile that moves by itself: 1e-3).
    """
    domain, question = _EIGHT_LEVELS, Quantiles(0.0, 1.0, levels=(8,))
    law = create(design(name, domain, 4.0), domain)
    assert isinstance(law, Distributed)
    squares, _ = predict_quantiles(question, law, domain, 2_000)
    found = simulate(question, law, domain, 2_000, size(40, 300), entropy=SeededEntropy(name))
    assert abs(math.sqrt(float(squares.mean())) / found.observed - 1.0) <= 0.35


# --- the choice among them ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [Sum(0.0, 10.0, levels=(4, 8)), Quantiles(0.0, 96.0, levels=(8, 12, 16))][: size(2, 2)],
    ids=["sum", "quantiles"],
)
def test_no_row_beats_the_choice(question: Sum | Quantiles) -> None:
    made = plan(
        Request(question, 3_000, DELTA, epsilon=1.0, mechanisms=("krr", "kmean", "one_bit_mean"))
    )
    assert made.choice.errors is not None
    every, _ = candidates(made.request)
    assert {option.candidate for option in made.options} == set(every)
    for option in made.others:
        assert option.reason
        if option.errors is not None:
            assert made.choice.errors.ranked <= 1.02 * option.errors.ranked
    law = made.choice.candidate.build(made.choice.epsilon0).privacy()
    assert certify(law, 3_000, DELTA).epsilon_upper == made.guarantee.epsilon_upper <= 1.0


@for_each("n, epsilon", [(15_000, 1.0), (300, 1.0), (1_000, 0.5), (60_000, 2.0)][: size(1, 4)])
def test_no_number_of_levels_is_passed_over(n: int, epsilon: float) -> None:
    """k-ary responses with every number of levels from 2 to 64, each at its own largest epsilon0.

    Their epsilon0s differ by little, so that what errs more than the choice at 1.01 times its
    epsilon0 needs no search. Planted: the numbers between those of the grid left out -> fails (9
    levels err 0.4 % less than the grid's at 15,000).
    """
    made = plan(Request(Mean(0.0, 1.0), n, 1e-8, epsilon=epsilon, mechanisms=("kmean",)))
    assert made.choice.errors is not None
    near = made.choice.epsilon0
    least = min(option.errors.ranked for option in made.options if option.errors is not None)
    for levels in range(2, 65):
        candidate = Candidate("kmean", made.choice.candidate.setting, "", Numeric(0.0, 1.0, levels))
        if (
            ranked(made.request.question, candidate.build(near * 1.01), candidate.domain, n)
            > made.choice.errors.ranked
        ):
            continue
        found = largest(candidate, epsilon, 1e-8, n, start=near, beaten=lambda _: False).epsilon0
        error = ranked(made.request.question, candidate.build(found), candidate.domain, n)
        # to which an epsilon0 is looked for
        assert made.choice.errors.ranked <= 1.005 * error * (1 + 5e-4)
        assert least <= 1.002 * error


def test_a_finer_table_is_found_behind_probes_that_lose() -> None:
    """14 levels of ``piecewise`` err 2 % less than the best k-ary response; 8 err 10 % more, and 16
    have a smaller epsilon0.

    Planted: other numbers tried only where a probe comes within 5 % of the best -> 8 levels of
    kmean, and this fails.
    """
    made = plan(Request(Mean(0.0, 1.0), 10_000, 1e-8, epsilon=1.0))
    best = Candidate("piecewise", "standard", "", Numeric(0.0, 1.0, 14))
    assert made.choice.errors is not None
    found = largest(
        best, 1.0, 1e-8, 10_000, start=made.choice.epsilon0, beaten=lambda _: False
    ).epsilon0
    assert made.choice.errors.ranked <= 1.005 * ranked(
        made.request.question, best.build(found), best.domain, 10_000
    )


def test_what_loses_by_far_is_left_out_with_its_number() -> None:
    """One bit errs nine times as much behind a shuffler, at any epsilon0; with many levels to try
    most are not tried at all.
    """
    made = plan(
        Request(Mean(0.0, 1.0), 10_000, DELTA, epsilon=1.0, mechanisms=("kmean", "one_bit_mean"))
    )
    beaten = [
        option
        for option in made.others
        if option.standing is Standing.BEATEN and option.candidate.mechanism == "one_bit_mean"
    ]
    rest = [option for option in made.others if option.standing is Standing.NOT_TRIED]
    skipped = [option for option in rest if option.candidate.mechanism == "one_bit_mean"]
    assert beaten
    assert len(skipped) > 20
    assert all(
        "numbers near it were tried" in option.reason for option in rest if option not in skipped
    )
    assert all(
        option.candidate.mechanism == "one_bit_mean" and option.errors is None
        for option in (*beaten, *skipped)
    )
    assert all("at least" in option.reason for option in (*beaten, *skipped))
    assert made.choice.errors is not None
    for option in beaten:
        best = at_value(option.candidate.build(30.0), option.candidate.domain, 10_000, 0.5)  # type: ignore[arg-type]
        assert best > 1.2 * made.choice.errors.ranked


# --- asked again ----------------------------------------------------------------------------------


def test_noise_is_only_blamed_where_there_is_more_of_it() -> None:
    """Fewer levels of another mechanism have less noise, and round more. Planted: blamed on the
    noise whatever it is -> 0.0031, against 0.00353.
    """
    found = plan(
        Request(
            Mean(0.0, 1.0, (4, 5, 6, 7)),
            2_000,
            DELTA,
            epsilon=1.0,
            mechanisms=("kmean", "square_wave"),
        )
    )
    reasons = {option.candidate.title: option.reason for option in found.others}
    assert (
        "rounding to 4 levels makes 47 % of its variance (21 % with 6)"
        in reasons["square_wave standard, 4 levels"]
    )
    noises = [
        re.findall(r"noise alone is ([\d.]+), against ([\d.]+)", reason)
        for reason in reasons.values()
    ]
    pairs = [(float(one), float(other)) for match in noises for one, other in match]
    assert pairs
    assert all(one > other for one, other in pairs)


def test_windows_are_shown_both_ways() -> None:
    """Planted: memoized answers that cost epsilon0 per window, or once whatever changes -> this
    fails.
    """
    asked = Request(
        Frequencies(YesNo()),
        2_000,
        DELTA,
        epsilon=1.0,
        mechanisms=("binary_rr",),
        windows=6,
        changes=1,
        together=False,
    )
    found = plan(asked).repeated
    assert found is not None
    first = found.first_epsilon0
    assert found.fresh_epsilon0 == pytest.approx(6 * first)
    assert found.kept_epsilon0 == pytest.approx(2 * first)
    assert 1.0 < found.fresh_central < 6.0
    assert (found.lifetime_epsilon0, found.central_epsilon) == (
        found.fresh_epsilon0,
        found.fresh_central,
    )
    kept = plan(replace(asked, memoized=True)).repeated
    assert kept is not None
    assert (kept.lifetime_epsilon0, kept.central_epsilon) == (found.kept_epsilon0, None)
    # A question of two cells has two values: more changes cost no more.
    assert (
        over_windows(replace(asked, changes=5), plan(asked).choice.candidate.build(3.0), 2).values
        == 2
    )


@for_each("name", ["l_unary", "dbitflip", "loloha", "rappor"])
def test_a_memory_of_its_own_costs_its_permanent_answers(name: str) -> None:
    domain = Categories(tuple("abcde"))
    law = create(design(name, domain, 1.5), domain)
    assert isinstance(law, Longitudinal)
    request = Request(Frequencies(domain), 1_000, DELTA, epsilon=1.0, windows=5, changes=3)
    found = over_windows(request, law, domain.size)
    assert (
        found.permanent_epsilon0
        == epsilon0_upper(law.permanent())
        >= found.first_epsilon0 * (1.0 - 1e-12)
    )
    assert found.values == min(4, law.keys)
    assert found.kept_epsilon0 == pytest.approx(found.values * found.permanent_epsilon0)


# --- refusals -------------------------------------------------------------------------------------


@for_each(
    "make, words",
    [
        (lambda: Quantiles(0.0, 1.0, ()), "shares between 0 and 1, ascending"),
        (lambda: Quantiles(0.0, 1.0, (0.5, 0.25)), "shares between 0 and 1, ascending"),
        (lambda: Quantiles(0.0, 1.0, (0.0,)), "shares between 0 and 1, ascending"),
        (lambda: Quantiles(0.0, 1.0, levels=()), "at least one number of levels"),
        (lambda: Quantiles(1.0, 1.0), "finite low < high"),
        (
            lambda: Quantiles(0.0, 1.0, tuple(i / 200 for i in range(1, 150))),
            "at most 99 quantiles",
        ),
        (
            lambda: Request(Sum(0.0, 1.0), 10, DELTA, epsilon=1.0, windows=3, changes=3),
            "0 to 2 times in 3, got 3",
        ),
        (
            lambda: plan(
                Request(Quantiles(0.0, 1.0), 10, DELTA, epsilon=1.0, mechanisms=("unary",))
            ),
            "no mechanism to choose from answers",
        ),
    ],
)
def test_wrong_questions_are_refused(make: object, words: str) -> None:
    with pytest.raises(ShoalError, match=words) as caught:
        make()  # type: ignore[operator]
    assert caught.value.kind in {Kind.CONFIG, Kind.INVALID}


def test_a_candidate_of_bins_says_so() -> None:
    bins = Quantiles(0.0, 24.0).bins(8)
    assert bins is not None
    assert Candidate("krr", "standard", "", bins).title == "krr, 8 bins"

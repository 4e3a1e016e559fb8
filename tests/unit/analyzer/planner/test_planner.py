"""The planner: what it chooses is certified, unbeaten in its own table, as accurate as it says; and
every refusal is one line.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shoal.accounting.accountant import certify
from shoal.accounting.numerics.curve import DEFAULT_EFFORT, QUICK_EFFORT, Effort
from shoal.accounting.solving.solve import largest_epsilon0
from shoal.analyzer.planner import (
    Candidate,
    Frequencies,
    Mean,
    Request,
    Standing,
    plan,
)
from shoal.analyzer.planner.candidates import candidates
from shoal.analyzer.planner.numbers import at_value
from shoal.analyzer.planner.predict import predict
from shoal.analyzer.planner.question import Quantiles, Question, Sum, devices
from shoal.analyzer.planner.search import guess, largest, smallest
from shoal.analyzer.planner.simulation.simulate import zipf
from shoal.domain import Numeric, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, create
from shoal.privacy import LocalPrivacy, epsilon0_upper
from tests.cases import for_each
from tests.sizes import size
from tests.unit.analyzer.planner.questions import DELTA, cells, counting, error_of

# --- the figures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10_000, 100_000, 1_000_000, 10_000_000][: size(3, 4)])
def test_a_count_of_sixteen_cells_errs_by_nine_at_most(n: int) -> None:
    """Certified central (1, 1e-6), n = min_batch, all honest, cells at 1 / k. Planted: the search
    told that epsilon is half the target -> this fails.
    """
    made = plan(counting(16, n, mechanisms=("krr",)))
    assert made.guarantee.epsilon_upper <= 1.0
    assert made.guarantee.n_honest == n
    assert made.choice.report_bytes == 1
    assert error_of(made) <= 9.0


def test_a_mean_of_a_hundred_thousand_errs_by_little_everywhere() -> None:
    """Both figures at once, with one message: 22 levels, which stand in the planner's own table."""
    made = plan(
        Request(Mean(0.0, 1.0, levels=(22,)), 100_000, DELTA, epsilon=1.0, mechanisms=("kmean",))
    )
    assert made.guarantee.epsilon_upper <= 1.0
    assert made.choice.errors is not None
    assert made.choice.messages == 1
    assert made.choice.errors.light <= 1.2e-4
    assert made.choice.errors.heavy <= 1.9e-4
    law = made.choice.candidate.build(made.choice.epsilon0)
    assert at_value(law, Numeric(0.0, 1.0, 22), 100_000, 0.5) <= 1.2e-4


# --- the choice -----------------------------------------------------------------------------------

COMPARED = (
    counting(5, 1_000, mechanisms=("krr", "subset")),
    Request(
        Mean(0.0, 1.0, levels=(3, 8)),
        1_000,
        DELTA,
        epsilon=1.0,
        mechanisms=("kmean", "one_bit_mean", "piecewise"),
    ),
    counting(
        16,
        1_000,
        epsilon=3.0,
        honest_fraction=Fraction(1, 2),
        most_epsilon0=2.5,
        mechanisms=("krr", "subset"),
    ),
    counting(2, 300),
    counting(5, 1_000),
    counting(40, 2_000, epsilon=0.5),
    counting(5, 1_000, question=Frequencies(cells(5), (0.9, 0.1, 0.0, 0.0, 0.0))),
    counting(16, 100_000),
    Request(
        Mean(-5.0, 5.0, levels=(2, 4, 8), worst=True),
        500,
        1e-4,
        epsilon=0.7,
        mechanisms=("kmean", "hybrid"),
    ),
)[: size(2, 9)]


@pytest.mark.parametrize("request_", COMPARED)
def test_no_alternative_beats_the_choice_by_two_percent(request_: Request) -> None:
    """Every candidate is searched again, to the end, by ``largest_epsilon0`` alone, and its error
    predicted there.

    Planted: errors within a factor of six taken for alike, so that the smaller report wins -> this
    fails.
    """
    made = plan(request_)
    assert request_.epsilon is not None
    every, _ = candidates(request_)
    assert {option.candidate for option in made.options} == set(every)
    for candidate in every:

        def family(epsilon0: float, of: Candidate = candidate) -> LocalPrivacy:
            return of.build(min(epsilon0, request_.most_epsilon0)).privacy()

        def searched(effort: Effort, of: Candidate = candidate) -> float:
            """The error at the largest epsilon0 that a bound of such an effort proves."""
            assert request_.epsilon is not None
            found, law = largest_epsilon0(
                family,
                request_.epsilon,
                request_.delta,
                request_.min_batch,
                honest_fraction=request_.honest_fraction,
                effort=effort,
            )
            mechanism = of.build(min(found, request_.most_epsilon0))
            assert mechanism.privacy() == law
            return predict(request_.question, mechanism, of.domain, request_.n).ranked

        error = searched(DEFAULT_EFFORT)
        assert error_of(made) <= 1.02 * error, candidate.title
        option = next(each for each in made.options if each.candidate == candidate)
        # seen without a search: by more than a fifth, wherever its epsilon0 lies
        if option.standing is Standing.BEATEN:
            assert error > 1.2 * error_of(made), option.reason
            continue
        assert option.errors is not None
        # What was said to be out of reach is, where anything was said: other integers of a setting
        # may jump. It is said by the bounds that the planner compares by.
        looked = searched(QUICK_EFFORT)
        assert not option.best_case > min(looked, option.errors.ranked) * 1.005
        assert not math.isnan(option.best_case) or not option.settled
        # Every row keeps the target, by the certificate itself (which inverts a curve, and may stop
        # 1e-9 above).
        assert option.spec is not None
        proven = certify(
            create(option.spec, candidate.domain).privacy(),
            request_.min_batch,
            DELTA,
            honest_fraction=request_.honest_fraction,
        )
        assert request_.delta != DELTA or proven.epsilon_upper <= request_.epsilon * (1.0 + 1e-8)


def test_the_choice_is_certified_for_the_honest_part_of_the_smallest_batch() -> None:
    """Planted: certified at n instead of min_batch -> this fails; so does the honest fraction left
    out.
    """
    asked = counting(
        8, 50_000, min_batch=2_000, honest_fraction=Fraction(9, 10), mechanisms=("krr",)
    )
    assert asked.n_honest == 1_800
    made = plan(asked)
    assert made.guarantee.n_honest == 1_800
    assert made.choice.spec is not None
    law = create(made.choice.spec, cells(8)).privacy()
    assert made.guarantee == certify(law, 2_000, DELTA, honest_fraction=Fraction(9, 10))
    assert 0.99 < made.guarantee.epsilon_upper <= 1.0
    assert made.choice.epsilon0 == epsilon0_upper(law)
    assert made.least_batch == 2_000


def test_a_limit_on_epsilon0_leaves_room_for_smaller_batches() -> None:
    made = plan(counting(8, 20_000, most_epsilon0=3.0, mechanisms=("krr",)))
    assert made.choice.epsilon0 <= 3.0
    assert made.least_batch < 20_000
    law = made.choice.candidate.build(made.choice.epsilon0).privacy()
    assert certify(law, made.least_batch, DELTA).epsilon_upper <= 1.0
    assert certify(law, made.least_batch - 1, DELTA).epsilon_upper > 1.0


def test_alternatives_say_why_they_lose() -> None:
    made = plan(counting(16, 20_000, mechanisms=("binary_rr", "krr", "kmean", "unary")))
    assert made.choice.standing is Standing.CHOSEN
    assert all(option.reason and "\n" not in option.reason for option in made.others)
    ranks = [option.errors.ranked for option in made.others if option.errors is not None]
    assert ranks == sorted(ranks)
    reasons = {option.candidate.title: option.reason for option in made.others}
    half = reasons["unary oue"]
    assert half.startswith("error ")
    assert "50 % of every count is thinned away" in half
    assert {each.mechanism for each in made.unsuited} >= {"binary_rr", "kmean"}


def test_errors_that_are_alike_are_decided_by_bytes_then_by_the_registry() -> None:
    made = plan(counting(2, 2_000, mechanisms=("krr", "binary_rr")))
    assert made.choice.candidate.mechanism == next(
        name for name in REGISTRY if name in {"krr", "binary_rr"}
    )
    assert made.others[0].reason.startswith("as accurate")


def test_limits_are_named_with_their_numbers() -> None:
    made = plan(counting(200, 5_000, most_bytes=4, mechanisms=("krr", "unary")))
    assert made.choice.report_bytes <= 4
    over = [option for option in made.others if option.standing is Standing.OVER_LIMIT]
    assert any(
        option.reason == "a report of 25 bytes is above the limit of 4 bytes" for option in over
    )
    assert all(option.errors is None for option in over)


def test_a_mean_counts_its_rounding() -> None:
    """With two levels nearly all of the error is rounding: n f (1 - f) devices' worth. Planted:
    rounding left out -> this fails.
    """
    made = plan(
        Request(Mean(0.0, 1.0, levels=(2,)), 10_000, DELTA, epsilon=1.0, mechanisms=("kmean",))
    )
    assert made.choice.errors is not None
    assert made.choice.errors.light == pytest.approx(0.5 / math.sqrt(10_000), rel=0.1)
    coarse = plan(
        Request(
            Mean(0.0, 1.0, levels=(2, 4, 8, 10, 12, 32)),
            10_000,
            DELTA,
            epsilon=1.0,
            mechanisms=("kmean",),
        )
    )
    assert error_of(coarse) < error_of(made) / 4
    assert isinstance(coarse.choice.candidate.domain, Numeric)
    assert coarse.choice.candidate.domain.levels in {8, 10, 12}


def test_the_worst_value_of_a_mean_is_no_worse_elsewhere() -> None:
    domain = Numeric(0.0, 1.0, 9)
    mechanism = plan(
        Request(Mean(0.0, 1.0, levels=(9,)), 2_000, DELTA, epsilon=1.0, mechanisms=("kmean",))
    ).choice
    law = mechanism.candidate.build(mechanism.epsilon0)
    assert mechanism.errors is not None
    everywhere = [at_value(law, domain, 2_000, i / 800) for i in range(801)]
    assert mechanism.errors.heavy >= 0.999 * max(everywhere)
    assert mechanism.errors.ranked == pytest.approx(
        math.sqrt(np.mean(np.square(everywhere))), rel=0.01
    )


# --- the other direction --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "error"),
    [
        (Frequencies(cells(16)), 20.0),
        (Frequencies(YesNo()), 60.0),
        (Mean(0.0, 10.0, levels=(4, 8, 16)), 0.05),
    ],
)
def test_the_smallest_epsilon_for_an_error(question: Frequencies | Mean, error: float) -> None:
    """Turned around once more, the plan for that epsilon has that error. Planted: an error twice as
    large accepted -> this fails.
    """
    mechanisms = ("binary_rr", "krr", "kmean")
    made = plan(Request(question, 5_000, DELTA, error=error, mechanisms=mechanisms))
    assert error_of(made) <= error
    assert made.choice.epsilon_upper == made.guarantee.epsilon_upper
    back = plan(
        Request(question, 5_000, DELTA, epsilon=made.guarantee.epsilon_upper, mechanisms=mechanisms)
    )
    assert error_of(back) == pytest.approx(error, rel=0.01)
    compared = [option for option in made.others if option.errors is not None]
    assert all(option.epsilon_upper >= made.choice.epsilon_upper * 0.995 for option in compared)
    assert all(
        "epsilon" in option.reason or "accurate" in option.reason or "same" in option.reason
        for option in compared
    )


def test_an_error_that_no_epsilon_reaches() -> None:
    with pytest.raises(
        ShoalError, match=r"its error stays above 0\.001 up to epsilon0 = 5"
    ) as caught:
        plan(Request(Frequencies(cells(4)), 1_000, DELTA, error=0.001, most_epsilon0=5.0))
    assert caught.value.kind is Kind.CONFIG


# --- asked again ----------------------------------------------------------------------------------


def test_memoized_plans_keep_what_devices_accept_for_life() -> None:
    """A device compares its limit with what it is charged, the lifetime epsilon: twice that of one
    report here. Planted: the limit for one report -> tasks of a lifetime epsilon of 4, or 2.6 for
    that error, which every device refuses.
    """
    asked = replace(counting(4, 10_000, mechanisms=("rappor",)), most_epsilon0=2.0, windows=4)
    kept, fresh = (plan(replace(asked, memoized=memoized)) for memoized in (True, False))
    assert kept.repeated is not None
    assert kept.repeated.permanent_epsilon0 <= 2.0
    assert kept.choice.epsilon0 == pytest.approx(1.0)
    assert fresh.choice.epsilon0 == pytest.approx(2.0)
    exact = replace(asked, epsilon=None, error=150.0)
    assert plan(exact).choice.epsilon0 > 1.3
    with pytest.raises(ShoalError, match="up to epsilon0 = 1"):
        plan(replace(exact, memoized=True))


def test_fresh_answers_compose_and_memoized_ones_do_not() -> None:
    asked = counting(2, 2_000, mechanisms=("binary_rr",), windows=10, together=False)
    fresh = plan(asked).repeated
    assert fresh is not None
    assert fresh.lifetime_epsilon0 == pytest.approx(10 * fresh.first_epsilon0)
    assert fresh.central_epsilon is not None
    assert 1.0 < fresh.central_epsilon < 10.0
    kept = plan(replace(asked, memoized=True)).repeated
    assert kept is not None
    assert (kept.lifetime_epsilon0, kept.central_epsilon) == (kept.first_epsilon0, None)
    assert plan(replace(asked, windows=1)).repeated is None


# --- refusals -------------------------------------------------------------------------------------


@for_each(
    "change, words",
    [
        ({"n": 1}, "n is 2 to"),
        ({"min_batch": 2_000}, "min_batch is 2 to n = 1000"),
        ({"delta": 0.0}, "delta must lie strictly between 0 and 1"),
        ({"epsilon": None}, "either a target epsilon or a target error"),
        ({"error": 3.0}, "either a target epsilon or a target error"),
        ({"epsilon": math.nan}, "the target epsilon is a finite number above 0"),
        ({"epsilon": None, "error": -1.0}, "the target error is a finite number above 0"),
        (
            {"epsilon": None, "error": 500.0},
            "asks nothing: the middle of all answers is within 500: ask for less",
        ),
        ({"honest_fraction": Fraction(1, 1000)}, "below 2 reports"),
        ({"honest_fraction": Fraction(3, 2)}, "honest fraction must be above 0"),
        ({"most_epsilon0": 0.0}, "largest epsilon0 is above 0"),
        ({"most_bytes": 0}, "at least one message of one byte"),
        ({"windows": 0}, "1 to 10000 windows"),
        ({"mechanisms": ("none such",)}, "there is no mechanism 'none such': choose among"),
        (
            {"mechanisms": ("kmean",)},
            "no mechanism to choose from answers this question: kmean: kmean wants a numeric "
            "domain",
        ),
    ],
)
def test_wrong_requests_are_refused_in_a_line(change: dict[str, object], words: str) -> None:
    with pytest.raises(ShoalError, match=words) as caught:
        plan(replace(counting(4, 1_000, min_batch=1_000), **change))  # type: ignore[arg-type]
    assert caught.value.kind is Kind.CONFIG
    assert "\n" not in str(caught.value)


@for_each(
    "question, half",
    [
        (Frequencies(YesNo()), 500.0),
        (Mean(-1.0, 3.0), 2.0),
        (Sum(-1.0, 3.0), 2_000.0),
        (Quantiles(0.0, 10.0), 5.0),
    ],
)
def test_an_error_that_asks_nothing_is_refused(question: Question, half: float) -> None:
    """It would be "reached" at an epsilon next to 0. Planted: the half range of a mean for a sum ->
    fails.
    """
    Request(question, 1_000, DELTA, error=math.nextafter(half, 0.0))
    with pytest.raises(ShoalError, match="asks nothing") as caught:
        Request(question, 1_000, DELTA, error=half)
    assert caught.value.kind is Kind.CONFIG


@for_each(
    "make, words",
    [
        (lambda: Frequencies(cells(4), (0.5, 0.5)), "2 shares for 4 cells"),
        (lambda: Frequencies(cells(4), (0.5, 0.5, 0.5, -0.5)), "at least 0 that add up to 1"),
        (lambda: Frequencies(cells(4), (0.5, 0.1, 0.1, 0.1)), "at least 0 that add up to 1"),
        (lambda: Frequencies(cells(4), heavy=0.0), "heavy cell is above 0"),
        (lambda: Mean(0.0, 1.0, levels=()), "at least one number of levels"),
        (lambda: Mean(0.0, 1.0, levels=(1,)), "2 to 65535 levels"),
        (lambda: Mean(1.0, 1.0), "finite low < high"),
        (lambda: Mean(0.0, 1.0, value=2.0), "the value to rank at lies in"),
        (lambda: Mean(0.0, 1.0, value=0.2, worst=True), "leave one of the two out"),
    ],
)
def test_wrong_questions_are_refused(make: object, words: str) -> None:
    with pytest.raises(ShoalError, match=words):
        make()  # type: ignore[operator]


def test_nothing_within_the_limits_says_what_stands_in_the_way() -> None:
    with pytest.raises(
        ShoalError,
        match=(
            "nothing can be planned within these limits: krr: a report of 2 bytes is above the "
            "limit of 1 byte"
        ),
    ):
        plan(counting(300, 1_000, most_bytes=1, mechanisms=("krr",)))


# --- parts ----------------------------------------------------------------------------------------


def test_shares_become_whole_devices() -> None:
    assert devices((0.5, 0.25, 0.25), 7).tolist() == [3, 2, 2]  # 3.5, 1.75, 1.75
    assert devices((1 / 3,) * 3, 10).tolist() == [4, 3, 3]
    assert devices((0.0, 1.0), 5).tolist() == [0, 5]
    assert math.fsum(zipf(5)) == pytest.approx(1.0)


@for_each("start", [0.5, 2.0, 5.0, 39.0])
def test_the_search_finds_the_same_epsilon0_from_anywhere(start: float) -> None:
    candidate = Candidate("krr", "", "", cells(16))
    wanted, _ = largest_epsilon0(
        lambda epsilon0: candidate.build(epsilon0).privacy(), 1.0, DELTA, 5_000
    )
    found = largest(candidate, 1.0, DELTA, 5_000, start=start, beaten=lambda _: False)
    assert found.settled
    assert found.epsilon0 == pytest.approx(wanted, rel=1e-3)
    assert found.epsilon0 < found.above <= found.epsilon0 * (1.0 + 6e-4)
    assert guess(1.0, DELTA, 5_000) == pytest.approx(wanted, rel=0.2)


def test_a_beaten_candidate_is_searched_coarsely_and_brackets_the_truth() -> None:
    candidate = Candidate("krr", "", "", cells(16))
    wanted, _ = largest_epsilon0(
        lambda epsilon0: candidate.build(epsilon0).privacy(), 1.0, DELTA, 5_000
    )
    found = largest(candidate, 1.0, DELTA, 5_000, start=4.0, beaten=lambda _: True)
    assert not found.settled
    assert found.epsilon0 <= wanted * (1.0 + 1e-3)
    assert wanted <= found.above <= found.epsilon0 * 1.02 + 1e-9


def test_the_smallest_epsilon0_for_an_error() -> None:
    candidate = Candidate("krr", "", "", cells(16))
    counts = devices((1 / 16,) * 16, 5_000)
    found = smallest(candidate, lambda law: float(law.expected_stderr(counts)[0]) <= 20.0)
    assert found is not None
    assert float(candidate.build(found).expected_stderr(counts)[0]) <= 20.0
    assert float(candidate.build(found * 0.999).expected_stderr(counts)[0]) > 20.0
    assert smallest(candidate, lambda _: False) is None
    assert smallest(candidate, lambda _: True) == 1e-3


def test_the_plan_as_json_is_plain() -> None:
    import json

    value = json.loads(
        json.dumps(
            plan(counting(4, 1_000, windows=3, mechanisms=("krr", "subset"))).to_json(),
            allow_nan=False,
        )
    )
    assert value["choice"]["standing"] == "chosen"
    assert value["choice"]["parameters"]
    assert value["certificate"]["epsilon_upper"] <= value["target_epsilon"] == 1.0
    assert {"mechanism", "setting", "standing", "reason"} <= value["others"][0].keys()
    assert value["repeated"]["windows"] == 3


def test_sketches_are_compared_only_if_they_are_named() -> None:
    """Their collisions are in no prediction, and grow with n. Planted: tried like the others -> a
    million devices at the coins' error.
    """
    names = {"count_sketch", "hadamard_sketch"}
    tried, unsuited = candidates(Request(Frequencies(cells(5)), 600, DELTA, epsilon=1.0))
    assert names.isdisjoint(each.mechanism for each in tried)
    assert names <= {each.mechanism for each in unsuited}
    tried, _ = candidates(
        Request(Frequencies(cells(5)), 600, DELTA, epsilon=1.0, mechanisms=tuple(sorted(names)))
    )
    assert {each.mechanism for each in tried} == names

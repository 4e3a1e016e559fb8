"""What several messages per device would do for a question, beside a plan."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.accounting.composition.compose import compose
from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.several_messages.of_mechanism import losses_of
from shoal.analyzer.planner import Frequencies, Mean, Quantiles, Question, Request, Sum
from shoal.analyzer.planner.frontier.several import foremost, least_worthwhile, several_options
from shoal.domain import Categories, Numeric, YesNo
from shoal.mechanisms.several.registry import create
from tests.cases import for_each

CELLS = Frequencies(Categories(tuple(f"c{i}" for i in range(15))))
REQUEST = Request(CELLS, 100_000, 1e-6, epsilon=1.0)


@for_each(
    "question, errors",
    [
        (CELLS, {"cancelling": 3.12, "dummies": 6.53}),
        (Frequencies(YesNo()), {"signed_count": 1.56, "cancelling": 3.12, "dummies": 6.53}),
    ],
)
def test_errors_are_those_of_the_reference(question: Frequencies, errors: dict[str, float]) -> None:
    """At central (1, 1e-6): the known figures, the least first. Planted: the noise of all devices
    for that of min_batch -> below, fails.
    """
    found, unsuited = several_options(replace(REQUEST, question=question))
    assert {option.spec.name: round(option.error, 2) for option in found} == errors
    assert [option.spec.name for option in found] == list(errors)
    assert len(unsuited) == 0


def test_noise_is_that_of_the_smallest_batch_at_a_full_one() -> None:
    """Noise for 45,000 honest devices, of 100,000 that take part: a variance 100 / 45 as large."""
    (full, *_), _ = several_options(REQUEST)
    smaller = replace(REQUEST, min_batch=50_000, honest_fraction=Fraction(9, 10))
    (half, *_), _ = several_options(smaller)
    assert half.error / full.error == pytest.approx((100 / 45) ** 0.5, rel=0.01)


def test_what_an_epsilon0_costs_is_shown_beside() -> None:
    """The reference's errors; no more than was asked; a limit on epsilon0 leaves these alone.

    Planted: the error of a cell that all hold -> fails; epsilon0 not held against the limit ->
    fails.
    """
    found, unsuited = several_options(REQUEST, 10.0)
    kept = [option for option in found if math.isfinite(option.epsilon0)]
    assert [round(option.error, 2) for option in found] == [3.12, 4.27, 6.53, 7.16]
    assert [option.spec.name for option in kept] == ["cancelling", "dummies"]
    assert all(9.99 < option.epsilon0 <= 10.0 for option in kept)
    assert kept[0].to_json()["epsilon0"] == kept[0].epsilon0
    assert unsuited == ()
    heavy = replace(REQUEST, question=replace(CELLS, worst=True))
    errors = [round(option.error, 2) for option in several_options(heavy, 10.0)[0]]
    assert errors[:3] == [3.12, 6.53, 6.79]
    limited, ruled_out = several_options(replace(REQUEST, most_epsilon0=10.0), 10.0)
    assert [option.spec for option in limited] == [option.spec for option in kept]
    assert {each.mechanism for each in ruled_out} == {"cancelling", "dummies"}
    assert several_options(replace(REQUEST, most_epsilon0=9.0), 10.0)[0] == ()
    assert least_worthwhile(100_000) == pytest.approx(math.log(10_000))


@for_each("target, windows", [(4.0, 4), (6.0, 30)])
def test_releases_together_stay_within_the_target_and_use_it(target: float, windows: int) -> None:
    """Dummies in four windows err less than cancelling messages would at a quarter of the target
    each. Planted: the epsilon of one release for that of all -> above the target, fails; noise cut
    off for one window -> not what a task file gets, fails.
    """
    found, _ = several_options(replace(REQUEST, epsilon=target, windows=windows))
    assert "dummies" in [option.spec.name for option in found]
    for option in found:
        domain, each = CELLS.domain, option.epsilon
        made = design_several(option.spec.name, domain, 100_000, each, 1e-6, windows=windows)
        assert option.spec == made
        losses = losses_of(create(option.spec, CELLS.domain), 100_000, 1e-6)
        assert losses is not None
        together = compose([(losses, windows)], 1e-6).epsilon_upper
        assert 0.97 * target < together <= target


@for_each(
    "n, epsilon, levels",
    [(10_000, 1.0, 1_001), (100_000, 1.0, 1_001), (1_000_000, 1.0, 2_001), (10_000, 0.05, 201)],
)
def test_levels_of_a_mean_are_so_fine_that_rounding_adds_little(
    n: int, epsilon: float, levels: int
) -> None:
    """At most 2 %, and fewer where so many want more noise than the mechanism draws.

    Planted: 1,001 levels for all -> 6 % of a million devices, fails; the largest number first ->
    fails.
    """
    (option,), _ = several_options(Request(Mean(0.0, 24.0), n, 1e-6, epsilon=epsilon))
    assert isinstance(option.domain, Numeric)
    assert option.domain.levels == levels
    noise = 24.0 / epsilon * math.sqrt(2.0) / n  # a trusted curator's, on the line of reals
    assert option.error == pytest.approx(noise, rel=0.02)
    total, _ = several_options(Request(Sum(0.0, 24.0), n, 1e-6, epsilon=epsilon))
    assert total[0].error == pytest.approx(n * option.error)


def test_levels_that_were_given_are_kept() -> None:
    asked = Request(Mean(0.0, 24.0, levels=(11, 101)), 10_000, 1e-6, epsilon=1.0)
    (option,), _ = several_options(asked)
    assert isinstance(option.domain, Numeric)
    assert option.domain.levels == 101
    assert option.to_json()["levels"] == 101
    assert option.to_json()["moved_by_one"] is None


@for_each("windows", [4, 12])
def test_means_of_several_windows_stay_within_the_target(windows: int) -> None:
    """Few releases of a curator's noise compose to little less than the plain sum. Planted: a
    search that leaves out the plain share of each -> "no noise of it keeps", fails.
    """
    asked = Request(Mean(0.0, 1.0), 10_000, 1e-6, epsilon=1.0, windows=windows)
    (option,), _ = several_options(asked)
    losses = losses_of(create(option.spec, option.domain), 10_000, 1e-6)
    assert losses is not None
    assert 0.97 < compose([(losses, windows)], 1e-6).epsilon_upper <= 1.0


@for_each(
    "question", [CELLS, Frequencies(YesNo()), Mean(0.0, 24.0), Sum(0.0, 24.0), Quantiles(0.0, 1.0)]
)
def test_a_look_at_one_is_a_look_at_the_best(question: Question) -> None:
    """Planted: ``dummies`` for the foremost -> fails."""
    asked = replace(REQUEST, question=question)
    found = foremost(asked)
    if isinstance(question, Quantiles):
        assert found is None
        return
    assert found == several_options(asked)[0][0]
    few = foremost(replace(asked, most_messages=12))
    if question is CELLS:  # cancelling messages are too many
        assert few is not None
        assert few.spec.name == "dummies"
    assert foremost(replace(asked, windows=4)) is None
    assert foremost(replace(asked, most_epsilon0=4.0)) is None


@for_each(
    "changes, words",
    [
        ({"memoized": True}, "can't be repeated"),
        ({"most_epsilon0": 4.0}, "no --max-epsilon0 allows it"),
        ({"most_bytes": 5}, "5 allowed"),
        ({"most_messages": 3}, "3 allowed"),
        ({"n": 60, "min_batch": 60, "epsilon": 0.01}, "give a larger target"),
    ],
)
def test_what_rules_one_out_is_said(changes: dict[str, object], words: str) -> None:
    found, unsuited = several_options(replace(REQUEST, **changes))  # type: ignore[arg-type] # fields
    assert found == ()
    assert {each.mechanism for each in unsuited} == {"cancelling", "dummies"}
    assert any(words in each.reason for each in unsuited)


def test_quantiles_are_planned_by_ranges() -> None:
    """The best of a few numbers of levels, or of those that were named; and the error of ranges
    beside it. Planted: the error of a cell for that of all ranges -> fails; the first that can be
    had -> fails; the levels of one message tried -> fails.
    """
    asked = Request(Quantiles(0.0, 96.0), 100_000, 1e-6, epsilon=1.0)
    (option,), unsuited = several_options(asked)
    assert unsuited == ()
    assert option.title == "ranges, 255 levels"
    assert option.error == pytest.approx(0.016, rel=0.05)
    assert option.to_json()["range_error"] == option.range_error
    assert math.isnan(option.moved_by_one)
    named = replace(asked, question=Quantiles(0.0, 96.0, levels=(1023,)))
    ((fine,), _), (few, _) = (
        several_options(named),
        several_options(replace(asked, n=2_000, min_batch=2_000)),
    )
    assert fine.title == "ranges, 1,023 levels"
    assert fine.range_error == pytest.approx(25.7, rel=0.01)
    assert fine.error > option.error
    assert few[0].title == "ranges, 15 levels"
    assert foremost(asked) is None
    worst = replace(asked, question=Quantiles(0.0, 96.0, worst=True))
    assert several_options(worst)[0][0].error > option.error


def test_the_least_epsilon_for_quantiles_is_found() -> None:
    """Planted: the error at the epsilon asked for first -> fails."""
    question = Quantiles(0.0, 96.0, levels=(63,))
    (option,), _ = several_options(Request(question, 20_000, 1e-6, error=0.1))
    assert 0.09 < option.error <= 0.1
    assert 0.4 < option.epsilon < 1.0


def test_counts_are_not_planned_by_ranges() -> None:
    """They would err more in every cell than dummies do. Planted: all names that serve a domain ->
    fails.
    """
    bins = Categories(("a", "b", "c"), (0, 1, 2))
    found, unsuited = several_options(replace(REQUEST, question=Frequencies(bins)))
    assert {option.spec.name for option in found} == {"cancelling", "dummies"}
    assert unsuited == ()

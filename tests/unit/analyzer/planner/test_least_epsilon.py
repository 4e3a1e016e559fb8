"""The smallest epsilon for which several messages per device reach an error."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.accounting.of_task import guaranteed_several
from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.planner import Frequencies, Mean, Question, Request, Sum, plan
from shoal.analyzer.planner.frontier.least_epsilon import LARGEST, least_epsilon
from shoal.analyzer.planner.frontier.lines import frontier
from shoal.analyzer.planner.frontier.option import SeveralOption
from shoal.analyzer.planner.frontier.several import foremost, several_options
from shoal.domain import Categories, Domain, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.registry import create
from tests.cases import for_each

FOUR = Frequencies(Categories(("a", "b", "c")))
REQUEST = Request(FOUR, 20_000, 1e-6, error=4.0)


@for_each(
    "question, error, names",
    [
        (FOUR, 8.0, ["shuffler_noise", "cancelling", "dummies"]),
        (Frequencies(YesNo()), 8.0, ["signed_count", "shuffler_noise", "cancelling", "dummies"]),
        (Mean(0.0, 24.0, (101,)), 0.01, ["split_mix"]),
        (Sum(0.0, 24.0, (101,)), 200.0, ["split_mix"]),
    ],
)
def test_no_smaller_epsilon_reaches_the_error(
    question: Question, error: float, names: list[str]
) -> None:
    """Of each protocol, held against designs for the epsilons just below; and what lint proves of
    its integers is what the option says, never more.

    Planted: the end that misses the error for the one that reaches it -> errs too much, fails; the
    first epsilon of the wide steps -> a smaller one reaches it too, fails; the certified epsilon
    rounded down -> below what lint proves, fails.
    """
    asked = replace(
        REQUEST, question=question, error=error, min_batch=15_000, honest_fraction=Fraction(9, 10)
    )
    found, unsuited = several_options(asked, trusting=True)
    assert sorted(option.spec.name for option in found) == sorted(names)
    assert [option.epsilon for option in found] == sorted(option.epsilon for option in found)
    assert unsuited == ()
    for option in found:
        assert option.error <= error
        made = create(option.spec, option.domain)
        bound = guaranteed_several(made, 15_000, Fraction(9, 10), 1e-6).epsilon_upper
        assert bound <= option.epsilon <= min(option.designed, bound * 1.00001)
        name, domain = option.spec.name, option.domain
        assert option.spec == design_several(name, domain, 13_500, option.designed, 1e-6, windows=1)
        for less in (0.998, 0.99, 0.8, 0.5):
            errs = _stderr(name, domain, option.designed * less)
            assert errs * (20_000 if isinstance(question, Sum) else 1) > error


def _stderr(name: str, domain: Domain, epsilon: float) -> float:
    """Of 20,000 devices, 13,500 of them sure to be honest; infinite where a design refuses."""
    try:
        spec = design_several(name, domain, 13_500, epsilon, 1e-6, windows=1)
    except ShoalError:
        return math.inf
    return create(spec, domain).expected_stderr(20_000)


def test_a_limit_on_messages_is_kept_by_a_larger_epsilon() -> None:
    """Less noise wants fewer messages. Planted: refusals taken for "too large an epsilon" -> no
    option at all, fails.
    """
    (free, *_), _ = several_options(REQUEST)
    (limited, *_), _ = several_options(replace(REQUEST, most_messages=free.messages - 8))
    assert free.spec.name == limited.spec.name == "cancelling"
    assert limited.messages <= free.messages - 8
    assert limited.epsilon > free.epsilon
    assert limited.error < free.error


def test_an_error_that_one_cannot_reach_is_said_with_the_least_that_it_can() -> None:
    """Dummies come in whole messages of few devices, and keep an error; randomized answers err by
    their draws. Planted: the least of all that was seen for any error -> an option that errs too
    much, fails.
    """
    found, unsuited = several_options(replace(REQUEST, error=0.5), 6.0)
    assert [option.title for option in found] == ["cancelling"]
    said = {each.mechanism: each.reason for each in unsuited}
    assert set(said) == {"dummies", "dummies, randomized", "cancelling, randomized"}
    for reason in said.values():
        assert "its error stays above 0.5 at every epsilon: " in reason
        assert "\n" not in reason


def test_a_look_at_one_is_left_out_for_an_error() -> None:
    """It would take many designs. Planted: a design for epsilon 1 there -> fails."""
    assert foremost(REQUEST) is None


def _like(option: SeveralOption, epsilon: float) -> SeveralOption:
    return replace(option, error=1.0 / epsilon, epsilon=epsilon, designed=epsilon)


@for_each(
    "low, high, error, wanted",
    [
        (0.0, 100.0, 0.5, 2.0),
        (0.0, 100.0, 1.0 / 39.0, 39.0),
        (3.0, 12.0, 0.5, 3.0),  # smaller ones are refused
        (0.0, 15.5, 1.0 / 15.4, 15.4),  # between two wide steps, just below what is refused
        (0.0, 0.0123, 1.0 / 0.0121, 0.0121),
        (0.0, 100.0, 1e9, 1e-4),
    ],
)
def test_what_is_refused_at_both_ends_hides_nothing(
    low: float, high: float, error: float, wanted: float
) -> None:
    """A made-up design of error 1 / epsilon that refuses outside of its ends. Planted: no look
    between what is refused and what errs too much -> "stays above", fails.
    """
    (option, *_), _ = several_options(replace(REQUEST, error=None, epsilon=1.0))

    def design(epsilon: float) -> SeveralOption:
        assert 0.0 < epsilon <= LARGEST
        if not low <= epsilon <= high:
            raise ShoalError(Kind.CONFIG, "refused")
        return _like(option, epsilon)

    found = least_epsilon(design, error)
    assert found.error <= error
    assert wanted <= found.designed * 1.000001
    assert found.designed <= max(wanted * 1.002, 2e-4)


def test_a_design_that_always_refuses_says_why() -> None:
    def design(epsilon: float) -> SeveralOption:
        raise ShoalError(Kind.CONFIG, "too many levels")

    with pytest.raises(ShoalError, match="too many levels"):
        least_epsilon(design, 1.0)

    def broken(epsilon: float) -> SeveralOption:
        raise ShoalError(Kind.INTERNAL, "a bug")

    with pytest.raises(ShoalError, match="a bug") as told:
        least_epsilon(broken, 1.0)
    assert told.value.kind is Kind.INTERNAL


def test_the_least_epsilon_is_recommended_where_an_error_is_asked_for() -> None:
    """Planted: the least error first, as for an epsilon -> fails; errors compared for what another
    line betters (all are alike) -> a line of a smaller epsilon is "beaten", fails.
    """
    asked = replace(REQUEST, mechanisms=("krr",))
    made = plan(asked)
    found = frontier(made, several_options(asked, trusting=True))
    assert [line.epsilon for line in found.lines] == sorted(line.epsilon for line in found.lines)
    assert found.recommended.title == "cancelling"
    assert all(line.error <= 4.0 for line in found.lines)
    (single,) = (line for line in found.lines if line.several is None)
    assert single.epsilon == made.choice.epsilon_upper > found.recommended.epsilon
    assert single.beaten_by == ""
    for line in found.lines:
        if line.beaten_by:
            better = next(other for other in found.lines if other.title == line.beaten_by)
            assert better.epsilon <= line.epsilon
            assert better.error <= 1.011 * line.error
    line = found.lines[0]
    larger = replace(line, title="b", epsilon=2.0 * line.epsilon)
    assert line.beats(larger, 4.0)
    assert line.beats(replace(larger, error=0.995 * 4.0), 4.0)
    assert not line.beats(replace(larger, error=0.5 * 4.0), 4.0)
    assert not larger.beats(line, 4.0)

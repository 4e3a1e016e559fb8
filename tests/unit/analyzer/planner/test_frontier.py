"""One frontier over one message and several: what is recommended, and what each line costs."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from shoal.accounting.several_messages.liars import moved_by_liar
from shoal.analyzer.planner import Frequencies, Mean, Plan, Request, Sum, plan
from shoal.analyzer.planner.frontier.costs import (
    OPENING_SECONDS,
    RADIO_CALL_SECONDS,
    RADIO_RATE,
    moved_by_one,
)
from shoal.analyzer.planner.frontier.lines import Frontier, FrontierLine, frontier
from shoal.analyzer.planner.frontier.several import several_options
from shoal.analyzer.planner.predict import predict
from shoal.arrays import np
from shoal.domain import Categories, Domain, YesNo
from shoal.mechanisms import Mechanism, create, design
from shoal.mechanisms.base import Tally
from shoal.mechanisms.several.registry import create as create_several
from tests.cases import for_each

FOUR = Categories(("a", "b", "c"))
YES = Request(Frequencies(YesNo()), 20_000, 1e-6, epsilon=1.0)


def _found(request: Request, epsilon0: float | None = None) -> tuple[Plan, Frontier]:
    made = plan(request)
    return made, frontier(made, several_options(request, epsilon0), epsilon0)


def test_the_least_error_is_recommended_whatever_its_kind() -> None:
    """Of both kinds; the plan's choice is on the frontier as it was planned.

    Planted: a frontier without the plan's choice -> fails; sorted by messages -> fails; the cost of
    the largest report for that of the mean one -> fails.
    """
    made, found = _found(YES, 9.0)
    assert [line.error for line in found.lines] == sorted(line.error for line in found.lines)
    (single,) = (line for line in found.lines if line.several is None)
    assert (single.title, single.epsilon0) == ("binary_rr", made.choice.epsilon0)
    assert single.radio_seconds == RADIO_CALL_SECONDS + 512 / RADIO_RATE
    assert single.analyzer_seconds == pytest.approx(20_000 * OPENING_SECONDS)
    best = found.recommended
    assert best.several is not None
    assert (best.title, best.epsilon0) == ("signed_count", math.inf)
    assert best.error < single.error
    assert best.radio_seconds == RADIO_CALL_SECONDS + best.frame_bytes / RADIO_RATE
    assert best.analyzer_seconds == pytest.approx(20_000 * best.mean_messages * OPENING_SECONDS)
    assert best.to_json()["epsilon0"] is None
    beaten = {line.title: line.beaten_by for line in found.lines if line.beaten_by}
    assert beaten["cancelling"] == "signed_count"
    assert "signed_count, randomized" not in beaten


def test_noise_that_the_shuffler_is_trusted_to_add_is_shown_and_never_recommended() -> None:
    """Of categories it errs least, pushes no line out, and its messages are opened too.

    Planted: the least error recommended whoever is trusted -> fails; a line beaten by it -> fails;
    the opening of devices' messages alone -> fails.
    """
    asked = replace(YES, question=Frequencies(FOUR), mechanisms=("krr",))
    made = plan(asked)
    found = frontier(made, several_options(asked, 9.0, trusting=True), 9.0)
    first = found.lines[0]
    assert (first.title, first.trusts_shuffler) == ("shuffler_noise", True)
    assert first.to_json()["trusts_shuffler"] is True
    assert first.analyzer_seconds > 20_001 * OPENING_SECONDS
    assert found.recommended.title == "cancelling"
    assert not found.recommended.trusts_shuffler
    assert first.title not in {line.beaten_by for line in found.lines}
    assert [line.title for line in found.lines].count("shuffler_noise") == 1
    assert all(not option.trusts_shuffler for option in several_options(asked)[0])


def test_limits_leave_what_they_allow() -> None:
    """Bytes, messages, epsilon0: then one message is what errs least."""
    for limits in (
        replace(YES, most_bytes=4),
        replace(YES, most_messages=2),
        replace(YES, most_epsilon0=12.0),
    ):
        _, found = _found(limits)
        assert found.recommended.several is None
        assert found.lines == (found.recommended,)
        assert found.unsuited
    _, found = _found(replace(YES, most_epsilon0=12.0), 12.0)
    assert found.recommended.title == "signed_count, randomized"


@for_each(
    "name, setting, epsilon0",
    [
        ("krr", "", 1.5),
        ("unary", "sue", 2.0),
        ("unary", "p=0.75", 3.0),
        ("subset", "standard", 2.0),
    ],
)
def test_one_device_moves_a_count_by_what_its_best_report_does(
    name: str, setting: str, epsilon0: float
) -> None:
    """Against all reports that there are, each by itself: estimates are linear, so that is how far
    one report moves any of them.

    Planted: the noise of an empty cell for the weight of a message -> fails.
    """
    question, n = Frequencies(FOUR, heavy=0.5), 1_000
    made = create(design(name, FOUR, epsilon0, setting), FOUR)
    moved = moved_by_one(question, made, predict(question, made, FOUR, n), n)
    assert moved == pytest.approx(_brute(made, FOUR), rel=1e-2)


def _brute(made: Mechanism, domain: Domain) -> float:
    """The widest range of one estimate over all single reports of so many bytes."""
    rows = np.array(list(itertools.product(range(256), repeat=made.report_size)), dtype=np.uint8)
    rows = rows[made.valid(rows)]
    estimates = np.array([made.estimate(made.tally(row[None, :])).values for row in rows])
    assert estimates.shape[1] <= domain.size + 1
    return float(np.ptp(estimates, axis=0).max())


@for_each("sum_of_all", [False, True])
def test_one_device_moves_a_mean_by_what_its_best_report_does(sum_of_all: bool) -> None:
    """Of n devices a mean by an n-th of it, a sum by all of it. Planted: 1 / (p - q) alone, without
    the range -> fails.
    """
    n, question = 1_000, (Sum if sum_of_all else Mean)(0.0, 24.0)
    domain = question.domain(9)
    made = create(design("kmean", domain, 2.0), domain)
    rows = (np.arange(n) % 9).astype(np.uint8)[:, None]
    rows[-round(n / (math.exp(2.0) + 9)) :] = 9  # "no answer", drawn by devices that have one
    means = []
    for lie in (0, 8):
        rows[0] = lie
        means.append(float(made.estimate(made.tally(rows)).values[0]))
    moved = moved_by_one(question, made, predict(question, made, domain, n), n)
    assert moved == pytest.approx((means[1] - means[0]) * (n if sum_of_all else 1), rel=0.01)


def test_one_device_moves_a_count_by_as_many_messages_as_it_may_send() -> None:
    """All of them in one cell, against an empty report; weighed as a drawn answer is. A sum of
    shares it moves anywhere.

    Planted: one message for all of them -> fails; a drawn one weighed as an answer -> fails.
    """
    domain = Categories(("a", "b", "c"))
    request = Request(Frequencies(domain), 1_000, 1e-6, epsilon=2.0)
    options, _ = several_options(request, 5.0)
    assert {option.title for option in options} >= {"cancelling", "dummies, randomized"}
    for option in options:
        made = create_several(option.spec, domain)
        none = np.zeros((0, made.report_size), dtype=np.uint8)
        full = np.zeros((made.messages, made.report_size), dtype=np.uint8)
        before, after = (
            made.estimate(Tally(made.tally(rows).counts, len(rows)), 1).values
            for rows in (none, full)
        )
        assert moved_by_liar(made) == pytest.approx(float(np.abs(after - before).max()))
        assert option.moved_by_one == moved_by_liar(made)
    (shares,), _ = several_options(replace(request, question=Mean(0.0, 24.0)))
    assert math.isinf(shares.moved_by_one)
    _, found = _found(replace(request, question=Mean(0.0, 24.0, levels=(9,))))
    said = found.to_json()["recommended"]
    assert (said["moved_by_one"], said["moved_anywhere"]) == (None, True)


def test_a_line_beats_what_is_worse_in_something_and_better_in_nothing() -> None:
    line = FrontierLine("a", None, 1.0, 5.0, 2.0, 1.0, 1, 512, 0.5, 1.0, 1.0)
    assert not line.beats(replace(line, title="b"))
    assert line.beats(replace(line, error=2.1))
    assert line.beats(replace(line, moved_by_one=math.nan))
    assert not line.beats(replace(line, error=2.1, epsilon0=4.0))

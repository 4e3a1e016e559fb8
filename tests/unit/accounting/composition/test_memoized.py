"""What memoizing promises and what it does not, against exact enumeration of all that can be seen
at small sizes.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest

from shoal.accounting import certify
from shoal.accounting.composition.memoized import (
    PROMISE,
    MemoizedRandomizer,
    check_memoized,
    lifetime_epsilon,
    rarest,
    sentences,
)
from shoal.accounting.lint.task import lint
from shoal.approximate import ApproximateLaw
from shoal.domain import Categories, Words
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, PureLaw, epsilon0_upper
from tests.cases import for_each
from tests.worlds.services.analyzer import make_task

K = 3
LAW = KaryLaw(k=K, same=5, other=1)
Row = tuple[int, ...]
Seen = tuple[Any, ...]


def chance(value: int, report: int) -> Fraction:
    return Fraction(LAW.same if value == report else LAW.other, LAW.total)


def histogram(reports: Row) -> Row:
    return tuple(reports.count(cell) for cell in range(K))


def views(victim: Row, others: Row, present: tuple[Row, ...]) -> dict[Seen, Fraction]:
    """The exact law of what an analyzer sees of a memoized task: one histogram per window.

    ``victim``: device 0's value in each window; ``others``: the constant values of the others;
    ``present``: who answers in each window.
    """
    cells = sorted(set(victim))
    seen: dict[Seen, Fraction] = {}
    for permanent in itertools.product(range(K), repeat=len(cells)):
        for rest in itertools.product(range(K), repeat=len(others)):
            p = math.prod(
                (chance(v, r) for v, r in zip(cells, permanent, strict=True)), start=Fraction(1)
            )
            p *= math.prod(
                (chance(v, r) for v, r in zip(others, rest, strict=True)), start=Fraction(1)
            )
            memo = dict(zip(cells, permanent, strict=True))
            shown = []
            for window, who in enumerate(present):
                reports = [
                    memo[victim[window]] if device == 0 else rest[device - 1] for device in who
                ]
                shown.append(histogram(tuple(reports)))
            seen[tuple(shown)] = seen.get(tuple(shown), Fraction(0)) + p
    return seen


def worst_ratio(p: dict[Seen, Fraction], q: dict[Seen, Fraction]) -> Fraction | None:
    """sup P(S) / Q(S), both ways; None: infinite."""
    if p.keys() != q.keys():
        return None
    return max(max(p[s] / q[s], q[s] / p[s]) for s in p)


def hockey(p: dict[Seen, Fraction], q: dict[Seen, Fraction], odds: int) -> Fraction:
    """delta at epsilon = ln(odds), exactly."""
    return sum((max(Fraction(0), p[s] - odds * q.get(s, Fraction(0))) for s in p), Fraction(0))


EVERYBODY = (0, 1, 2)


@for_each(
    "present, all_of_it",
    [
        ((EVERYBODY,), False),
        ((EVERYBODY, EVERYBODY), False),
        (
            (EVERYBODY, (1, 2)),
            True,
        ),  # the victim stays away once: the difference of the histograms is its permanent report
        ((EVERYBODY, (0, 1), (0, 2), (0,), EVERYBODY), True),
        (((0, 1), (0, 2), (1, 2)), True),  # never alone, and yet three sums give away three reports
    ],
)
def test_an_unchanged_value_costs_at_most_epsilon0_over_all_windows_and_may_cost_all_of_it(
    present: tuple[Row, ...], all_of_it: bool
) -> None:
    """At every epsilon no more than one bare report gives away. Planted: a fresh draw per window in
    ``views`` -> five windows give away more, and this fails.
    """
    pairs = [
        (views((a,) * len(present), others, present), views((b,) * len(present), others, present))
        for a, b in itertools.permutations(range(K), 2)
        for others in itertools.product(range(K), repeat=2)
    ]
    assert max(worst_ratio(p, q) or math.inf for p, q in pairs) <= LAW.max_ratio
    for odds in (1, 2, 3):
        bare = Fraction(LAW.same - odds * LAW.other, LAW.total)
        worst = max(hockey(p, q, odds) for p, q in pairs)
        assert worst <= bare
        assert (worst == bare) == all_of_it


def test_adding_up_the_windows_certificates_would_be_wrong() -> None:
    """The counter-example behind the refusal: two certificates of a thousand reports together are
    far below what is seen in truth.
    """
    one = certify(LAW, 1_000, 1e-6).epsilon_upper
    assert 2 * one < 0.5 * math.log(float(LAW.max_ratio))
    p, q = (views((a, a), (0, 0), (EVERYBODY, (1, 2))) for a in (1, 2))
    assert worst_ratio(p, q) == LAW.max_ratio


def test_further_values_cost_epsilon0_each_and_the_change_itself_is_not_hidden() -> None:
    present = (EVERYBODY, (0,), EVERYBODY, (0,))
    change = worst_ratio(views((0, 0, 1, 1), (0, 0), present), views((1, 1, 2, 2), (0, 0), present))
    assert change == LAW.max_ratio**2
    # One window's answer replaced, the others as they are: no epsilon at all.
    assert (
        worst_ratio(views((0, 0, 0, 0), (0, 0), present), views((0, 0, 0, 1), (0, 0), present))
        is None
    )


@dataclass
class Fake:
    """A mechanism as far as it is asked here."""

    law: Any
    messages: int = 1
    name: str = "fake"

    def privacy(self) -> LocalPrivacy:
        law: LocalPrivacy = self.law
        return law


class Endless:
    """A law whose ratio is beyond the floats."""

    max_ratio = Fraction(1 << 20_000)


def memoized_task(**changes: Any) -> Any:
    return replace(make_task(min_batch=1_000), **{"memoized": True, **changes})


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (Fake(LAW, messages=2), "2 messages"),
        (Fake(ApproximateLaw(Fraction(3), 1e-9)), "no finite epsilon0"),
        (None, "every round"),
    ],
)
def test_what_cannot_be_memoized_is_refused(made: MemoizedRandomizer | None, words: str) -> None:
    """Planted: ``hasattr(law, "epsilon0")`` taken for a ratio -> the approximate law passes, and
    this fails.
    """
    with pytest.raises(ShoalError, match=words) as error:
        check_memoized(memoized_task(), made)
    assert error.value.kind is Kind.INVALID
    check_memoized(make_task(), made)  # not memoized: nobody asks


def test_a_task_that_states_several_messages_is_refused_too() -> None:
    with pytest.raises(ShoalError, match="2 messages"):
        check_memoized(memoized_task(messages=2), Fake(LAW))


def test_the_lifetime_epsilon_is_that_of_the_integers_and_no_law_of_infinite_ratio_has_one() -> (
    None
):
    task = memoized_task()
    mechanism = create(task.mechanism, task.domain)
    assert lifetime_epsilon(task, mechanism) == epsilon0_upper(mechanism.privacy())
    # The float that stands for ln 2^20000 is finite, and a promise; only the absence of a ratio is
    # none.
    assert lifetime_epsilon(task, Fake(Endless())) >= 20_000 * math.log(2)


def test_the_rarest_report() -> None:
    """n_certified times the smallest probability of an output, by going through all of them."""
    task = memoized_task(honest_fraction_ppm=900_000)
    assert rarest(task, LAW) == pytest.approx(
        900 * min(float(chance(v, r)) for v in range(K) for r in range(K))
    )
    assert rarest(task, FiniteLaw(((1, 9), (4, 6)))) == pytest.approx(90.0)
    assert rarest(task, PureLaw(Fraction(3))) is None


def test_plain_words_count_windows_and_never_round_down() -> None:
    one, two = sentences(1.23456, 1), sentences(1.23456, 2)
    assert all(any(PROMISE in line for line in lines) for lines in (one, two))
    assert "1.235" in one[1]
    assert "second one on" in one[1]
    assert "2 windows" in two[1]
    assert "1.235" in two[1]
    assert "share their noise" in two[2]
    assert "77.5 %" in two[1]  # e^1.23456 / (1 + e^1.23456) = 0.77463


# --- lint -----------------------------------------------------------------------------------------


def test_lint_takes_a_memoized_task_and_keeps_its_certificate() -> None:
    plain, memoized = (lint(memoized_task(memoized=flag)) for flag in (False, True))
    assert not memoized.errors
    assert memoized.guarantee == plain.guarantee


def test_lint_refuses_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the check left out of lint -> signed, and this fails."""
    from shoal.accounting.lint import task as module

    task = memoized_task(messages=2)

    class Two:
        messages, name, report_size = 2, "two", task.report_size

        def privacy(self) -> LocalPrivacy:
            return LAW

    monkeypatch.setattr(module, "create_any", lambda *_: Two())
    assert any("can't be memoized" in message for message in lint(task).errors)
    assert not any("memoized" in message for message in lint(replace(task, memoized=False)).errors)


def test_lint_warns_of_reports_that_tell_devices_apart_and_of_a_single_window() -> None:
    many = make_task(
        domain=Categories(tuple(f"c{i}" for i in range(400))),
        min_batch=1_000,
        epsilon0=3.0,
        target_epsilon=3.0,
    )
    assert not any("recognised" in message for message in lint(many).warnings)
    assert any("recognised" in message for message in lint(replace(many, memoized=True)).warnings)
    few = memoized_task()
    assert not any("recognised" in message for message in lint(few).warnings)
    sketched = make_task(
        domain=Words(("flu",)), mechanism="count_sketch", min_batch=1_000, target_epsilon=3.0
    )
    warnings = lint(replace(sketched, memoized=True)).warnings
    # krr, which is advised for categories, refuses words
    assert any("use rappor" in message for message in warnings)
    assert not any("krr" in message for message in warnings)
    single = replace(few, windows=replace(few.windows, count=1))
    assert any("one window" in message for message in lint(single).warnings)

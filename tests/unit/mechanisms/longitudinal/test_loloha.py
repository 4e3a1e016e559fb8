"""LOLOHA in rationals: the chain of two responses, the paper's integers beside ours, and what all
windows together give away.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from shoal.domain import Categories
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create, design
from shoal.mechanisms.longitudinal.loloha import chained, integers
from shoal.task import MechanismSpec
from tests.cases import for_each

WORDS = 1 << 64
FIVE = Categories(("a", "b", "c", "d"))
Response = list[list[Fraction]]


def response(g: int, uniform: int) -> Response:
    """P(answer | value) of g-ary response."""
    share = Fraction(uniform, WORDS)
    return [
        [(1 - share) * (value == answer) + share / g for answer in range(g)] for value in range(g)
    ]


def through(one: Response, two: Response) -> Response:
    span = range(len(one))
    return [
        [sum((one[value][at] * two[at][answer] for at in span), Fraction(0)) for answer in span]
        for value in span
    ]


@for_each("g", [2, 4, 8])
@for_each("noise", [(WORDS // 5, WORDS // 3), (1, WORDS - 1), (WORDS - 1, 1), (WORDS // 2, 7)])
def test_the_chain_is_g_ary_response_again(g: int, noise: tuple[int, int]) -> None:
    """Summed over the permanent answers. Planted: the ratio without g before K; composed as the
    paper's p1 p2 + q1 q2 -> this fails.
    """
    chain = through(response(g, noise[0]), response(g, noise[1]))
    assert (
        len({chain[value][value] for value in range(g)})
        == len({chain[0][1], chain[1][0], chain[g - 1][0]})
        == 1
    )
    assert chain[0][0] / chain[0][1] == chained(g, *noise)
    first = response(g, noise[0])
    assert first[0][0] / first[0][1] == chained(g, noise[0], 0)


def papers_noise(g: int, permanent: float, epsilon1: float) -> float:
    """e^epsilon of one report, exactly, with the paper's noise of ln((e^(permanent + epsilon1) - 1)
    / (e^permanent - e^epsilon1)).
    """
    a, b = math.exp(permanent), math.exp(epsilon1)
    instant = (a * b - 1) / (a - b)
    return (a * instant + g - 1) / (a + instant + g - 2)


def papers_variance(g: int, permanent: float, epsilon1: float) -> float:
    """The paper's approximate variance per device, of a value that nobody holds: q (1 - q) / ((p1 -
    1/g)(p2 - q2))^2, q = 1/g.
    """
    a, b = math.exp(permanent), math.exp(epsilon1)
    instant = (a * b - 1) / (a - b)
    keep = (a - 1) / (a + g - 1) * (instant - 1) / (instant + g - 1)
    return 1 / (keep**2 * (g - 1))


def papers_g(permanent: float, epsilon1: float) -> int:
    a, b = math.exp(permanent), math.exp(epsilon1)
    root = math.sqrt(a**4 - 14 * a**2 + 12 * a * b * (1 - a * b) + 12 * a**3 * b + 1)
    return 1 + max(1, round((1 - a**2 + root) / (6 * (a - b))))


@for_each("permanent, epsilon1", [(1.0, 0.5), (2.0, 1.2), (4.0, 2.0), (5.0, 3.0)])
def test_the_papers_choice_and_ours(permanent: float, epsilon1: float) -> None:
    """The paper's g is the optimum under its noise; that noise gives epsilon1 at g = 2 and less
    than that at larger g; and so ours errs less at the same g, and its best g is near e^epsilon1 +
    1.

    Planted: the paper's noise for ours -> the last line fails.
    """
    best = papers_g(permanent, epsilon1)
    assert best == min(range(2, 100), key=lambda g: papers_variance(g, permanent, epsilon1))
    assert math.log(papers_noise(2, permanent, epsilon1)) == pytest.approx(epsilon1)
    assert math.log(papers_noise(8, permanent, epsilon1)) < epsilon1 - 0.01
    for g in (4, 16):
        first, second = integers(g, epsilon1, permanent)
        assert math.log(chained(g, first, second)) == pytest.approx(epsilon1)
        keep = (1 - first / WORDS) * (1 - second / WORDS)
        assert 1 / (keep**2 * (g - 1)) < papers_variance(g, permanent, epsilon1)


def test_the_optimized_setting_takes_the_power_of_two_near_the_best() -> None:
    for asked, g in ((0.5, 2), (2.0, 8), (4.0, 64)):
        assert design("loloha", FIVE, asked, "oloha").get("g") == g


def windows(
    history: tuple[int, ...], permanent: Response, instant: Response
) -> dict[tuple[int, ...], Fraction]:
    """The law of all reports of a device with these hash values, given its seed: one permanent
    answer per value, and noise per window.
    """
    g, found = len(permanent), {}
    for view in itertools.product(range(g), repeat=len(history)):
        chance = Fraction(1)
        for key in set(history):
            at = [index for index, value in enumerate(history) if value == key]
            chance *= sum(
                (
                    permanent[key][kept]
                    * math.prod((instant[kept][view[i]] for i in at), start=Fraction(1))
                    for kept in range(g)
                ),
                Fraction(0),
            )
        found[view] = chance
    return found


def worst(
    one: tuple[int, ...], two: tuple[int, ...], permanent: Response, instant: Response
) -> Fraction:
    left, right = (windows(history, permanent, instant) for history in (one, two))
    return max(max(left[view] / right[view], right[view] / left[view]) for view in left)


def test_what_all_windows_give_away() -> None:
    """Six windows, g = 2, little instantaneous noise. An unchanged hash value: at most the
    permanent ratio, and nearly that. Histories that change at the same times: at most its square,
    for two values. Histories that change at *other* times are told apart by more than either: that
    count does not cover when a value changed, as the module says.

    Planted: a permanent answer drawn anew in every window -> the first line fails.
    """
    permanent, instant = response(2, WORDS // 2), response(2, WORDS // 50)
    ratio = chained(2, WORDS // 2, 0)
    assert ratio * Fraction(9, 10) < worst((0,) * 6, (1,) * 6, permanent, instant) <= ratio
    assert ratio < worst((0, 0, 0, 1, 1, 1), (1, 1, 1, 0, 0, 0), permanent, instant) <= ratio**2
    assert worst((0, 0, 0, 0, 0, 0), (0, 0, 0, 1, 1, 1), permanent, instant) > 100 * ratio**2


@for_each(
    "changed, message",
    [
        ({"g": 6}, "power of two"),
        ({"k": 4}, '"k"'),
        ({"permanent_uniform": 0}, "permanent_uniform"),
        ({"g": 1}, '"g"'),
    ],
)
def test_integers_that_do_not_fit_are_refused(changed: dict[str, int], message: str) -> None:
    given = dict(design("loloha", FIVE, 1.0).parameters)
    with pytest.raises(ShoalError, match=message) as caught:
        create(MechanismSpec.of("loloha", **{**given, **changed}), FIVE)
    assert caught.value.kind is Kind.INVALID

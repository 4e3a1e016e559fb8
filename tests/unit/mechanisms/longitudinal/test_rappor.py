"""RAPPOR's law in rationals: the paper's formulas, and that no pair of Bloom filters tells more
than the pair whose law is stated.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.domain import Categories, Words
from shoal.mechanisms import create, design
from shoal.mechanisms.longitudinal.filter_law import chained, law, ratio
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.mechanisms.longitudinal.rappor import integers
from shoal.privacy import SymmetricLaw, epsilon0_upper
from tests.cases import for_each
from tests.sizes import size

WORDS = 1 << 64
# f = 1/2, p = 1/2, q = 3/4: section 5 of the paper
CHROME = WORDS // 4, WORDS // 2, 3 * WORDS // 4
Filter = frozenset[int]


def filters(bits: int, hashes: int) -> list[Filter]:
    """Every filter of up to ``hashes`` of ``bits`` bits."""
    return [
        frozenset(chosen)
        for count in range(1, hashes + 1)
        for chosen in itertools.combinations(range(bits), count)
    ]


def outputs(one: Filter, bits: int, high: Fraction, low: Fraction) -> list[Fraction]:
    """The probabilities of all 2^bits reports of a device with this filter."""
    rate = [high if at in one else low for at in range(bits)]
    vectors = itertools.product((0, 1), repeat=bits)
    return [
        math.prod(
            (r if bit else 1 - r for r, bit in zip(rate, vector, strict=True)), start=Fraction(1)
        )
        for vector in vectors
    ]


def test_the_chain_is_the_papers() -> None:
    """q* = f (p + q) / 2 + (1 - f) q and p* = f (p + q) / 2 + (1 - f) p, and both responses added
    up.
    """
    for half_f, p, q in (CHROME, (1, 7, WORDS - 9), (WORDS // 2 - 1, 1, 2)):
        f, share_p, share_q = Fraction(2 * half_f, WORDS), Fraction(p, WORDS), Fraction(q, WORDS)
        high, low = (Fraction(rate, WORDS**2) for rate in chained(half_f, p, q))
        assert (
            high
            == f * (share_p + share_q) / 2 + (1 - f) * share_q
            == (1 - f / 2) * share_q + f / 2 * share_p
        )
        assert low == f * (share_p + share_q) / 2 + (1 - f) * share_p


@for_each("hashes", [1, 2])
@for_each(
    "noise", [CHROME, (WORDS // 10, WORDS // 50, WORDS // 3), (WORDS // 3, WORDS // 2, WORDS - 3)]
)
def test_epsilon_is_that_of_the_worst_pair_of_words(
    hashes: int, noise: tuple[int, int, int]
) -> None:
    """Every pair of filters of up to h of 4 bits, every report: the largest ratio is the formula's,
    of one report and for life. It is (q* (1 - p*) / (p* (1 - q*)))^h: h counts both directions, 2 h
    bits.

    Planted: h left out (what asks for 1 and gives 1.96 at h = 2), or counted twice, in ``ratio`` ->
    this fails.
    """
    for high, low in (chained(*noise), (WORDS * (WORDS - noise[0]), WORDS * noise[0])):
        rates = Fraction(high, WORDS**2), Fraction(low, WORDS**2)
        laws = [outputs(one, 4, *rates) for one in filters(4, hashes)]
        worst = max(
            a / b
            for one, two in itertools.permutations(laws, 2)
            for a, b in zip(one, two, strict=True)
        )
        assert worst == ratio(hashes, high, low) == law(hashes, high, low).max_ratio
        assert worst == (rates[0] * (1 - rates[1]) / (rates[1] * (1 - rates[0]))) ** hashes


def test_the_papers_figures() -> None:
    """Chrome's parameters: epsilon_1 = h ln(q* (1 - p*) / (p* (1 - q*))) = 0.5343 per two hash
    functions, epsilon_inf = 4 ln 3.
    """
    high, low = chained(*CHROME)
    assert float(Fraction(high, WORDS**2)) == 0.6875
    assert float(Fraction(low, WORDS**2)) == 0.5625
    assert math.log(ratio(2, high, low)) == pytest.approx(
        2 * math.log(0.6875 * 0.4375 / (0.5625 * 0.3125))
    )
    assert math.log(ratio(2, WORDS * (WORDS - CHROME[0]), WORDS * CHROME[0])) == pytest.approx(
        4 * math.log(3)
    )


@for_each("hashes", [1, 2, 4, 8])
def test_what_is_asked_is_what_one_report_gives(hashes: int) -> None:
    """By the law's own classes, not by the formula. Planted: ``ratio`` without h in ``integers`` ->
    h = 2 gives 2 for 1, this fails.
    """
    for asked in (0.1, 1.0, 6.0):
        half_f, p, q = integers(hashes, asked, 2 * asked)
        one, life = (
            law(hashes, *chained(half_f, p, q)),
            law(hashes, WORDS * (WORDS - half_f), WORDS * half_f),
        )
        assert asked * (1 - 1e-9) < epsilon0_upper(one) <= asked
        assert 2 * asked * (1 - 1e-9) < epsilon0_upper(life) <= 2 * asked
        assert p + q == WORDS


def hockey_sticks(
    one: list[Fraction], two: list[Fraction], weight: list[Fraction], e: Fraction, devices: int
) -> Fraction:
    """E(sum of ``devices`` independent L)_+ of the blanket's sum: L = (P(y | x) - e P(y | x')) /
    w(y) with probability w(y), else 0.
    """
    step: defaultdict[Fraction, Fraction] = defaultdict(Fraction)
    for a, b, w in zip(one, two, weight, strict=True):
        step[(a - e * b) / w] += w
    step[Fraction(0)] += 1 - sum(weight)
    found: dict[Fraction, Fraction] = {Fraction(0): Fraction(1)}
    for _ in range(devices):
        following: defaultdict[Fraction, Fraction] = defaultdict(Fraction)
        for (at, chance), (by, likely) in itertools.product(found.items(), step.items()):
            following[at + by] += chance * likely
        found = dict(following)
    return sum((at * chance for at, chance in found.items() if at > 0), Fraction(0))


@pytest.mark.parametrize(
    "rates",
    [
        (Fraction(3, 4), Fraction(1, 4)),
        (Fraction(11, 16), Fraction(9, 16)),
        (Fraction(1, 2), Fraction(3, 32)),
    ],
)
def test_no_pair_is_above_the_stated_one_in_the_blankets_sum(
    rates: tuple[Fraction, Fraction],
) -> None:
    """The module's proof, for every pair of filters of up to 2 of 4 bits, 1 and 2 devices, several
    e: exact. And ``least`` is at most every cell's weight.

    Planted: ``least`` without its factor ((1 - q*) / (1 - p*))^h -> it is above a cell's weight,
    this fails.
    """
    high, low = rates
    stated = law(2, int(high * WORDS**2), int(low * WORDS**2))
    weights = [
        [Fraction(weight, stated.total) for weight in row]
        for row in (stated.one, stated.two, stated.least)
    ]
    factor = ((1 - high) / (1 - low)) ** 2
    floor = [factor * chance for chance in outputs(frozenset(), 4, high, low)]
    laws = {one: outputs(one, 4, high, low) for one in filters(4, 2)}
    assert sum(weights[2]) == sum(floor)
    assert all(
        chance >= under for one in laws.values() for chance, under in zip(one, floor, strict=True)
    )
    worst_ratio = stated.max_ratio
    for devices in (1, size(1, 2)):
        for e in (Fraction(1), 1 + (worst_ratio - 1) / 7, (1 + worst_ratio) / 2):
            bound = hockey_sticks(weights[0], weights[1], weights[2], e, devices)
            for one, two in itertools.permutations(list(laws)[:: size(2, 1)], 2):
                assert hockey_sticks(laws[one], laws[two], floor, e, devices) <= bound


@pytest.mark.parametrize("domain", [Categories(("a", "b", "c")), Words(("flu", "cold"))])
def test_the_law_depends_on_no_domain(domain: Categories | Words) -> None:
    """Both kinds of domain, one law; the settings spend twice one report's epsilon for life; keys
    are the cells.
    """
    mechanism = create(design("rappor", domain, 1.0, "h=2"), domain)
    assert isinstance(mechanism, Longitudinal)
    stated = mechanism.privacy()
    assert isinstance(stated, SymmetricLaw)
    assert replace(stated, real=None) == law(2, *chained(*integers(2, 1.0, 2.0)))
    assert epsilon0_upper(mechanism.permanent()) == pytest.approx(2.0)
    assert mechanism.keys == domain.size

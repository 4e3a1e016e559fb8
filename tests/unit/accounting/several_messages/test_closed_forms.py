"""The classes of one cell and of a count against the laws that they come from, in exact fractions,
and against forty-five digits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, permutations

import mpmath
import numpy as np
import pytest

from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.one_more import (
    classes,
    divergence,
    flood_rates,
    shown_cancelling,
    shown_dummies,
)
from shoal.accounting.several_messages.signed_count import (
    count_classes,
    count_divergence,
    shown_count,
)
from tests.cases import for_each
from tests.unit.accounting.brute import Histogram, Law, whole
from tests.unit.accounting.brute import divergence as exact_divergence

Cell = dict[tuple[int, int], Fraction]
HALF = Fraction(1, 2)
UP, DOWN = Direction.UPPER, Direction.LOWER


def cell_law(plus: Sequence[Fraction], pairs: Sequence[Fraction]) -> Cell:
    """(u, v) of one cell: singles of + and of -, both by ``plus``, and pairs."""
    found: Cell = defaultdict(Fraction)
    for a, x in enumerate(plus):
        for b, y in enumerate(plus):
            for c, z in enumerate(pairs):
                found[a + c, b + c] += x * y * z
    return dict(found)


def sum_of(one: Cell, other: Cell) -> Cell:
    found: Cell = defaultdict(Fraction)
    for (a, b), x in one.items():
        for (c, d), y in other.items():
            found[a + c, b + d] += x * y
    return dict(found)


def by_ratio(law: Cell) -> tuple[dict[Fraction, list[Fraction]], Fraction]:
    """ratio without/more -> [more, without], and the mass of without where more has none."""
    found: dict[Fraction, list[Fraction]] = defaultdict(lambda: [Fraction(0), Fraction(0)])
    certain = Fraction(0)
    for u, v in {*law, *((a + 1, b) for a, b in law)}:
        more, without = law.get((u - 1, v), Fraction(0)), law.get((u, v), Fraction(0))
        if more == 0:
            certain += without
        else:
            entry = found[without / more]
            entry[0] += more
            entry[1] += without
    return found, certain


def two_cells(law: Cell, e: Fraction) -> Fraction:
    """sum (P - e Q)_+ for P = (U + 1, V) x (U', V'), Q = (U, V) x (U' + 1, V')."""
    found, certain = by_ratio(law)
    total = certain * sum(more for more, _ in found.values())
    for more, without in found.values():
        for other_more, other_without in found.values():
            total += max(Fraction(0), more * other_without - e * without * other_more)
    return total


def one_count(law: Cell, e: Fraction) -> Fraction:
    """sum (P - e Q)_+ for P = (U + 1, V), Q = (U, V + 1)."""
    return sum(
        (
            max(Fraction(0), mass - e * law.get((u + 1, v - 1), Fraction(0)))
            for (u, v), mass in law.items()
        ),
        Fraction(0),
    )


def devices_law(law: Cell, n: int, cells: int) -> Law:
    """The noise of n devices, device by device: (u of every cell, v of every cell)."""
    values, total = whole(law.values())
    one: dict[Histogram, int] = {(): 1}
    for _ in range(cells):
        one = {
            (*view, *key): mass * value
            for view, mass in one.items()
            for key, value in zip(law, values, strict=True)
        }
    found, of_all = one, total**cells
    for _ in range(n - 1):
        longer: dict[Histogram, int] = defaultdict(int)
        for a, x in found.items():
            for b, y in one.items():
                longer[tuple(map(sum, zip(a, b, strict=True)))] += x * y
        found, of_all = dict(longer), of_all * total**cells
    return Law(found, of_all)


def moved(law: Law, messages: Sequence[int], room: int) -> Law:
    """With these messages added (positions), and the padding counted."""
    weights = {}
    for view, mass in law.weights.items():
        sent = list(view)
        for at in messages:
            sent[at] += 1
        weights[(*sent, room - sum(sent))] = mass
    return Law(weights, law.total)


def power(law: Cell, n: int) -> Cell:
    found = law
    for _ in range(n - 1):
        found = sum_of(found, law)
    return found


@for_each(
    "n, cells, e, delta",
    [
        (2, 3, Fraction(3, 2), Fraction(273790323, 536870912)),
        (3, 2, Fraction(2), Fraction(739424288055, 2199023255552)),
    ],
)
def test_whole_multisets_of_histograms(n: int, cells: int, e: Fraction, delta: Fraction) -> None:
    """Every device adds + and - with probability 3/8 and a pair with 1/2, in every cell. Every
    dataset of the others, both directions, padding counted: one divergence, that of two cells.

    Planted: the pair's - left out -> fails; one cell alone -> smaller, fails.
    """
    one = cell_law([Fraction(5, 8), Fraction(3, 8)], [HALF, HALF])
    noise = devices_law(one, n, cells)
    found = set()
    for others in combinations_with_replacement(range(cells), n - 1):
        views = [moved(noise, [2 * value for value in (x, *others)], n * 20) for x in range(cells)]
        found |= {exact_divergence(views[x], views[y], e) for x, y in permutations(range(cells), 2)}
    assert found == {delta}
    assert two_cells(power(one, n), e) == delta


@for_each(
    "e, delta",
    [
        (Fraction(3, 2), Fraction(268373, 524288)),
        (Fraction(2), Fraction(1891, 4096)),
        (Fraction(3), Fraction(94699, 262144)),
    ],
)
def test_whole_multisets_of_counts(e: Fraction, delta: Fraction) -> None:
    """Three devices. Planted: 0 as an empty submission -> two divergences, fails."""
    one = cell_law([Fraction(5, 8), Fraction(3, 8)], [HALF, HALF])
    noise = devices_law(one, 3, 1)
    found = set()
    for others in combinations_with_replacement(range(2), 2):
        views = [moved(noise, [1 - value for value in (x, *others)], 30) for x in range(2)]
        found |= {exact_divergence(views[0], views[1], e), exact_divergence(views[1], views[0], e)}
    assert len(found) == 1
    assert found == {one_count(power(one, 3), e)}
    assert found == {delta}


def windows(q: Fraction, pairs: Sequence[Fraction]) -> tuple[np.ndarray, np.ndarray]:
    """p and w of the closed forms, rounded once."""
    at, found = Fraction(0), []
    for mass in pairs:
        at = q * q * at + (1 - q) * mass
        found.append(float(at))
    return np.array([float(mass) for mass in pairs]), np.array(found)


@for_each(
    "q, weights, e, delta",
    [
        (HALF, (1, 3, 3, 1), Fraction(5, 2), Fraction(74759, 262144)),
        (
            Fraction(2, 5),
            (1, 4, 6, 4, 1),
            Fraction(2),
            Fraction(40665809087481, 97656250000000),
        ),
    ],
)
def test_the_closed_form_in_fractions(
    q: Fraction, weights: tuple[int, ...], e: Fraction, delta: Fraction
) -> None:
    """Geometric singles and a law of pairs: the plain sum over (u, v) of two cells, and the number
    that the classes come to.

    Planted: the mass above the window left out of ``flat`` -> fails; (1 - q)^2 for 1 - q in
    ``minima`` -> fails.
    """
    pairs = [Fraction(weight, sum(weights)) for weight in weights]
    reach = 60
    plain = two_cells(cell_law([(1 - q) * q**g for g in range(reach)], pairs), e)
    assert abs(plain - delta) < 8 * q**reach
    p, w = windows(q, pairs)
    cell = classes(q, p, w, 0.0, 1e-15)
    lower, upper = (divergence(cell, math.log(e), direction) for direction in (DOWN, UP))
    assert lower < delta < upper < float(delta) * (1 + 1.2e-9)
    assert lower > float(delta) * (1 - 1.2e-9)


def test_the_closed_form_of_a_count_in_fractions() -> None:
    """Planted: q for q^2 in the ratios -> fails; the mass of v = 0 left out -> fails."""
    q, pairs = HALF, [Fraction(weight, 8) for weight in (1, 3, 3, 1)]
    law = cell_law([(1 - q) * q**g for g in range(60)], pairs)
    p, w = windows(q, pairs)
    count = count_classes(q, p, w, 0.0, 1e-15)
    for e in (Fraction(1), Fraction(3, 2), Fraction(5, 2), Fraction(9)):
        truth = float(one_count(law, e))
        lower, upper = (count_divergence(count, math.log(e), direction) for direction in (DOWN, UP))
        assert lower < truth < upper < truth * (1 + 1.2e-9)
    assert float(np.sum(count.masses * (1 + count.ratios))) + count.level == pytest.approx(1.0)


def digits(q: Fraction, rates: Sequence[float], last: int) -> list[mpmath.mpf]:
    """H(m) = sum over c <= m of p(c) q^(-2c), as it is defined, for m = 0 .. last."""
    p = [mpmath.exp(-mpmath.fsum(rates))]
    for s in range(1, last + 1):
        top = min(s, len(rates) - 1)
        p.append(mpmath.fsum(j * mpmath.mpf(rates[j]) * p[s - j] for j in range(1, top + 1)) / s)
    out, at = [], mpmath.mpf(0)
    for c, mass in enumerate(p):
        at += mass * mpmath.mpf(q.denominator) ** (2 * c) / mpmath.mpf(q.numerator) ** (2 * c)
        out.append(at)
    return out


@for_each(
    "s, floods, largest, epsilon, tail",
    [
        (0.45, 191.57, 4, 1.0, 1e-14),
        (0.4, 13.85, 17, 1.0, 1e-14),
        (0.9, 68.35, 4, 2.0, 1e-16),
    ],
)
def test_against_forty_five_digits(
    s: float, floods: float, largest: int, epsilon: float, tail: float
) -> None:
    """The definitions as they stand: ln f(u - 1, v) / f(u, v) of every class, the plain double sum.

    Planted: e moved the wrong way by 1e-6 -> fails; ratios with w(u - 1) and w(u) exchanged ->
    fails.
    """
    q = Fraction(round(math.exp(-s) * 2**32), 2**32)
    rates = flood_rates(Fraction(floods), largest)
    last = 3 * round(floods * (largest + 1) / 2) // 2
    with mpmath.workdps(45):
        h, exact_q = digits(q, rates.tolist(), last), mpmath.mpf(q.numerator) / q.denominator
        e = mpmath.exp(mpmath.mpf(epsilon))
        count = mpmath.fsum(
            (1 - exact_q) * exact_q ** (2 * v) * max(0, h[v] - (e * h[v - 1] if v else 0))
            for v in range(last)
        )
        more = [(1 - exact_q) * exact_q ** (2 * u - 1) * h[u - 1] for u in range(1, last)]
        without = [(1 - exact_q) * exact_q ** (2 * u) * h[u] for u in range(1, last)]
        ratios = [exact_q, *(b / a for a, b in zip(more, without, strict=True))]
        more = [1 / (1 + exact_q), *more]
        without = [exact_q / (1 + exact_q), *without]
        order = sorted(range(len(ratios)), key=lambda i: ratios[i])
        cell = (1 - exact_q) * h[0]
        # Of each class of x', the classes of x that are small enough, by sums from the left.
        a, b, at = mpmath.mpf(0), mpmath.mpf(0), 0
        for i in order:
            while at < len(order) and e * ratios[order[at]] < ratios[i]:
                a, b = a + more[order[at]], b + without[order[at]]
                at += 1
            cell += without[i] * a - e * more[i] * b
    for truth, upper, lower in (
        (
            float(cell),
            *(
                divergence(shown_cancelling(q, rates, tail), epsilon, direction)
                for direction in (UP, DOWN)
            ),
        ),
        (
            float(count),
            *(
                count_divergence(shown_count(q, rates, tail), epsilon, direction)
                for direction in (UP, DOWN)
            ),
        ),
    ):
        assert lower <= truth <= upper
        assert upper <= truth * (1 + 2e-9) + 6 * tail
        assert lower >= truth * (1 - 2e-9) - 6 * tail * math.exp(epsilon)


def test_dummies_against_a_plain_sum() -> None:
    """Poisson(mean) in two cells, entry by entry. Planted: ratios without [::-1] -> fails."""
    for mean, epsilon in ((Fraction(3, 2), 1.0), (Fraction(30), 0.5), (Fraction(4265, 100), 1.0)):
        counts = np.arange(0, 200)
        logs = counts * math.log(mean) - np.array([math.lgamma(c + 1) for c in counts])
        f = np.exp(logs - float(mean))
        shifted = np.concatenate([[0.0], f[:-1]])
        truth = float(
            np.maximum(np.outer(shifted, f) - math.exp(epsilon) * np.outer(f, shifted), 0.0).sum()
        )
        cell = shown_dummies(mean, truth * 1e-9)
        assert divergence(cell, epsilon, DOWN) <= truth * (1 + 1e-11)
        assert truth * (1 - 1e-11) <= divergence(cell, epsilon, UP) <= truth * (1 + 1e-7)

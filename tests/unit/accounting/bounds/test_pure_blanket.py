"""The blanket of any randomizer of one ratio: no worse than that of binary responses. In
fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

from shoal.accounting import certify
from shoal.accounting.bounds.blanket import pure_blanket
from shoal.accounting.bounds.clones import clones
from shoal.accounting.numerics.curve import Curve, Direction
from shoal.entropy import SeededEntropy
from shoal.privacy import FiniteLaw, PureLaw, epsilon0_upper
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.brute import Truth

Row = tuple[int, ...]
# Outputs that are rare under a third value only (here the last but one): others who answer it are
# no clones of the first two, of whom the erratum of "stronger clones" speaks.
APART = FiniteLaw(((9, 3, 9, 9), (3, 9, 9, 9), (3, 3, 3, 21)))
CORNERS = FiniteLaw(((4, 2, 2, 1), (2, 4, 1, 2), (1, 3, 3, 2)))


def random_rows(words: list[int], count: int, outputs: int, most: int) -> list[Row]:
    """Rows of one sum whose weights lie between 1 and ``most``, often at one of these two."""
    rows: list[Row] = []
    total = 0
    for at in range(count):
        drawn = [word % (2 * most) for word in words[at * outputs : (at + 1) * outputs]]
        row = [min(most, max(1, value)) if value % 3 else (1, most)[value % 2] for value in drawn]
        total = total or sum(row)
        for place in range(outputs):
            step = total - sum(row)
            row[place] = min(most, max(1, row[place] + step))
        if sum(row) == total:
            rows.append(tuple(row))
    return rows


def hinge(values: list[tuple[Fraction, Fraction]], t: Fraction) -> Fraction:
    """E[(L - t)_+] of (L, probability)."""
    return sum(((value - t) * mass for value, mass in values if value > t), Fraction(0))


def blanket_values(p: Row, q: Row, ratio: Fraction, e: Fraction) -> list[tuple[Fraction, Fraction]]:
    """L of the blanket max(p, q) / E, as the proof has it, with its probabilities."""
    total = sum(p)
    masses = [Fraction(max(a, b), total) / ratio for a, b in zip(p, q, strict=True)]
    values = [((a - e * b) / total / w, w) for a, b, w in zip(p, q, masses, strict=True)]
    return [*values, (Fraction(0), 1 - sum(masses, Fraction(0)))]


def binary_values(ratio: Fraction, e: Fraction) -> list[tuple[Fraction, Fraction]]:
    share = 1 / (ratio + 1)
    return [(ratio - e, share), (1 - e * ratio, share), (Fraction(0), 1 - 2 * share)]


def test_binary_responses_have_the_worst_blanket() -> None:
    """Where either side bends, so for every t. Planted: (p + q) / (2 E) for w, which is another
    blanket -> fails; 1/(E + 2) for 1/(E + 1) in ``binary_values`` -> fails.
    """
    entropy, compared = SeededEntropy("pure blanket"), 0
    for case in range(size(150, 3_000)):
        outputs, most = 2 + case % 5, 2 + case % 9
        words = [int(word) for word in entropy.words(2 * outputs)]
        rows = random_rows(words, 2, outputs, most)
        if len(set(rows)) < 2:
            continue
        p, q = rows
        ratio = max(max(Fraction(a, b), Fraction(b, a)) for a, b in zip(p, q, strict=True))
        for wider in (ratio, ratio * Fraction(4, 3)):
            for e in (Fraction(1), 1 + (wider - 1) / 7, (wider + 1) / 2, wider):
                own, binary = blanket_values(p, q, wider, e), binary_values(wider, e)
                for t, _ in (*own, *binary):
                    assert hinge(own, t) <= hinge(binary, t), (p, q, wider, e, t)
                    compared += 1
    assert compared > 1_000


@for_each("n", [2, 3])
def test_it_holds_for_every_dataset_of_any_table(n: int) -> None:
    """Tables of three inputs at random, and those in which the others are no clones. Planted: twice
    the clone probability, 4/(E + 1) -> fails.
    """
    entropy = SeededEntropy(f"pure tables {n}")
    tables = [APART, CORNERS]
    while len(tables) < size(12, 120):
        rows = random_rows([int(word) for word in entropy.words(9)], 3, 3, 2 + len(tables) % 8)
        if len(set(rows)) > 1:
            tables.append(FiniteLaw(tuple(rows)))
    for law in tables:
        ratio = law.max_ratio
        truth = Truth([[Fraction(weight, law.total) for weight in row] for row in law.rows], n)
        found = Curve(pure_blanket(ratio, n), Direction.UPPER, 1e-6, epsilon0_upper(law))
        looser = Curve(clones(ratio, n), Direction.UPPER, 1e-6, epsilon0_upper(law))
        for share in (0.0, 0.1, 0.3, 0.6, 0.9):
            epsilon = share * epsilon0_upper(law)
            exact = truth.delta(Fraction(math.exp(epsilon)) if epsilon else Fraction(1))
            assert exact <= found.delta(epsilon), (law, share)
            assert found.delta(epsilon) <= looser.delta(epsilon) * (1 + 1e-8) + 1e-14


def test_the_others_need_not_be_clones() -> None:
    """What the withdrawn proof would need fails for this table: a report of the third value is not
    made of 2/(E + 1) clones. The certificate says the same number by another proof, and says that
    it is of one fixed randomizer. Planted: the assumption of ``clones`` for it -> fails.
    """
    ratio = APART.max_ratio
    least = [min(column) for column in zip(*APART.rows, strict=True)]
    clone = min(
        Fraction(2 * low, a + b)
        for row, other in permutations(APART.rows[:2], 2)
        for low, a, b in zip(least, row, other, strict=True)
    )
    assert clone < 2 / (ratio + 1)
    unknown = certify(PureLaw(ratio), 1_000, 1e-6)
    assert certify(APART, 1_000, 1e-6).epsilon_upper <= unknown.epsilon_upper
    assert unknown.method == "blanket"
    assert any("chosen before any report is seen" in text for text in unknown.assumptions)
    assert not any("adaptively" in text for text in unknown.assumptions)

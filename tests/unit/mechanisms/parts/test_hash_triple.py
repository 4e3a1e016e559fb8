"""Three cells of local hashing: counted word by word, and what a certificate makes of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from shoal.accounting import certify
from shoal.domain import Categories
from shoal.mechanisms import create, design
from shoal.mechanisms.categories.local_hash import LocalHash, hashed
from shoal.mechanisms.parts.hash_triple import CELLS, HashTriple
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.privacy import SymmetricLaw
from tests.cases import for_each

LABELS = Categories(tuple(f"c{at}" for at in range(100)))


@for_each("width, log2_g", [(6, 1), (6, 2), (7, 3), (8, 3), (8, 5)])
def test_how_hashes_agree_is_counted(width: int, log2_g: int) -> None:
    """Over all words of few bits and all values: exactly. Planted: an ideal hash's 1 / g^2 for 1 /
    (2 g); cells 0, 1 and 3 -> each fails.
    """
    words, g = 1 << width, 1 << log2_g
    counted: Counter[tuple[int, ...]] = Counter()
    for a in range(words):
        for b in range(words):
            hashes = [hashed(a, b, x, log2_g, width) for x in CELLS]
            for value in range(g):
                counted[tuple(int(value == each) for each in hashes)] += 1
    expected = {
        bits: chance * words * words * g for bits, chance in HashTriple(g, Fraction(3)).supports()
    }
    assert counted == expected


@for_each("g", [2, 4, 64])
@for_each("ratio", [Fraction(3), Fraction(55, 2)])
def test_any_two_of_them_look_like_the_pair_that_is_stated(g: int, ratio: Fraction) -> None:
    """Pairs are exactly independent: all three rows say so. Planted: ``differs`` for ``agrees`` in
    one row -> fails.
    """
    table = HashTriple(g, ratio).law()
    assert len(table.rows) == 3
    assert table.max_ratio == ratio
    one = Fraction(1, g)
    density = {1: g * ratio / (ratio + g - 1), 0: g / (ratio + g - 1)}
    told = one * (1 - one) * (density[1] - density[0])
    for x, other in ((0, 1), (1, 2), (2, 0)):
        rows = zip(table.rows[x], table.rows[other], strict=True)
        assert sum(Fraction(max(0, a - b), table.total) for a, b in rows) == told


@for_each("family, setting", [("local_hash", "olh"), ("loloha", "oloha")])
def test_lower_ends_know_a_third_cell(family: str, setting: str) -> None:
    """With it both ends nearly meet, which they do not if the others hold one of the two. Planted:
    no ``real`` -> fails.
    """
    law = create(design(family, LABELS, 4.0, setting), LABELS).privacy()
    assert isinstance(law, SymmetricLaw)
    assert law.real is not None
    found = certify(law, 10_000, 1e-6)
    assert found.epsilon_upper <= 1.02 * found.epsilon_lower
    without = certify(replace(law, real=None), 10_000, 1e-6)
    assert without.epsilon_upper == found.epsilon_upper > 1.3 * without.epsilon_lower


def test_two_cells_have_no_third() -> None:
    """Planted: three cells always -> the lower end is of a cell that nobody can answer, fails."""
    two = LocalHash(("yes", "no"), 4, WORDS // 8).privacy()
    assert two.real is None

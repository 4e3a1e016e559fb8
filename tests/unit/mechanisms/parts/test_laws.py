"""Every family against its real outputs: the mechanism written out as a table, for k = 2, 3, 4."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, permutations, product
from math import lcm, prod

import pytest

from shoal.accounting.accountant import _softened
from shoal.accounting.bounds.clones import symmetric_clones, table_clones
from shoal.accounting.numerics.cells import CellSum, blanket_sums, dataset_sums
from shoal.accounting.routes import STEEP
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts.laws import (
    hadamard_bit,
    local_hash,
    oue,
    ratio_below,
    subset,
    sue,
    unary,
)
from shoal.privacy import FiniteLaw, SymmetricLaw, epsilon0_upper
from tests.cases import for_each
from tests.unit.accounting.brute import Truth
from tests.unit.accounting.numerics.test_cells import exact

RATIO = Fraction(5, 2)
Table = list[list[Fraction]]


def unary_table(k: int, p: Fraction, q: Fraction) -> Table:
    def chance(x: int, bits: tuple[int, ...]) -> Fraction:
        return prod(
            (
                ((p if i == x else q) if bit else 1 - (p if i == x else q))
                for i, bit in enumerate(bits)
            ),
            start=Fraction(1),
        )

    return [[chance(x, bits) for bits in product((0, 1), repeat=k)] for x in range(k)]


def subset_table(k: int, d: int) -> Table:
    sets = [set(one) for one in combinations(range(k), d)]
    total = sum(RATIO if 0 in one else Fraction(1) for one in sets)
    return [[(RATIO if x in one else Fraction(1)) / total for one in sets] for x in range(k)]


def hash_table(k: int, g: int) -> Table:
    """A fully random function from k inputs to g values, and g-ary randomized response."""
    outputs = [(h, v) for h in product(range(g), repeat=k) for v in range(g)]
    return [
        [(RATIO if h[x] == v else Fraction(1)) / (RATIO + g - 1) / g**k for h, v in outputs]
        for x in range(k)
    ]


def hadamard_table(k: int) -> Table:
    size = 1 << max(1, (k - 1).bit_length())
    outputs = [(index, bit) for index in range(size) for bit in (0, 1)]
    return [
        [
            (RATIO if (index & x).bit_count() % 2 == bit else Fraction(1)) / (RATIO + 1) / size
            for index, bit in outputs
        ]
        for x in range(k)
    ]


P, Q = Fraction(3, 5), Fraction(1, 4)
CASES: dict[str, tuple[Callable[[int], SymmetricLaw], Callable[[int], Table]]] = {
    "unary": (lambda k: unary(k, P, Q), lambda k: unary_table(k, P, Q)),
    "oue": (lambda k: oue(RATIO, k), lambda k: unary_table(k, Fraction(1, 2), 1 / (RATIO + 1))),
    "sue": (
        lambda k: sue(Fraction(9, 4), k),
        lambda k: unary_table(k, Fraction(3, 5), Fraction(2, 5)),
    ),
    "hash 2": (lambda k: local_hash(2, RATIO, k), lambda k: hash_table(k, 2)),
    "hash 3": (lambda k: local_hash(3, RATIO, k), lambda k: hash_table(k, 3)),
    "hadamard": (lambda k: hadamard_bit(RATIO, k), hadamard_table),
    "subset 1": (lambda k: subset(k, 1, RATIO), lambda k: subset_table(k, 1)),
    "subset 2": (lambda k: subset(max(k, 3), 2, RATIO), lambda k: subset_table(max(k, 3), 2)),
}


def shape(
    one: tuple[Fraction, ...], others: list[tuple[Fraction, ...]]
) -> dict[tuple[Fraction, ...], Fraction]:
    """Mass under ``one`` of every vector of proportions others : one."""
    found: dict[tuple[Fraction, ...], Fraction] = defaultdict(Fraction)
    for y, weight in enumerate(one):
        found[tuple(other[y] / weight for other in others)] += weight
    return found


def shape_of(law: SymmetricLaw, names: tuple[str, ...]) -> dict[tuple[Fraction, ...], Fraction]:
    rows = {
        name: tuple(Fraction(w, law.total) for w in getattr(law, name)) for name in ("one", *names)
    }
    return shape(rows["one"], [rows[name] for name in names])


@for_each("name", CASES)
@for_each("k", [2, 3, 4])
def test_classes_are_those_of_the_real_outputs(name: str, k: int) -> None:
    """For every ordered pair and triple. Planted: q and 1 - q exchanged, or a class of subsets
    dropped -> this fails.
    """
    law, table = CASES[name][0](k), CASES[name][1](k)
    rows = [tuple(row) for row in table]
    for x, other in permutations(range(len(rows)), 2):
        assert shape(rows[x], [rows[other]]) == shape_of(law, ("two",))
    assert (law.third is None) == (len(rows) == 2)
    for x, other, z in permutations(range(len(rows)), 3):
        assert shape(rows[x], [rows[other], rows[z]]) == shape_of(law, ("two", "third"))
    ratio = max(max(column) / min(column) for column in zip(*rows, strict=True))
    assert law.max_ratio == ratio


@for_each("name", CASES)
@for_each("k", [2, 3, 4])
def test_least_is_below_every_input(name: str, k: int) -> None:
    """Output by output: the real least weight is at least that of its class; equal for two inputs
    and for subsets.

    Planted: ``agrees`` for the pattern (1, 1) whatever k is (the least over x and x' alone) -> this
    fails.
    """
    law, table = CASES[name][0](k), CASES[name][1](k)
    claimed = {
        (Fraction(b, a)): min(
            Fraction(low, one)
            for one, two, low in zip(law.one, law.two, law.least, strict=True)
            if Fraction(two, one) == Fraction(b, a)
        )
        for a, b in zip(law.one, law.two, strict=True)
    }
    sharp = len(table) == 2 or name.startswith("subset")
    pooled = sum(Fraction(low, law.total) for low in law.least)
    real = sum(min(column) for column in zip(*table, strict=True))
    assert pooled == real if sharp else pooled <= real
    for x, other in permutations(range(len(table)), 2):
        for y in range(len(table[0])):
            least = min(row[y] for row in table)
            assert claimed[table[other][y] / table[x][y]] <= least / table[x][y]


@for_each(
    "name, k, n",
    [
        (name, k, n)
        for name in CASES
        for k, n in [(2, 2), (2, 3), (3, 2)]
        if (name, k) != ("hash 3", 3)
    ],
)
def test_bounds_hold_the_truth(name: str, k: int, n: int) -> None:
    """All datasets, both directions. Planted: the least over x and x' alone -> k = 3 fails; n - 1
    for n -> this fails.
    """
    law, table = CASES[name][0](k), CASES[name][1](k)
    truth = Truth(joined(table), n, symmetric=name != "subset 2")
    for e in (Fraction(1), Fraction(6, 5), Fraction(2)):
        real = truth.delta(e)
        assert max(exact(one, e) for one in blanket_sums(law, n)) >= real
        assert max(exact(one, e) for one in dataset_sums(law, n)) <= real


def joined(table: Table) -> Table:
    """Outputs with proportional columns as one: the views are equivalent (the split is drawn
    without looking at the input).
    """
    columns: dict[tuple[Fraction, ...], tuple[Fraction, ...]] = {}
    for column in zip(*table, strict=True):
        key = tuple(weight / column[0] for weight in column)
        columns[key] = (
            tuple(a + b for a, b in zip(columns[key], column, strict=True))
            if key in columns
            else column
        )
    return [list(row) for row in zip(*columns.values(), strict=True)]


def test_settings_stay_below_what_is_asked() -> None:
    """Planted: the square root rounded up, or ``ratio_below`` without its check -> this fails."""
    for epsilon0 in (1e-3, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0, 39.0):
        ratio = ratio_below(epsilon0)
        for law in (
            sue(ratio),
            oue(ratio),
            local_hash(5, ratio),
            hadamard_bit(ratio),
            subset(9, 3, ratio),
            subset(500, 60, ratio),
        ):
            assert law.max_ratio <= ratio
            assert epsilon0 * (1 - 1e-12) <= epsilon0_upper(law) <= epsilon0


def test_pairwise_hashes_claim_nothing_of_triples() -> None:
    three, two = local_hash(4, RATIO), local_hash(4, RATIO, wise=2)
    assert three.third is not None
    assert two.third is None
    assert blanket_sums(three, 9) == blanket_sums(two, 9)
    sums: tuple[CellSum, ...] = dataset_sums(two, 9)
    assert set(sums) < set(dataset_sums(three, 9))


def test_refusals() -> None:
    half = Fraction(1, 2)
    for bad in (
        lambda: unary(1, half, half),
        lambda: unary(3, Fraction(1, 4), half),
        lambda: unary(3, Fraction(1), half),
        lambda: sue(Fraction(1)),
        lambda: local_hash(1, RATIO),
        lambda: local_hash(4, RATIO, wise=4),
        lambda: subset(4, 4, RATIO),
        lambda: subset(4, 2, Fraction(1)),
        lambda: ratio_below(0.0),
    ):
        with pytest.raises(ShoalError) as caught:
            bad()
        assert caught.value.kind is Kind.CONFIG


@for_each("name", CASES)
@for_each("k", [2, 3, 4])
def test_clones_are_those_of_the_table(name: str, k: int) -> None:
    """One clone probability for all pairs: the table's. Planted: 3 low for 2 low in
    ``symmetric_clones`` -> this fails.
    """
    table = CASES[name][1](k)
    scale = lcm(*(weight.denominator for row in table for weight in row))
    whole = FiniteLaw(tuple(tuple(int(weight * scale) for weight in row) for row in table))
    assert (symmetric_clones(CASES[name][0](k), 5),) == table_clones(whole, 5)


@pytest.mark.parametrize(
    "law",
    [
        subset(5, 2, Fraction(10**12)),
        oue(Fraction(10**9)),
        unary(2, 1 - Fraction(1, 10**7), Fraction(1, 10**5)),
    ],
)
def test_softening_mixes_in_what_does_not_look_at_the_input(law: SymmetricLaw) -> None:
    """A multiple of the least weights, the same under every input, and the ratio is at most STEEP.

    Planted: the multiple 1 whatever the ratio is -> this fails. Planted: ``one`` mixed with itself
    -> this fails.
    """
    soft = _softened(law)
    assert isinstance(soft, SymmetricLaw)
    assert law.max_ratio > STEEP >= soft.max_ratio > STEEP // 4
    share = (soft.one[0] - law.one[0]) // law.least[0]
    rows = [(law.one, soft.one), (law.two, soft.two), (law.least, soft.least)]
    if law.third is not None and soft.third is not None:
        rows.append((law.third, soft.third))
    assert (law.third is None) == (soft.third is None)
    assert share >= 1
    for before, after in rows:
        assert after == tuple(
            weight + share * low for weight, low in zip(before, law.least, strict=True)
        )

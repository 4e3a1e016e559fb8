"""A lower end is attained: by datasets of the task's own answers, whatever its public hash
functions do with them. At small sizes exactly.

The tables are written here from the mechanisms' descriptions, output by output, and not from the
laws that they state.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from itertools import permutations, product

import pytest

from shoal.accounting import certify
from shoal.accounting.accountant import lower_bound
from shoal.domain import Categories
from shoal.entropy import SeededEntropy
from shoal.mechanisms import create
from shoal.mechanisms.categories.count_sketch import CountSketch
from shoal.mechanisms.categories.hadamard_sketch import HadamardSketch
from shoal.mechanisms.longitudinal.rappor import Rappor
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.privacy import SymmetricLaw
from shoal.task import MechanismSpec
from tests.sizes import size
from tests.unit.accounting.brute import Truth

Rows = list[list[Fraction]]
LABELS = ("flu", "cold", "none of these")


def hadamard_rows(one: HadamardSketch) -> Rows:
    sketch, q = one.sketch, Fraction(one.flip, WORDS)

    def chance(j: int, column: int, bit: int, cell: int) -> Fraction:
        parity = (column & sketch.hashed(j, cell)).bit_count() % 2
        return (1 - q if bit == parity else q) / (sketch.h * sketch.m)

    return [
        [chance(*report, cell) for report in product(range(sketch.h), range(sketch.m), (0, 1))]
        for cell in sketch.label_cells
    ]


def count_rows(one: CountSketch) -> Rows:
    sketch, q = one.sketch, Fraction(one.flip, WORDS)

    def chance(j: int, bits: tuple[int, ...], cell: int) -> Fraction:
        sent = sketch.hashed(j, cell)
        kept = [bit == (place == sent) for place, bit in enumerate(bits)]
        return math.prod((1 - q if same else q for same in kept), start=Fraction(1, sketch.h))

    reports = list(product(range(sketch.h), product((0, 1), repeat=sketch.m)))
    return [[chance(j, bits, cell) for j, bits in reports] for cell in sketch.label_cells]


def rappor_rows(one: Rappor) -> Rows:
    filters = one.filters
    high, low = Fraction(one.rates[0], WORDS**2), Fraction(one.rates[1], WORDS**2)

    def chance(cohort: int, bits: tuple[int, ...], cell: int) -> Fraction:
        rates = [
            high if place in filters.places(cohort, cell) else low for place in range(filters.bits)
        ]
        return math.prod(
            (rate if bit else 1 - rate for bit, rate in zip(bits, rates, strict=True)),
            start=Fraction(1, filters.cohorts),
        )

    reports = list(product(range(filters.cohorts), product((0, 1), repeat=filters.bits)))
    return [[chance(cohort, bits, cell) for cohort, bits in reports] for cell in one.label_cells]


def cases(family: str, count: int) -> list[tuple[CountSketch | HadamardSketch | Rappor, Rows]]:
    """Mechanisms of seeds that nobody chose, with their tables, coarse noise among them."""
    words, found = (
        SeededEntropy(f"attained {family}"),
        list[tuple[CountSketch | HadamardSketch | Rappor, Rows]](),
    )
    for _ in range(count):
        seed, noise, other = (int(word) for word in words.words(3))
        flip = (WORDS >> 4) + noise % (WORDS // 3)
        labels = Categories(LABELS[: 2 + other % 2])
        if family == "rappor":
            p = (WORDS >> 4) + other % (WORDS // 3)
            spec = MechanismSpec.of(
                "rappor",
                bits=2,
                cohorts=2,
                half_f=flip,
                hashes=1 + noise % 2,
                p=p,
                q=WORDS - p,
                seed=seed,
            )
        else:
            spec = MechanismSpec.of(family, flip=flip, h=2, m=2, seed=seed)
        made = create(spec, labels)
        assert isinstance(made, CountSketch | HadamardSketch | Rappor)
        rows = {
            "rappor": rappor_rows,
            "count_sketch": count_rows,
            "hadamard_sketch": hadamard_rows,
        }[family](made)  # type: ignore[operator]  # each for its own
        assert all(sum(row) == 1 for row in rows)
        found.append((made, joined(rows)))
    return found


def joined(rows: Rows) -> Rows:
    """The same, with outputs of one proportion joined: nothing is lost, and the enumeration is
    possible.
    """
    columns: dict[tuple[Fraction, ...], list[Fraction]] = {}
    for column in zip(*rows, strict=True):
        key = tuple(value / column[0] for value in column)
        columns[key] = [
            a + b
            for a, b in zip(columns.get(key, [Fraction(0)] * len(column)), column, strict=True)
        ]
    return [list(row) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("family", ["count_sketch", "hadamard_sketch", "rappor"])
def test_no_lower_end_lies_above_the_truth(family: str) -> None:
    """And no upper end below it. Planted: lower bounds of the law that is stated, of two cells that
    never collide -> fails for each.
    """
    for at, (made, rows) in enumerate(cases(family, size(8, 65))):
        for n in (2, 3) if at % 8 == 0 else (2,):
            truth = Truth(rows, n)
            for delta in (0.02, 0.09198, 0.2):
                found = certify(made.privacy(), n, delta)
                # e errs by some 1e-16 either way; the divergence rises as e falls.
                low, high = (
                    Fraction(math.exp(end)) for end in (found.epsilon_lower, found.epsilon_upper)
                )
                if found.epsilon_lower > 0.0:
                    assert truth.delta(low * (1 - Fraction(1, 10**14))) >= Fraction(delta), (
                        made,
                        n,
                        delta,
                    )
                assert truth.delta(high * (1 + Fraction(1, 10**14))) <= Fraction(delta), (
                    made,
                    n,
                    delta,
                )


def test_the_case_that_was_found() -> None:
    """Of two labels that collide under one of two functions the truth is .1146, and .358 was said
    to be attained. Planted: as above.
    """
    spec = MechanismSpec.of(
        "hadamard_sketch", flip=4961093570831983714, h=2, m=2, seed=226030891961555546
    )
    for count in (2, 3):
        found = certify(create(spec, Categories(LABELS[:count])).privacy(), 2, 0.09198)
        assert found.epsilon_lower == pytest.approx(0.1146, abs=1e-4)


@pytest.mark.parametrize("family", ["count_sketch", "hadamard_sketch", "rappor"])
def test_a_real_pair_is_the_best_of_the_labels(family: str) -> None:
    """Its divergence at n = 1 is the largest of any two labels. Planted: the pair that collides
    most, or that differs least -> fails.
    """
    for made, rows in cases(family, size(12, 60)):
        law = made.privacy()
        assert isinstance(law, SymmetricLaw)
        assert law.real is not None
        pair = law.real.law()
        assert len(pair.rows) == max(2, min(3, len(rows)))
        ends = zip(pair.rows[0], pair.rows[1], strict=True)
        told = sum(abs(Fraction(a - b, pair.total)) for a, b in ends)
        assert told == max(
            sum(abs(a - b) for a, b in zip(one, two, strict=True)) for one in rows for two in rows
        )


def joint(rows: Rows) -> dict[tuple[Fraction, ...], Fraction]:
    """Proportions of an output under some labels -> how likely such outputs are under the last."""
    found: dict[tuple[Fraction, ...], Fraction] = defaultdict(Fraction)
    for column in zip(*rows, strict=True):
        found[tuple(value / column[-1] for value in column)] += column[-1]
    return dict(found)


@pytest.mark.parametrize("family", ["count_sketch", "hadamard_sketch", "rappor"])
def test_the_labels_have_their_own_joint_law(family: str) -> None:
    """In fractions: that of some labels of the task, in some order. Planted: the second's bits for
    the third's; functions under which two collide taken for others -> each fails.
    """
    for made, rows in cases(family, size(24, 80)):
        law = made.privacy()
        assert isinstance(law, SymmetricLaw)
        assert law.real is not None
        table = law.real.law()
        named = [[Fraction(weight, table.total) for weight in row] for row in table.rows]
        places = permutations(range(len(rows)), min(len(rows), len(named)))
        assert joint(named) in [joint([rows[place] for place in order]) for order in places]


def test_labels_that_always_collide_tell_nothing() -> None:
    """A single label, or one that all functions send where another goes: the lower end is 0.
    Planted: a pair made up for it -> fails.
    """
    silent = [
        made.privacy()
        for made, rows in cases("hadamard_sketch", 120)
        if len({tuple(row) for row in rows}) == 1
    ]
    assert silent
    assert all(lower_bound(law, 2, 0.01, 1.0) == 0.0 for law in silent)

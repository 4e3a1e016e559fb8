"""Both sketches keep the suite, on categories and on an open vocabulary: small ones whose reports
can all be written out.

What collides is fixed with a seed. So ``truth`` is what the coins alone leave: with the collisions
of the case's seed, computed here from the hash's definition. That they average out over seeds, and
that standard errors hold over coins and seeds, is shown below the suite.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.numerics.cells import Cell, CellSum, blanket_sums
from shoal.domain import Categories, Domain, Words
from shoal.entropy import SeededEntropy
from shoal.mechanisms import Mechanism, create, design
from shoal.privacy import FiniteLaw, SymmetricLaw
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table, every_case, uniform_draw
from tests.conformance.mechanisms.checks.statistics import HELD, RUNS, simulated
from tests.conformance.mechanisms.suite import MechanismSuite
from tests.sizes import size
from tests.unit.accounting.numerics.test_cells import exact

WORDS = 1 << 64
THREE = Categories(("a", "b"))
OPEN = Words(("flu", "cold", "none"))
SOME = (*OPEN.label_cells, OPEN.encode("a word that nobody looks for"))


def hash_of(spec: MechanismSpec, index: int, cell: int) -> int:
    """As docs/WIRE.md has it."""
    mask, m = (1 << 62) - 1, spec.get("m")
    x = cell ^ cell >> 30
    x = x * 0x1F58476D1CE4E5B9 & mask
    x ^= x >> 27
    x = x * 0x14D049BB133111EB & mask
    x ^= x >> 31
    digest = hashlib.sha256(
        b"shoal keyed hash 1" + spec.get("seed").to_bytes(8, "big") + index.to_bytes(8, "big")
    ).digest()
    a1, a2, b = (int.from_bytes(digest[at : at + 8], "big") for at in (0, 8, 16))
    return (a1 * (x >> 31) + a2 * (x & ((1 << 31) - 1)) + b) % WORDS * m // WORDS


@cache
def hashes_of(spec: MechanismSpec, cell: int) -> NDArray[np.int64]:
    """int64[h]: the cell's value under every function."""
    return np.array([hash_of(spec, index, cell) for index in range(spec.get("h"))])


def apart(spec: MechanismSpec, one: int, two: int) -> float:
    """The share of the functions under which the two cells do not collide."""
    differ = np.count_nonzero(hashes_of(spec, one) != hashes_of(spec, two))
    return differ / spec.get("h")


def sketch(name: str, h: int, m: int, flip: int, seed: int = 0) -> MechanismSpec:
    return MechanismSpec.of(name, flip=flip, h=h, m=m, seed=seed)


class SketchSuite(MechanismSuite):
    """What is the same for both."""

    NAME: ClassVar[str] = ""
    CASES: ClassVar[tuple[Case, ...]] = ()
    CONSERVATIVE = True  # the collisions' part, which the coins do not show

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        flip = spec.get("flip") - 1
        return (
            sketch(spec.name, spec.get("h"), spec.get("m"), flip, spec.get("seed"))
            if flip
            else None
        )

    def truth(self, case: Case, values: np.ndarray) -> np.ndarray:
        """m / (m - 1) (sum of n_x c(x, d) - n / m)."""
        m, held = case.spec.get("m"), list(zip(*np.unique(values, return_counts=True), strict=True))
        cells = case.domain.label_cells
        sums = [sum(int(n) * (1.0 - apart(case.spec, int(x), d)) for x, n in held) for d in cells]
        return (np.array(sums) - len(values) / m) * m / (m - 1)

    def alike(self, case: Case, count: int) -> Iterator[tuple[int, ...]]:
        """Cells that no function sends to one value."""
        rows = itertools.permutations(range(len(case.listed)), count)
        pairs = itertools.combinations(range(len(case.listed)), 2)
        never = {
            frozenset(pair)
            for pair in pairs
            if apart(case.spec, *(case.listed[at] for at in pair)) == 1
        }
        return (
            chosen
            for chosen in rows
            if all(frozenset(two) in never for two in itertools.combinations(chosen, 2))
        )

    def shows_classes(self, case: Case) -> bool:
        """Where there is a pair that never collides; of 512 functions to two values some always
        do.
        """
        shown = any(self.alike(case, 2))
        assert shown or case.spec.get("h") == 512
        return shown

    def test_a_conservative_member_can_do_no_better(self, measured: Case) -> None:
        """What is reported beyond the coins is the collisions' part, F / (h (m - 1)), half as much
        again at most.

        Planted: the second moment of all devices as one cell, n^2 -> this fails.
        """
        held, spec = HELD[measured.domain.size].astype(float), measured.spec
        collisions = (np.sum(held**2) - held**2) / (spec.get("h") * (spec.get("m") - 1))
        extra = collisions / measured.mechanism.expected_stderr(HELD[measured.domain.size]) ** 2
        assert (simulated(self, measured).reported / RUNS < 1.1 + 1.5 * extra).all()

    @every_case
    def test_pairs_that_collide_are_bounded_by_the_pair_stated(self, case: Case) -> None:
        """In rationals: the blanket's sum of every ordered pair, from the table and the least
        weights of *all* cells (as if every value of a hash had one), is at most that of
        ``privacy()``, and the sum of clones is that of any randomizer of this ratio.

        Planted: the law of two cells that collide in half of the rows stated -> fails.
        """
        law, stated = case.mechanism.privacy(), self.table_of(case)
        assert isinstance(law, SymmetricLaw)
        ratio = law.max_ratio
        assert (
            min(
                Fraction(2 * low, a + b)
                for low, a, b in zip(law.least, law.one, law.two, strict=True)
            )
            == 1 / ratio
        )
        if len(stated[0]) > 64 or ratio > 10**6:
            return
        least = [min(column) for column in zip(*self.all_hashes(case), strict=True)]
        total, pairs = sum(stated[0]), set()
        for one, two in itertools.permutations(stated, 2):
            mass = Counter[tuple[Fraction, Fraction]]()
            for (a, b, low), alike in Counter(zip(one, two, least, strict=True)).items():
                mass[Fraction(a, low), Fraction(b, low)] += alike * low
            cells = [Cell(Fraction(words, total), *ratios) for ratios, words in mass.items()]
            idle = 1 - Fraction(mass.total(), total)
            pairs.add((*cells, *[Cell(idle, Fraction(0), Fraction(0))] * (idle > 0)))
        for n, e in itertools.product(
            (1, 3), {Fraction(1), (1 + ratio) / 2, min(ratio, Fraction(11, 10))}
        ):
            (bound,) = blanket_sums(law, n)
            limit = exact(bound, e)
            assert all(exact(CellSum(n, cells), e) <= limit for cells in pairs)

    def row(self, case: Case, hashes: list[int]) -> tuple[int, ...]:
        """The weights of all reports for a cell with these hashes, by the paper."""
        raise NotImplementedError

    def stated(self, case: Case) -> Table:
        return tuple(self.row(case, hashes_of(case.spec, cell).tolist()) for cell in case.listed)

    def all_hashes(self, case: Case) -> Table:
        """Of cells that have every value under every function."""
        return tuple(
            self.row(case, [value] * case.spec.get("h")) for value in range(case.spec.get("m"))
        )


class TestCountSketch(SketchSuite):
    """Planted: the bit of another function's hash; the bits in the other order; index and bits
    exchanged; <= for < -> the law and the bytes fail. No ``spread`` in one of the ways -> the bytes
    fail. E for E^2 in ``ratio`` -> designs fail. n/m not taken off; no m / (m - 1); drew and counts
    mixed -> the estimates fail. A padding bit let through -> hostile rows fail.
    """

    NAME = "count_sketch"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("3 cells, h = 2, m = 4", sketch(NAME, 2, 4, WORDS // 5 + 12_345, 1), THREE),
        Case("3 cells, one function, m = 2", sketch(NAME, 1, 2, WORDS // 3, 2), THREE),
        Case("words, h = 2, m = 4", sketch(NAME, 2, 4, WORDS // 4, 3), OPEN, inputs=SOME),
        Case(
            "words, two bytes of function",
            sketch(NAME, 512, 2, WORDS // 7, 9),
            OPEN,
            inputs=SOME[:2],
        ),
        Case("almost the truth", sketch(NAME, 2, 4, 1, 1), THREE),
        Case("almost noise", sketch(NAME, 2, 2, WORDS // 2 - 1, 5), OPEN, inputs=SOME),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        return uniform_draw(case.spec.get("h")), *(
            Draw(8, (case.spec.get("flip"),)),
        ) * case.spec.get("m")

    def row(self, case: Case, hashes: list[int]) -> tuple[int, ...]:
        flip, m = case.spec.get("flip"), case.spec.get("m")
        bits = list(itertools.product((0, 1), repeat=m))
        one = (flip, WORDS - flip)
        return tuple(
            math.prod(one[bit == (at == place)] for at, bit in enumerate(vector))
            for place in hashes
            for vector in bits
        )

    def output(self, case: Case, index: int) -> bytes:
        m, width = case.spec.get("m"), case.mechanism.report_size - 1
        function, bits = divmod(index, 1 << m)
        return function.to_bytes(width, "big") + bytes([bits << (8 - m)])

    def outcomes(
        self, mechanism: Mechanism, reports: NDArray[np.uint8], one: int, two: int
    ) -> NDArray[np.int64]:
        """The bits of the two cells' hashes."""
        spec = mechanism.spec
        width = 1 if spec.get("h") <= 256 else 2
        index = reports[:, :width].astype(np.int64) @ (256 ** np.arange(width)[::-1])
        places = np.stack([hashes_of(spec, cell) for cell in (one, two)], axis=1)[index]
        bits = np.unpackbits(reports[:, width:], axis=1)
        return np.asarray(
            2 * bits[np.arange(len(bits)), places[:, 0]].astype(np.int64)
            + bits[np.arange(len(bits)), places[:, 1]]
        )


class TestHadamardSketch(SketchSuite):
    """Planted: function and column exchanged in the number; the sign's place; the parity of j for
    l; drawn in another order -> the law and the bytes fail. The transform along rows of another
    shape -> the estimates fail.
    """

    NAME = "hadamard_sketch"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("3 cells, h = 2, m = 4", sketch(NAME, 2, 4, WORDS // 5 + 12_345, 1), THREE),
        Case("3 cells, one function, m = 2", sketch(NAME, 1, 2, WORDS // 3, 2), THREE),
        Case("words, h = 4, m = 8", sketch(NAME, 4, 8, WORDS // 4, 3), OPEN, inputs=SOME),
        Case("words, two bytes", sketch(NAME, 8, 32, WORDS // 7, 9), OPEN, inputs=SOME[:2]),
        Case("almost the truth", sketch(NAME, 2, 4, 1, 1), THREE),
        Case("almost noise", sketch(NAME, 2, 2, WORDS // 2 - 1, 5), OPEN, inputs=SOME),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        return (
            Draw(8, (case.spec.get("flip"),)),
            uniform_draw(case.spec.get("h")),
            uniform_draw(case.spec.get("m")),
        )

    def row(self, case: Case, hashes: list[int]) -> tuple[int, ...]:
        flip, m = case.spec.get("flip"), case.spec.get("m")
        return tuple(
            WORDS - flip if (column & place).bit_count() % 2 == bit else flip
            for place in hashes
            for column in range(m)
            for bit in (0, 1)
        )

    def outcomes(
        self, mechanism: Mechanism, reports: NDArray[np.uint8], one: int, two: int
    ) -> NDArray[np.int64]:
        """Whether the report supports each of the two."""
        spec = mechanism.spec
        numbers = reports.astype(np.int64) @ (256 ** np.arange(reports.shape[1])[::-1])
        hashes = np.stack([hashes_of(spec, cell) for cell in (one, two)], axis=1)
        places = hashes[numbers // 2 // spec.get("m")]
        parity = (
            np.bitwise_count((numbers // 2 % spec.get("m"))[:, None] & places) % 2
            == (numbers % 2)[:, None]
        )
        return np.asarray(2 * parity[:, 0].astype(np.int64) + parity[:, 1])


SEEDS = size(250, 4_000)
POPULATIONS: dict[str, tuple[Domain, NDArray[np.int64]]] = {
    "words, uneven": (
        Words(tuple(f"w{i}" for i in range(12))),
        np.array([1_000, 600, 300, 100, 50, 10, 1, 0, 0, 0, 0, 0, 40]),
    ),
    "cells in a row": (Categories(tuple(f"c{i}" for i in range(127))), np.full(128, 20)),
}


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(("name", "h", "m"), [("count_sketch", 4, 16), ("hadamard_sketch", 16, 8)])
def test_over_seeds_estimates_are_unbiased_and_standard_errors_hold_collisions_too(
    name: str, h: int, m: int, population: str
) -> None:
    """Mean error within 5 of its standard errors (of a normal mean that is wrong with probability
    6e-7 per label). The mean square of all errors together, over what was reported, is 0.79 to 0.95
    (it errs upwards), with a deviation of 0.04 at most over 250 seeds: 0.7 to 1.15 are allowed.
    Nine in ten intervals hold the truth, label by label: 95 % or more by design, and 90 % of 250 is
    3.6 deviations below.

    Planted: no ``spread`` -> of cells in a row the mean square is 2.4 times what count_sketch
    reports; collisions left out of the standard errors; m / (m - 1) left out; n^2 for the second
    moment -> fails.
    """
    domain, held = POPULATIONS[population]
    values = np.repeat(np.array(domain.label_cells), held)
    errors, told = [], []
    for seed in range(SEEDS):
        mechanism = create(sketch(name, h, m, WORDS // 50, seed), domain)
        estimate = mechanism.estimate(
            mechanism.tally(mechanism.randomize(values, SeededEntropy(f"{name} {seed}"))[:, 0])
        )
        errors.append(estimate.values - held)
        told.append(estimate.stderr)
    all_errors, all_told = np.array(errors), np.array(told)
    assert (np.abs(all_errors.mean(axis=0)) < 5 * all_errors.std(axis=0) / math.sqrt(SEEDS)).all()
    share = float(np.mean(all_errors**2) / np.mean(all_told**2))
    assert 0.7 < share < 1.15, share
    assert (np.mean(np.abs(all_errors) < 1.96 * all_told, axis=0) > 0.9).all()


@pytest.mark.parametrize("name", ["count_sketch", "hadamard_sketch"])
def test_the_seed_follows_from_the_labels(name: str) -> None:
    """Fixed and public: the same labels, the same functions. Planted: labels joined without their
    lengths -> fails.
    """
    first = design(name, Words(("ab", "c")), 1.0).get("seed")
    assert first == design(name, Words(("ab", "c")), 2.0).get("seed")
    assert first != design(name, Words(("a", "bc")), 1.0).get("seed")
    assert isinstance(create(design(name, THREE, 1.0), THREE).privacy(), SymmetricLaw)
    assert not isinstance(create(design(name, THREE, 1.0), THREE).privacy(), FiniteLaw)

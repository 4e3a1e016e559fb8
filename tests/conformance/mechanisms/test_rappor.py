"""RAPPOR keeps the suite: filters small enough that every report of every cohort can be written
out, cells whose filters share nothing and cells whose filters share bits. Open vocabularies, and
the decoding of many candidates, are in tests/unit/mechanisms.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Mechanism, create, design
from shoal.mechanisms.longitudinal.bloom import Filters
from shoal.privacy import SymmetricLaw
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table, every_case
from tests.conformance.mechanisms.checks.classes import Classes
from tests.conformance.mechanisms.longitudinal import LongitudinalSuite, longitudinal
from tests.worlds.tapes import Tape

WORDS = 1 << 64
THREE = Categories(("a", "b"))
FOUR = Categories(("a", "b", "c"))
# found so that the filters are as the cases say, and the labels can be told apart
SEEDS = 0, 11, 22, 912


def rappor(
    bits: int, hashes: int, cohorts: int, seed: int, noise: tuple[int, int, int]
) -> MechanismSpec:
    half_f, p, q = noise
    return MechanismSpec.of(
        "rappor", bits=bits, hashes=hashes, cohorts=cohorts, seed=seed, half_f=half_f, p=p, q=q
    )


def designed(epsilon0: float, hashes: int) -> tuple[int, int, int]:
    spec = design("rappor", THREE, epsilon0, f"h={hashes}")
    return spec.get("half_f"), spec.get("p"), spec.get("q")


def filter_of(spec: MechanismSpec, cohort: int, cell: int) -> frozenset[int]:
    """The bits of a filter, from what docs/WIRE.md says of the hash functions."""
    found = set()
    for i in range(spec.get("hashes")):
        index = cohort * spec.get("hashes") + i
        digest = hashlib.sha256(
            b"shoal keyed hash 1" + spec.get("seed").to_bytes(8, "big") + index.to_bytes(8, "big")
        ).digest()
        a1, a2, b = (int.from_bytes(digest[at : at + 8], "big") for at in (0, 8, 16))
        found.add(
            (a1 * (cell >> 31) + a2 * (cell % (1 << 31)) + b) % WORDS * spec.get("bits") // WORDS
        )
    return frozenset(found)


class TestRappor(LongitudinalSuite):
    """Planted: the instantaneous noise on the filter's bits for the permanent ones, in one way and
    in both -> the chain, the law and the byte-identity fail; p and q exchanged -> the law fails; h
    left out of a design -> the registry's tests fail, and
    tests/unit/mechanisms/longitudinal/test_rappor.py; a cohort's functions numbered by cohort + i
    -> the law or the byte-identity fails; <= for < at a threshold -> the byte-identity or the law
    fails; the decoding's 1 / C left out, or n for its cohort sizes -> the estimate is biased (n / C
    for them costs variance alone: tests/unit/mechanisms/longitudinal/test_bloom.py).
    """

    NAME = "rappor"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case(
            "h = 1, nothing shared",
            rappor(4, 1, 2, SEEDS[0], designed(1.0, 1)),
            THREE,
            inputs=(0, 2),
        ),
        Case("h = 2, one cohort", rappor(4, 2, 1, SEEDS[1], designed(3.0, 2)), THREE),
        Case(
            "h = 1, two bits",
            rappor(2, 1, 2, SEEDS[2], (WORDS // 10 + 3, WORDS // 2, 3 * WORDS // 4)),
            THREE,
        ),
        Case(
            "h = 2, some filters of one bit",
            rappor(4, 2, 2, SEEDS[3], (WORDS // 4, WORDS // 3, WORDS - 5)),
            FOUR,
            inputs=(0, 1, 2),
        ),
        Case("almost the truth", rappor(2, 1, 2, SEEDS[2], (1, 1, WORDS - 1)), THREE),
        Case(
            "almost noise",
            rappor(2, 1, 2, SEEDS[2], (WORDS // 2 - 1, WORDS // 2 - 1, WORDS // 2)),
            THREE,
        ),
    )

    def choice_draws(self, case: Case) -> tuple[Draw, ...]:
        cohorts = case.spec.get("cohorts")
        return (Draw(2, tuple(cohort * (1 << 16) // cohorts for cohort in range(cohorts))),)

    def permanent_draws(self, case: Case) -> tuple[Draw, ...]:
        return (Draw(8, (case.spec.get("half_f"),)),) * case.spec.get("bits")

    def report_draws(self, case: Case) -> tuple[Draw, ...]:
        return (Draw(8, (case.spec.get("p"), case.spec.get("q"))),) * case.spec.get("bits")

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        given = dict(spec.parameters)
        return (
            MechanismSpec.of(spec.name, **{**given, "p": given["p"] - 1, "q": given["q"] + 1})
            if given["p"] > 1
            else None
        )

    def stated(self, case: Case) -> Table:
        """Every cohort and bit vector: each bit by its own chain, out of 2^128 each."""
        get = case.spec.get
        half_f, p, q, bits = get("half_f"), get("p"), get("q"), get("bits")

        def bit(in_filter: bool, seen: int) -> int:
            kept = WORDS - half_f if in_filter else half_f  # how likely the permanent bit is 1
            one = kept * q + (WORDS - kept) * p
            return one if seen else WORDS**2 - one

        def weights(cell: int) -> Iterator[int]:
            for cohort in range(get("cohorts")):
                places = filter_of(case.spec, cohort, cell)
                for vector in itertools.product((0, 1), repeat=bits):
                    yield math.prod(bit(at in places, seen) for at, seen in enumerate(vector))

        return tuple(tuple(weights(cell)) for cell in range(case.domain.size))

    def output(self, case: Case, index: int) -> bytes:
        cohort, vector = divmod(index, 1 << case.spec.get("bits"))
        return bytes([cohort, vector << (8 - case.spec.get("bits"))])

    def alike(self, case: Case, count: int) -> Iterator[tuple[int, ...]]:
        """Cells whose filters have all bits and share none, in any cohort: those that the law is
        of.
        """
        spec = case.spec
        for chosen in super().alike(case, count):
            rows = [
                [filter_of(spec, cohort, cell) for cell in chosen]
                for cohort in range(spec.get("cohorts"))
            ]
            if all(len(frozenset().union(*row)) == count * spec.get("hashes") for row in rows):
                yield chosen

    def outcomes(
        self, mechanism: Mechanism, reports: NDArray[np.uint8], one: int, two: int
    ) -> NDArray[np.int64]:
        """How many bits either filter has alone in the report's cohort, and how many of these are
        set.
        """
        get = mechanism.spec.get
        filters = Filters(get("bits"), get("hashes"), get("cohorts"), get("seed"))
        cohorts, bits = (
            reports[:, 0].astype(np.int64),
            np.unpackbits(reports[:, 1:], axis=1, count=get("bits")).astype(np.bool_),
        )
        every = np.arange(get("cohorts"))
        mine, its = (
            filters.filters(every, np.full(every.size, cell))[cohorts] for cell in (one, two)
        )
        found = np.zeros(len(reports), dtype=np.int64)
        for own in (mine & ~its, its & ~mine):
            found = (found * 5 + own.sum(axis=1)) * 5 + (own & bits).sum(axis=1)
        return found

    @every_case
    def test_choice_and_permanent_answer_have_the_law_that_is_stated(self, case: Case) -> None:
        """As everywhere, for the pairs that the law is of; every other pair's ratios are at most
        the stated ones.
        """
        found = [self.kept_law(case, cell) for cell in range(case.domain.size)]
        law, scale = (
            longitudinal(case).permanent(),
            math.lcm(*(chance.denominator for one in found for chance in one.values())),
        )
        assert isinstance(law, SymmetricLaw)
        columns = Counter(tuple(int(one[output] * scale) for one in found) for output in found[0])
        ratio = max(Fraction(max(column), min(column)) for column in columns)
        assert ratio == law.max_ratio
        for chosen in self.alike(case, 2):
            seen, claimed = Classes(), Classes()
            for column, alike in columns.items():
                seen.add([column[cell] for cell in chosen], min(column), scale, alike)
            for one, two, least in zip(law.one, law.two, law.least, strict=True):
                claimed.add([one, two], least, law.total)
            assert claimed.masses() == seen.masses()
            assert claimed.claims_no_more_than(seen)

    @every_case
    def test_padding_of_what_was_kept_is_refused(self, case: Case) -> None:
        with pytest.raises(ShoalError, match="beyond the filter's") as caught:
            longitudinal(case).report_one(b"\0", b"\x01", Tape())
        assert caught.value.kind is Kind.INVALID


@pytest.mark.parametrize(
    "domain", [YesNo(), Numeric(0, 1, 5), Categories(tuple(f"label {i}" for i in range(2_048)))]
)
def test_other_domains_are_refused(domain: Domain) -> None:
    with pytest.raises(ShoalError, match="rappor") as caught:
        design("rappor", domain, 1.0)
    assert caught.value.kind is Kind.INVALID


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"bits": 12}, "power of two"),
        ({"cohorts": 3}, "power of two"),
        ({"bits": 1 << 14, "cohorts": 1 << 12}, "at most"),
        ({"p": WORDS // 2, "q": WORDS // 2}, '"p" < "q"'),
        ({"bits": 2, "cohorts": 1}, "take more of either"),
        ({"half_f": WORDS // 2}, '"half_f"'),
        ({"hashes": 9}, '"hashes"'),
    ],
)
def test_integers_that_do_not_fit_are_refused(changed: dict[str, int], message: str) -> None:
    given = dict(design("rappor", THREE, 1.0).parameters)
    with pytest.raises(ShoalError, match=message) as caught:
        create(MechanismSpec.of("rappor", **{**given, **changed}), THREE)
    assert caught.value.kind is Kind.INVALID


def test_one_seed_of_many_cohorts_in_two_bytes() -> None:
    """512 cohorts: both draws are one report, and a cohort of 512 is none."""
    spec = MechanismSpec.of(
        "rappor", **{**dict(design("rappor", THREE, 1.0).parameters), "cohorts": 512}
    )
    mechanism = create(spec, THREE)
    for seed in range(20):
        (one,) = mechanism.randomize_one(1, SeededEntropy(seed))
        assert one == mechanism.randomize(np.array([1]), SeededEntropy(seed)).tobytes()
    rows = np.frombuffer(b"\x01\xff" + bytes(4) + b"\x02\x00" + bytes(4), dtype=np.uint8).reshape(
        2, 6
    )
    assert mechanism.valid(rows).tolist() == [True, False]

"""The published bounds: the figures their programs print, soundness at small sizes, and flags where
they don't apply.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy

from shoal.accounting.accountant import certify
from shoal.accounting.numerics.binomial import pmf
from shoal.accounting.reference import published as module
from shoal.accounting.reference.published import PublishedBound, published, smallest_sound
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, PureLaw, epsilon0_upper
from tests.cases import for_each
from tests.sizes import FULL, size
from tests.unit.accounting.brute import Truth, rows_of_kary
from tests.unit.accounting.laws import kary, named, pure

VECTORS = json.loads(
    (Path(__file__).parents[3] / "vectors" / "accounting" / "reference.json").read_text()
)
BENNETT, HOEFFDING, GENERIC = "blanket, Bennett", "blanket, Hoeffding", "blanket, generic Hoeffding"
THEOREM, PROGRAM = "clones, closed form of the theorem", "clones, closed form of the program"


@cache
def every(law: KaryLaw | PureLaw, n: int, delta: float) -> tuple[PublishedBound, ...]:
    return published(law, n, delta)


def one(law: LocalPrivacy, n: int, delta: float, name: str) -> PublishedBound:
    assert isinstance(law, KaryLaw | PureLaw)
    # The numerical ones take most of the time: the others don't wait for them.
    quick = (
        *module._balle(law, epsilon0_upper(law), n, delta),
        *module._clones_closed(law, epsilon0_upper(law), n, delta),
    )
    return next(
        bound
        for bound in (quick if name in {BENNETT, HOEFFDING, PROGRAM} else every(law, n, delta))
        if bound.name == name
    )


# (n, epsilon0): program's closed form of FMT21, Bennett for binary, Bennett for k = 16; delta =
# 1e-8. Printed by the authors' programs; 2, 4 or 8 where these say that the bound gives nothing.
PRINTED = [
    (1000, 0.5, ".379", ".0945", ".0377"),
    (1000, 1.0, ".719", ".222", ".101"),
    (1000, 2.0, "2", ".625", ".362"),
    (1000, 4.0, "4", "4", "4"),
    (10_000, 1.0, ".264", ".0638", ".0287"),
    (10_000, 4.0, "4", ".626", ".544"),
    (100_000, 0.5, ".0365", ".00822", ".00315"),
    (100_000, 1.0, ".0859", ".0191", ".0085"),
    (100_000, 2.0, ".215", ".0491", ".0295"),
    (100_000, 4.0, ".595", ".170", ".151"),
    (100_000, 6.0, "6", ".532", ".518"),
    (100_000, 8.0, "8", "8", "8"),
    (1_000_000, 4.0, ".227", ".0506", ".0450"),
    (1_000_000, 8.0, "1.09", ".446", ".443"),
    (10_000_000, 1.0, ".00858", "", ""),
    (10_000_000, 2.0, ".0231", "", ""),
    (10_000_000, 4.0, ".0773", "", ""),
    (10_000_000, 8.0, ".480", "", ""),
]


@for_each("n, epsilon0, closed, binary, sixteen", PRINTED)
def test_printed_figures(n: int, epsilon0: float, closed: str, binary: str, sixteen: str) -> None:
    """To the digit printed. Planted: E[L^2] less the square of the mean, b instead of b / ln(1 +
    u), 2 / delta in the closed form's logarithm -> each fails several rows.
    """
    for law, name, text in (
        (pure(epsilon0), PROGRAM, closed),
        (kary(2, epsilon0), BENNETT, binary),
        (kary(16, epsilon0), BENNETT, sixteen),
    ):
        if text:
            bound = one(law, n, 1e-8, name)
            value = epsilon0 if bound.epsilon is None else bound.epsilon
            assert value == pytest.approx(
                float(text), abs=0.5000001 * 10.0 ** -len(text.partition(".")[2])
            ), name


ROWS = [row for row in VECTORS["rows"] if FULL or row[2] <= 10_000]


@for_each("law, quantity, n, epsilon0, delta, epsilon", ROWS)
def test_numerical_ones_against_measured_values(
    law: str, quantity: str, n: int, epsilon0: float, delta: float, epsilon: float
) -> None:
    """Clones, stronger clones and variation ratio as measured by a separate program. Planted: q =
    2/(E+1) in clones, or the third value left apart from the rest in the projection -> rows fail.
    """
    name = {"clones": "clones", "blanket": "stronger clones", "projection": "variation ratio"}.get(
        quantity
    )
    if name is not None and (quantity != "blanket" or law == "krr2"):
        assert one(named(law, epsilon0), n, delta, name).epsilon == pytest.approx(epsilon, rel=2e-5)


@for_each("m", [1, 30, 2000])
@for_each("epsilon", [0.05, 0.4, 1.5])
def test_each_form_is_above_the_integral_of_its_tail_bound(epsilon: float, m: int) -> None:
    """With gamma = 1 a form is E[(L_1 + ... + L_m)_+ | m] / m alone: above the integral of the
    inequality itself, and not far above where it is small. Planted: either halved, either exponent
    doubled, b in the place of b / ln(1 + u) -> fails.
    """
    at, a = replace(module._kary_family(kary(5, 2.5))(epsilon), gamma=1.0), math.expm1(epsilon)

    def hoeffding(t: float) -> float:
        return math.exp(-2.0 * (m * a + t) ** 2 / (m * at.width**2))

    def bennett(t: float) -> float:
        u = (a + t / m) * at.largest / at.second
        return math.exp(-m * at.second / at.largest**2 * ((1.0 + u) * math.log1p(u) - u))

    for form, tail in ((module._hoeffding, hoeffding), (module._bennett, bennett)):
        first = tail(0.0)
        scale = max(at.width**2 / (4.0 * a), 1.0)
        exact = (
            scipy.integrate.quad(
                lambda x, f=tail, c=scale, d=first: f(c * x) / d * c, 0.0, math.inf
            )[0]
            * first
            if first > 0.0
            else 0.0
        )
        value = form(at, a, m) * m
        assert value >= exact * (1.0 - 1e-6)
        if 0.0 < first < 1e-3:
            assert value <= 1.3 * exact


@pytest.mark.parametrize("n", [1, 40, 3000])
def test_the_sum_over_m_is_the_sum_over_m(n: int) -> None:
    """E[z^M] in closed form against the sum over the binomial law, without M = 0 for Bennett, with
    it for Hoeffding as published.

    Planted: (1 - gamma)^n not subtracted, 1/n in the place of 1/(gamma n) in either -> fails.
    """
    at, a = module._kary_family(kary(5, 2.5))(0.4), math.expm1(0.4)
    m = np.arange(n + 1, dtype=np.int64)
    masses = pmf(m, n, at.gamma, 1.0 - at.gamma) / (at.gamma * n)
    u = a * at.largest / at.second
    bennett = (
        np.exp(-m * at.second / at.largest**2 * ((1 + u) * math.log1p(u) - u))
        * at.largest
        / math.log1p(u)
    )
    hoeffding = at.width**2 / (4 * a) * np.exp(-2 * m * a * a / at.width**2)
    assert module._bennett(at, a, n) == pytest.approx(
        float(np.sum((bennett * masses)[1:])), rel=1e-9
    )
    assert module._hoeffding(at, a, n) == pytest.approx(float(np.sum(hoeffding * masses)), rel=1e-9)


def test_a_table_has_the_moments_of_its_law() -> None:
    """k-ary responses written as a table in another order of outputs. Planted: least / total for
    the masses -> fails.
    """
    law = kary(4, 1.5)
    same, other = law.same, law.other
    shifted = FiniteLaw(
        tuple(tuple(same if y == (x + 1) % 4 else other for y in range(4)) for x in range(4))
    )
    families = module._families(shifted)
    assert families is not None
    for epsilon in (0.01, 0.7):
        want = module._kary_family(law)(epsilon)
        for family in families:
            found = family(epsilon)
            for part in ("gamma", "width", "largest", "second"):
                assert getattr(found, part) == pytest.approx(getattr(want, part), rel=1e-12), part


@pytest.mark.parametrize(("k", "same", "n"), [(2, 3, 5), (3, 2, 4), (3, 9, 3)])
def test_what_applies_is_never_below_the_truth(k: int, same: int, n: int) -> None:
    """Against every dataset in exact fractions. Planted: ``applies=True`` for the projection of k =
    3 -> fails at (3, 2, 4).
    """
    law, truth = KaryLaw(k, same=same, other=1), Truth(rows_of_kary(k, same, 1), n, symmetric=True)
    for step in range(1, 12):
        e = 1 + Fraction(same - 1, 12) * step
        exact = float(truth.delta(e))
        if exact > 0.0:
            # At a delta just below the truth's at e, the true epsilon is above ln e.
            for bound in published(law, n, exact * (1 - 1e-6)):
                assert (
                    not bound.applies
                    or bound.epsilon is None
                    or bound.epsilon >= math.log(float(e)) * (1 - 1e-9)
                ), bound


@for_each("law", [kary(2, 0.5), kary(2, 2.0), kary(3, 1.0), kary(16, 3.0), pure(1.0)])
@for_each("n", [1000, size(5000, 100_000)])
def test_what_applies_is_never_below_a_real_dataset(law: LocalPrivacy, n: int) -> None:
    """Where the inequalities are nearly tight. Planted: Hoeffding's exponent doubled -> fails."""
    refuted = certify(law, n, 1e-8).epsilon_lower
    for bound in published(law, n, 1e-8):
        assert not bound.applies or bound.epsilon is None or bound.epsilon >= refuted, bound


def test_the_projection_is_below_the_truth() -> None:
    """n = 3, k = 3, E = 2, e = 3/2: the truth is 5/128, the projection 1/32, so between them
    variation ratio claims too little.
    """
    truth = Truth(rows_of_kary(3, 2, 1), 3, symmetric=True)
    assert truth.delta(Fraction(3, 2)) == Fraction(5, 128)
    bound = one(KaryLaw(3, same=2, other=1), 3, 0.036, "variation ratio")
    assert bound.epsilon is not None
    assert bound.epsilon < math.log(1.5)
    assert not bound.applies


def test_flags() -> None:
    """Who may use what. Planted: "stronger clones" that applies to every law -> fails."""

    def applying(law: LocalPrivacy, n: int = 5000, delta: float = 1e-6) -> set[str]:
        return {bound.name for bound in published(law, n, delta) if bound.applies}

    always = {"clones", GENERIC}
    closed = {"shuffling, closed form", THEOREM, PROGRAM}
    assert applying(pure(0.3)) == always | closed
    assert applying(pure(0.5)) == always | closed - {"shuffling, closed form"}
    assert applying(pure(0.3), n=999) == always | {THEOREM, PROGRAM}
    assert applying(pure(0.3), delta=0.01) == always | {THEOREM, PROGRAM}
    assert applying(pure(6.0)) == always
    assert applying(kary(2, 6.0)) == always | {
        BENNETT,
        HOEFFDING,
        "stronger clones",
        "variation ratio",
    }
    assert applying(kary(3, 6.0)) == always | {BENNETT, HOEFFDING, "stronger clones"}
    balle = {BENNETT, HOEFFDING}
    assert applying(FiniteLaw(((8, 1, 4), (1, 8, 4)))) == always | balle | {
        THEOREM,
        PROGRAM,
        "stronger clones",
        "variation ratio",
    }
    # A third input that seldom looks like the first two leaves fewer clones than 2/(E+1).
    assert applying(FiniteLaw(((6, 3, 3), (3, 6, 3), (1, 1, 10)))) == always | balle | {
        THEOREM,
        PROGRAM,
    }
    # Between the two conditions of the closed forms.
    n = math.ceil(math.exp(1.0) * 16.0 * math.log(3.0 / 1e-6))
    assert {
        bound.name: bound.applies
        for bound in published(pure(1.0), n, 1e-6)
        if "closed form of" in bound.name
    } == {
        THEOREM: True,
        PROGRAM: False,
    }


@for_each(
    "law",
    [
        pure(1.0),
        kary(2, 3.0),
        kary(3, 1.0),
        kary(16, 4.0),
        FiniteLaw(((6, 3, 3), (3, 6, 3), (2, 2, 8))),
    ],
)
@for_each("n", [2, 300, 5000])
def test_certify_is_never_above_the_smallest_sound_one(law: LocalPrivacy, n: int) -> None:
    """From n = 2 on; of a single report ``certify`` says epsilon0, though delta alone would allow a
    little less.

    Planted: certify at n - n // 50 -> fails.
    """
    bounds, found = published(law, n, 1e-6), certify(law, n, 1e-6)
    best = smallest_sound(bounds)
    assert best.epsilon is not None
    if not isinstance(law, FiniteLaw):
        assert found.epsilon_upper <= best.epsilon * (1 + 1e-8)
    assert all(bound.epsilon is None or 0.0 <= bound.epsilon <= found.epsilon0 for bound in bounds)


def test_a_law_that_tells_nothing() -> None:
    assert all(
        bound.epsilon == 0.0
        for law in (KaryLaw(3, same=1, other=1), PureLaw(Fraction(1)))
        for bound in published(law, 5000, 1e-6)
        if bound.applies
    )


def test_certify_never_loads_this_module() -> None:
    """Comparison routes stay out of the guarantee. Planted: ``import
    shoal.accounting.reference.published`` in accountant.py -> fails.
    """
    code = (
        "import sys, shoal.accounting.accountant, shoal.accounting.guarantee; "
        "sys.exit('shoal.accounting.reference.published' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bad_numbers_and_bad_bounds() -> None:
    for n, delta, law in (
        (0, 1e-6, pure(1.0)),
        (10, 0.0, pure(1.0)),
        (10, 1e-6, pure(41.0)),
        (10**9, 1e-6, pure(1.0)),
    ):
        with pytest.raises(ShoalError) as error:
            published(law, n, delta)
        assert error.value.kind is Kind.CONFIG
    for epsilon in (None, -1.0, math.nan):
        with pytest.raises(ShoalError) as error:
            PublishedBound("name", "paper", True, "why", epsilon)
        assert error.value.kind is Kind.INVALID
    with pytest.raises(ShoalError):
        smallest_sound([PublishedBound("name", "paper", False, "why", 1.0)])

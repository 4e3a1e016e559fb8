"""What a certificate promises: its shape, its limits, the known ways of getting it wrong."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from itertools import pairwise

import pytest

from shoal.accounting import accountant, certify, routes
from shoal.accounting.accountant import (
    certify_approximate,
    compare,
    lower_bound,
    simplest,
    upper_bound,
    upper_curve,
)
from shoal.accounting.bounds.approximate import local_epsilon
from shoal.accounting.certificate import Certificate
from shoal.accounting.numerics.curve import DEFAULT_EFFORT, LARGEST_N
from shoal.accounting.routes import Curves
from shoal.approximate import ApproximateLaw, GaussianLaw
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts.laws import oue
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, PureLaw, epsilon0_upper
from tests.cases import for_each
from tests.sizes import FULL, size
from tests.unit.accounting.laws import kary, pure

LAWS: list[LocalPrivacy] = [
    pure(1.0),
    kary(2, 4.0),
    kary(16, 2.0),
    FiniteLaw(((7, 3), (2, 8))),
    FiniteLaw(((5, 3, 2), (1, 3, 6))),
    oue(Fraction(20)),
]
KEYS = [
    "epsilon_upper",
    "epsilon_lower",
    "epsilon0",
    "delta",
    "n",
    "honest_fraction",
    "relation",
    "method",
    "assumptions",
]


@for_each("law", LAWS)
def test_json_has_the_stable_keys(law: LocalPrivacy) -> None:
    """Planted: one key renamed -> this fails."""
    value = json.loads(
        json.dumps(certify(law, 1000, 1e-6, honest_fraction=Fraction(9, 10)).to_json())
    )
    assert list(value) == KEYS
    assert value["relation"] == "replace-one"
    assert value["honest_fraction"] == 0.9
    assert all(isinstance(line, str) and line for line in value["assumptions"])
    assert any("900 of the 1000" in line for line in value["assumptions"])


@for_each("law", LAWS)
def test_one_honest_report_is_alone(law: LocalPrivacy) -> None:
    """n = 1, or one honest among many: epsilon0, never 0. Planted: an empty sum taken for delta = 0
    -> this fails.
    """
    for n, share in [
        (1, Fraction(1)),
        (10, Fraction(1, 10)),
        (10, Fraction(19, 100)),
        (1000, Fraction(1, 2000)),
    ]:
        found = certify(law, n, 1e-6, honest_fraction=share)
        assert found.n_honest <= 1
        assert found.epsilon_upper == found.epsilon0 == epsilon0_upper(law)
        assert found.method == "local"
        # One report is known exactly: (E - e) / (E + 1) = delta for two answers, and larger where
        # there are more outputs.
        assert 0.999 * found.epsilon0 < found.epsilon_lower <= found.epsilon0


@for_each("law", LAWS)
def test_small_batches_are_not_free(law: LocalPrivacy) -> None:
    """Small n, where published code returned 1e-6: the bound is close to epsilon0 there. Planted:
    see above.
    """
    for n in (2, 3, 10, 50):
        assert certify(law, n, 1e-9).epsilon_upper > 0.5 * epsilon0_upper(law) / n**0.5


def test_never_above_epsilon0() -> None:
    """Near epsilon0, where an error upward would show. Planted: a bound 1 % larger, unclipped ->
    construction fails here.
    """
    cases: list[tuple[LocalPrivacy, int]] = [
        (kary(2, 9.0), 10),
        (pure(6.0), 1000),
        (kary(1000, 12.0), 50),
        (pure(50.0), 10**6),
    ]
    for law, n in [*cases, (kary(70_000, 50.0), 10**6)]:
        found = certify(law, n, 1e-8)
        assert 0.0 < found.epsilon_lower <= found.epsilon_upper <= found.epsilon0


@for_each("law", LAWS)
def test_monotone(law: LocalPrivacy) -> None:
    """More reports, a larger delta, more honesty: never a larger epsilon. Planted: c and n - c
    exchanged -> this fails.
    """
    counts = (
        [*range(1, 40), 100, 1000, 1001, 10_000, 300_000] if FULL else [1, 2, 31, 32, 1001, 300_000]
    )
    by_n = [certify(law, n, 1e-6).epsilon_upper for n in counts]
    assert all(a >= b for a, b in pairwise(by_n))
    deltas = sorted([1e-90, 1e-6, 1.1e-6, 0.5, *([1e-12, 1e-2] if FULL else [])])
    by_delta = [certify(law, 1000, delta).epsilon_upper for delta in deltas]
    assert all(a >= b for a, b in pairwise(by_delta))
    by_share = [
        certify(law, 1000, 1e-6, honest_fraction=Fraction(i, 10)).epsilon_upper
        for i in range(1, 11, size(4, 1))
    ]
    assert all(a >= b for a, b in pairwise(by_share))


@for_each("k", [0, 2, 3, 16])
def test_monotone_in_epsilon0(k: int) -> None:
    """k = 0 stands for an unknown randomizer."""
    more = [1e-3, 0.5, 1.0, 4.0, 8.0] if FULL else []
    for n in (100, 3000):
        laws = [
            pure(e) if k == 0 else kary(k, e)
            for e in sorted([1e-9, 0.1, 0.11, 2.0, 2.001, 6.0, *more])
        ]
        values = [certify(law, n, 1e-8).epsilon_upper for law in laws]
        assert all(a <= b for a, b in pairwise(values))


def test_what_is_kept_answers_the_same_question_only() -> None:
    """The last bounds are kept. Planted: delta, or the number of reports, left out of what they are
    kept by -> this fails.
    """
    questions = [
        (kary(k, 1.0), n, delta) for k in (2, 3) for n in (10, 20) for delta in (1e-3, 1e-6)
    ]
    at_first, again = ([certify(*each) for each in questions] for _ in range(2))
    accountant._both_ends.cache_clear()
    assert at_first == again == [certify(*each) for each in reversed(questions)][::-1]
    assert len({found.epsilon_upper for found in at_first}) == len(questions)


def test_honest_fraction_is_exact_and_rounds_down() -> None:
    """The float 0.7 is below seven tenths, so 6 of 10. Planted: int(0.7 * 10) or round() -> this
    fails.
    """
    law = kary(2, 1.0)
    assert certify(law, 10, 1e-3, honest_fraction=0.7).n_honest == 6
    assert certify(law, 10, 1e-3, honest_fraction=Fraction(7, 10)).n_honest == 7
    assert (
        certify(law, 1000, 1e-6, honest_fraction=Fraction(1, 2)).epsilon_upper
        == certify(law, 500, 1e-6).epsilon_upper
    )
    assert certify(law, 3, 1e-3, honest_fraction=Fraction(2, 3)).n_honest == 2
    assert (
        certify(law, 10, 1e-3, honest_fraction=0.7).epsilon_upper
        == certify(law, 6, 1e-3).epsilon_upper
    )
    assert (
        certify(law, 10, 1e-3, honest_fraction=Fraction(7, 10)).epsilon_upper
        == certify(law, 7, 1e-3).epsilon_upper
    )


@for_each("law", LAWS)
def test_comparison_contains_the_certificate(law: LocalPrivacy) -> None:
    """The certificate is the smallest route that applies; the others say why not. Planted: the
    largest taken -> this fails.
    """
    found = certify(law, 1000, 1e-6, honest_fraction=Fraction(9, 10))
    values = compare(law, 1000, 1e-6, honest_fraction=Fraction(9, 10))
    assert [value.method for value in values] == list(routes.METHODS)
    assert min(value.epsilon for value in values if value.epsilon is not None) == pytest.approx(
        found.epsilon_upper, rel=1e-6
    )
    assert {value.method for value in values if value.applies} >= {found.method, "local", "clones"}
    assert all((value.epsilon is not None) is value.applies and value.why for value in values)
    alone = compare(law, 1, 1e-6)
    assert [value.method for value in alone if value.applies] == ["local"]


@for_each("law", LAWS)
@for_each("n", [1, 2, 300])
def test_upper_curve_is_a_curve(law: LocalPrivacy, n: int) -> None:
    """At the certified epsilon it is at most delta; it never rises, is at most the local curve, and
    0 from epsilon0 on.

    Planted: the local curve left out -> fails at n = 1.
    """
    curve, found = upper_curve(law, n, 1e-6), certify(law, n, 1e-6)
    assert curve(found.epsilon_upper) <= 1e-6
    points = [curve(found.epsilon0 * i / 20) for i in range(21)]
    assert all(b <= a * (1 + 1e-6) + 1e-12 for a, b in pairwise(points))  # windows: 1e-8 of delta
    assert points[-1] == 0.0
    assert points[0] <= (1 + 1e-12) * float((law.max_ratio - 1) / (law.max_ratio + 1))


def test_no_privacy_spent_is_zero() -> None:
    for law in (KaryLaw(5, 3, 3), PureLaw(Fraction(1)), FiniteLaw(((1, 2), (1, 2)))):
        found = certify(law, 10, 1e-6)
        assert (found.epsilon_upper, found.epsilon_lower, found.epsilon0) == (0.0, 0.0, 0.0)


def test_a_kary_table_is_recognised() -> None:
    """Planted: ``simplest`` comparing one row only -> the second table is taken for k-ary, this
    fails.
    """
    assert simplest(FiniteLaw(((5, 1, 1), (1, 5, 1), (1, 1, 5)))) == KaryLaw(3, 5, 1)
    other = FiniteLaw(((5, 1, 1), (1, 5, 1), (1, 2, 4)))
    assert simplest(other) is other
    reverse = FiniteLaw(((1, 5), (5, 1)))
    assert simplest(reverse) is reverse
    assert certify(reverse, 100, 1e-6).epsilon_upper == pytest.approx(
        certify(KaryLaw(2, 5, 1), 100, 1e-6).epsilon_upper, rel=1e-8
    )


def test_methods_are_named() -> None:
    assert certify(pure(1.0), 1000, 1e-6).method == "blanket"
    assert certify(kary(16, 1.0), 1000, 1e-6).method == "blanket"
    assert certify(FiniteLaw(((7, 3), (2, 8))), 1000, 1e-6).method == "exact"
    assert certify(kary(2, 1.0), 1000, 1e-6).method == "exact"
    assert certify(FiniteLaw(((5, 3, 2), (1, 3, 6))), 100, 1e-6).method == "blanket"
    assert certify(FiniteLaw(((5, 3, 2), (1, 3, 6))), 10_000, 1e-6).method == "swap"
    assert certify(oue(Fraction(20)), 1000, 1e-6).method == "blanket"
    # mixtures of its first and last row
    straight = FiniteLaw(tuple((30 + x, 30 - x, 40) for x in range(20)))
    assert certify(straight, 100, 1e-6).method == "blanket"
    many = FiniteLaw(tuple((30 + x, 500 - x * x, 470 + x * x - x) for x in range(20)))
    assert certify(many, 100, 1e-6).method == "blanket"


def test_approximate_certificates() -> None:
    """A Gaussian has a local epsilon at each delta, and that is where it is clipped; the pure law
    of a ratio is its own limit.

    Planted: epsilon0 at delta / 2 -> the first fails; n for n_honest -> the second fails.
    """
    gaussian = GaussianLaw(2.0, 1.0)
    alone, many = (certify_approximate(gaussian, n, 1e-8) for n in (1, 100_000))
    assert alone.epsilon_upper == alone.epsilon0 == many.epsilon0 == local_epsilon(gaussian, 1e-8)
    assert alone.method == "local"
    assert 0.0 < many.epsilon_lower < many.epsilon_upper < 0.05
    assert many.method == "approximate-clones"
    assert many.error_budget
    assert any("real numbers" in line for line in many.assumptions)
    half = certify_approximate(gaussian, 100_000, 1e-8, honest_fraction=Fraction(1, 2))
    assert half.epsilon_upper == certify_approximate(gaussian, 50_000, 1e-8).epsilon_upper
    pure_one = certify_approximate(ApproximateLaw(Fraction(3), 0.0), 1000, 1e-8)
    clones = {each.method: each.epsilon for each in compare(PureLaw(Fraction(3)), 1000, 1e-8)}
    assert pure_one.epsilon_upper == pytest.approx(clones["clones"], rel=1e-3)
    with pytest.raises(ShoalError, match="delta"):
        certify_approximate(ApproximateLaw(Fraction(3), 1e-6), 1000, 1e-8)


def test_more_is_known_the_tighter() -> None:
    """Unknown randomizer >= binary of the same ratio >= 16-ary of the same ratio; lower bounds of
    the class >= its members'.
    """
    for n in (1000, 100_000):
        unknown, binary, sixteen = (
            certify(law, n, 1e-8) for law in (pure(2.0), kary(2, 2.0), kary(16, 2.0))
        )
        assert unknown.epsilon_upper > binary.epsilon_upper > sixteen.epsilon_upper
        assert unknown.epsilon_lower >= binary.epsilon_lower
    assert certify(pure(2.0), 1000, 1e-8).epsilon_lower == pytest.approx(
        certify(kary(3, 2.0), 1000, 1e-8).epsilon_lower, rel=1e-8
    )


def test_beyond_the_largest_n() -> None:
    """More reports than the error budget covers: the bound of that many, and no claim from
    below.
    """
    law = kary(2, 1.0)
    assert upper_bound(law, 10 * LARGEST_N, 1e-6) == upper_bound(law, LARGEST_N, 1e-6)
    assert lower_bound(law, 10 * LARGEST_N, 1e-6, 1.0) == 0.0


def test_extreme_laws_are_certified() -> None:
    """Tiny and huge epsilon0, k from 2 to 70,000, n from 2, delta down to 1e-100: valid, and no
    warning (warnings are errors).
    """
    for epsilon0 in (1e-9, 1e-4, 0.5, 12.0, 39.0, 50.0)[:: size(2, 1)]:
        for k in (2, 70_000, 3)[: size(2, 3)]:
            for n in (2, 1000):
                for delta in (0.4, 1e-100):
                    found = certify(kary(k, epsilon0), n, delta)
                    assert found.epsilon_lower <= found.epsilon_upper <= found.epsilon0
    for law in (
        KaryLaw(2, 10**400, 1),
        PureLaw(Fraction(10**400)),
        FiniteLaw(((10**400, 1), (1, 10**400))),
    ):
        found = certify(law, 1000, 1e-6)
        assert found.epsilon_upper == epsilon0_upper(law)
        assert found.epsilon_lower > 15.9
    table = FiniteLaw(((1, 2, 10**30), (10**30, 2, 1), (1, 10**30, 2)))
    assert 15.9 < certify(table, 50, 1e-6).epsilon_lower < epsilon0_upper(table)
    hair = FiniteLaw(((2**64, 2**64 + 1), (2**64 + 1, 2**64)))
    assert (
        0.0
        < certify(hair, 1000, 1e-30).epsilon_lower
        <= certify(hair, 1000, 1e-30).epsilon_upper
        < 5.5e-20
    )


@for_each("delta", [0.0, 1.0, -1e-6, 2.0, math.nan, math.inf, 1e-300])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(ShoalError, match="delta") as error:
        certify(pure(1.0), 10, delta)
    assert error.value.kind is Kind.CONFIG
    assert "\n" not in str(error.value)


@for_each("n", [0, -1, True, 2.0])
def test_bad_n(n: int) -> None:
    with pytest.raises(ShoalError, match="n must be") as error:
        certify(pure(1.0), n, 1e-6)
    assert error.value.kind is Kind.CONFIG


@for_each("share", [-0.1, 0, 0.0, 1.1, math.nan, math.inf, Fraction(3, 2)])
def test_bad_honest_fraction(share: float) -> None:
    with pytest.raises(ShoalError, match="honest fraction") as error:
        certify(pure(1.0), 10, 1e-6, honest_fraction=share)
    assert error.value.kind is Kind.CONFIG


def test_unknown_law_is_refused() -> None:
    class Other:
        max_ratio = Fraction(3)

    with pytest.raises(ShoalError, match="no accountant") as error:
        certify(Other(), 10, 1e-6)
    assert error.value.kind is Kind.INVALID


def test_certificates_validate_and_do_not_change() -> None:
    """Planted: the check of lower <= upper removed -> this fails."""
    good = certify(kary(2, 1.0), 100, 1e-6)
    for change in (
        {"epsilon_lower": good.epsilon_upper * 2},
        {"epsilon_upper": good.epsilon0 * 1.1},
        {"epsilon_lower": -0.1},
        {"epsilon_upper": math.nan},
        {"epsilon0": math.inf},
        {"delta": 0.0},
        {"n": 0},
        {"relation": "add-remove"},
        {"method": ""},
        {"honest_fraction": Fraction(2)},
    ):
        with pytest.raises(ShoalError):
            replace(good, **change)
    with pytest.raises(FrozenInstanceError):
        good.epsilon_upper = 0.0  # type: ignore[misc]
    assert replace(good, honest_fraction=0.25).honest_fraction == Fraction(1, 4)  # type: ignore[arg-type]  # floats are taken, and made exact
    assert isinstance(good, Certificate)


def test_the_most_telling_view_is_found() -> None:
    """Lower curves of so telling a table cross delta more than once. Planted: each searched from 0
    up -> 14.79 and this fails.
    """
    rows = (
        (142, 2, 1350, 28357, 19, 554006379),
        (7316692, 154, 1583, 546717567, 251, 2),
        (5908, 1477, 5, 28108, 554000158, 593),
    )
    law = FiniteLaw((*rows, (3, 269, 553921271, 114416, 278, 12)))
    assert 15.2 < certify(law, 2, 6.152321634256223e-08).epsilon_lower < 19.0


def test_a_later_direction_never_undoes_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both directions must be proven, also if rounding made a curve cross the target twice.
    Planted: no max -> 0.3 and this fails.
    """
    found = iter([(0.5, 0.5), (0.3, 0.3)])

    class Steps:
        def delta(self, epsilon: float) -> float:
            return 1.0 if epsilon < 0.6 else 0.0

    monkeypatch.setattr(routes, "crossing", lambda *_: next(found))
    assert (
        Curves("either", (lambda *_: Steps(), lambda *_: Steps()))
        .bound(1e-6, 1.0, DEFAULT_EFFORT)
        .upper
        == 0.5
    )

"""The ways in which published accountants of shuffled reports went wrong, one test each.

Every test here was run once against the defect that it names ("Planted") and failed. The numbers
are those of the list in docs/ACCOUNTING.md, section 9.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from shoal.accounting import certify, compose_basic, guaranteed
from shoal.accounting.accountant import compare
from shoal.accounting.bounds.clones import clones, kary_clones
from shoal.accounting.composition.compose import compose
from shoal.accounting.composition.losses import pure_law
from shoal.accounting.numerics.curve import Curve, Direction
from shoal.accounting.numerics.search import crossing
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.entropy import SystemEntropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms import create, design
from shoal.privacy import FiniteLaw, KaryLaw, epsilon0_upper
from tests.sizes import size
from tests.unit.accounting.brute import Truth, add_one, divergence, histogram_law, rows_of_kary
from tests.unit.accounting.laws import kary, pure
from tests.unit.accounting.test_truth import binary_views, worst


def test_01_small_batches_are_summed_not_skipped() -> None:
    """A sum over an empty range gives delta = 0 and an epsilon of nearly 0. (n = 100, epsilon0 = 4:
    3.8e-6 was published code's answer.)

    Planted: the window of c empty for n <= 100 -> this fails.
    """
    for law in (
        pure(4.0),
        kary(2, 4.0),
        kary(16, 4.0),
        FiniteLaw(((90, 5, 5), (5, 90, 5), (5, 5, 90))),
    ):
        values = [
            certify(law, n, 1e-6).epsilon_upper for n in (*range(1, 8), *range(8, 131, size(20, 1)))
        ]
        assert values[0] == epsilon0_upper(law)
        assert all(b <= a * (1 + 1e-9) for a, b in pairwise(values))
        assert values[-1] > 0.3
    assert certify(pure(4.0), 100, 1e-6).epsilon_upper > 3.9999
    assert certify(kary(2, 4.0), 50, 1e-6).epsilon_upper > 0.749


def test_02_truncated_mass_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """With windows so narrow that they miss a third of delta on each side, the upper curve is still
    above the exact one, the lower below.

    Planted: ``_tail_constant = 0`` (mass dropped), or the masses normalised to 1 -> this fails.
    """
    walk = clones(Fraction(math.exp(2)), 2000)
    exact = Curve(walk, Direction.UPPER, 1e-6, 2.0).delta(0.3)
    monkeypatch.setattr("shoal.accounting.numerics.curve.TAIL_SHARE", 0.3)
    assert Curve(walk, Direction.UPPER, exact, 2.0).delta(0.3) >= exact
    assert Curve(walk, Direction.LOWER, exact, 2.0).delta(0.3) <= exact
    for count in (3, 5, 40):
        few = clones(Fraction(3), count)
        whole = Curve(few, Direction.UPPER, 1e-12, 1.0).delta(0.5)
        assert Curve(few, Direction.UPPER, 0.2, 1.0).delta(0.5) >= whole * (1 - 1e-8)


def test_03_the_safe_end_of_the_bracket_is_returned() -> None:
    """Planted: (high, low) exchanged in ``crossing`` -> this fails."""

    def curve(epsilon: float) -> float:
        return math.exp(-30.0 * epsilon)

    low, high = crossing(curve, 1e-6, 5.0)
    assert curve(low) > 1e-6 >= curve(high)
    assert high - low <= 1e-8


def test_04_a_projection_of_the_view_is_not_the_view() -> None:
    """n = 3, k = 3, E = 2, e = 3/2, others (0, 2): the truth is 5/128; seen through (count of x,
    count of x', rest) it would be 1/32.

    Planted: the two-cell projection as the upper curve -> this fails.
    """
    law, e = KaryLaw(3, 2, 1), Fraction(3, 2)
    truth = Truth(rows_of_kary(3, 2, 1), 3, symmetric=True).delta(e)
    assert truth >= Fraction(5, 128) > Fraction(1, 32)
    delta = float(truth) * (1 - 1e-9)
    assert certify(law, 3, delta).epsilon_upper > math.log(1.5) * (1 - 1e-6)


@pytest.mark.parametrize("epsilon0", [0.5, 2.0, 4.0])
def test_05_stronger_clones_are_not_used_where_their_proof_is_withdrawn(epsilon0: float) -> None:
    """The theorem has an erratum: 2/(E + 1) clones only where a law's own table gives them. For one
    fixed randomizer the same number has a proof of its own (``bounds.blanket``), and is called by
    its name; where randomizers are chosen adaptively, it has none.

    Planted: 2/(E + 1) in ``clones`` -> this fails.
    """
    routes = {each.method: each for each in compare(pure(epsilon0), 10_000, 1e-8)}
    adaptive, unknown = routes["clones"].epsilon, certify(pure(epsilon0), 10_000, 1e-8)
    stronger = crossing(
        Curve(kary_clones(kary(3, epsilon0), 10_000), Direction.LOWER, 1e-8, epsilon0).delta,
        1e-8,
        epsilon0,
    )[0]
    assert adaptive is not None
    assert adaptive > 1.1 * stronger
    assert unknown.epsilon_upper == pytest.approx(stronger, rel=1e-6)
    assert unknown.method == "blanket"
    assert any("same randomizer, chosen before" in text for text in unknown.assumptions)


def test_06_every_dataset_and_both_directions() -> None:
    """The worst number of ones among the others is not 0 here (n = 200: 65 or, mirrored, 134; n =
    50: 48). An asymmetric law has two different directions.

    Planted: only m = 0 -> the first two fail; one direction -> the last fails.
    """
    for n, epsilon0, epsilon in [(200, 5.0, 0.25), (50, 2.0, 0.9)]:
        answer = math.exp(epsilon0) / (math.exp(epsilon0) + 1)
        deltas = [worst(binary_views(n, m, answer, 1 - answer), epsilon) for m in range(n)]
        assert max(deltas) > deltas[0] * 1.03
        assert certify(kary(2, epsilon0), n, max(deltas) * (1 - 1e-9)).epsilon_upper >= epsilon * (
            1 - 1e-7
        )
    # outputs exchanged: the other direction is the worse one
    for top, bottom in ((0.6, 0.01), (0.99, 0.4)):
        rows = tuple((round(100 * p), 100 - round(100 * p)) for p in (top, bottom))
        epsilon = certify(FiniteLaw(rows), 150, 1e-6).epsilon_upper
        assert max(worst(binary_views(150, m, top, bottom), epsilon) for m in range(150)) <= 1e-6


def test_07_only_honest_reports_of_one_batch_count() -> None:
    """A tenth of the reports may belong to the adversary: they hide nobody. Planted: n in place of
    n_honest -> this fails.
    """
    for law in (kary(2, 2.0), kary(16, 3.0), pure(2.0)):
        assert (
            certify(law, 1000, 1e-6, honest_fraction=Fraction(9, 10)).epsilon_upper
            == certify(law, 900, 1e-6).epsilon_upper
        )
        assert (
            certify(law, 1000, 1e-6, honest_fraction=Fraction(9, 10)).epsilon_upper
            > certify(law, 1000, 1e-6).epsilon_upper
        )
        # Two shuffled batches of 500 are not one of 1000.
        assert certify(law, 500, 1e-6).epsilon_upper > certify(law, 1000, 1e-6).epsilon_upper


def test_08_one_neighbouring_relation() -> None:
    """Replace-one everywhere; a certificate about add-or-remove can't be made. Planted: the check
    of ``relation`` removed -> this fails.
    """
    found = certify(kary(2, 1.0), 100, 1e-6)
    assert found.relation == "replace-one"
    with pytest.raises(ShoalError) as error:
        replace(found, relation="add-remove")
    assert error.value.kind is Kind.INVALID


@pytest.mark.parametrize("delta", [1e-11, 1e-13, 1e-20])
def test_09_a_transform_is_as_good_as_the_delta_that_is_asked_for(delta: float) -> None:
    """An untilted transform errs by 1e-16 of the largest mass, which is more than delta's digits.
    100 rounds of randomized response, composed, against the binomial sum in exact fractions: above
    the truth, and by less than 1e-5.

    Planted: no tilt and no error term (theta a millionth, ``_error`` = 0) -> this fails at 1e-13.
    """
    rounds, epsilon0 = 100, 0.125
    ratio = Fraction(math.exp(epsilon0))
    keep = ratio / (ratio + 1)

    def truth(epsilon: float) -> Fraction:
        e = Fraction(math.exp(epsilon))
        terms = (
            (keep**k * (1 - keep) ** (rounds - k), (1 - keep) ** k * keep ** (rounds - k), k)
            for k in range(rounds + 1)
        )
        return sum(
            (math.comb(rounds, k) * max(Fraction(0), p - e * q) for p, q, k in terms), Fraction(0)
        )

    found = compose([(pure_law(epsilon0), rounds)], delta).epsilon_upper
    assert truth(found * (1 + 1e-12)) <= Fraction(delta)
    assert truth(found * (1 - 1e-5)) > Fraction(delta)


def test_10_no_cancellation_at_tiny_deltas() -> None:
    """P - e Q is never formed from two large numbers: the curve keeps nine digits down to delta =
    1e-90.

    For n = 2 binary reports the divergence is a polynomial: exact rational arithmetic at e = E - h
    for tiny h. Planted: tails as 1 - cdf -> this fails.
    """
    law, ratio = KaryLaw(2, 3, 1), Fraction(3)
    for exponent in (3, 6, 9, 12):
        e = ratio - Fraction(1, 10**exponent)
        truth = Truth(rows_of_kary(2, 3, 1), 2, symmetric=True).delta(e)
        delta = float(truth)
        found = certify(law, 2, delta)
        assert math.log(float(e)) * (1 - 1e-9) <= found.epsilon_upper
        assert found.epsilon_lower <= math.log(float(e)) * (1 + 1e-9)
    values = [certify(kary(2, 1.0), 100_000, 10.0**-x).epsilon_upper for x in (6, 12, 24, 48, 90)]
    assert all(1.0 < b / a < 2.0 for a, b in pairwise(values))


def test_11_epsilon0_is_that_of_the_integers_compared_against() -> None:
    """A probability rounded to a threshold has its own ratio: that one is certified.

    Planted: epsilon0 from the float that was asked for -> this fails.
    """
    law = KaryLaw(2, same=11, other=4)  # e.g. 4-bit thresholds for an epsilon0 of 1.0
    found = certify(law, 1, 1e-9)
    assert found.epsilon0 > math.log(11 / 4) - 1e-15
    assert Fraction(math.exp(found.epsilon0)) * (1 + Fraction(1, 10**15)) >= Fraction(11, 4)
    domain = Categories(("a", "b", "c"))
    mechanism = create(design("krr", domain, 1.0), domain)
    assert found.epsilon0 > 1.0 >= epsilon0_upper(mechanism.privacy())


@pytest.mark.parametrize("name", ["krr", "binary_rr", "kmean"])
def test_12_reports_of_all_values_have_one_size(name: str) -> None:
    """A length that tells the value is outside every epsilon. Planted: krr claims a byte that it
    does not send -> this fails.

    (Frames, order and addresses: tests/integration/services/test_shuffler_service.py.)
    """
    domains: dict[str, Domain] = {
        "krr": Categories(("a", "b", "c")),
        "binary_rr": YesNo(),
        "kmean": Numeric(0.0, 10.0, 5),
    }
    domain = domains[name]
    mechanism = create(design(name, domain, 1.0), domain)
    values = np.arange(2, dtype=np.int64)
    reports = mechanism.randomize(values, SystemEntropy())
    assert reports.shape == (len(values), mechanism.messages, mechanism.report_size)
    assert len(LIMITS.frame_sizes) <= 4  # and the sealed report fits one of few global sizes


def test_13_deltas_of_rounds_add_up() -> None:
    """Thirty certificates at 1e-8 are one at 3e-7. Planted: the largest delta instead of the sum ->
    this fails.
    """
    found = certify(kary(2, 2.0), 10_000, 1e-8)
    composed = compose_basic([found] * 30)
    assert composed.delta >= Fraction(1e-8) * 30
    assert composed.epsilon_upper >= found.epsilon_upper * 30 * (1 - 1e-15)


def test_14_the_domain_of_reports_counts_not_that_of_values_and_the_weakest_randomizer() -> None:
    """k is the number of *outputs* of the randomizer, "no answer" included; devices of one family
    with different epsilon0 have the largest.

    Planted: the mean of the two ratios in place of the largest (9 -> 5.7) -> this fails; k without
    "no answer" -> this fails.
    """
    domain = Categories(tuple(f"c{i}" for i in range(15)))
    law = create(design("krr", domain, 2.0), domain).privacy()
    assert isinstance(law, KaryLaw)
    assert law.k == 16
    weakest = certify(KaryLaw(2, 9, 1), 4, 0.01)
    assert weakest.method != "local"
    # The victim answers by the weaker of two laws, the others by the stronger one: still within the
    # certificate of the weakest.
    hidden = [[Fraction(9, 10), Fraction(1, 10)], [Fraction(1, 10), Fraction(9, 10)]]
    others = [[Fraction(7, 10), Fraction(3, 10)], [Fraction(3, 10), Fraction(7, 10)]]
    for answers in ((0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1)):
        base = histogram_law(answers, others)
        found = divergence(
            add_one(base, hidden[0]),
            add_one(base, hidden[1]),
            Fraction(math.exp(weakest.epsilon_upper)),
        )
        assert found <= Fraction(0.01)


def test_15_never_above_epsilon0() -> None:
    """Where little is hidden the bound formulas exceed epsilon0. Planted: the clip removed -> this
    fails.
    """
    for law in (pure(3.0), kary(2, 3.0), kary(64, 8.0), FiniteLaw(((97, 2, 1), (1, 97, 2)))):
        for n in (1, 2, 3, 10):
            found = certify(law, n, 1e-12)
            assert (
                found.epsilon_lower <= found.epsilon_upper <= found.epsilon0 == epsilon0_upper(law)
            )


def test_16_the_guarantee_is_fixed_before_collection() -> None:
    """It depends on min_batch alone, not on how many came: n may depend on what people answer, or
    on an adversary.

    Planted: ``guaranteed`` at the received n -> the analyzer's test_release fails; here: the
    fraction taken after rounding.
    """
    law = kary(16, 3.0)
    promise = guaranteed(law, 1001, Fraction(9, 10), 1e-8)
    assert (promise.n, promise.n_honest) == (1001, 900)
    assert promise.epsilon_upper == certify(law, 900, 1e-8).epsilon_upper
    assert all(
        certify(law, n, 1e-8, honest_fraction=Fraction(9, 10)).epsilon_upper
        <= promise.epsilon_upper
        for n in (1001, 1100, 5000)
    )

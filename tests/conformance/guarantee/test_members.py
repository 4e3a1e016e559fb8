"""The guarantees that there are: a certificate, a bound for several messages, a sum's bound."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from shoal.accounting import certify, certify_messages, certify_sum
from shoal.accounting.guarantee import Guarantee
from shoal.accounting.of_task import guarantee_of, guaranteed
from shoal.accounting.several_messages.dummies import UniformDummies
from shoal.accounting.several_messages.noise import NoiseProtocol
from shoal.accounting.several_messages.randomized_truth import RandomizedTruth
from shoal.accounting.several_messages.split import SplitProtocol
from shoal.accounting.sums.sum_task import check_sum
from shoal.domain import Numeric, Vector
from shoal.mechanisms import create, design
from shoal.mechanisms.quantize import bounds
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.split_mix import SplitMix
from shoal.privacy import KaryLaw, PureLaw, epsilon0_upper
from shoal.secagg import Mode
from shoal.task import MechanismSpec
from tests.conformance.guarantee.suite import GuaranteeSuite
from tests.worlds.tasks import PAIRWISE, TASK

DELTA = 1e-6


class TestCertificate(GuaranteeSuite):
    def make(self, n: int, honest_fraction: Fraction = Fraction(1)) -> Guarantee:
        return certify(PureLaw(Fraction(3)), n, DELTA, honest_fraction=honest_fraction)

    def test_epsilon0_remains_without_the_shuffler(self) -> None:
        """Planted: epsilon_upper for both -> fails."""
        guarantee = self.make(self.N)
        assert guarantee.remaining.together == guarantee.epsilon0 < math.inf


class TestMessagesBound(GuaranteeSuite):
    def make(self, n: int, honest_fraction: Fraction = Fraction(1)) -> Guarantee:
        bound = certify_messages(UniformDummies(8, 4), n, DELTA, honest_fraction=honest_fraction)
        assert bound is not None
        return bound

    def test_nothing_remains_without_the_shuffler(self) -> None:
        """Planted: epsilon_upper for both -> fails."""
        guarantee = self.make(self.N)
        assert guarantee.epsilon0 == guarantee.remaining.together == math.inf


class TestCancelling(TestMessagesBound):
    """What each device draws is one and the same; the law accounted for is that of the honest."""

    def law(self, n_honest: int) -> NoiseLaw:
        floods = Fraction(n_honest * 12, 100)
        return NoiseLaw(
            Truth.CELL, 16, n_honest, 200, Fraction(16, 25), 39, floods=floods, largest=4
        )

    def make(self, n: int, honest_fraction: Fraction = Fraction(1)) -> Guarantee:
        law = self.law(int(n * honest_fraction))
        bound = certify_messages(NoiseProtocol(law), n, DELTA, honest_fraction=honest_fraction)
        assert bound is not None
        return bound

    def test_more_than_it_counts_promise_the_same(self) -> None:
        """And fewer nothing. Planted: the noise of n devices taken for that of ``shares`` ->
        fails.
        """
        protocol = NoiseProtocol(self.law(1_000))
        some, more = (certify_messages(protocol, n, DELTA) for n in (1_000, 2_000))
        assert some is not None
        assert more is not None
        assert more.epsilon_upper == some.epsilon_upper
        assert more.epsilon_lower <= some.epsilon_lower
        assert certify_messages(protocol, 999, DELTA) is None


class TestSignedCount(TestCancelling):
    def law(self, n_honest: int) -> NoiseLaw:
        floods = Fraction(n_honest * 12, 100)
        return NoiseLaw(Truth.SIGN, 1, n_honest, 60, Fraction(16, 25), 39, floods=floods, largest=4)


class TestPoissonDummies(TestCancelling):
    def law(self, n_honest: int) -> NoiseLaw:
        return NoiseLaw(Truth.CELL, 16, n_honest, 20, dummies=Fraction(n_honest * 4, 100))


class TestSplitMix(TestMessagesBound):
    def split(self, n_honest: int) -> SplitProtocol:
        scale = n_honest << 14  # as in the others: what one device adds is one and the same
        spec = MechanismSpec.of("split_mix", scale=scale, shares=n_honest, slots=14, bytes=4)
        return SplitProtocol(SplitMix(spec, Numeric(0.0, 1.0, 101)))

    def make(self, n: int, honest_fraction: Fraction = Fraction(1)) -> Guarantee:
        protocol = self.split(int(n * honest_fraction))
        bound = certify_messages(protocol, n, DELTA, honest_fraction=honest_fraction)
        assert bound is not None
        return bound


class TestRandomizedTruth(GuaranteeSuite):
    """A true message that is drawn too, among few devices of much noise."""

    TRUTH = KaryLaw(16, 3000, 1)

    def make(self, n: int, honest_fraction: Fraction = Fraction(1)) -> Guarantee:
        law = TestCancelling().law(int(n * honest_fraction))
        protocol = RandomizedTruth(NoiseProtocol(law), self.TRUTH)
        bound = certify_messages(protocol, n, DELTA, honest_fraction=honest_fraction)
        assert bound is not None
        return bound

    def test_epsilon0_remains_without_the_shuffler(self) -> None:
        """Planted: infinity, as where the value is sent -> fails; epsilon_upper for both ->
        fails.
        """
        guarantee = self.make(self.N)
        assert guarantee.remaining.together == guarantee.epsilon0 == epsilon0_upper(self.TRUTH)
        assert guarantee.epsilon_upper < guarantee.epsilon0


class TestSumBound(GuaranteeSuite):
    MODE = Mode.DEFAULT

    def make(self, n: int, honest_fraction: Fraction = Fraction(1)) -> Guarantee:
        domain = PAIRWISE.domain
        assert isinstance(domain, Vector)
        return certify_sum(
            PAIRWISE.mechanism,
            bounds(domain),
            domain.dimension,
            survivors=n,
            honest_fraction=honest_fraction,
            delta=DELTA,
            mode=self.MODE,
        )


class TestStrictSumBound(TestSumBound):
    MODE = Mode.STRICT

    def test_the_same_remains_of_both_together(self) -> None:
        """Planted: epsilon0 in strict mode too -> fails."""
        guarantee = self.make(self.N)
        assert guarantee.remaining.together == guarantee.epsilon_upper


def test_a_task_has_the_guarantee_of_its_kind() -> None:
    """Of its smallest batch, or of its smallest sum. Planted: max_batch in the place of min_batch,
    a certificate of the noise for a pairwise task -> fails.
    """
    mechanism = design("binary_rr", TASK.domain, 2.0)
    shuffled = replace(TASK, mechanism=mechanism)
    own = create(shuffled.mechanism, shuffled.domain)
    expected = guaranteed(
        own.privacy(), shuffled.min_batch, shuffled.honest_fraction, shuffled.delta
    )
    assert guarantee_of(shuffled) == guarantee_of(shuffled, own) == expected
    assert guarantee_of(replace(shuffled, min_batch=shuffled.min_batch // 2)) != expected
    assert guarantee_of(PAIRWISE) == check_sum(PAIRWISE)

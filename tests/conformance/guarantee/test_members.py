"""The guarantees that there are: a certificate, a bound for several messages, a sum's bound."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from shoal.accounting import certify, certify_messages, certify_sum
from shoal.accounting.guarantee import Guarantee
from shoal.accounting.of_task import guarantee_of, guaranteed
from shoal.accounting.several_messages.dummies import UniformDummies
from shoal.accounting.sums.sum_task import check_sum
from shoal.domain import Vector
from shoal.mechanisms import create, design
from shoal.mechanisms.quantize import bounds
from shoal.privacy import PureLaw
from shoal.secagg import Mode
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

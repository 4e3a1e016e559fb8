"""What every guarantee keeps, whoever proves it. Inherit, give ``make`` and ``smaller``."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest

from shoal.accounting.guarantee import Guarantee, Remaining
from shoal.errors import Kind, ShoalError


class GuaranteeSuite:
    """``make(n, honest_fraction)``: a guarantee about ``n`` of whatever it counts."""

    N = 2_000

    def make(self, n: int, honest_fraction: Fraction = Fraction(1)) -> Guarantee:
        raise NotImplementedError

    def test_it_is_a_guarantee_with_both_ends_in_order(self) -> None:
        """Planted: a member without ``remaining`` -> the first line fails."""
        guarantee = self.make(self.N)
        assert isinstance(guarantee, Guarantee)
        assert 0.0 <= guarantee.epsilon_lower <= guarantee.epsilon_upper <= guarantee.epsilon0
        assert math.isfinite(guarantee.epsilon_upper)
        assert 0.0 < guarantee.delta < 1.0
        assert guarantee.relation == "replace-one"
        assert guarantee.method
        assert guarantee.assumptions

    def test_the_honest_are_counted_down(self) -> None:
        """Planted: a count that is rounded to the nearest -> 999 of 1999 become 1000."""
        guarantee = self.make(1_999, Fraction(1, 2))
        assert (guarantee.n, guarantee.n_honest) == (1_999, 999)
        assert guarantee.honest_fraction == Fraction(1, 2)

    def test_fewer_honest_ones_promise_no_more(self) -> None:
        """Planted: all n taken for honest -> both are equal."""
        assert (
            self.make(self.N, Fraction(1, 2)).epsilon_upper
            > self.make(self.N, Fraction(1)).epsilon_upper
        )

    def test_together_parties_know_no_less(self) -> None:
        """Planted: ``remaining`` with its two numbers exchanged -> refused, or this fails."""
        guarantee = self.make(self.N)
        remaining = guarantee.remaining
        assert guarantee.epsilon_upper <= remaining.analyzer <= remaining.together
        assert remaining.together <= guarantee.epsilon0

    def test_json_has_no_infinity_and_keeps_the_bounds(self) -> None:
        """Planted: math.inf written as it is -> ``json`` refuses."""
        guarantee = self.make(self.N)
        value = json.loads(json.dumps(guarantee.to_json(), allow_nan=False))
        assert value["epsilon_upper"] == guarantee.epsilon_upper
        assert value["epsilon_lower"] == guarantee.epsilon_lower
        assert value["delta"] == guarantee.delta
        assert value["assumptions"] == list(guarantee.assumptions)
        finite = math.isfinite(guarantee.epsilon0)
        assert value["epsilon0"] == (guarantee.epsilon0 if finite else None)


@pytest.mark.parametrize("pair", [(2.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, math.nan)])
def test_remaining_is_ordered(pair: tuple[float, float]) -> None:
    """Planted: no look at the order -> nothing is raised."""
    with pytest.raises(ShoalError) as refused:
        Remaining(*pair)
    assert refused.value.kind is Kind.INVALID

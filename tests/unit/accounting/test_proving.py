"""A yes or no at one epsilon: fewer routes are asked than for a bound, and they prove as much."""

from __future__ import annotations

import pytest

from shoal.accounting.accountant import proves, upper_bound
from shoal.accounting.numerics import cells, multinomial
from shoal.accounting.numerics.cells import CellSum, blanket_sums, likely_worst
from shoal.accounting.numerics.curve import DEFAULT_EFFORT, Direction
from shoal.accounting.numerics.multinomial import sum_curve, sum_proves, sum_refutes
from shoal.accounting.routes import proving_routes, routes
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, PureLaw, SymmetricLaw
from tests.cases import for_each
from tests.unit.accounting.numerics.test_convex_order import tables

DELTA = 1e-6
LAWS: dict[str, LocalPrivacy] = {
    "two values": KaryLaw(2, same=9, other=1),
    "five values": KaryLaw(5, same=60, other=3),
    "a table": FiniteLaw(((8, 3, 1), (2, 8, 2), (1, 3, 8))),
    "two outputs": FiniteLaw(((8, 2), (5, 5), (1, 9))),
    "symmetric": SymmetricLaw(one=(6, 2, 4), two=(2, 6, 4), least=(2, 2, 4), third=(4, 4, 4)),
    "steep": KaryLaw(3, same=10**8, other=1),
    "by its ratio": PureLaw(KaryLaw(2, same=9, other=1).max_ratio),
}


@for_each("name", list(LAWS))
@for_each("n", [40, 3_000])
def test_what_a_bound_proves_is_proven(name: str, n: int) -> None:
    """A hair above the bound that is the least of *all* routes, and not a hair below it.

    Planted: no exact route for two values, no clones where there is no blanket, no blanket for
    tables -> each fails.
    """
    law = LAWS[name]
    bound, _ = upper_bound(law, n, DELTA)
    assert proves(law, n, DELTA, bound * 1.001)
    assert not proves(law, n, DELTA, bound * 0.99)


@for_each("name", list(LAWS))
def test_no_route_of_its_own(name: str) -> None:
    """Whatever is proven is proven by a route that bounds, too.

    Planted: a route that proves everything -> it is none of them.
    """
    law = LAWS[name]
    known = {route.method for route in routes(law, 500)}
    asked = list(proving_routes(law, 500))
    assert asked
    assert {route.method for route in asked} <= known
    epsilon = upper_bound(law, 500, DELTA)[0] * 0.5
    assert not any(route.proves(DELTA, epsilon, DEFAULT_EFFORT) for route in asked)


def _largest(law: FiniteLaw | KaryLaw, n: int, epsilon: float) -> tuple[CellSum, float]:
    """The sum of the largest upper curve at epsilon, and its value."""
    values = [
        (sum_curve(each, Direction.UPPER, DELTA, epsilon).delta(epsilon), each)
        for each in blanket_sums(law, n)
    ]
    value, largest = max(values, key=lambda pair: pair[0])
    return largest, value


@for_each("name", ["five values", "a table", "two outputs"])
@for_each("n", [3, 40, 20_000])
def test_a_rough_look_decides_what_a_full_one_does(name: str, n: int) -> None:
    """On both sides of the full value: near it, where a rough bound says nothing, and far from it.

    Planted: a rough upper bound above delta taken for a no -> no at 1e-5 above; a rough lower bound
    at most delta taken for a yes -> yes at 1e-5 below.
    """
    law = LAWS[name]
    assert isinstance(law, FiniteLaw | KaryLaw)
    epsilon = upper_bound(law, n, DELTA)[0]
    one, value = _largest(law, n, epsilon)
    for share in (1e-5, 0.02, 0.9):
        assert sum_proves(one, value * (1.0 + share), epsilon)
        assert not sum_proves(one, value * (1.0 - share), epsilon)
        assert not sum_refutes(one, value * (1.0 + share), epsilon)


def test_far_from_a_target_nothing_is_computed_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no rough look -> the full curve is asked for."""
    law = KaryLaw(5, same=60, other=3)
    one, value = _largest(law, 20_000, 0.3)

    def full(*_: object) -> None:
        raise AssertionError("computed in full")

    monkeypatch.setattr(multinomial, "sum_curve", full)
    assert sum_proves(one, value * 1.1, 0.3)
    assert not sum_proves(one, value * 0.9, 0.3)


def test_the_likely_worst_pair_says_no_and_never_yes() -> None:
    """A no of one pair is the no of all; a yes is that of every pair.

    Planted: proven where the likely worst is -> proven below the bound of tables whose worst pair
    is another; the pair of the least variance -> it says no to few.
    """
    n, refuted, others = 2_000, 0, 0
    laws = tables("proofs of tables", 12, 4, 5, 40)
    for law in laws:
        bound = upper_bound(law, n, DELTA)[0]
        worst = likely_worst(law, n, bound)
        assert worst is not None
        refuted += sum_refutes(worst, DELTA, bound * 0.9)
        others += worst != _largest(law, n, bound)[0]
        assert proves(law, n, DELTA, bound * 1.0001)
        assert not proves(law, n, DELTA, bound * 0.9999)
    assert refuted >= len(laws) * 3 // 4
    assert others


def test_pairs_are_not_compared_for_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the worst pair not asked first -> the pairs are compared."""
    law = FiniteLaw(((8, 3, 1), (2, 8, 2), (1, 3, 8)))
    bound = upper_bound(law, 3_000, DELTA)[0]
    cells._blankets.cache_clear()

    def compared(*_: object) -> None:
        raise AssertionError("compared")

    monkeypatch.setattr(cells, "undominated", compared)
    assert not proves(law, 3_000, DELTA, bound * 0.8)


@for_each("bits", [513, 1_100])
def test_weights_beyond_floats_are_no_trouble(bits: int) -> None:
    """Of a table of somebody's own: no mechanism has such. Planted: squares of weights themselves
    -> OverflowError.
    """
    m = 2**bits
    rows = ((5 * m, 3 * m, 2 * m), (2 * m + 1, 5 * m - 1, 3 * m), (3 * m, 2 * m, 5 * m))
    small = FiniteLaw(((5, 3, 2), (2, 5, 3), (3, 2, 5)))
    if bits == 513:
        assert proves(FiniteLaw(rows), 1_000, DELTA, 0.3) == proves(small, 1_000, DELTA, 0.3)
    assert likely_worst(FiniteLaw(rows), 1_000, 0.3) is not None

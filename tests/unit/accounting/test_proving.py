"""A yes or no at one epsilon: fewer routes are asked than for a bound, and they prove as much."""

from __future__ import annotations

from shoal.accounting.accountant import proves, upper_bound
from shoal.accounting.numerics.curve import DEFAULT_EFFORT
from shoal.accounting.routes import proving_routes, routes
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, PureLaw, SymmetricLaw
from tests.cases import for_each

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

"""A domain of so many cells that a registered mechanism serves: for commands about a mechanism
alone, without a question.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shoal.accounting.several_messages.of_domain import serves as serves_several
from shoal.domain import Categories, Domain, Numeric, Places, YesNo
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms import serves
from shoal.mechanisms.several.names import BLOCKS, MARGINALS

_KM = 9_000  # microdegrees, about


def domain_of(name: str, k: int | None) -> Domain:
    """The domain of k cells that the mechanism serves: yes/no, categories, numbers, or places on a
    map of cells of a kilometre. Raises CONFIG naming --k.
    """
    if serves(name, YesNo()) and k in (None, 2) and (k == 2 or not serves(name, _categories(3))):
        return YesNo()
    kinds: tuple[tuple[int, Callable[[int], Domain]], ...] = (
        (3, _categories),
        (3, _numbers),
        (3, _map),
    )
    fits = [(fewest, make) for fewest, make in kinds if serves(name, make(fewest))]
    if not fits:
        raise ShoalError(Kind.CONFIG, f"{name} takes no --k: leave it out, or use krr")
    fewest, make = fits[0]
    least = 2 if serves(name, YesNo()) else fewest
    if k is None or not least <= k <= LIMITS.cells:
        raise ShoalError(
            Kind.CONFIG,
            f"{name} wants --k, the number of cells: a whole number from {least} to {LIMITS.cells}",
        )
    return make(k)


def _categories(k: int) -> Domain:
    return Categories(tuple(f"c{i}" for i in range(k - 1)))


def _numbers(k: int) -> Domain:
    return Numeric(0.0, float(k - 2), k - 1)


def _map(k: int) -> Domain:
    """k - 1 cells of 1.001 km each way at the equator, in as many rows as columns or fewer, the
    nearest that there are; and elsewhere.
    """
    rows = next(rows for rows in range(math.isqrt(k - 1), 0, -1) if (k - 1) % rows == 0)
    columns = (k - 1) // rows
    return Places(0, 0, rows * _KM, columns * _KM, rows, columns)


def domain_of_several(name: str, k: int | None) -> Domain:
    """The domain of k cells that a mechanism of several messages serves: categories, yes/no or
    numbers from 0 to 1. Raises CONFIG naming --k.
    """
    if name == MARGINALS:
        raise ShoalError(
            Kind.CONFIG,
            f"{name} answers several attributes together, which no --k describes: shoal tables "
            "plan has its epsilon",
        )
    if name == BLOCKS:
        raise ShoalError(
            Kind.CONFIG,
            f"{name} answers for the rows and columns of a map, which no --k describes: shoal "
            "places plan has its epsilon",
        )
    yes_or_no = serves_several(name, YesNo())
    if k == 2 and yes_or_no:
        return YesNo()
    make = next((make for make in (_categories, _unit) if serves_several(name, make(3))), None)
    if make is None:
        if k is None:
            return YesNo()
        raise ShoalError(Kind.CONFIG, f"{name} is about yes or no: leave --k out, or give 2")
    least = 2 if yes_or_no else 3
    if k is None or not least <= k <= LIMITS.cells:
        raise ShoalError(
            Kind.CONFIG,
            f"{name} wants --k, the number of cells, that of no answer included: a whole number "
            f"from {least} to {LIMITS.cells}",
        )
    return make(k)


def _unit(k: int) -> Domain:
    return Numeric(0.0, 1.0, k - 1)

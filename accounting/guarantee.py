"""What a task may promise before collection, and what several releases add up to."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn, Protocol

from shoal.accounting.accountant import certify
from shoal.accounting.certificate import Certificate
from shoal.errors import Kind, ShoalError
from shoal.privacy import LocalPrivacy


def guaranteed(privacy: LocalPrivacy, min_batch: int, honest_fraction: Fraction | float, delta: float) -> Certificate:
    """The certificate that holds for every batch a task can release: that of its smallest, floor(honest_fraction * min_batch).

    Fixed before collection: reports that an adversary adds cannot improve it, and a larger batch can only be better.
    Raises ShoalError CONFIG for bad numbers.
    """
    return certify(privacy, min_batch, delta, honest_fraction=honest_fraction)


@dataclass(frozen=True, slots=True)
class Composed:
    """What ``count`` releases about the same devices give away together: (epsilon_upper, delta), replace-one in all of them.

    Upper bounds only. There is no lower bound here: at the summed delta each single release may be better than at its own.
    """

    epsilon_upper: float
    delta: float
    count: int


class Cost(Protocol):
    """What composition needs to know of a release: a ``Certificate``, or a record of one."""

    @property
    def epsilon_upper(self) -> float: ...

    @property
    def delta(self) -> float: ...


def compose_basic(certificates: Iterable[Cost], *, memoized: bool = False) -> Composed:
    """Sequential composition: epsilons and deltas add (Dwork, Roth 2014, Theorem 3.16; adaptive choices allowed).

    Direction: upper bounds; both sums are rounded up. Never above the sum of the epsilon0's, since every summand is clipped.
    Raises ShoalError CONFIG without certificates, if the deltas add up to 1 or more, and for ``memoized`` answers: a device
    that repeats one permanent report shows, between a batch with it and one without, that very report, so the sum over
    batches bounds nothing; what holds is the epsilon0 of the permanent report.
    """
    parts = list(certificates)
    if memoized:
        refuse_memoized()
    if not parts:
        raise ShoalError(Kind.CONFIG, "nothing to compose: give at least one certificate")
    delta = _sum_up(part.delta for part in parts)
    if delta >= 1.0:
        raise ShoalError(Kind.CONFIG, f"the deltas add up to {delta:g}, which promises nothing: certify each release at a smaller delta")
    return Composed(epsilon_upper=_sum_up(part.epsilon_upper for part in parts), delta=delta, count=len(parts))


def refuse_memoized() -> NoReturn:
    """The error of every composition that is asked to compose memoized answers: ShoalError CONFIG."""
    raise ShoalError(
        Kind.CONFIG,
        "memoized answers do not compose over windows: the joint guarantee is epsilon0 of the permanent report; "
        "draw fresh noise in every window, or account with epsilon0",
    )


def _sum_up(values: Iterable[float]) -> float:
    """The sum, correctly rounded and then, unless it was exact, moved up by one unit."""
    numbers = list(values)
    total = math.fsum(numbers)
    exact = sum((Fraction(number) for number in numbers), Fraction(0))
    return total if Fraction(total) >= exact else math.nextafter(total, math.inf)

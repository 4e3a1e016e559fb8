"""A candidate's curve: what its figures are off by, against the epsilon that is proven for it.

The curve is walked along epsilon0, on a grid that is always the same: each point is a mechanism
with its integers, its error and its bound, found without any search. So many questions share the
points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from shoal.accounting.accountant import simplest, upper_bound
from shoal.accounting.numerics.curve import QUICK_EFFORT
from shoal.analyzer.planner.accuracy.central import Z95
from shoal.analyzer.planner.candidates import Candidate
from shoal.analyzer.planner.predict import ranked
from shoal.analyzer.planner.question import Request
from shoal.errors import ShoalError

_GRID = tuple(2.0 ** (i / 2.0) for i in range(-8, 5)) + tuple(4.5 + 0.5 * i for i in range(24))
_BELOW, _ABOVE = 0.22, 4.0
_LARGEST = 20.0  # no curve is of interest beyond such an epsilon


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """``epsilon``: proven. ``error``: half of the 95 % interval, in the question's unit."""

    epsilon: float
    error: float


@dataclass(frozen=True, slots=True)
class ErrorCurve:
    """Of ``title``, epsilon ascending."""

    title: str
    points: tuple[CurvePoint, ...]


def curves_of(
    request: Request, candidate: Candidate, epsilon0: float, most: int
) -> Iterator[ErrorCurve]:
    """The curve with one point more each time: ``most`` about the one at ``epsilon0``, evenly over
    the grid. Those that err more than one of a smaller epsilon are left out.
    """
    high = min(epsilon0 + _ABOVE, request.most_epsilon0)
    near = [each for each in _GRID if epsilon0 * _BELOW <= each <= high]
    thinned = near[:: max(1, -(-len(near) // (most - 1)))]
    found: list[CurvePoint] = []
    for point in _points(request, candidate, (epsilon0, *thinned)):
        found.append(point)
        points: list[CurvePoint] = []
        for each in sorted(found, key=lambda one: (one.epsilon, one.error)):
            if not points or each.error < points[-1].error:
                points.append(each)
        yield ErrorCurve(candidate.title, tuple(points))


def _points(
    request: Request, candidate: Candidate, epsilon0s: tuple[float, ...]
) -> Iterator[CurvePoint]:
    for at in epsilon0s:
        try:
            mechanism = candidate.build(at)
            error = ranked(request.question, mechanism, candidate.domain, request.n)
            epsilon = _bound(candidate, at, request.n_honest, request.delta)
        except ShoalError:
            continue
        if epsilon <= _LARGEST and error > 0.0:
            yield CurvePoint(epsilon, Z95 * error)


@lru_cache(maxsize=4096)
def _bound(candidate: Candidate, epsilon0: float, n_honest: int, delta: float) -> float:
    law = simplest(candidate.build(epsilon0).privacy())
    return upper_bound(law, n_honest, delta, QUICK_EFFORT)[0]

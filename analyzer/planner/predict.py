"""The errors that a mechanism will have, predicted from its integers: nothing is drawn.

Frequencies. A mechanism's ``expected_stderr`` is exact for devices that stand where they stand, over the coins alone. Shown: at the profile
(root of the mean over the cells of the squared errors), at a light cell that no device holds, and at a heavy one.

Means. Two coins are tossed: the value is rounded to a level beside it, and the level is randomized. With all n devices at a value x that
lies a share f of a step above the level below, the levels' mean moves by step^2 f (1 - f) / n, and given the levels the randomizer adds
``expected_stderr``^2, which is linear in the numbers of devices per level, so that n (1 - f) and n f of them are put in. The two add up:
given the levels the estimate is right on average (to first order, it is a ratio).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.analyzer.planner.question import Frequencies, Mean, Question, devices
from shoal.domain import Domain, Numeric
from shoal.mechanisms import Mechanism

# Where in a step the worst value is looked for, in the first steps and the last ones. In between the curve repeats itself, lower: what the
# randomizer adds is a parabola with its least value in the middle.
_PLACES = tuple(i / 8 for i in range(17))
_PARTS = 32


@dataclass(frozen=True, slots=True)
class Errors:
    """Predicted standard errors: of a count, in devices, or of a mean, in its unit.

    ``ranked``: what the plan goes by. ``light``, ``heavy``: of an empty cell and of one with the heavy share; of a mean at the worst
    value within half a step of the middle, and at the worst value of all. ``lost``: the share of a count that the randomizer thins out,
    in [0, 1). ``spread``: the share of the squared error that comes before the randomizer's noise on others (thinning of a count; rounding
    of a number), in [0, 1].
    """

    ranked: float
    light: float
    heavy: float
    lost: float
    spread: float


def predict(question: Question, mechanism: Mechanism, domain: Domain, n: int) -> Errors:
    """The errors of one estimate from ``n`` devices."""
    if isinstance(question, Frequencies):
        return _frequencies(question, mechanism, n)
    if not isinstance(domain, Numeric):
        raise TypeError("a mean is asked over a numeric domain")
    return _mean(question, mechanism, domain, n)


def ranked(question: Question, mechanism: Mechanism, domain: Domain, n: int) -> float:
    """``predict(...).ranked`` alone."""
    if isinstance(question, Frequencies):
        return _rms(mechanism.expected_stderr(profile(question, n)))
    if not isinstance(domain, Numeric):
        raise TypeError("a mean is asked over a numeric domain")
    return math.sqrt(_ranked_mean(question, mechanism, domain, n)[0])


def profile(question: Frequencies, n: int) -> NDArray[np.int64]:
    """int64[cells]: how many of ``n`` devices hold each cell when errors are ranked."""
    size = question.domain.size
    return devices(question.shares or (1.0 / size,) * size, n)


def _rms(errors: NDArray[np.float64]) -> float:
    return math.sqrt(float(np.mean(errors**2)))


def _frequencies(question: Frequencies, mechanism: Mechanism, n: int) -> Errors:
    size = question.domain.size
    counts = profile(question, n)
    errors = mechanism.expected_stderr(counts)
    light, heavy = (
        float(mechanism.expected_stderr(devices((share, *((1.0 - share) / (size - 1),) * (size - 1)), n))[0])
        for share in (0.0, question.heavy)
    )
    # In a support estimator a device adds (1 - p) / p or so to the variance of its own cell: its answer is kept with probability p.
    slope = max(0.0, heavy**2 - light**2) / (n * question.heavy)
    total = float(np.mean(errors**2))
    own = slope * float(np.mean(counts))
    return Errors(math.sqrt(total), light, heavy, slope / (1.0 + slope), min(1.0, own / total) if total > 0.0 else 0.0)


def _mean(question: Mean, mechanism: Mechanism, domain: Numeric, n: int) -> Errors:
    total, rounding = _ranked_mean(question, mechanism, domain, n)
    middle = sum(_near(mechanism, domain, n, (domain.levels - 1) / 2))
    worst = sum(_worst(mechanism, domain, n))
    return Errors(math.sqrt(total), math.sqrt(middle), math.sqrt(worst), 0.0, rounding / total if total > 0.0 else 0.0)


def _ranked_mean(question: Mean, mechanism: Mechanism, domain: Numeric, n: int) -> tuple[float, float]:
    """(squared error, the part of it that is rounding) at the values that the question ranks at."""
    if question.value is not None:
        rounding, noise = _near(mechanism, domain, n, place(domain, question.value))
    elif question.worst:
        rounding, noise = _worst(mechanism, domain, n)
    else:
        rounding, noise = _everywhere(mechanism, domain, n)
    return rounding + noise, rounding


def _everywhere(mechanism: Mechanism, domain: Numeric, n: int) -> tuple[float, float]:
    """(squared rounding, squared noise), the value being equally likely anywhere in the range. The average of f (1 - f) is 1 / 6, and the
    noise is smooth enough for the midpoints of a few parts of the range."""
    top = domain.levels - 1
    noise = [_at(mechanism, domain, n, (i + 0.5) * top / _PARTS)[1] for i in range(_PARTS)]
    return domain.step**2 / (6.0 * n), math.fsum(noise) / _PARTS


def _near(mechanism: Mechanism, domain: Numeric, n: int, at: float) -> tuple[float, float]:
    """(squared rounding, squared noise) at the worst value within half a step. A value that happens to be a level would flatter the levels
    that happen to contain it: real values lie beside."""
    top = float(domain.levels - 1)
    return max((_at(mechanism, domain, n, min(max(at + i / 8, 0.0), top)) for i in range(-4, 5)), key=sum)


def at_value(mechanism: Mechanism, domain: Numeric, n: int, value: float) -> float:
    """The standard error of the mean with all ``n`` devices at exactly this value of the range."""
    return math.sqrt(sum(_at(mechanism, domain, n, place(domain, value))))


def _worst(mechanism: Mechanism, domain: Numeric, n: int) -> tuple[float, float]:
    """(squared rounding, squared noise) at the worst value."""
    return max((_at(mechanism, domain, n, at) for at in places(domain)), key=sum)


def places(domain: Numeric) -> Iterator[float]:
    """Places, in steps above low, among which the worst value is looked for."""
    top = domain.levels - 1
    for at in _PLACES:
        yield min(at, top)
        yield max(top - at, 0)


def place(domain: Numeric, value: float) -> float:
    """Where a value of the range lies, in steps above low."""
    return min(max((value - domain.low) / domain.step, 0.0), float(domain.levels - 1))


def _at(mechanism: Mechanism, domain: Numeric, n: int, at: float) -> tuple[float, float]:
    """(squared rounding, squared noise) with all ``n`` devices ``at`` so many steps above low."""
    below = min(int(at), domain.levels - 2)
    up = at - below
    counts = np.zeros(domain.size, dtype=np.int64)
    counts[below + 1] = round(n * up)
    counts[below] = n - counts[below + 1]
    return domain.step**2 * up * (1.0 - up) / n, float(mechanism.expected_stderr(counts)[0]) ** 2

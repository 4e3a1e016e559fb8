"""From neighbours to groups: the divergence of two datasets that differ in several devices, from
the curve of those that differ in one.

**Statement.** Let H(a; P, Q) = sum (P - e^a Q)_+. For all laws P, Q, R and all a, b

    H(a + b; P, R)  <=  H(a; P, Q) + e^a H(b; Q, R),

since P - e^(a + b) R = (P - e^a Q) + e^a (Q - e^b R), and (x + y)_+ <= x_+ + y_+. Replace the
devices of a group one after another: g + 1 datasets, each a neighbour of the next. With f a curve
that bounds every pair of neighbours in both directions, and a_1 + ... + a_g <= epsilon,

    delta_g(epsilon)  <=  f(a_1) + e^(a_1) f(a_2) + ... + e^(a_1 + ... + a_(g-1)) f(a_g).

Equal parts give the textbook's g epsilon (Dwork, Roth 2014, Theorem 2.2; ``basic.group``). Here the
parts are chosen: later links weigh more, so they get more of epsilon, and the whole curve is used.
Nothing is asked of the protocol, of the others' answers or of the group's. Where one event is the
best test of every link, both sides are equal at the right parts: nothing is lost then.

**How it is found.** Parts are whole multiples of a step. F_1 = f on these, and

    F_(i + j)(s) = min over r of F_i(r) + e^r F_j(s - r),

by doubling. Any choice of parts is sound: a coarse step costs tightness alone.

*Numbers.* The step is a power of two, so sums of parts are exact. Terms are positive; each level is
raised by 1e-14, which covers an exponential, a product and a sum. f may be bumpy by rounding: what
it was at a smaller epsilon holds at a larger one too.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shoal.accounting.numerics.binomial import Floats
from shoal.arrays import np
from shoal.errors import Kind, ShoalError

LARGEST_GROUP = 1000
"""Devices of one person at most."""
LARGEST_CHAIN = 600.0
"""No epsilon of a group above this is looked for: e^epsilon has to be a float."""
_STEPS = 1024
_LEVEL = 1.0 + 1e-14


def check_devices(devices: int) -> int:
    """devices itself, if it is an int from 1 to 1000; ShoalError CONFIG otherwise."""
    if isinstance(devices, bool) or not isinstance(devices, int):
        good = False
    else:
        good = 1 <= devices <= LARGEST_GROUP
    if not good:
        raise ShoalError(
            Kind.CONFIG,
            f"a group has 1 to {LARGEST_GROUP} devices, got {devices}: give the number of one "
            "person's devices",
        )
    return devices


def chained(curve: Callable[[float], float], devices: int, delta: float, one: float) -> float:
    """The epsilon at ``delta`` of ``devices`` >= 1 replaced together; math.inf where none up to 600
    is proven. Direction: UPPER, to about 0.2 %.

    ``curve(epsilon)``, for epsilon >= 0, bounds every pair of neighbours in both directions.
    ``one``: its epsilon at ``delta``, about; it says where to look, and soundness does not depend
    on it. Raises CONFIG for a number of devices out of range, INVALID for a curve that gives NaN.
    """
    check_devices(devices)
    reach = max(one, 1e-9) * devices * 1.25
    while reach <= 2.0 * LARGEST_CHAIN:
        step = math.ldexp(1.0, math.floor(math.log2(min(reach, LARGEST_CHAIN) / _STEPS)))
        found = np.flatnonzero(_group(_table(curve, devices, step), devices, step) <= delta)
        if len(found):
            return float(found[0]) * step
        reach *= 2.0
    return math.inf


def _table(curve: Callable[[float], float], devices: int, step: float) -> Floats:
    """float64[2 steps]: f at multiples of ``step``, never rising. One part is rarely four times the
    mean one: beyond that the last value stands for all.
    """
    size = 2 * _STEPS
    looked_at = min(size, 4 * size // devices + 64)
    values = np.full(size, 1.0)
    for k in range(looked_at):
        value = curve(k * step)
        if math.isnan(value) or value < 0.0:
            raise ShoalError(
                Kind.INVALID,
                f"a curve gave {value} at epsilon {k * step:g}: nothing is proven by it",
            )
        values[k] = min(value, 1.0)
        if value == 0.0:
            values[k:] = 0.0
            break
    return np.minimum.accumulate(values)


def _group(one: Floats, devices: int, step: float) -> Floats:
    """F of so many devices, by their binary digits."""
    total: Floats | None = None
    power = one
    while True:
        if devices & 1:
            total = power if total is None else linked(total, power, step)
        devices >>= 1
        if not devices:
            assert total is not None  # noqa: S101 - for type checkers: devices was at least 1
            return total
        power = linked(power, power, step)


def linked(first: Floats, second: Floats, step: float) -> Floats:
    """F_(i + j) of the module's text, float64 of the same length: of two chains after one another.
    Direction: UPPER.
    """
    size = len(first)
    out = np.ones(size)
    weights = np.exp(np.minimum(np.arange(size) * step, LARGEST_CHAIN))
    for r in range(size):
        if r * step > LARGEST_CHAIN:
            break
        np.minimum(out[r:], (first[r] + weights[r] * second[: size - r]) * _LEVEL, out=out[r:])
    return out

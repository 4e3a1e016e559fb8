"""What the sums of several windows of one task give away together, of devices that answer in all
of them.

Every window has fresh noise, and its question may depend on what the windows before gave: a model
that is trained asks for gradients at where it stands. The bounds compose whatever is asked, as long
as every vector is within the task's bounds.

* Skellam noise: Renyi divergences of one order add (``skellam``), so that k windows cost about
  sqrt(k) times the epsilon of one, where a sum of epsilons costs k times.
* Discrete Laplace noise: pure epsilons add.

*Direction.* Upper bounds, rounded up. What is left out is tightness: the conversion of a Renyi
divergence costs some 6 to 14 % of epsilon against the law itself (docs/ACCOUNTING.md), once for all
windows together. Nothing is claimed for windows in which a device happens not to be: who takes part
is no secret here.

*Checked* against every output of two windows, the second of which is asked by the worst rule that
looks at the first (tests/unit/accounting/sums/test_windows.py).
"""

from __future__ import annotations

import math
from fractions import Fraction

from shoal.accounting.certificate import check_delta
from shoal.accounting.sums.laplace_sum import laplace_epsilon
from shoal.accounting.sums.pairwise import (
    LAPLACE,
    SKELLAM,
    Bounds,
    Shift,
    certify_sum,
    check_windows,
)
from shoal.accounting.sums.skellam import round_up, skellam_epsilon
from shoal.accounting.sums.sum_task import check_sum
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.quantize import bounds
from shoal.secagg import Mode
from shoal.task import MechanismSpec, Task


def epsilon_of_windows(
    spec: MechanismSpec,
    of_device: Bounds,
    dimension: int,
    *,
    honest: int,
    windows: int,
    delta: float,
) -> float:
    """The epsilon at ``delta`` of the sums of ``windows`` windows together. Direction: upper bound,
    rounded up.

    ``spec``: the noise of every window. ``of_device``: bounds of one device's vector in a window,
    in grid steps. ``honest`` >= 1: shares of the noise that every sum has for certain. ``delta`` in
    [1e-100, 1): of all windows together; discrete Laplace noise leaves it unused. Raises INVALID
    for another noise or numbers below 1, CONFIG for a bad delta.
    """
    check_delta(delta)
    check_windows(windows)
    shift, shares = Shift.of(of_device, dimension), spec.get("shares")
    if honest < 1 or shares < 1:
        raise ShoalError(
            Kind.INVALID, "no noise is certain without an honest device: raise honest or shares"
        )
    have = Fraction(honest, shares)
    if spec.name == SKELLAM:
        variance = spec.get("variance") * have
        return skellam_epsilon(variance, shift.l1, shift.l2_squared, delta, windows)
    if spec.name == LAPLACE:
        return laplace_epsilon(spec.get("scale"), have, shift.l1, dimension, windows)
    raise ShoalError(
        Kind.INVALID, f"no sum is certified with noise {spec.name}: choose {SKELLAM} or {LAPLACE}"
    )


def epsilon_of_task(task: Task, windows: int, delta: float) -> float:
    """``epsilon_of_windows`` of so many windows of a task that is summed by secure aggregation, at
    the honest survivors that it guarantees. Direction: upper bound.

    The smaller of it and the sum of the windows' own certificates, each at delta / windows. Raises
    as ``check_sum`` does.
    """
    certificate = check_sum(task)
    check_windows(windows)
    limits = bounds(task.domain)  # type: ignore[arg-type]  # check_sum takes vectors alone
    dimension = task.domain.size
    together = epsilon_of_windows(
        task.mechanism, limits, dimension, honest=certificate.honest, windows=windows, delta=delta
    )
    each = certify_sum(
        task.mechanism,
        limits,
        dimension,
        survivors=certificate.survivors,
        honest_fraction=certificate.honest_fraction,
        delta=delta if windows == 1 else math.nextafter(delta / windows, 0.0),
        mode=Mode.DEFAULT,  # whoever is meant: the upper end is the same
    )
    return min(together, round_up(windows * Fraction(each.epsilon_upper)))

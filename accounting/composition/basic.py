"""What several releases add up to, from their (epsilon, delta) alone, and what several reports of
one device do.

All of it errs upward: sums and products are rounded up, and every (epsilon, delta) that goes in is
an upper bound already. Replace-one throughout, about the same devices in every release.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn, Protocol

from shoal.accounting.accountant import certify
from shoal.accounting.certificate import check_delta
from shoal.errors import Kind, ShoalError
from shoal.privacy import LocalPrivacy, PureLaw

_UNIT = 2.0**-53
# Beyond this e^epsilon leaves the floats; no delta that could be certified survives it.
_LARGEST_GROUP_EPSILON = 600.0


@dataclass(frozen=True, slots=True)
class Composed:
    """What ``count`` releases about the same devices give away together: (epsilon_upper, delta),
    replace-one in all of them.

    Upper bounds only. There is no lower bound here: at the summed delta each single release may be
    better than at its own.
    """

    epsilon_upper: float
    delta: float
    count: int


class Cost(Protocol):
    """What composition needs to know of a release: a ``Guarantee``, or a record of one."""

    @property
    def epsilon_upper(self) -> float:
        """What the release may cost at ``delta``. Direction: upper bound, at least 0."""
        ...

    @property
    def delta(self) -> float:
        """The delta at which ``epsilon_upper`` was proven, in [1e-100, 1)."""
        ...


def compose_basic(certificates: Iterable[Cost], *, memoized: bool = False) -> Composed:
    """Sequential composition: epsilons and deltas add (Dwork, Roth 2014, Theorem 3.16; adaptive
    choices allowed).

    Direction: upper bounds; both sums are rounded up. Never above the sum of the epsilon0's, since
    every summand is clipped. Raises ShoalError CONFIG without certificates, if the deltas add up to
    1 or more, and for ``memoized`` answers: a device that repeats one permanent report shows,
    between a batch with it and one without, that very report, so the sum over batches bounds
    nothing; what holds is the epsilon0 of the permanent report.
    """
    parts = list(certificates)
    if memoized:
        refuse_memoized()
    if not parts:
        raise ShoalError(Kind.CONFIG, "nothing to compose: give at least one certificate")
    delta = _sum_up(part.delta for part in parts)
    if delta >= 1.0:
        raise ShoalError(
            Kind.CONFIG,
            f"the deltas add up to {delta:g}, which promises nothing: certify each release at a "
            "smaller delta",
        )
    return Composed(
        epsilon_upper=_sum_up(part.epsilon_upper for part in parts), delta=delta, count=len(parts)
    )


def compose_parallel(certificates: Iterable[Cost]) -> Composed:
    """Releases about *disjoint* sets of devices: the largest epsilon and the largest delta.
    Direction: upper bounds, nothing is rounded.

    Holds when which device belongs to which release is public and fixed beforehand, not chosen by
    any answer. Then neighbouring datasets (replace-one) differ inside one release only, all others
    have the same law under both, and are independent of it: the joint divergence is that release's.
    A device that may report to two of them, or moves between them by its answer, needs
    ``compose_basic``. Raises ShoalError CONFIG without certificates.
    """
    parts = list(certificates)
    if not parts:
        raise ShoalError(Kind.CONFIG, "nothing to compose: give at least one certificate")
    return Composed(
        max(part.epsilon_upper for part in parts), max(part.delta for part in parts), len(parts)
    )


def group(epsilon: float, delta: float, reports: int) -> tuple[float, float]:
    """What ``reports`` >= 1 reports of one device in one batch are worth, each of them certified at
    (epsilon, delta). Direction: UPPER.

    (r epsilon, delta (e^(r epsilon) - 1) / (e^epsilon - 1)). Proof: replace the r reports one after
    another; with V_0, ..., V_r the views, V_0(S) <= e^epsilon V_1(S) + delta <= e^(2 epsilon)
    V_2(S) + delta (1 + e^epsilon) <= ... (Dwork, Roth 2014, Theorem 2.2, with delta carried along).
    Each step is between datasets that differ in one *report*, which is what the certificate is
    about. Raises ShoalError CONFIG if reports < 1 or the resulting delta is 1 or more, which
    promises nothing.
    """
    check_delta(delta)
    _check_reports(reports)
    if not 0.0 <= epsilon < math.inf:
        raise ShoalError(
            Kind.CONFIG,
            f"epsilon must be a finite number of at least 0, got {epsilon}: give a certificate's",
        )
    if reports == 1:
        return epsilon, delta
    # A rounded r epsilon moves e^(r epsilon) by r epsilon units.
    units = 8 + math.ceil(min(epsilon * reports, _LARGEST_GROUP_EPSILON))
    total = (
        _up(delta * _geometric(epsilon, reports), units)
        if epsilon * reports < _LARGEST_GROUP_EPSILON
        else math.inf
    )
    if total >= 1.0:
        raise ShoalError(
            Kind.CONFIG,
            f"{reports} reports together have a delta of 1 or more, which promises nothing: "
            "certify each at a smaller delta",
        )
    return _up(epsilon * reports), total


def per_report(epsilon: float, delta: float, reports: int) -> tuple[float, float]:
    """The inverse of ``group``: the (epsilon, delta) each of ``reports`` must have so that all have
    (epsilon, delta). Rounded down.

    Raises ShoalError CONFIG for numbers out of range, or if the delta of one report comes out below
    1e-100.
    """
    check_delta(delta)
    _check_reports(reports)
    if not 0.0 <= epsilon < _LARGEST_GROUP_EPSILON:
        raise ShoalError(
            Kind.CONFIG,
            f"a target epsilon lies in [0, {_LARGEST_GROUP_EPSILON:g}), got {epsilon}: give what "
            "all reports may cost",
        )
    if reports == 1:
        return epsilon, delta
    each = epsilon / reports
    while _up(each * reports) > epsilon:
        each = math.nextafter(each, -math.inf)
    # Once for the sum here, once for that of ``group``.
    share = delta / _geometric(each, reports) * (1.0 - (32 + 4 * math.ceil(epsilon)) * _UNIT)
    return each, check_delta(share)


def bundled(privacy: LocalPrivacy, n_honest: int, reports: int, delta: float) -> float:
    """The epsilon of all ``reports`` of one device among ``n_honest`` reports, from one certificate
    for r-tuples. Direction: UPPER.

    r reports are one report of a randomizer with r inputs and local epsilon r epsilon0. Group the
    honest others' reports into r-tuples in any way that depends on no answer, and show the
    adversary the shuffled *tuples*: the shuffled reports are a function of them, so this only gives
    more away. Every tuple is drawn by one and the same randomizer (on its own r inputs), and there
    are floor(n_honest / r) with the device's own; what does not fill a tuple is shown openly. So
    the bound for one randomizer of ratio e^(r epsilon0) applies. It holds whether or not a device
    bundles its reports into one message, and however many reports the others send. Better than
    ``group`` at first where r epsilon0 is small; take the smaller of the two. ``n_honest`` counts
    reports, the device's r among them. Raises ShoalError CONFIG if reports < 1 or for a bad delta.
    """
    check_delta(delta)
    _check_reports(reports)
    return certify(
        PureLaw(privacy.max_ratio**reports), max(1, n_honest // reports), delta
    ).epsilon_upper


def _check_reports(reports: int) -> None:
    """Raises CONFIG unless ``reports`` is a whole number of at least 1."""
    if isinstance(reports, bool) or not isinstance(reports, int) or reports < 1:
        raise ShoalError(
            Kind.CONFIG,
            f"reports must be a whole number of at least 1, got {reports}: give the reports of one "
            "device per batch",
        )


def _geometric(epsilon: float, count: int) -> float:
    """1 + e^epsilon + ... + e^((count - 1) epsilon), to 4 + count epsilon units."""
    return (
        float(count)
        if epsilon * count < 1e-300
        else math.expm1(count * epsilon) / math.expm1(epsilon)
    )


def _up(value: float, units: int = 1) -> float:
    """``value`` >= 0, moved up by twice the rounding of ``units`` float operations."""
    return value if value == 0.0 else value * (1.0 + 2 * units * _UNIT)


def refuse_memoized() -> NoReturn:
    """The error of every composition that is asked to compose memoized answers: ShoalError
    CONFIG.
    """
    raise ShoalError(
        Kind.CONFIG,
        "memoized answers do not compose over windows: the joint guarantee is epsilon0 of the "
        "permanent report, for a value that does "
        "not change; draw fresh noise in every window, or account with epsilon0",
    )


def _sum_up(values: Iterable[float]) -> float:
    """The sum, correctly rounded and then, unless it was exact, moved up by one unit."""
    numbers = list(values)
    total = math.fsum(numbers)
    exact = sum((Fraction(number) for number in numbers), Fraction(0))
    return total if Fraction(total) >= exact else math.nextafter(total, math.inf)

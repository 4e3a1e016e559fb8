"""When a device measures and when it sends: pure functions of the clock, the plan and a source of
randomness.

A device answers every window of a task, whatever its value is and whether or not anything happened,
so that sending says nothing. The moment is drawn apart from the value, so the moment says nothing
either. All draws are exponential: what remains of an exponential wait is again exponential, so a
device that restarts draws anew and nobody can tell by its timing that it restarted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.task import WindowPlan

_MEAN_SHARE = 4  # the mean wait, if nobody set one: a quarter of the window
_MARGIN_SHARE = 4  # no more than this share of a window is kept free at its end
_READING_S = 1.0  # beyond the source's own time limit: to randomize and to write


@dataclass(frozen=True, slots=True)
class AnswerTime:
    """Measure for ``window`` at ``at_s`` (Unix seconds by this device's clock)."""

    window: int
    at_s: float


def exponential_before(mean_s: float, limit_s: float, entropy: Entropy) -> float:
    """Seconds in [0, limit_s): an exponential wait of mean ``mean_s``, given that it ends before
    ``limit_s``.

    By inversion: with u uniform on [0, 1), the wait is -mean * log(1 - u * (1 - e^(-limit/mean))),
    the inverse of the truncated law's distribution function (Devroye, Non-Uniform Random Variate
    Generation, 1986, II.2.1). u is a multiple of 2^-53 made of random bytes. 0 for a mean of 0.
    Raises INVALID unless 0 <= mean_s < inf and 0 < limit_s < inf.
    """
    if not (0.0 <= mean_s < math.inf and 0.0 < limit_s < math.inf):
        raise ShoalError(
            Kind.INVALID, "a wait has a finite mean of 0 or more and a finite limit above 0"
        )
    u = (int.from_bytes(entropy.bytes(8), "little") >> 11) / 2.0**53
    if mean_s < limit_s * 1e-300:  # also 0: the quotient below would leave the range of a float
        return 0.0
    before = -math.expm1(-limit_s / mean_s)
    return min(-mean_s * math.log1p(-u * before), math.nextafter(limit_s, 0.0))


def margin(plan: WindowPlan, timeout_s: float) -> float:
    """Seconds kept free at a window's end, so that a value whose reading takes up to ``timeout_s``
    still belongs to the window.
    """
    return min(timeout_s + _READING_S, plan.length_s / _MARGIN_SHARE)


def next_moment(
    plan: WindowPlan,
    now: float,
    mean_s: float | None,
    margin_s: float,
    answered: Callable[[int], bool],
    entropy: Entropy,
) -> AnswerTime | None:
    """The next measurement: in this window if there is room for it, else in the next one that is
    not answered; None: the plan is over.

    A window that is under way is entered at ``now``, a later one at its start; from there the wait
    is exponential with mean ``mean_s`` (None: a quarter of the window), given that it ends
    ``margin_s`` or more before the window does. A window with less than that left is skipped: that
    depends on when the device was switched on, never on a value. ``answered``: whether a window has
    its report.
    """
    mean = plan.length_s / _MEAN_SHARE if mean_s is None else mean_s
    for window in range(max(math.floor((now - plan.start_s) / plan.length_s), 0), plan.count):
        enter = max(now, float(plan.start_of(window)))
        room = plan.end_of(window) - margin_s - enter
        if room > 0.0 and not answered(window):
            return AnswerTime(window, enter + exponential_before(mean, room, entropy))
    return None


def first_send(
    now: float, last_s: float, mean_s: float, deadline_s: float, spare_s: float, entropy: Entropy
) -> float:
    """Unix seconds of a report's first attempt: an exponential gap after ``last_s``, the attempt
    scheduled before it, or after ``now``.

    ``deadline_s``: when the window takes no more reports. The gap, of mean ``mean_s`` seconds, is
    cut so that the attempt comes at least ``spare_s`` before that (or in the first half of what is
    left, if there is less). A queue that has half of that time given away counts from ``now``
    again: so each report of a queue of any length has its turn. A mean of 0 seconds: no gap.
    """
    limit = max(deadline_s - spare_s, now + (deadline_s - now) / 2.0)
    if limit <= now:
        return now  # too late by this clock: the shuffler's counts
    start = max(now, last_s)
    if start > now + (limit - now) / 2.0:
        # a long queue begins again: one cut gap after the other would pile up at the limit
        start = now
    return start + exponential_before(mean_s, limit - start, entropy)

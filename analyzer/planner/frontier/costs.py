"""What a line of a plan costs, and what one device can do to it: the same figures for mechanisms of
one message and of several, so that they can be compared.

**Radio.** A device and window: one call, and a frame. ``RADIO_CALL_SECONDS`` is for the call: a TCP
connection, TLS 1.3 and the answer are three round trips, of 0.15 s each on a cellular link of small
devices, during which the radio is on. ``RADIO_RATE`` is the rate of such a link, 100 kbit/s.
Both are round figures to compare lines by, measured nowhere here; on a fixed line all is less. What
the table tells is that a frame of 4,096 bytes costs little more than one of 512.

**The analyzer.** ``OPENING_SECONDS`` is the CPU of one core for a message, opened and tallied, as
docs/SCALING.md has it (benchmark ``opening``).

**One device that lies.** What it can move an estimate by is not bounded by privacy. A message that
claims a cell is weighed by 1 / (p - q): with probability p an honest one names its own cell, with q
another one. Of several messages ``moved_by_liar`` says it.
"""

from __future__ import annotations

import math

from shoal.analyzer.planner.predict import Errors
from shoal.analyzer.planner.question import Frequencies, Mean, Question, Sum
from shoal.mechanisms import Mechanism
from shoal.privacy import KaryLaw

RADIO_CALL_SECONDS = 0.45
RADIO_RATE = 12_500
OPENING_SECONDS = 47.7e-6


def radio_seconds(frame: int) -> float:
    """Of a device in one window, whose frame has so many bytes."""
    return RADIO_CALL_SECONDS + frame / RADIO_RATE


def analyzer_seconds(messages: float) -> float:
    """CPU of one core, to open and tally a batch of so many."""
    return OPENING_SECONDS * messages


def moved_by_one(question: Question, made: Mechanism, errors: Errors, n: int) -> float:
    """What a device that lies, of ``n``, moves one estimate by at most, about: a count, in devices,
    or a mean or sum, in its unit. nan where nothing simple says it.
    """
    law = made.privacy()
    if isinstance(question, Frequencies):
        return (
            _kary_weight(law) if isinstance(law, KaryLaw) else _weight_of(question, errors, n)
        ) * made.messages
    if not isinstance(question, Mean) or not isinstance(law, KaryLaw):
        return math.nan
    of_all = (question.high - question.low) * _kary_weight(law)
    return of_all if isinstance(question, Sum) else of_all / n


def _kary_weight(law: KaryLaw) -> float:
    return law.total / (law.same - law.other)


def _weight_of(question: Frequencies, errors: Errors, n: int) -> float:
    """w = 1 / (p - q) of an estimator of marks, from its two variances: q (1 - q) w^2 = a for a
    device elsewhere, p (1 - p) w^2 = b for one in the cell. With x = q w: w = x + a / x, and x^2 +
    (b - a + 1) x = a.
    """
    a = errors.light**2 / n
    slope = (errors.heavy**2 - errors.light**2) / (n * question.heavy)  # b - a
    root = math.sqrt((slope + 1.0) ** 2 + 4.0 * a)
    x = 2.0 * a / (slope + 1.0 + root) if slope + 1.0 > 0.0 else (root - slope - 1.0) / 2.0
    return x + a / x if x > 0.0 else slope + 1.0

"""What a central curator would err by with the same epsilon and delta: one that sees every device's
answer, and adds noise to the figures that it publishes. A line to compare with, and no promise.

One device's answer is replaced by another one. So a count of a yes/no question moves by 1, counts
of categories by 1 in two cells (2 in all, the square root of 2 as a distance), a sum by the width
of the range, and a mean by that over n.

- *Discrete Laplace noise* (Ghosh, Roughgarden, Sundararajan, "Universally Utility-Maximizing
  Privacy Mechanisms", STOC 2009), delta = 0: P(X = x) is in proportion to a^|x|, a = e^(-epsilon /
  shift). More than t off with probability 2 a^(t + 1) / (1 + a).
- *Gaussian noise*, of the least deviation for (epsilon, delta) by the exact condition of Balle and
  Wang ("Improving the Gaussian Mechanism for Differential Privacy", ICML 2018, theorem 8).

The smaller of the two errors counts. Numbers are taken as if noise were added in very small units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.analyzer.planner.question import Frequencies, Question, Sum
from shoal.domain import YesNo

Z95 = 1.959963984540054  # a normal estimate is off by so many standard errors at most, 95 times in
# a hundred
_MISS = 0.05
_STEPS = 80
LAPLACE, GAUSSIAN = "discrete Laplace", "Gaussian"


@dataclass(frozen=True, slots=True)
class Central:
    """``error``: 95 times in a hundred a figure is off by less, in the question's unit. ``noise``:
    which one.
    """

    error: float
    noise: str


def central(question: Question, n: int, epsilon: float, delta: float) -> Central:
    """For one figure of ``question`` about ``n`` devices: a count, a mean or a sum."""
    if isinstance(question, Frequencies):
        yes_no = isinstance(question.domain, YesNo)
        laplace = _counted(1.0 if yes_no else 2.0, epsilon)
        gaussian = Z95 * deviation(1.0 if yes_no else math.sqrt(2.0), epsilon, delta)
    else:
        shift = (question.high - question.low) / (1 if isinstance(question, Sum) else n)
        laplace = shift * math.log(1.0 / _MISS) / epsilon
        gaussian = Z95 * deviation(shift, epsilon, delta)
    return Central(laplace, LAPLACE) if laplace <= gaussian else Central(gaussian, GAUSSIAN)


def _counted(shift: float, epsilon: float) -> float:
    """The t with 2 a^(t + 1) / (1 + a) = 1/20, as if it need not be whole; 0 at least."""
    step = epsilon / shift
    return max(0.0, math.log(2.0 / (_MISS * (1.0 + math.exp(-step)))) / step - 1.0)


def deviation(shift: float, epsilon: float, delta: float) -> float:
    """The least standard deviation of Gaussian noise that hides a distance of ``shift``."""
    low, high = 0.0, 1.0
    while _delta_of(high, epsilon) > delta:
        low, high = high, high * 2.0
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if _delta_of(middle, epsilon) > delta:
            low = middle
        else:
            high = middle
    return shift * high


def _delta_of(sigma: float, epsilon: float) -> float:
    """The delta of a shift of 1: Phi(1/(2 s) - e s) - e^e Phi(-1/(2 s) - e s)."""
    first, second = 0.5 / sigma - epsilon * sigma, -0.5 / sigma - epsilon * sigma
    tail = _phi(second)
    return _phi(first) - (math.exp(epsilon + math.log(tail)) if tail > 0.0 else 0.0)


def _phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))

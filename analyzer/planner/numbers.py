"""The errors that an estimate of a mean, or of a sum, will have: nothing is drawn.

Two coins are tossed: the value is rounded to a level beside it, and the level is randomized. With
all n devices at a value x that lies a share f of a step above the level below, the levels' mean
moves by step^2 f (1 - f) / n, and given the levels the randomizer adds ``expected_stderr``^2, which
is linear in the numbers of devices per level, so that n (1 - f) and n f of them are put in. The two
add up: given the levels the estimate is right on average (to first order, where it is a ratio).

A sum is n times the mean over *all* devices. Where the mean is one of the devices that answer, the
sum is made of both of its figures, mean x answers + absent x (n - answers), which is linear in the
reports' counts, so its error is exact. Where a mechanism counts a device without an answer as the
middle of the domain, so does the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from shoal.accounting.accountant import simplest
from shoal.analyzer.planner.question import Mean, Sum
from shoal.arrays import NDArray, np
from shoal.domain import NO_ANSWER, Numeric
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Estimate, Mechanism
from shoal.privacy import KaryLaw

MEAN = "mean"  # the label of an estimate that is the mean over the devices that answer
# Where the worst value is looked for: over the whole range, since what a randomizer adds is largest
# at the ends (k-ary responses), in the middle (one bit) or a step from an end (piecewise). So many
# places over all of it, then places beside the worst of them and beside both ends, in steps.
_COARSE = 16
_BESIDE = tuple(i / 8 for i in range(-16, 17))
_PARTS = 32


@dataclass(frozen=True, slots=True)
class Numbers:
    """The squared errors of one mechanism's estimate of ``question`` from ``n`` devices, in pairs
    (rounding, noise).
    """

    question: Mean
    mechanism: Mechanism
    domain: Numeric
    n: int

    def ranked(self) -> tuple[float, float]:
        """At the values that the question ranks at."""
        if self.question.value is not None:
            return self.near(place(self.domain, self.question.value))
        return self.worst() if self.question.worst else self.everywhere()

    def everywhere(self) -> tuple[float, float]:
        """The value being equally likely anywhere in the range. The average of f (1 - f) is 1 / 6,
        and the noise is smooth enough for the midpoints of a few parts of the range.
        """
        top = self.domain.levels - 1
        noise = [self.at((i + 0.5) * top / _PARTS)[1] for i in range(_PARTS)]
        return self._whole(self.domain.step**2 / (6.0 * self.n)), math.fsum(noise) / _PARTS

    def near(self, at: float) -> tuple[float, float]:
        """At the worst value within half a step. A value that happens to be a level would flatter
        the levels that happen to contain it: real values lie beside.
        """
        top = float(self.domain.levels - 1)
        return max((self.at(min(max(at + i / 8, 0.0), top)) for i in range(-4, 5)), key=sum)

    def worst(self) -> tuple[float, float]:
        """At the worst value."""
        top = float(self.domain.levels - 1)
        tried = {at: self.at(at) for at in (i * top / _COARSE for i in range(_COARSE + 1))}
        worst, _ = max(tried.items(), key=lambda found: sum(found[1]))
        near = (0.0, round(worst), top)
        beside = (min(max(end + at, 0.0), top) for end in near for at in _BESIDE)
        tried |= {at: self.at(at) for at in set(beside).difference(tried)}
        return max(tried.values(), key=sum)

    def at(self, at: float) -> tuple[float, float]:
        """With all devices ``at`` so many steps above low."""
        domain, n = self.domain, self.n
        below = min(int(at), domain.levels - 2)
        up = at - below
        counts = np.zeros(domain.size, dtype=np.int64)
        counts[below + 1] = round(n * up)
        counts[below] = n - counts[below + 1]
        rounding = self._whole(domain.step**2 * up * (1.0 - up) / n)
        # a mechanism is a frozen dataclass, whatever its protocol says
        if isinstance(self.question, Sum) and of_answers(self.mechanism):  # type: ignore[arg-type]
            return rounding, _sum_noise(self.question, self.mechanism, domain, counts)
        return rounding, self._whole(float(self.mechanism.expected_stderr(counts)[0]) ** 2)

    def _whole(self, variance: float) -> float:
        """Of the whole, if that is asked: n^2 times that of the mean."""
        return variance * self.n**2 if isinstance(self.question, Sum) else variance


@lru_cache(maxsize=16)  # one mechanism is asked at many values in a row
def of_answers(mechanism: Mechanism) -> bool:
    """Whether its estimate is ("mean", "no answer"): the mean over the devices that answer, and how
    many don't.
    """
    return empty_estimate(mechanism).labels == (MEAN, NO_ANSWER)


def empty_estimate(mechanism: Mechanism) -> Estimate:
    """What is made of no reports at all: for its labels."""
    return mechanism.estimate(mechanism.tally(np.zeros((0, mechanism.report_size), dtype=np.uint8)))


def answer(question: Mean, estimate: Estimate, reports: int) -> float:
    """The figure that is asked for, from a mechanism's estimate: the mean, or the sum over all
    ``reports``.
    """
    if not isinstance(question, Sum):
        return float(estimate.values[0])
    if estimate.labels != (MEAN, NO_ANSWER):
        return reports * float(estimate.values[0])
    silent = float(estimate.values[1])
    return float(estimate.values[0]) * (reports - silent) + question.absent * silent


def _sum_noise(
    question: Sum, mechanism: Mechanism, domain: Numeric, counts: NDArray[np.int64]
) -> float:
    """The variance of the sum over the reports, for so many devices in each cell."""
    each = _noise_of_each(question, mechanism, domain)  # type: ignore[arg-type] # as above
    return max(0.0, float(counts @ each))


@lru_cache(maxsize=16)  # as ``of_answers``
def _noise_of_each(question: Sum, mechanism: Mechanism, domain: Numeric) -> NDArray[np.float64]:
    """Per cell, what a device there adds to the variance of the sum of w(Y) over the reports, where
    E[w(Y) | x] is the value of cell x: for k-ary responses, which name a uniform cell with
    probability u = k other / total and their own otherwise, w(y) = (value(y) - u mean(value)) /
    (1 - u).
    """
    law = simplest(mechanism.privacy())
    if not isinstance(law, KaryLaw):
        raise ShoalError(
            Kind.INVALID,
            "it estimates the mean of those who answer, in a way that no sum is made of",
        )
    uniform = law.k * law.other / law.total
    # Counted from the value of no answer: adding one number to all values adds n times that to the
    # sum, and no error.
    values = np.append(np.arange(domain.levels) * domain.step + (domain.low - question.absent), 0.0)
    weights = (values - uniform * values.mean()) / (1.0 - uniform)
    squares = (1.0 - uniform) * weights**2 + uniform * np.mean(weights**2)
    return np.asarray(squares - values**2, dtype=np.float64)


def at_value(
    mechanism: Mechanism, domain: Numeric, n: int, value: float, question: Mean | None = None
) -> float:
    """The standard error of the mean (or of what ``question`` asks) with all ``n`` devices at
    exactly this value of the range.
    """
    asked = Mean(domain.low, domain.high, (domain.levels,)) if question is None else question
    return math.sqrt(sum(Numbers(asked, mechanism, domain, n).at(place(domain, value))))


def place(domain: Numeric, value: float) -> float:
    """Where a value of the range lies, in steps above low."""
    return min(max((value - domain.low) / domain.step, 0.0), float(domain.levels - 1))

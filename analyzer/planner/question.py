"""What a planner is asked: the question, how many devices, the guarantee or the error wanted, and what a report may cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from shoal.accounting.accountant import LARGEST_EPSILON0
from shoal.accounting.certificate import check_delta, check_honest, count_honest
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# How finely a range may be cut for a mean. Errors are flat around the best number of levels: neighbours here differ by a quarter at most
# (from 4 on), which costs less than 2 %.
LEVELS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)


def wrong(message: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, message)


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How many devices are in each cell of ``domain``, "no answer" being a cell like the others.

    ``shares``: of the devices, one per cell, adding up to 1 (to 1e-6): what the errors are ranked at. Empty: all cells alike.
    ``heavy``: the share of the heavy cell that is shown beside it, in (0, 1]. Raises CONFIG otherwise.
    """

    domain: YesNo | Categories
    shares: tuple[float, ...] = ()
    heavy: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.heavy <= 1.0:
            raise wrong(f"the share of the heavy cell is above 0 and at most 1, got {self.heavy:g}")
        if self.shares and len(self.shares) != self.domain.size:
            raise wrong(f"{len(self.shares)} shares for {self.domain.size} cells: give one per cell, the last being that of no answer")
        if self.shares and not (all(share >= 0.0 for share in self.shares) and abs(math.fsum(self.shares) - 1.0) <= 1e-6):
            raise wrong("the shares of the cells are numbers of at least 0 that add up to 1")

    @property
    def unit(self) -> str:
        return "devices"


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a number in [low, high], every device answering. The number of levels is free: each of ``levels`` is tried.

    Errors are ranked with all devices at one value, by the root of the mean square over all values of the range; or at the ``worst``
    value; or beside a given ``value`` (half a step at most, where it is worst). Raises CONFIG or INVALID otherwise.
    """

    low: float
    high: float
    levels: tuple[int, ...] = LEVELS
    value: float | None = None
    worst: bool = False
    clip: bool = True
    unit: str = ""

    def __post_init__(self) -> None:
        if not self.levels:
            raise wrong("a mean wants at least one number of levels to try")
        for levels in self.levels:
            self.domain(levels)
        if self.value is not None and self.worst:
            raise wrong("errors are ranked at one value, or at the worst one: leave one of the two out")
        if self.value is not None and not self.low <= self.value <= self.high:
            raise wrong(f"the value to rank at lies in [{self.low:g}, {self.high:g}], got {self.value:g}")

    def domain(self, levels: int) -> Numeric:
        return Numeric(self.low, self.high, levels, self.clip, self.unit)


Question = Frequencies | Mean


@dataclass(frozen=True, slots=True)
class Request:
    """A question with its circumstances. Exactly one of ``epsilon`` and ``error`` is given; the other one is what is minimised.

    ``n``: devices expected in a batch, at which errors are predicted; ``min_batch`` (0: n): the smallest batch that is ever released, at
    which the guarantee is certified, for floor(``honest_fraction`` * min_batch) honest reports. ``epsilon``: target central epsilon at
    ``delta`` of one batch; ``error``: target standard error, in the question's unit. ``most_bytes``: of all messages of one report;
    ``most_epsilon0``: what devices accept. ``mechanisms``: names to choose among, empty for all. ``windows``: how often the same devices
    are asked; ``memoized``: they repeat one permanent report per value. Raises CONFIG for numbers out of range.
    """

    question: Question
    n: int
    delta: float
    epsilon: float | None = None
    error: float | None = None
    min_batch: int = 0
    honest_fraction: Fraction = Fraction(1)
    most_bytes: int = LIMITS.messages * LIMITS.report_bytes
    most_messages: int = LIMITS.messages
    most_epsilon0: float = LARGEST_EPSILON0
    mechanisms: tuple[str, ...] = ()
    windows: int = 1
    memoized: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.n <= LIMITS.batch_rows:
            raise wrong(f"n is 2 to {LIMITS.batch_rows} devices, got {self.n}")
        if not self.min_batch:
            object.__setattr__(self, "min_batch", self.n)
        if not 2 <= self.min_batch <= self.n:
            raise wrong(f"min_batch is 2 to n = {self.n} reports, got {self.min_batch}: fewer devices than min_batch release nothing")
        check_delta(self.delta)
        object.__setattr__(self, "honest_fraction", check_honest(self.honest_fraction))
        if self.n_honest < 2:
            raise wrong("honest_fraction x min_batch is below 2 reports: nothing would be hidden among others: raise min_batch")
        if (self.epsilon is None) == (self.error is None):
            raise wrong("give either a target epsilon or a target error: the other one is what is looked for")
        for what, target in (("epsilon", self.epsilon), ("error", self.error)):
            if target is not None and not (math.isfinite(target) and target > 0.0):
                raise wrong(f"the target {what} is a finite number above 0, got {target:g}")
        if not 0.0 < self.most_epsilon0 <= LARGEST_EPSILON0:
            raise wrong(f"the largest epsilon0 is above 0 and at most {LARGEST_EPSILON0:g}, got {self.most_epsilon0:g}")
        if self.most_bytes < 1 or self.most_messages < 1:
            raise wrong("a report has at least one message of one byte: raise the limits")
        if not 1 <= self.windows <= LIMITS.windows:
            raise wrong(f"a task has 1 to {LIMITS.windows} windows, got {self.windows}")

    @property
    def n_honest(self) -> int:
        return count_honest(self.min_batch, self.honest_fraction)


def domains(question: Question) -> tuple[Domain, ...]:
    """The domains that answer the question: one, but for a mean one per number of levels."""
    if isinstance(question, Frequencies):
        return (question.domain,)
    return tuple(question.domain(levels) for levels in question.levels)


def devices(shares: tuple[float, ...], n: int) -> NDArray[np.int64]:
    """int64[len(shares)] that adds up to ``n``: the shares of n devices, rounded by largest remainder, earlier cells first."""
    import numpy as np

    exact = np.array(shares) * (n / math.fsum(shares))
    counts = np.floor(exact).astype(np.int64)
    left = n - int(counts.sum())
    order = np.argsort(counts - exact, kind="stable")
    counts[order[:left]] += 1
    return counts

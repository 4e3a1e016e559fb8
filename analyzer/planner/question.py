"""What a planner is asked: the question, how many devices, the guarantee or the error wanted, and
what a report may cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Protocol

from shoal.accounting.accountant import LARGEST_EPSILON0
from shoal.accounting.certificate import check_delta, check_honest, count_honest
from shoal.arrays import NDArray, np
from shoal.domain import Categories, Domain, Numeric, Places, YesNo
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

# How finely a range may be cut for a mean. Errors are flat around the best number of levels, and
# the flatter the more there are: beyond 64 neighbours differ by a quarter at most, which costs less
# than 2 %. In which order they are tried, and which are not: ``order``.
LEVELS = (*range(2, 65), 80, 96, 112, 128, 160, 192, 224, 256)
_MOST_QUANTILES = 99
MOST_DEVICES = 1_000_000_000  # of a batch, planned or played: 13 s of CPU for the plainest


def wrong(message: str) -> ShoalError:
    """A CONFIG error, for whoever asked."""
    return ShoalError(Kind.CONFIG, message)


def _check_range(low: float, high: float) -> None:
    """Raises CONFIG where the square of an error would leave the range of a float. What is no range
    at all is the domain's to refuse.
    """
    if low < high and not 1e-100 <= high - low <= 1e100:
        raise wrong(
            f"a range from {low:g} to {high:g} is too narrow or too wide to plan for (1e-100 to "
            "1e100): choose another unit"
        )


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How many devices are in each cell of ``domain``, "no answer" being a cell like the others.

    ``shares``: of the devices, one per cell, adding up to 1 (to 1e-6): what the errors are ranked
    at. Empty: all cells alike. ``heavy``: the share of the heavy cell that is shown beside it, in
    (0, 1]. ``worst``: errors are ranked at the cell that errs most, wherever the devices are as
    long as no cell has more than the ``heavy`` share of them. Raises CONFIG otherwise.
    """

    domain: YesNo | Categories | Places
    shares: tuple[float, ...] = ()
    heavy: float = 0.5
    worst: bool = False

    def __post_init__(self) -> None:
        if self.worst and self.heavy * self.domain.size < 1.0:
            raise wrong(
                f"of {self.domain.size} cells one has at least a share of 1/{self.domain.size}: "
                f"the heaviest can't have {self.heavy:g} at most"
            )
        if self.worst and self.shares:
            raise wrong(
                "errors are ranked at given shares, or at the worst ones: leave one of the two out"
            )
        if not 0.0 < self.heavy <= 1.0:
            raise wrong(f"the share of the heavy cell is above 0 and at most 1, got {self.heavy:g}")
        if self.shares and len(self.shares) != self.domain.size:
            raise wrong(
                f"{len(self.shares)} shares for {self.domain.size} cells: give one per cell, the "
                "last being that of no answer"
            )
        if self.shares and not (
            all(share >= 0.0 for share in self.shares) and abs(math.fsum(self.shares) - 1.0) <= 1e-6
        ):
            raise wrong("the shares of the cells are numbers of at least 0 that add up to 1")

    @property
    def unit(self) -> str:
        """What an error is counted in."""
        return "devices"

    @property
    def what(self) -> str:
        """What is planned for, for people: "16 cells"."""
        return f"{self.domain.size} cells"

    @property
    def shown(self) -> tuple[str, str]:
        """What ``Errors.light`` and ``Errors.heavy`` are errors of."""
        return ("light", "heavy")


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a number in [low, high], every device answering. The number of levels is free:
    each of ``levels`` is tried.

    Errors are ranked with all devices at one value, by the root of the mean square over all values
    of the range; or at the ``worst`` value; or beside a given ``value`` (half a step at most, where
    it is worst). Raises CONFIG or INVALID otherwise.
    """

    low: float
    high: float
    levels: tuple[int, ...] = LEVELS
    value: float | None = None
    worst: bool = False
    clip: bool = True
    unit: str = ""

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        if not self.levels:
            raise wrong("a mean wants at least one number of levels to try")
        for levels in self.levels:
            self.domain(levels)
        if self.value is not None and self.worst:
            raise wrong(
                "errors are ranked at one value, or at the worst one: leave one of the two out"
            )
        if self.value is not None and not self.low <= self.value <= self.high:
            raise wrong(
                f"the value to rank at lies in [{self.low:g}, {self.high:g}], got {self.value:g}"
            )

    def domain(self, levels: int) -> Numeric:
        """The range in so many levels."""
        return Numeric(self.low, self.high, levels, self.clip, self.unit)

    @property
    def what(self) -> str:
        """What is planned for, for people."""
        return "mean"

    @property
    def shown(self) -> tuple[str, str]:
        """Names of the two errors that are shown: at a mean in the middle of the range, and at the
        worst.
        """
        return ("middle", "worst")


@dataclass(frozen=True, slots=True)
class Sum(Mean):
    """The sum of a number in [low, high] over *all* devices: n times their mean. Ranked as a mean
    is, errors in the sum's unit.

    A device without an answer counts as ``absent``; mechanisms that can't tell that there was none
    count it as the middle of the range.
    """

    @property
    def absent(self) -> float:
        """0, or the low end of a range that 0 is not in."""
        return 0.0 if self.low <= 0.0 <= self.high else self.low

    @property
    def what(self) -> str:
        """What is planned for, for people."""
        return "sum"


# For quantiles every level is a bin, and most of them are alike: fewer numbers of levels to try.
QUANTILE_LEVELS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


class Shape(StrEnum):
    """How the numbers are spread over [low, high], while the errors of quantiles are predicted: x =
    low + t (high - low).
    """

    UNIFORM = "uniform"  # t is uniform on [0, 1]
    BELL = "bell"  # t has density 6 t (1 - t): Beta(2, 2)
    SKEWED = "skewed"  # t has density 3 (1 - t)^2: many small numbers, few large ones

    def quantiles(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """t at or below which a share of the devices lies; shares in [0, 1]."""
        if self is Shape.UNIFORM:
            return shares
        if self is Shape.BELL:  # 3 t^2 - 2 t^3 = share
            return np.asarray(0.5 - np.sin(np.arcsin(1.0 - 2.0 * shares) / 3.0))
        return np.asarray(1.0 - np.cbrt(1.0 - shares))

    def below(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """The share of the devices at or below t, in [0, 1]."""
        if self is Shape.UNIFORM:
            return t
        return np.asarray(t * t * (3.0 - 2.0 * t) if self is Shape.BELL else 1.0 - (1.0 - t) ** 3)


class Spread(Protocol):
    """How numbers are spread: a ``Shape``, or one with heaps. Its text names it. Hashable."""

    def quantiles(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """t in [0, 1] at or below which a share of the devices lies; shares in [0, 1]."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A shape turned around: of what is skewed, many large numbers and few small ones."""

    shape: Shape

    def __str__(self) -> str:
        return f"{self.shape}, turned around"

    def quantiles(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """As ``Spread`` has it."""
        return np.asarray(1.0 - self.shape.quantiles(1.0 - shares))


SMOOTH: tuple[Spread, ...] = (Shape.BELL, Shape.UNIFORM, Shape.SKEWED, Mirrored(Shape.SKEWED))


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Numbers in [low, high] that the shares ``at`` of the devices are at or below, every device
    answering.

    Errors are ranked by the root of the mean, over ``at``, of the mean squares of (estimated -
    true) quantile, in the number's unit, if the numbers are spread over the range as ``shape``
    says. ``worst``: by the quantile that errs most, under whichever of the smooth shapes
    (``SMOOTH``) it errs most, or under a ``shape`` that is none of them. The number of levels is
    free: each of ``levels`` is tried. Raises CONFIG or INVALID otherwise.
    """

    low: float
    high: float
    at: tuple[float, ...] = (0.25, 0.5, 0.75, 0.9)
    levels: tuple[int, ...] = QUANTILE_LEVELS
    shape: Spread = Shape.BELL
    clip: bool = True
    unit: str = ""
    worst: bool = False

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        if not self.levels:
            raise wrong("quantiles want at least one number of levels to try")
        for levels in self.levels:
            self.domain(levels)
        if (
            not self.at
            or not all(0.0 < share < 1.0 for share in self.at)
            or list(self.at) != sorted(set(self.at))
        ):
            raise wrong(
                "quantiles are asked for shares between 0 and 1, ascending: 0.5 for the median"
            )
        if len(self.at) > _MOST_QUANTILES:
            raise wrong(
                f"at most {_MOST_QUANTILES} quantiles are planned for at a time, got {len(self.at)}"
            )

    def domain(self, levels: int) -> Numeric:
        """The range in so many levels."""
        return Numeric(self.low, self.high, levels, self.clip, self.unit)

    @property
    def what(self) -> str:
        """What is planned for, for people."""
        return "quantiles"

    @property
    def shown(self) -> tuple[str, str]:
        """Names of the two errors that are shown: the least and the largest over the quantiles."""
        return ("least", "most")

    @property
    def spreads(self) -> tuple[Spread, ...]:
        """The shapes under which errors are looked at."""
        return SMOOTH if self.worst and isinstance(self.shape, Shape) else (self.shape,)

    def values(self) -> NDArray[np.float64]:
        """float64[len(at)]: the true quantiles, under ``shape``."""
        return self.low + self.shape.quantiles(np.array(self.at)) * (self.high - self.low)

    def bins(self, levels: int) -> Categories | None:
        """As many ordered bins of one width as there are levels, if they end at whole numbers; None
        otherwise.
        """
        width = (self.high - self.low) / levels
        edges = [self.low + i * width for i in range(levels)]
        if not all(abs(edge) < 1 << 53 and edge.is_integer() for edge in (*edges, width)):
            return None
        names = tuple(f"{edge:.0f} to {edge + width:.0f}" for edge in edges)
        return Categories(names, tuple(int(edge) for edge in edges))


Question = Frequencies | Mean | Quantiles


@dataclass(frozen=True, slots=True)
class Request:
    """A question with its circumstances. Exactly one of ``epsilon`` and ``error`` is given; the
    other one is what is minimised.

    ``n``: devices expected in a batch, at which errors are predicted; ``min_batch`` (0: n): the
    smallest batch that is ever released, at which the guarantee is certified, for
    floor(``honest_fraction`` * min_batch) honest reports. ``epsilon``: target central epsilon at
    ``delta``, of all releases together (``windows`` times ``tasks``), or of one if not ``together``
    or ``memoized``; ``error``: target standard error, in the question's unit. ``most_bytes``: of
    all messages of one report; ``most_epsilon0``: what devices accept, of a memoized task for an
    unchanged value over all windows. ``mechanisms``: names to choose among, empty for all.
    ``windows``: how often the same devices are asked; ``changes``: how often the value of a device
    changes meanwhile; ``memoized``: they repeat one permanent report per value. ``tasks``: how many
    tasks like this one share the target. Raises CONFIG for numbers out of range.
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
    changes: int = 0
    tasks: int = 1
    together: bool = True

    def __post_init__(self) -> None:
        if not 2 <= self.n <= LIMITS.batch_rows:
            raise wrong(f"n is 2 to {LIMITS.batch_rows} devices, got {self.n}")
        if not self.min_batch:
            object.__setattr__(self, "min_batch", self.n)
        if not 2 <= self.min_batch <= self.n:
            raise wrong(
                f"min_batch is 2 to n = {self.n} reports, got {self.min_batch}: fewer devices than "
                "min_batch release nothing"
            )
        check_delta(self.delta)
        object.__setattr__(self, "honest_fraction", check_honest(self.honest_fraction))
        if self.n_honest < 2:
            raise wrong(
                "honest_fraction x min_batch is below 2 reports: nothing would be hidden among "
                "others: raise min_batch"
            )
        if (self.epsilon is None) == (self.error is None):
            raise wrong(
                "give either a target epsilon or a target error: the other one is what is looked "
                "for"
            )
        for what, target in (("epsilon", self.epsilon), ("error", self.error)):
            if target is not None and not (math.isfinite(target) and target > 0.0):
                raise wrong(f"the target {what} is a finite number above 0, got {target:g}")
        if self.error is not None and self.error >= (most := half_range(self.question, self.n)):
            raise wrong(
                f"a target error of {self.error:g} asks nothing: the middle of all answers is "
                f"within {most:g}: ask for less"
            )
        if not 0.0 < self.most_epsilon0 <= LARGEST_EPSILON0:
            raise wrong(
                f"the largest epsilon0 is above 0 and at most {LARGEST_EPSILON0:g}, got "
                f"{self.most_epsilon0:g}"
            )
        if self.most_bytes < 1 or self.most_messages < 1:
            raise wrong("a report has at least one message of one byte: raise the limits")
        self._check_repeats()

    def _check_repeats(self) -> None:
        if not 1 <= self.windows <= LIMITS.windows:
            raise wrong(f"a task has 1 to {LIMITS.windows} windows, got {self.windows}")
        if not 1 <= self.tasks <= LIMITS.known_tasks:
            raise wrong(f"1 to {LIMITS.known_tasks} tasks share a target, got {self.tasks}")
        if not 0 <= self.changes < self.windows:
            raise wrong(
                f"a value changes between windows, 0 to {self.windows - 1} times in "
                f"{self.windows}, got {self.changes}: more windows?"
            )

    @property
    def n_honest(self) -> int:
        """floor(honest_fraction x min_batch): what epsilon is proven for."""
        return count_honest(self.min_batch, self.honest_fraction)

    @property
    def rounds(self) -> int:
        """Releases about the same devices."""
        return self.windows * self.tasks

    @property
    def total(self) -> float | None:
        """The target of all releases together; None where one release is all there is, or all that
        a target was named for.
        """
        return self.epsilon if self.together and self.rounds > 1 and not self.memoized else None


def half_range(question: Question, n: int) -> float:
    """How far an answer lies at most from the middle of those that there can be, in the question's
    unit.
    """
    if isinstance(question, Frequencies):
        return n / 2
    half = (question.high - question.low) / 2
    return n * half if isinstance(question, Sum) else half


def domains(question: Question) -> tuple[Domain, ...]:
    """The domains that answer the question: one for frequencies, one per number of levels for
    numbers, for quantiles ordered bins too.
    """
    if isinstance(question, Frequencies):
        return (question.domain,)
    numeric = tuple(question.domain(levels) for levels in question.levels)
    if isinstance(question, Mean):
        return numeric
    return (
        *numeric,
        *(bins for levels in question.levels if (bins := question.bins(levels)) is not None),
    )


def devices(shares: tuple[float, ...], n: int) -> NDArray[np.int64]:
    """int64[len(shares)] that adds up to ``n``: the shares of n devices, rounded by largest
    remainder, earlier cells first.
    """
    exact = np.array(shares) * (n / math.fsum(shares))
    counts = np.floor(exact).astype(np.int64)
    left = n - int(counts.sum())
    order = np.argsort(counts - exact, kind="stable")
    counts[order[:left]] += 1
    return counts

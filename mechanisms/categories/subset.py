"""Subset selection: a set of exactly d of the k cells, more likely one that contains the true cell.

Ye, Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy",
IEEE T-IT 2018, section III; S. Wang et al., "Mutual information optimally local private discrete
distribution estimation", arXiv 1607.08025, 2016. Under local privacy, with d near k / (e^epsilon0 +
1), no randomizer estimates better in the limit of many reports (Ye, Barg, "Optimal locally private
estimation under l_p loss", 2019). After shuffling other d are often better: hence settings by
number. d = 1 has the law of k-ary randomized response.

With I = ``include``: the true cell is in the set with probability I / 2^64, exactly; the other d -
1 cells (or all d) are uniform without replacement among the k - 1 others. There are C(k-1, d-1)
sets with the true cell and C(k-1, d) without, so a set with it is

    ratio = I (k - d) / ((2^64 - I) d)

times as likely as one without, exactly. A report is a bitmap of ceil(k / 8) bytes: cell i is bit 7
- i % 8 of byte i // 8, the bits after cell k - 1 are 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.limits import LIMITS
from shoal.mechanisms.base import Estimate, Family, Parameter, Setting, Tally, invalid
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.parts import bitmaps, cells, laws
from shoal.mechanisms.parts.draws import Draws, Field, Lane
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.sampling import BLOCK, blocks
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import PureLaw, SymmetricLaw
from shoal.task import MechanismSpec

NAME = "subset"
PARAMETERS = (
    Parameter("d", 1, LIMITS.cells - 1, "cells in a report"),
    Parameter(
        "include", 1, WORDS - 1, "probability, out of 2^64, that the true cell is among them"
    ),
    Parameter("k", 2, LIMITS.cells, "number of cells of the domain"),
)
_MARKS = 1 << 22  # cells that a block of reports marks at once, one byte each


@dataclass(frozen=True, slots=True)
class SubsetSelection:
    """``labels``: one per cell, in the domain's order; ``d``: cells in a report, 1 <= d < k;
    ``include``: I out of 2^64.
    """

    labels: tuple[str, ...]
    d: int
    include: int

    def __post_init__(self) -> None:
        bitmaps.check_k(NAME, self.k)
        if not 1 <= self.d < self.k:
            raise invalid(f'{NAME}: the parameter "d" is {self.d}: it is 1 to k - 1 = {self.k - 1}')
        if not 1 <= self.include < WORDS or ratio(self.k, self.d, self.include) <= 1:
            raise invalid(f'{NAME}: the parameter "include" is below 2^64 and above d / k of it')

    @property
    def k(self) -> int:
        """Cells of the domain, at least 2."""
        return len(self.labels)

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries: k, ``d`` and ``include``."""
        return MechanismSpec.of(NAME, k=self.k, d=self.d, include=self.include)

    @property
    def report_size(self) -> int:
        """ceil(k / 8) bytes: the set as a bitmap."""
        return bitmaps.report_size(self.k)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    @property
    def _chances(self) -> tuple[float, float, float]:
        """(p, q, p - q): a cell is in the set of a device that holds it, of another device, and the
        difference without cancellation.

        A set has d cells, so p + (k - 1) q = d.
        """
        scale = WORDS * (self.k - 1)
        return (
            self.include / WORDS,
            (self.d * WORDS - self.include) / scale,
            (self.k * self.include - self.d * WORDS) / scale,
        )

    def draw(self, value: Lane, draws: Draws) -> Field:
        """A coin and d cells, whatever the value and the coin are.

        The others are numbered 0 to k - 2 without the true cell. d of them by Floyd's algorithm
        (Bentley, Floyd, "A sample of brilliance", CACM 1987): for last = k - 1 - d, ..., k - 2 draw
        a cell of 0..last and take it, or ``last`` if it is taken already. Begun one step later,
        with nothing taken, the same algorithm gives a uniform set of d - 1: where the true cell is
        in the set, the *first* draw is made and not taken. (Leaving out the last instead would
        never choose cell k - 2.)
        """
        included, chosen = draws.coin(self.include), draws.marked(self.k)
        chosen.put(value, included)
        for step, last in enumerate(self._steps()):
            pick = draws.below(last + 1)
            pick = pick + (pick >= value)
            if step:
                chosen.put(draws.where(chosen.has(pick), last + (value <= last), pick), True)
            else:
                chosen.put(pick, included ^ True)
        return draws.bitmap(chosen.bits())

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws the coin and d cells, whichever
        are used. Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.k, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(
            self.draw, values, self.k, entropy, self.report_size, min(BLOCK, _MARKS // self.k)
        )

    def _steps(self) -> Iterator[int]:
        return iter(range(self.k - 1 - self.d, self.k - 1))

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: exactly d cells are marked, and nothing beyond the last cell."""
        flags = bitmaps.valid(reports, self.k)
        for part in blocks(reports.shape[0], max(1, _MARKS // self.report_size)):
            flags[part] &= np.bitwise_count(reports[part]).sum(axis=1, dtype=np.int32) == self.d
        return flags

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports in which the cell's bit is set."""
        return bitmaps.marked(reports, self.k, cell)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How many reports mark each cell."""
        if not self.valid(reports).all():
            raise invalid(
                f"a report is no set of {self.d} cells: keep only the rows that valid() accepts"
            )
        return bitmaps.tally(reports, self.k)

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per cell."""
        return cells.estimated(
            self.labels, cells.counts_of(tally, self.k), tally.rows, *self._chances
        )

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[k]: exact standard errors, in devices, when ``counts`` (int64[k]) hold each cell.
        Raises INVALID for another number of cells.
        """
        return cells.expected(counts, self.k, *self._chances)

    def privacy(self) -> SymmetricLaw:
        """The law of a set of d cells, exactly: sets with the true cell are e^epsilon0 times as
        likely as those without.
        """
        return laws.subset(self.k, self.d, ratio(self.k, self.d, self.include))


def ratio(k: int, d: int, include: int) -> Fraction:
    """How many times as likely a set with the true cell is as one without it, exactly; 1 <= d <
    k.
    """
    return Fraction(include * (k - d), (WORDS - include) * d)


def most_include(k: int, d: int, epsilon0: float) -> int:
    """The largest I whose sets keep epsilon0. Raises INVALID if none above d / k of 2^64 does."""
    # beyond it the true cell would be no likelier than another
    most_left_out = (WORDS * (k - d) - 1) // k
    return WORDS - least_noise(
        lambda left_out: PureLaw(ratio(k, d, WORDS - left_out)), most_left_out, epsilon0
    )


def variance(k: int, d: int, include: int) -> Fraction:
    """Variance of one cell's estimate per device, exactly, averaged over the cells (whatever the
    devices hold, it is their sum over k): (p (1 - p) + (k - 1) q (1 - q)) / (k (p - q)^2).
    """
    p = Fraction(include, WORDS)
    q = (d - p) / (k - 1)
    return (p * (1 - p) + (k - 1) * q * (1 - q)) / (k * (p - q) ** 2)


def best_d(k: int, epsilon0: float) -> int:
    """The d of least ``variance`` with the integers of ``most_include``: next to k / (e^epsilon0 +
    1) (Ye, Barg, section IV).

    With p = d e / (d e + k - d), e = e^epsilon0, the variance is convex in d beside that minimum;
    the neighbours are compared exactly.
    """
    about = int(k / (math.exp(min(epsilon0, 700.0)) + 1.0))
    near = [d for d in range(about - 1, about + 3) if 1 <= d < k]
    return min(near, key=lambda d: variance(k, d, most_include(k, d, epsilon0)))


def _spec(d: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    return MechanismSpec.of(
        NAME, k=domain.size, d=d, include=most_include(domain.size, d, epsilon0)
    )


def _standard(domain: Domain, epsilon0: float) -> MechanismSpec:
    if not (math.isfinite(epsilon0) and epsilon0 > 0):
        raise invalid("epsilon0 is a finite number above 0")
    return _spec(best_d(domain.size, epsilon0), domain, epsilon0)


def _settings(domain: Domain) -> tuple[Setting, ...]:
    """The set size of least error first, then d = 1, 2, 3, 4, 6, 8, 12, ... up to half of the
    cells.

    Raises INVALID where a bitmap is longer than a report.
    """
    k = domain.size
    bitmaps.check_k(NAME, k)
    numbers = sorted({1, *(step << power for power in range(k.bit_length()) for step in (2, 3))})
    return (
        Setting(
            "standard",
            "the set size of least error for one report under local privacy, about k / (e^epsilon0 "
            "+ 1)",
            _standard,
        ),
        *(
            Setting(f"d={d}", f"{d} cell{'s' * (d > 1)} in a report", partial(_spec, d))
            for d in numbers
            if d <= k // 2
        ),
    )


def _create(spec: MechanismSpec, domain: Domain) -> SubsetSelection:
    check_k(spec, domain)
    return SubsetSelection(domain.labels, spec.get("d"), spec.get("include"))


FAMILY = Family(
    NAME, "subset selection: how many devices are in each cell", PARAMETERS, _create, _settings
)

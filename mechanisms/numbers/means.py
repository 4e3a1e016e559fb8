"""The mean of a number over all devices, from reports that are outputs of a table: its estimate and
its errors.

A cell stands for its *place* in the domain, from -1 (low) to 1 (high). A device without an answer
counts with the middle, place 0, whatever the data are: no second figure has to be estimated, and
nothing is divided by a noisy number. The estimate is the mean of the reports' *scores*: score[y]
with sum_y P(y | x) score[y] = place(x) for every cell x.

**Errors.** A device with cell x adds Var(x) = sum_y P(y | x) score[y]^2 - place(x)^2. How many
devices hold which cell is not known. The expectation of any function of the reports is, as a
function of one device's cell, a combination of the columns of the table. Where Var is none, *no*
function of the reports tells the sum of the variances without bias. So ``estimate`` takes an upper
one, the smaller of two:

- the sum over reports of v(y) with sum_y P(y | x) v(y) = Var(x) if there is such a v, or else of
  v(y) = a + b score[y] + c score[y]^2, fitted to Var over the cells and raised to be nowhere below
  it: whichever of the two is off by less, chance included;
- n times the sample variance of the scores: that of the coins, and of the devices' places on top.

What rounding numbers to levels adds (``rounding``) comes on top, up to the second, which has it
already.

The first is unbiased but for what the fit leaves. The second is exact where all devices hold one
cell; it is what one bit of a report allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from shoal.arrays import NDArray, np
from shoal.domain import Domain, Numeric
from shoal.errors import ShoalError
from shoal.mechanisms.base import Estimate, Tally, invalid
from shoal.mechanisms.numbers import rounding
from shoal.mechanisms.parts.cells import check_counts
from shoal.mechanisms.parts.composed import SharedResponse
from shoal.mechanisms.parts.tables import MEAN_OF_ALL, ProbabilityTable, TableResponse, unbiased
from shoal.task import MechanismSpec


@dataclass(frozen=True, slots=True)
class TableMean(SharedResponse):
    """A mechanism that is a table over the cells of ``domain`` with a score for each output.
    ``spec``: what both were made of; ``scores``: exact, in half widths of the domain from its
    middle.
    """

    spec: MechanismSpec
    domain: Numeric
    table: ProbabilityTable = field(repr=False, compare=False)
    scores: tuple[Fraction, ...] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return self.spec.name

    @property
    def response(self) -> TableResponse:
        """The draw, the reports and the law: those of the table."""
        return TableResponse(self.table)

    def estimate(self, tally: Tally) -> Estimate:
        """One figure, the mean over all devices, those without an answer as the middle. Its
        standard error is an upper estimate.
        """
        return estimate(self.domain, self.table, self._floats(), self.response.counts(tally))

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[1]: the mean's standard error in the domain's unit when ``counts`` (int64[cells],
        the last for "no answer") hold each cell; to first order, as the mean is a ratio. Raises
        INVALID for another number of cells.
        """
        return expected_stderr(self.domain, self.table, self._floats(), counts)

    def _floats(self) -> NDArray[np.float64]:
        return np.array([float(score) for score in self.scores])


def numeric(name: str, domain: Domain) -> Numeric:
    """The same domain, of numbers. Raises INVALID for another, saying what serves it."""
    if not isinstance(domain, Numeric):
        raise invalid(
            f"{name} wants a numeric domain: use krr for categories and binary_rr for yes/no"
        )
    return domain


def places(domain: Numeric) -> tuple[Fraction, ...]:
    """What each cell stands for, from -1 to 1: the levels, evenly, and 0 for "no answer"."""
    steps = domain.levels - 1
    return (*(Fraction(2 * level - steps, steps) for level in range(domain.levels)), Fraction(0))


def estimate(
    domain: Numeric,
    table: ProbabilityTable,
    scores: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> Estimate:
    """The mean over all devices in the domain's unit, from how often each output was reported,
    float64[outputs].

    ``scores``: float64[outputs]. Without any report the value is the middle, the standard error
    half the domain's width and the interval all of it.
    """
    half, rows = (domain.high - domain.low) / 2, float(counts.sum())
    if not rows:
        ends = np.array([[domain.low], [domain.high]])
        return Estimate((MEAN_OF_ALL,), ends[0] + half, np.array([half]), ends[0], ends[1])
    mean = float(counts @ scores) / rows
    return stated(domain, table, scores, counts, _variance(table, scores, counts, mean))


def stated(
    domain: Numeric,
    table: ProbabilityTable,
    scores: NDArray[np.float64],
    counts: NDArray[np.float64],
    coins: float,
) -> Estimate:
    """The mean, and its error from above. ``coins``: the variance of the sum of the scores with the
    levels held fixed. What rounding the numbers to levels adds comes on top (``rounding``), up to
    the sample variance, which holds both and the spread of the numbers.
    """
    half, rows = (domain.high - domain.low) / 2, float(counts.sum())
    mean, step = float(counts @ scores) / rows, 2.0 / (domain.levels - 1)
    total = max(
        coins,
        min(coins + step**2 * rounding.of_reports(table, counts), _sample(scores, counts, mean)),
    )
    error, rounded = (half * math.sqrt(variance) / rows for variance in (total, total - coins))
    return Estimate.wald(
        (MEAN_OF_ALL,), np.array([domain.low + half + half * mean]), np.array([error]), (rounded,)
    )


def _sample(scores: NDArray[np.float64], counts: NDArray[np.float64], mean: float) -> float:
    """n times the sample variance, and one standard error of that: below the truth it would make
    intervals too narrow.
    """
    rows, squares = float(counts.sum()), (scores - mean) ** 2
    total = float(counts @ squares)
    spread = max(float(counts @ squares**2) - total**2 / rows, 0.0)
    return (total + math.sqrt(spread)) * (rows / (rows - 1) if rows > 1 else math.inf)


def expected_stderr(
    domain: Numeric, table: ProbabilityTable, scores: NDArray[np.float64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """float64[1]: exact, of devices int64[cells]. Half the domain's width where there are none.
    Raises INVALID for other counts.
    """
    half, rows = (domain.high - domain.low) / 2, int(check_counts(counts, table.cells).sum())
    if not rows:
        return np.array([half])
    return np.array(
        [half * math.sqrt(float(counts @ variances(table.probabilities(), scores))) / rows]
    )


def variances(
    probabilities: NDArray[np.float64], scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """float64[cells]: Var(x), from P(y | x), float64[cells, outputs]. Centred before squaring: no
    cancellation.
    """
    centred = scores[None, :] - (probabilities @ scores)[:, None]
    spreads: NDArray[np.float64] = np.einsum("xy,xy->x", probabilities, centred**2)
    return spreads


def _variance(
    table: ProbabilityTable, scores: NDArray[np.float64], counts: NDArray[np.float64], mean: float
) -> float:
    """An upper estimate of the sum of Var(x) over the devices, between what the least and the most
    noisy cell would give for all.
    """
    probabilities, rows = table.probabilities(), float(counts.sum())
    noise = variances(probabilities, scores)
    of_outputs = min(
        (_fitted(probabilities, scores, noise), *_exact(table, noise)),
        key=lambda v: _off(probabilities, noise, v, rows),
    )
    return min(
        max(
            min(float(counts @ of_outputs), _sample(scores, counts, mean)),
            rows * float(noise.min()),
        ),
        rows * float(noise.max()),
    )


def _fitted(
    probabilities: NDArray[np.float64], scores: NDArray[np.float64], noise: NDArray[np.float64]
) -> NDArray[np.float64]:
    """float64[outputs]: v(y) of degree 2 in the score, its mean under no cell below the cell's
    ``noise``.
    """
    unit = float(np.abs(scores).max())
    columns = np.stack([np.ones_like(scores), scores / unit, (scores / unit) ** 2], axis=1)
    values: NDArray[np.float64] = (
        columns @ np.linalg.lstsq(probabilities @ columns, noise, rcond=1e-9)[0]
    )
    return values + max(float((noise - probabilities @ values).max()), 0.0)


def _exact(table: ProbabilityTable, noise: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """v(y) whose mean is the noise under every cell, of least variance; none if there is none."""
    try:
        return (unbiased(table.rows, noise),)
    except ShoalError:
        return ()


def _off(
    probabilities: NDArray[np.float64],
    noise: NDArray[np.float64],
    values: NDArray[np.float64],
    rows: float,
) -> float:
    """By how much the mean of ``values`` over so many reports of one cell may be above the cell's
    noise, squared, and its variance.
    """
    bias = float((probabilities @ values - noise).max())
    return bias**2 + float(variances(probabilities, values).max()) / rows

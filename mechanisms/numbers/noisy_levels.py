"""A number's level with noise added to it, clamped to finitely many outputs: what ``laplace`` and
``gaussian`` share.

The table says how often each output comes of each level; the mean of the scores of the reports is
the estimate: score[y] with sum_y P(y | x) score[y] = x for every level x, to 1e-7 of half the
domain's width, of small variance. So clamping costs no bias that could ever be seen, and what it
costs in error is in the errors.

"No answer" counts with the middle of the domain: its noise is that of a middle level, or of either
of the two middle ones by a fair coin that is part of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.arrays import NDArray, np
from shoal.domain import Numeric
from shoal.mechanisms.base import Estimate, Tally, invalid
from shoal.mechanisms.numbers import means
from shoal.mechanisms.parts.cells import check_counts
from shoal.mechanisms.parts.composed import SharedResponse
from shoal.mechanisms.parts.tables import ProbabilityTable, TableResponse, row
from shoal.task import MechanismSpec

if TYPE_CHECKING:
    from collections.abc import Sequence


def weights_of(levels: Sequence[list[int]], cells: Sequence[int]) -> list[list[int]]:
    """The weights of these cells, from those of all levels, which add up to the same for each; the
    last cell is "no answer".
    """
    middle = (levels[(len(levels) - 1) // 2], levels[len(levels) // 2])
    return [
        levels[cell] if cell < len(levels) else [sum(pair) for pair in zip(*middle, strict=True)]
        for cell in cells
    ]


def create(spec: MechanismSpec, domain: Numeric, weights: Sequence[list[int]]) -> NoisyLevels:
    """From the integer weights of the levels. Raises INVALID as ``ProbabilityTable`` does."""
    return NoisyLevels(
        spec,
        domain,
        ProbabilityTable(tuple(row(each) for each in weights_of(weights, range(domain.size)))),
    )


# of a mean, in half widths of the domain, at most: below its standard error for any number of
# devices up to 10^13
BIAS = 1e-7
_NOISE = 1e-4  # of a variance, relative to the largest
_ROUNDING = 1e-11  # singular values below so much of the largest are rounding


@dataclass(frozen=True, slots=True)
class NoisyLevels(SharedResponse):
    """A mechanism that is a table over ``domain``'s cells, and the mean of all devices from it.
    ``spec``: what the table was made of.
    """

    spec: MechanismSpec
    domain: Numeric
    table: ProbabilityTable = field(repr=False, compare=False)
    _scores: list[tuple[NDArray[np.float64], NDArray[np.float64] | None]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "_scores", [])

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return self.spec.name

    @property
    def response(self) -> TableResponse:
        """The draw, the reports and the law: those of the table."""
        return TableResponse(self.table)

    def estimate(self, tally: Tally) -> Estimate:
        """One figure, the mean over all devices, those without an answer as the middle.

        The variance of the coins is estimated without bias: by what each output says of the
        variance of its device's own noise, which depends on its level. Brought back between what
        the least and the most noisy level would give. Where the table cannot tell that well enough,
        an upper estimate is taken (``means``). What rounding to the levels adds comes on top
        (``rounding``).
        """

        scores, noise = self.scores()
        counts = self.response.counts(tally)
        if noise is None or not tally.rows:
            return means.estimate(self.domain, self.table, scores, counts)
        each = means.variances(self.table.probabilities(), scores)
        variance = min(
            max(float(counts @ noise), tally.rows * float(each.min())),
            tally.rows * float(each.max()),
        )
        return means.stated(self.domain, self.table, scores, counts, variance)

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[1]: the mean's standard error in the domain's unit when ``counts`` (int64[cells],
        the last for "no answer") hold each cell; to first order, as the mean is a ratio. Raises
        INVALID for another number of cells.
        """
        check_counts(counts, self.domain.size)
        return means.expected_stderr(self.domain, self.table, self.scores()[0], counts)

    def scores(self) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """(float64[outputs], float64[outputs] or None): what each output counts for, in half widths
        of the domain from its middle, and for the variance of such a score; the second unless no
        function of the outputs says it.

        Raises INVALID where the table does not tell the levels apart well enough to be decoded in
        floats.
        """
        if not self._scores:
            places = np.array([float(place) for place in means.places(self.domain)])
            probabilities = self.table.probabilities()
            # the last row is a mixture of others
            scores = _solve(probabilities[:-1], places[:-1], BIAS)
            if scores is None:
                raise invalid(
                    f"{self.spec.name}: with so much noise in so narrow a range of outputs no "
                    "scores of theirs make the mean unbiased: "
                    "ask for more epsilon0, fewer levels or a wider range, or use laplace or kmean"
                )
            each = means.variances(probabilities, scores)[:-1]
            self._scores.append(
                (scores, _solve(probabilities[:-1], each, _NOISE * float(each.max())))
            )
        return self._scores[0]


def _solve(
    probabilities: NDArray[np.float64], targets: NDArray[np.float64], bias: float
) -> NDArray[np.float64] | None:
    """float64[outputs]: a with |sum_y P(y | x) a(y) - targets[x]| <= ``bias`` for every x, of small
    variance; None if there is none.

    As ``tables.unbiased``, but directions in which the rows hardly differ are left out as far as
    ``bias`` allows: an exact solution would pay for its last digits with most of its variance.
    """
    scale = np.sqrt(probabilities.mean(axis=0))
    left, sizes, right = np.linalg.svd(probabilities / scale, full_matrices=False)
    parts = left.T @ targets
    for kept in range(1, sizes.size + 1):
        if sizes[kept - 1] < _ROUNDING * sizes[0]:
            return None
        values = (right[:kept].T @ (parts[:kept] / sizes[:kept])) / scale
        if np.abs(probabilities @ values - targets).max() <= bias:
            return np.asarray(values, dtype=np.float64)
    return None

"""The errors that quantiles will have: of the production decoder, over the coins of rounding and of
the randomizer.

n devices hold the quantiles of the question's ``shape`` at (i + 1/2) / n. Each rounds its number to
a level (or names its bin), and each report is an independent draw from one row of the mechanism's
law, so the tally has a known mean c and covariance V. With f the decoder
(``distribution(tally).quantile``):

- where it is nearly linear over the noise (k-ary responses, projected), by the delta method: bias
  f(c) - truth, variance g' V g, with g the gradient of f, by differences one standard error wide;
- where it is not (EM with smoothing), by drawing tallies from the normal law of mean c and
  covariance V, with fixed randomness, so that a plan is the same each time.

Both are held against simulations of whole batches in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from shoal.accounting.accountant import simplest
from shoal.analyzer.planner.heaps import worst_heaps
from shoal.analyzer.planner.question import Quantiles, Spread
from shoal.arrays import NDArray, np
from shoal.domain import Domain, Numeric
from shoal.entropy import Entropy, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Mechanism, Tally, create
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.numbers.distribution import Distributed, Distribution
from shoal.mechanisms.numbers.square_wave import SquareWave
from shoal.mechanisms.parts.sampling import normals
from shoal.mechanisms.parts.simplex import norm_sub
from shoal.privacy import FiniteLaw, KaryLaw
from shoal.task import MechanismSpec

_PARTS = 1 << 20  # values that stand for those of more devices
_FEWER_PARTS = 1 << 16  # the same, where several shapes are looked at
# reports of the tally whose derivatives are taken: whole numbers are no coarser than floats there
_SCALE = 1 << 40
# drawn tallies, and of how many devices on fewer: EM takes a second there (+-5 %, +-20 % or so)
_DRAWS, _FEWER, _LARGE = 200, 16, 10_000
Cut = tuple[int, int]  # (levels, 0) or (0, bins)


def distribution_of(
    mechanism: Mechanism, domain: Domain, tally: Tally, question: Quantiles
) -> Distribution:
    """What quantiles are read from: the mechanism's own distribution, or, of counts of ordered
    bins, their projection (Norm-Sub).
    """
    if isinstance(mechanism, Distributed):
        return mechanism.distribution(tally)
    return _projected(mechanism, domain, tally, question)


def _projected(
    mechanism: Mechanism, domain: Domain, tally: Tally, question: Quantiles
) -> Distribution:
    # The same numbers; the intervals of an estimate take longer than they do.
    devices = (
        mechanism.devices(tally)[0]
        if isinstance(mechanism, KaryResponse)
        else mechanism.estimate(tally).values
    )
    counts = devices[:-1]
    edges = np.linspace(question.low, question.high, domain.size)
    return Distribution(
        edges, norm_sub(np.asarray(counts, dtype=np.float64) / max(1, tally.rows), 1.0), "norm-sub"
    )


def quantiles_of(
    mechanism: Mechanism, domain: Domain, tally: Tally, question: Quantiles
) -> NDArray[np.float64]:
    """float64[len(at)], in the number's unit."""
    return np.asarray(quantiles_of_each(mechanism, domain, (tally,), question)[0])


def quantiles_of_each(
    mechanism: Mechanism, domain: Domain, tallies: Sequence[Tally], question: Quantiles
) -> NDArray[np.float64]:
    """float64[tallies, len(at)]: ``quantiles_of`` every tally."""
    if isinstance(mechanism, SquareWave):
        distributions: Iterable[Distribution] = mechanism.distributions(tallies)
    elif isinstance(mechanism, Distributed):  # asked once: it takes as long as a decoding
        distributions = map(mechanism.distribution, tallies)
    else:
        distributions = (_projected(mechanism, domain, tally, question) for tally in tallies)
    return np.array([each.quantiles(question.at) for each in distributions])


def drawn_cells(question: Quantiles, domain: Domain, n: int, entropy: Entropy) -> NDArray[np.int64]:
    """int64[n]: the cells of n devices, each number rounded anew as ``encode`` does."""
    return rounded(question.shape, cut_of(domain), n, range(n), entropy)


def rounded(shape: Spread, cut: Cut, n: int, among: range, entropy: Entropy) -> NDArray[np.int64]:
    """int64[len(among)]: the cells of some of n devices."""
    below, up = _places(shape, *cut, n, among)
    words = np.asarray(entropy.words(len(among)), dtype=np.uint64)
    return below + (words < (up * 2.0**64).astype(np.uint64))


def expected_counts(
    question: Quantiles, cut: Cut, n: int, cells: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(float64[cells], float64[cells]): how many of ``n`` devices are expected in each cell, the
    last being "no answer", and the variance that rounding gives their number up to each.
    """
    parts = min(n, _FEWER_PARTS if question.worst else _PARTS)
    ones, ups, squares = _sums(question.shape, cut, parts, cells)
    moved = n * ups
    held = n * ones - moved
    held[1:] += moved[:-1]
    return held, np.asarray(np.maximum(moved - n * squares, 0.0))


def predict_quantiles(
    question: Quantiles, mechanism: Mechanism, domain: Domain, n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(mean squares of the errors, biases), float64[len(at)] each. Raises INVALID for a mechanism
    whose tally has no known law.
    """
    # By the delta method nothing is drawn, and what was found while ranking is found again.
    draws = (
        0
        if isinstance(simplest(mechanism.privacy()), KaryLaw)
        else _DRAWS
        if n <= _LARGE
        else _FEWER
    )
    return _worst(question, mechanism, domain, n, draws)


def heaped_error(question: Quantiles, mechanism: Mechanism, domain: Domain, n: int) -> float:
    """Root of the mean over the quantiles, with half of the devices on one number near the middle:
    where it lies worst between two levels.

    Where draws would be needed the bias alone, which the error is not below.
    """
    levels = domain.levels if isinstance(domain, Numeric) else domain.size
    return max(
        ranked_quantiles(each, mechanism, domain, n) for each in worst_heaps(question, levels)
    )


def ranked_quantiles(question: Quantiles, mechanism: Mechanism, domain: Domain, n: int) -> float:
    """Root of the mean over the quantiles, or of the worst of them; where draws would be needed the
    bias alone, which the error is not below.
    """
    return ranked_of(question, _worst(question, mechanism, domain, n, 0)[0])


def least_quantiles(question: Quantiles, mechanism: Mechanism, domain: Domain, n: int) -> float:
    """What ``ranked_quantiles`` is not below, for what takes long to decode (EM); 0 for the others.
    The bias alone, of one decoding in place of two for each output.
    """
    law = simplest(mechanism.privacy())
    if not (isinstance(mechanism, SquareWave) and isinstance(law, KaryLaw)):
        return 0.0
    found = []
    for shape in question.spreads:
        asked = replace(question, shape=shape)
        mixed = _Mixture.of(asked, domain, n, _rows(law))
        tally = _scaled(mixed.shares)
        found.append(quantiles_of(mechanism, domain, tally, asked) - asked.values())
    return ranked_of(question, (np.array(found) ** 2).max(axis=0))


def ranked_of(question: Quantiles, squares: NDArray[np.float64]) -> float:
    """What a plan goes by, of the mean squares of the errors, float64[len(at)]."""
    return math.sqrt(float(squares.max() if question.worst else squares.mean()))


def _worst(
    question: Quantiles, mechanism: Mechanism, domain: Domain, n: int, draws: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each quantile under the shape that is worst for it."""
    found = [
        _predicted(replace(question, shape=each), mechanism.spec, domain, n, draws)
        for each in question.spreads
    ]
    if len(found) == 1:
        return found[0]
    squares, biases = (np.array([each[i] for each in found]) for i in (0, 1))
    at = squares.argmax(axis=0), np.arange(squares.shape[1])
    return squares[at], biases[at]


@lru_cache(maxsize=256)
def _predicted(
    question: Quantiles, spec: MechanismSpec, domain: Domain, n: int, draws: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mechanism = create(spec, domain)
    law = simplest(mechanism.privacy())
    mixed = _Mixture.of(question, domain, n, _rows(law))
    if isinstance(law, KaryLaw):
        squares, biases = _by_delta(question, mechanism, domain, n, mixed)
    else:
        squares, biases = _by_draws(question, mechanism, domain, n, mixed, draws)
    squares.setflags(write=False)
    biases.setflags(write=False)
    return squares, biases


def _rows(law: object) -> NDArray[np.float64]:
    """float64[cells, outputs]: the probabilities of the outputs, which a tally counts."""
    if isinstance(law, KaryLaw):
        rows = np.full((law.k, law.k), law.other / law.total)
        np.fill_diagonal(rows, law.same / law.total)
        return rows
    if isinstance(law, FiniteLaw):
        return np.array([[weight / law.total for weight in row] for row in law.rows])
    raise ShoalError(
        Kind.INVALID,
        "the law of its reports is not known output by output: no errors of quantiles are "
        "predicted",
    )


@lru_cache(maxsize=8)
def _places(
    shape: Spread, levels: int, bins: int, parts: int, among: range
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(cell at or below, chance of the next one) of some of ``parts`` values that are spread as the
    shape says, over levels or over bins.
    """
    shares = (np.arange(among.start, among.stop) + 0.5) / parts
    values = shape.quantiles(shares)
    if bins:
        return np.clip((values * bins).astype(np.int64), 0, bins - 1), np.zeros(len(among))
    at = values * (levels - 1)
    below = np.clip(at.astype(np.int64), 0, levels - 2)
    return below, np.clip(at - below, 0.0, 1.0 - 2.0**-53)


@lru_cache(maxsize=256)
def _sums(
    shape: Spread, cut: Cut, parts: int, rows: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """``ones``, ``ups`` and ``squares`` of a mixture: they are the same at every epsilon."""
    below, up = _places(shape, *cut, parts, range(parts))
    ones, ups, squares = (
        np.bincount(below, weights=up**power, minlength=rows) / parts for power in range(3)
    )
    return ones, ups, squares


def cut_of(domain: Domain) -> Cut:
    """Into what the domain cuts the range."""
    return (domain.levels, 0) if isinstance(domain, Numeric) else (0, domain.size - 1)


@dataclass(frozen=True, slots=True)
class _Mixture:
    """The laws of all devices' reports. Those whose number lies a share f of a step above level j
    report by row j with probability 1 - f and by the next row with f: sums of 1, f and f^2 over
    them, divided by the number of devices, are all that is needed.

    ``rows``, ``steps``: float64[cells, outputs], the row and what the next one has more; ``ones``,
    ``ups``, ``squares``: float64[cells].
    """

    rows: NDArray[np.float64]
    steps: NDArray[np.float64]
    ones: NDArray[np.float64]
    ups: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, question: Quantiles, domain: Domain, n: int, rows: NDArray[np.float64]) -> _Mixture:
        parts = min(n, _FEWER_PARTS if question.worst else _PARTS)
        sums = _sums(question.shape, cut_of(domain), parts, len(rows))
        return cls(rows, np.diff(rows, axis=0, append=rows[-1:]), *sums)

    @property
    def shares(self) -> NDArray[np.float64]:
        """float64[outputs]: how many of the reports name each output, on average."""
        return self.ones @ self.rows + self.ups @ self.steps

    def variance(self, weights: NDArray[np.float64]) -> float:
        """Of the sum over the reports of weights[output], per device."""
        first, more = self.rows @ weights, self.steps @ weights
        means = self.ones @ first**2 + 2.0 * self.ups @ (first * more) + self.squares @ more**2
        return max(0.0, float(self.shares @ weights**2 - means))

    def covariance(self) -> NDArray[np.float64]:
        """float64[outputs, outputs]: of a device's report, on average."""
        crossed = (self.rows * self.ups[:, None]).T @ self.steps
        means = (
            (self.rows * self.ones[:, None]).T @ self.rows
            + crossed
            + crossed.T
            + (self.steps * self.squares[:, None]).T @ self.steps
        )
        return np.asarray(np.diag(self.shares) - means)


def _by_delta(
    question: Quantiles, mechanism: Mechanism, domain: Domain, n: int, mixed: _Mixture
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shares = mixed.shares

    steps = np.minimum(np.sqrt(shares / n), shares)
    moved = np.diag(steps)
    each = [_scaled(at) for at in (shares, *(shares + moved), *(shares - moved))]
    estimates = quantiles_of_each(mechanism, domain, each, question)
    biases, (more, less) = estimates[0] - question.values(), np.split(estimates[1:], 2)
    gradient = ((more - less) / (2.0 * steps[:, None])).T
    variances = np.array([mixed.variance(weights) for weights in gradient]) / n
    return variances + biases**2, biases


def _by_draws(
    question: Quantiles, mechanism: Mechanism, domain: Domain, n: int, mixed: _Mixture, draws: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean = n * mixed.shares
    if not draws:
        biases = (
            quantiles_of(mechanism, domain, _tally(np.rint(mean)), question) - question.values()
        )
        return biases**2, biases
    spread, axes = np.linalg.eigh(n * mixed.covariance())
    root = axes * np.sqrt(np.maximum(spread, 0.0))
    entropy = SeededEntropy("quantiles of a plan")
    tallies = [
        _tally(np.maximum(0, np.rint(mean + root @ normals(mean.size, entropy))))
        for _ in range(draws)
    ]
    errors = quantiles_of_each(mechanism, domain, tallies, question) - question.values()
    return (errors**2).mean(axis=0), errors.mean(axis=0)


def _scaled(shares: NDArray[np.float64]) -> Tally:
    """The tally of so large a batch with these shares of outputs that it is hardly rounded."""
    return _tally(np.rint(np.maximum(shares, 0.0) * _SCALE))


def _tally(counts: NDArray[np.float64]) -> Tally:
    whole = counts.astype(np.int64)
    return Tally(whole, int(whole.sum()))

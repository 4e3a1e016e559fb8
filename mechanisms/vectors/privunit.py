"""The mean of vectors: a device names one of K public random directions, more likely one of the t
nearest to its own. 18 bytes of report whatever the dimension is, and pure local privacy, exactly.

A device draws a seed, without looking at its vector. The seed stands for K public vectors, near
Gaussian (``gaussian_table``). With probability T / 2^64 the device names one of the K uniformly,
else one of the t = ``inside`` whose inner products with its own vector u are the largest. It sends
seed and index. The analyzer adds up the vectors that were named: in direction of u they lean by
m = (1 - T / 2^64) c, c the mean of the t largest of K normal numbers, and in no other direction.

**Sources.** That one of two caps of the sphere is chosen by a coin: Duchi, Jordan, Wainwright,
"Minimax optimal procedures for locally private estimation", JASA 2018; PrivUnit: Bhowmick, Duchi,
Freudiger, Kapoor, Rogers, 2018 (arXiv 1812.00984); with Gaussians, and optimal: Asi, Feldman,
Talwar, "Optimal algorithms for mean estimation under local differential privacy", ICML 2022. Seeds
in place of vectors: Feldman, Talwar, "Lossless compression of efficient private local randomizers",
ICML 2021. The t nearest of K in place of a threshold: Isik, Chen, Ozgur, Weissman, No, "Exact
optimality of communication-privacy-utility tradeoffs in distributed mean estimation", NeurIPS 2023
(with rotated codes; independent Gaussians here).

**Privacy.** Of every seed and every vector *exactly* t of the K indices are near. So a pair (seed,
index) has one of two probabilities, whatever the vector is, and out of 2^64 k times the number of
pairs, k = K / t, they are

    near:  k (2^64 - T) + T          other:  T,

the weights of k-ary randomized response over k cells. Nothing is assumed of the seeds' vectors: a
poor generator would cost accuracy, and nobody's privacy. docs/ACCOUNTING.md has the law after
shuffling, and why vectors of opposite directions are the worst pair.

**Lengths.** A vector x of length up to ``clip`` gets one more coordinate, the root of clip^2 -
|x|^2, and is of length ``clip`` then. The zero vector, and a missing one, is that coordinate alone:
its report says nothing of any direction of x. No vector is scaled up, so the mean stays unbiased.

**What depends on the vector.** Nothing but the index: K candidates are made and compared for every
report, and the same words are drawn. (A threshold would be tried until a candidate fits, and how
long that takes tells the coin.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from shoal.arrays import NDArray, np
from shoal.domain import Domain, Norm, Vector
from shoal.entropy import Entropy
from shoal.mechanisms.base import Estimate, Parameter, Setting, Tally, invalid
from shoal.mechanisms.parts.one_device import OneDevice
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.mechanisms.vectors.gaussian_table import (
    LARGEST,
    SEED_SIZE,
    UNIT,
    candidates,
    reported,
    variance,
)
from shoal.mechanisms.vectors.order_statistics import largest
from shoal.mechanisms.vectors.protocol import MEAN_OF_COORDINATE
from shoal.privacy import SymmetricLaw
from shoal.task import MechanismSpec

NAME = "privunit"
REPORT_SIZE = SEED_SIZE + 2
MOST_CANDIDATES = 1 << 14  # beyond, the ends of the table would be told from a Gaussian's
MOST_DIMENSION = (1 << 16) - 1
USUAL = 1_024
LEAST_GRID, MOST_GRID = 1 << 16, 1 << 22
# Coordinates of all candidates that one report looks at: 128 MiB of a stream, most of a second.
MOST_WORK = 1 << 26
PARAMETERS = (
    Parameter("dimension", 1, MOST_DIMENSION, "coordinates of the domain's vector"),
    Parameter("candidates", 2, MOST_CANDIDATES, "directions of a seed, a power of two"),
    Parameter("inside", 1, MOST_CANDIDATES // 2, "of these the nearest, a power of two"),
    Parameter("uniform", 1, WORDS - 1, "probability, out of 2^64, that any of them is named"),
)
_BLOCK = 1 << 19  # coordinates that are looked at together
_SQUARE = LARGEST**2


@dataclass(frozen=True, slots=True)
class PrivUnit:
    """``candidates``: K, ``inside``: t, both powers of two, 2 t <= K; ``uniform``: T out of 2^64.
    Raises INVALID for anything else, and for a domain that it does not serve.
    """

    domain: Vector
    candidates: int
    inside: int
    uniform: int

    def __post_init__(self) -> None:
        check_domain(self.domain)
        k, t = self.candidates, self.inside
        if not 2 <= k <= MOST_CANDIDATES or k & (k - 1) or t < 1 or t & (t - 1) or 2 * t > k:
            raise invalid(
                f'{NAME}: "candidates" and "inside" are powers of two, candidates 2 to '
                f"{MOST_CANDIDATES:,} and inside at most half of it"
            )
        if not 1 <= self.uniform < WORDS:
            raise invalid("uniform is 1 to 2^64 - 1")
        if k * self._width > MOST_WORK:
            raise invalid(
                f"{k:,} candidates of {self._width:,} coordinates are too many for a device to "
                f"look at: {MOST_WORK // self._width:,} are the most, take fewer"
            )

    @property
    def name(self) -> str:
        """The family's name in tasks."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers: what a task carries."""
        return MechanismSpec.of(
            NAME,
            dimension=self.domain.dimension,
            candidates=self.candidates,
            inside=self.inside,
            uniform=self.uniform,
        )

    @property
    def report_size(self) -> int:
        """18: a seed of 16 bytes, and an index of 2."""
        return REPORT_SIZE

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    @property
    def _width(self) -> int:
        """Coordinates of a candidate: one more than those of the domain."""
        return self.domain.dimension + 1

    @property
    def lean(self) -> float:
        """m: how far the vectors that are named lean towards the device's own, on average, in
        standard deviations of a coordinate.
        """
        return (WORDS - self.uniform) / WORDS * largest(self.candidates, self.inside)[0]

    # --- a device -----------------------------------------------------------------------------

    def randomize_vector(self, vector: NDArray[np.int64], entropy: Entropy) -> tuple[bytes, ...]:
        """One report of a quantized vector, int64[dimension] (``quantize``). Draws a seed of 16
        bytes, a word of 8 and two of 2, whatever the vector is, and looks at all candidates.

        Raises INVALID, before anything is drawn, for another shape or type, and for coordinates
        beyond the grid.
        """
        own = lengthened(self._checked(vector), self.domain.grid)
        draws = OneDevice(entropy)
        seed = draws.seed(SEED_SIZE)
        uniform = draws.coin(self.uniform)
        near = draws.below_power(self.inside)
        anywhere = draws.below_power(self.candidates)
        order = nearest_first(seed, self.candidates, own)
        index = draws.where(uniform, anywhere, int(order[near]))
        return (seed + index.to_bytes(2, "big"),)

    def randomize(self, vectors: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, 18] from int64[n, dimension]: the same draw for n devices, one by one."""
        reports = [self.randomize_vector(vector, entropy)[0] for vector in vectors]
        return np.frombuffer(b"".join(reports), dtype=np.uint8).reshape(-1, 1, REPORT_SIZE)

    def _checked(self, vector: NDArray[np.int64]) -> NDArray[np.int64]:
        if vector.shape != (self.domain.dimension,) or vector.dtype != np.int64:
            raise invalid(
                f"a vector to randomize has {self.domain.dimension:,} whole coordinates: quantize "
                "it with the task's domain"
            )
        if int(vector.max()) > self.domain.grid or int(vector.min()) < -self.domain.grid:
            raise invalid(
                "a coordinate to randomize lies beyond the grid: quantize the vector with the "
                "task's domain"
            )
        return vector

    # --- the analyzer -------------------------------------------------------------------------

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: the reports of uint8[rows, 18] whose index is below ``candidates``; every
        seed is one. Raises INVALID for another width.
        """
        return self._index(reports) < self.candidates

    def _index(self, reports: NDArray[np.uint8]) -> NDArray[np.int64]:
        if reports.ndim != 2 or reports.shape[1] != REPORT_SIZE:
            raise invalid(f"reports of {NAME} are {REPORT_SIZE} bytes wide")
        high, low = reports[:, -2].astype(np.int64), reports[:, -1].astype(np.int64)
        return (high << 8) | low

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """Per coordinate the sum of the vectors that were named, and then of their squares:
        int64[2 (dimension + 1)], weight 17,971^2. Memory: some blocks of coordinates, whatever the
        number of reports. Raises INVALID if a row is not ``valid``.
        """
        index = self._index(reports)
        if not (index < self.candidates).all():
            raise invalid("a report names no candidate of its seed: filter by valid first")
        sums = np.zeros(2 * self._width, dtype=np.int64)
        for rows in _blocks(len(reports), self._width):
            named = reported(reports[rows, :SEED_SIZE], index[rows], self._width)
            sums[: self._width] += named.sum(axis=0, dtype=np.int64)
            squares = named.astype(np.float64)  # below 2^29 each: their sums are exact
            squares *= squares
            sums[self._width :] += squares.sum(axis=0).astype(np.int64)
        return Tally(sums, len(reports), _SQUARE)

    def estimate(self, tally: Tally) -> Estimate:
        """The mean vector of the devices in the domain's unit, a missing vector counted as zero.
        Unbiased but for what ``gaussian_table`` says: at most 1.1 x 10^-3 of a coordinate, and 2 x
        10^-4 with 4,096 candidates or fewer.

        A device's squared coordinate u^2 adds v (1 + e u^2) to the variance of a sum, v that of an
        entry; the sums of squares tell u^2 on average. Where e is below 0 it is left out. Raises
        INVALID for a tally of another mechanism.
        """
        if tally.counts.shape != (2 * self._width,) or tally.weight != _SQUARE:
            raise invalid("a tally of another mechanism: it does not fit this task's vector")
        d, n = self.domain.dimension, max(1, tally.rows)
        clip, mean_square = self.domain.clip, tally.counts[self._width :][:d] / (n * UNIT**2)
        values = tally.counts[:d] / (n * UNIT * self.lean) * clip
        grown = self._kept * (largest(self.candidates, self.inside)[1] - 1.0)
        squares = np.zeros(d)
        if self._excess > 0.0:
            squares = np.clip((mean_square / variance() - 1.0) / grown, 0.0, 1.0)
        labels = tuple(label + MEAN_OF_COORDINATE for label in self.domain.labels)
        return Estimate.wald(labels, values, self.expected_stderr(n, squares))

    def expected_stderr(self, n: int, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[dimension]: the standard error of each coordinate of the mean of ``n`` >= 1
        devices, in the domain's unit, when the square of that coordinate is ``squares`` on average,
        in clips squared: 0 to 1. Exact for Gaussian candidates; where the square makes it smaller,
        that is left out.
        """
        each = variance() * (1.0 + max(0.0, self._excess) * squares)
        return np.asarray(np.sqrt(each / n) / self.lean * self.domain.clip)

    @property
    def _kept(self) -> float:
        return (WORDS - self.uniform) / WORDS

    @property
    def _excess(self) -> float:
        """e: a report's variance along the device's own vector is that of any other direction times
        1 + e.
        """
        mean, square = largest(self.candidates, self.inside)
        return self._kept * (square - 1.0) - (self._kept * mean) ** 2

    def privacy(self) -> SymmetricLaw:
        """Classes of pairs (seed, index): near to a vector, near to its opposite, and others."""
        return law(self.candidates // self.inside, self.uniform)


def law(k: int, uniform: int) -> SymmetricLaw:
    """The law of a vector and its opposite, k = K / t >= 2: out of k 2^64. No pair of vectors is
    told apart better (docs/ACCOUNTING.md).
    """
    near, other = k * (WORDS - uniform) + uniform, uniform
    rest = ((k - 2) * other,) if k > 2 else ()
    return SymmetricLaw(
        one=(near, other, *rest), two=(other, near, *rest), least=(other, other, *rest)
    )


def lengthened(vector: NDArray[np.int64], grid: int) -> NDArray[np.int64]:
    """int64[d + 1]: with one more coordinate, >= 0, which makes its length ``grid`` or just less;
    0 where it is as long already.
    """
    squares = sum(int(each) for each in vector.astype(object) ** 2) if vector.size else 0
    return np.append(vector, np.int64(math.isqrt(max(0, grid * grid - squares))))


def nearest_first(seed: bytes, count: int, own: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[count]: the candidates of a seed by their inner product with ``own``, the largest
    first. Equal ones by their index, rising if the first coordinate of ``own`` that is not 0 is
    above 0, else falling: the order of -own is exactly the reverse.

    Inner products are exact: absolute values add up to 2^16 x 2^22 x 17,971 < 2^53 at most, so that
    no order of adding up rounds anything.
    """
    factors, products = own.astype(np.float64), np.empty(count)
    for part in _blocks(count, own.size):
        made = candidates(seed, part.start, part.stop - part.start, own.size)
        products[part] = made.astype(np.float64) @ factors
    leading = own[np.flatnonzero(own)[:1]]
    falling = bool(leading.size) and int(leading[0]) < 0
    index = np.arange(count)
    return np.asarray(np.lexsort((-index if falling else index, -products)))


def _blocks(rows: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK // width)
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))


def check_domain(domain: Domain) -> Vector:
    """The same domain. Raises INVALID unless it is a vector of length up to its clip that this
    mechanism can serve.
    """
    if not isinstance(domain, Vector):
        raise invalid(f"{NAME} randomizes vectors: this domain has cells, choose another mechanism")
    if domain.norm is not Norm.L2:
        raise invalid(f'{NAME} randomizes vectors of bounded length: set norm = "l2"')
    if domain.dimension > MOST_DIMENSION:
        raise invalid(
            f"{NAME} takes vectors of at most {MOST_DIMENSION:,} coordinates: sum longer ones "
            'with aggregator = "pairwise"'
        )
    if not LEAST_GRID <= domain.grid <= MOST_GRID:
        raise invalid(
            f"the grid of a vector for {NAME} is {LEAST_GRID:,} to {MOST_GRID:,} steps: leave it "
            "out for the usual one"
        )
    return domain


# --- choosing the integers ------------------------------------------------------------------------


def design_at(count: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    """The integers for ``count`` candidates: of all t the one that leans most, its T the smallest
    that keeps epsilon0. Raises INVALID.
    """
    known = check_domain(domain)
    best: PrivUnit | None = None
    for inside in (1 << at for at in range(count.bit_length() - 1)):
        k = count // inside
        made = PrivUnit(known, count, inside, least_noise(partial(law, k), WORDS - 1, epsilon0))
        if best is None or made.lean > best.lean:
            best = made
    assert best is not None  # noqa: S101 - count is 2 or more
    return best.spec


def settings(domain: Domain) -> tuple[Setting, ...]:
    """The first takes 1,024 candidates, which suits every length; others as many as a device can
    look at.
    """
    width = check_domain(domain).dimension + 1
    counts = [each for each in (64, 256, 4_096, 16_384) if each * width <= MOST_WORK]
    return (
        Setting("standard", f"{USUAL:,} candidates", partial(design_at, USUAL)),
        *(
            Setting(f"K={each}", f"{each:,} candidates", partial(design_at, each))
            for each in counts
        ),
    )


def create(spec: MechanismSpec, domain: Domain) -> PrivUnit:
    """Of a task's integers, which the registry has checked for their ranges. Raises INVALID."""
    known = check_domain(domain)
    if spec.get("dimension") != known.dimension:
        raise invalid(
            f'{NAME}: the parameter "dimension" is {spec.get("dimension")}, but the domain has '
            f"{known.dimension} coordinates: set dimension = {known.dimension}"
        )
    return PrivUnit(known, spec.get("candidates"), spec.get("inside"), spec.get("uniform"))

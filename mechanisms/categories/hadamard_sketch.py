"""Hadamard count mean sketch: one bit of the Hadamard transform of the cell's hash, under one of h
public functions.

Apple Differential Privacy Team, "Learning with privacy at scale", Apple Machine Learning Journal
1.8, 2017: algorithms Client-HCMS and Server-HCMS. The sketch of ``count_sketch`` in one bit: for
shorter reports, at the price of more error where epsilon0 is large.

The device draws a function j, uniform on h, and a column l, uniform on m; it reports both, and the
parity of l & h_j(cell), flipped with probability T / 2^64, T = ``flip`` (the paper's 1 / (1 +
e^epsilon0)). A report is (j m + l) 2 + bit, big-endian in as few bytes as hold the log2 h + log2 m
+ 1 bits; the bits above are 0. Its randomness is a 64-bit word for the flip, and 32-bit words for j
and for l.

**Privacy.** e^epsilon0 = (2^64 - T) / T, exactly. The functions are public; given j, two cells
whose hashes differ are two cells of ``hadamard`` with m cells: l is uniform, and how a report
supports both is distributed as under an ideal hash to 2 values. Stated is the law of two cells that
*no* function sends to one value, ``laws.local_hash(2, ratio, 3)`` with nothing said of a third. For
every other pair the proof of ``count_sketch`` holds word for word, with 1/2 for q: in a row where
two cells collide, a report supports both or none, with 1/2 each of the base measure, and moving 1/4
from either to (only the first) and (only the second) makes it that of cells that do not collide.
The clones' sum has the clone probability 1 / r too, and lower bounds are of a pair of the task's
labels, as there.

Even a bit that is never flipped leaves a variance of one per report, the price of drawing l.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.mechanisms.base import Estimate, Family, Parameter, Setting, Tally, invalid
from shoal.mechanisms.categories.hadamard import least_flip, ratio
from shoal.mechanisms.parts import cells, laws, numbered
from shoal.mechanisms.parts.draws import Draws, Field, Lane
from shoal.mechanisms.parts.hadamard_transform import walsh_hadamard
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.sketches import (
    MOST_FUNCTIONS,
    Noise,
    Sketch,
    check_domain,
    seed_of,
    shapes,
)
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.privacy import RealPair, SymmetricLaw
from shoal.task import MechanismSpec

NAME = "hadamard_sketch"
PARAMETERS = (
    Parameter("flip", 1, WORDS // 2 - 1, "probability, out of 2^64, that the bit is flipped"),
    Parameter("h", 1, MOST_FUNCTIONS, "number of hash functions, a power of two"),
    Parameter("m", 2, MOST_FUNCTIONS, "values of a hash function, a power of two"),
    Parameter("seed", 0, WORDS - 1, "which hash functions"),
)


@dataclass(frozen=True, slots=True)
class HadamardSketch:
    """``sketch``: the public functions and the labels; ``flip``: T out of 2^64, below one half."""

    sketch: Sketch
    flip: int

    def __post_init__(self) -> None:
        if not 1 <= self.flip < WORDS // 2:
            raise invalid(f'{NAME}: the parameter "flip" is 1 to 2^63 - 1')

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries: ``h``, ``m`` and ``seed`` of the public
        functions, and ``flip``.
        """
        return MechanismSpec.of(
            NAME, flip=self.flip, h=self.sketch.h, m=self.sketch.m, seed=self.sketch.seed
        )

    @property
    def room(self) -> int:
        """How many reports there are: 2 h m."""
        return 2 * self.sketch.h * self.sketch.m

    @property
    def report_size(self) -> int:
        """As few bytes as hold a number below 2 h m."""
        return numbered.report_size(self.room)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    @property
    def _noise(self) -> Noise:
        """A sign over 1 - 2 q has the square 1 / (1 - 2 q)^2 for all m values of the row; its
        expectation is 1 for its own hash, else 0.
        """
        gap = WORDS - 2 * self.flip
        return Noise(
            4 * self.flip * (WORDS - self.flip) / gap**2,
            WORDS**2 / gap**2,
            self.sketch.m * (WORDS**2 / gap**2),
        )

    def draw(self, value: Lane, draws: Draws) -> Field:
        """A coin, a function and a column, whatever the cell is."""
        flipped = draws.coin(self.flip)
        index = draws.below(self.sketch.h)
        column = draws.below(self.sketch.m)
        bit = draws.odd(column & draws.hashed(self.sketch, index, value)) ^ flipped
        return draws.number(2 * (index * self.sketch.m + column) + bit, self.report_size)

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws a function, an index and the
        coin. Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.sketch.size, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(self.draw, values, self.sketch.size, entropy, self.report_size)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: nothing is set above the bits of a report."""
        return numbered.valid(reports, self.room)

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports whose bit is the one that the cell would have in their column,
        unflipped. Of valid reports.
        """
        numbers = numbered.decode(reports, self.room).astype(np.int64)
        index, column = np.divmod(numbers >> 1, self.sketch.m)
        supported: NDArray[np.bool_] = np.equal(
            np.bitwise_count(column & self.sketch.hash_many(index, np.array([cell]))) & 1,
            numbers & 1,
        )
        return supported

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How often each report was made: entry (j m + l) 2 + bit of 2 h m."""
        return numbered.tally(reports, self.room)

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per label; ``sketches`` says what the standard errors are.
        Transformed in integers, exactly.
        """
        counts = (
            cells.counts_of(tally, self.room)
            .astype(np.int64)
            .reshape(self.sketch.h, 2 * self.sketch.m)
        )
        drew = counts.sum(axis=1)
        rows = np.flatnonzero(drew)
        signs = counts[rows, 0::2] - counts[rows, 1::2]
        table = walsh_hadamard(signs).astype(np.float64) * (WORDS / (WORDS - 2 * self.flip))
        return self.sketch.estimate(rows, table, drew[rows], self._noise)

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[labels] from int64[labels]: of an open vocabulary all devices hold a label."""
        return self.sketch.expected_stderr(counts, self._noise)

    def privacy(self) -> SymmetricLaw:
        """The law for two cells that the function tells apart, exactly: an upper bound for every
        pair. ``real`` names a pair of the labels, for lower bounds.
        """
        odds = ratio(self.flip)
        pair = self.sketch.pair(Fraction(1, 2), 2 * odds / (odds + 1), 2 / (odds + 1))
        return law(self.flip, pair)


def law(flip: int, real: RealPair | None = None) -> SymmetricLaw:
    """The output law of two cells that never collide, T = ``flip``; nothing is said of a third.
    ``real``: two labels, for lower bounds.
    """
    return replace(laws.local_hash(2, ratio(flip), 3, wise=2), real=real)


def _create(spec: MechanismSpec, domain: Domain) -> HadamardSketch:
    return HadamardSketch(
        Sketch.of(domain, spec.get("seed"), spec.get("h"), spec.get("m")), spec.get("flip")
    )


def _with(h: int, m: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    return MechanismSpec.of(NAME, flip=least_flip(epsilon0), h=h, m=m, seed=seed_of(domain))


def _settings(domain: Domain) -> tuple[Setting, ...]:
    check_domain(domain)
    return tuple(
        Setting(f"h={h} m={m}", f"{h} functions to {m} values", partial(_with, h, m))
        for h, m in shapes(domain)
    )


SUMMARY = (
    "Hadamard count mean sketch: how many devices gave each of the words looked for, by one bit "
    "each"
)
FAMILY = Family(NAME, SUMMARY, PARAMETERS, _create, _settings, words=True)

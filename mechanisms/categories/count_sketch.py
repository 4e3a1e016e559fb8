"""Count mean sketch: m bits around the hash of the cell, under one of h public functions, each
flipped by itself.

Apple Differential Privacy Team, "Learning with privacy at scale", Apple Machine Learning Journal
1.8, 2017: algorithms Client-CMS and Server-CMS. For cells too many to list, the words of an open
vocabulary: a report is as long as m says, however many words there are, and the labels that are
looked for may be chosen for their number.

The device draws a function j, uniform on h, and m bits, all 0 but that of its cell's hash; each is
flipped with probability T / 2^64, T = ``flip`` (the paper's 1 / (1 + e^(epsilon0 / 2))). A report
is j, big-endian in 1 or 2 bytes, and the bits as a bitmap (``bitmaps``). Its randomness is one
32-bit word for j, and one 64-bit word per bit in their order.

**Privacy.** The functions are public. Given j, two cells whose hashes differ make reports that
differ in two bits, so

    e^epsilon0 = ((2^64 - T) / T)^2, exactly, for the report.

Which cells collide differs from pair to pair. Stated is the law of two cells that *no* function
sends to one value, which is that of symmetric unary encoding over three cells or more
(``laws.unary``): j is uniform whatever the cell is, so a class gathers the outputs of all rows, and
``least`` is the weight under an input that the report does not support, below the weight under any
input. For every other pair, with r the ratio, q = T / 2^64, w the least weight and e =
exp(epsilon), 1 <= e <= r:

*The blanket's sum* (accounting/numerics/cells.py). A report adds L = (P(y | x) - e P(y | x')) / w
with probability w. In a row where x and x' do not collide, up to one factor that all terms have, L
is r - e with weight q (1 - q), 1 - e r with q (1 - q), r (1 - e) with q^2 and 1 - e with (1 - q)^2.
In a row where they collide it is r (1 - e) with q and 1 - e with 1 - q. The first law is the second
after a weight of q (1 - q) at r (1 - e) and as much at 1 - e have moved to r - e and 1 - e r. These
lie outside of the former two and have the same sum, so the first is larger in convex order.
Mixtures (over rows) and sums of independent values keep that order, and (.)_+ is convex. So the
more rows a pair collides in, the smaller its sum: no row at all is the worst.

*The clones' sum* (accounting/bounds/clones.py). Its clone probability is the least of 2 w / (P(y |
x) + P(y | x')): that of reports which support both cells, 1 / r. With it the sum is that of *any*
randomizer whose ratios are at most r (Feldman, McMillan, Talwar 2021), whatever pair.

*Lower bounds* are those of two of the task's own labels, the pair that the fewest functions send to
one value (``sketches.HashedPair``): a few categories may all collide in some row, and then lose
less than the law that is stated.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.limits import LIMITS
from shoal.mechanisms.base import Estimate, Family, Parameter, Setting, Tally, invalid
from shoal.mechanisms.parts import bitmaps, cells, laws
from shoal.mechanisms.parts.draws import Draws, Field, Lane
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.sampling import blocks
from shoal.mechanisms.parts.sketches import (
    MOST_FUNCTIONS,
    Noise,
    Sketch,
    check_domain,
    seed_of,
    shapes,
)
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import PureLaw, RealPair, SymmetricLaw
from shoal.task import MechanismSpec

NAME = "count_sketch"
_MOST_BITS = 4 * LIMITS.report_bytes  # the largest power of two that leaves room for j
PARAMETERS = (
    Parameter("flip", 1, WORDS // 2 - 1, "probability, out of 2^64, that a bit is flipped"),
    Parameter("h", 1, MOST_FUNCTIONS, "number of hash functions, a power of two"),
    Parameter("m", 2, _MOST_BITS, "values of a hash function, a power of two: bits of a report"),
    Parameter("seed", 0, WORDS - 1, "which hash functions"),
)
_WORDS_AT_ONCE = 32_768  # 256 KiB: they, and the bits made of them, stay in cache


@dataclass(frozen=True, slots=True)
class CountSketch:
    """``sketch``: the public functions and the labels; ``flip``: T out of 2^64, below one half."""

    sketch: Sketch
    flip: int

    def __post_init__(self) -> None:
        if self.sketch.m > _MOST_BITS:
            raise invalid(f'{NAME}: the parameter "m" is at most {_MOST_BITS}')
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
    def report_size(self) -> int:
        """The number of the function (1, 2 or 4 bytes), and a bitmap of m bits."""
        return self._index_size + bitmaps.report_size(self.sketch.m)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    @property
    def _index_size(self) -> int:
        return cells.report_size(self.sketch.h)

    @property
    def _noise(self) -> Noise:
        """A bit less q, over 1 - 2 q, has the variance q (1 - q) / (1 - 2 q)^2 whatever it stands
        for: from integers, without loss.
        """
        variance = self.flip * (WORDS - self.flip) / (WORDS - 2 * self.flip) ** 2
        return Noise(variance, variance, self.sketch.m * variance + 1.0)

    def draw(self, value: Lane, draws: Draws) -> Field:
        """A function, and m words, whatever the cell is."""
        index = draws.below(self.sketch.h)
        bits = draws.coins(self.sketch.m, self.flip)
        bits = draws.flipped(bits, draws.hashed(self.sketch, index, value))
        return draws.joined(draws.number(index, self._index_size), draws.bitmap(bits))

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws a function, and one word of 8
        bytes per bit. Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.sketch.size, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(
            self.draw,
            values,
            self.sketch.size,
            entropy,
            self.report_size,
            _WORDS_AT_ONCE // self.sketch.m,
        )

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: the function is one of h, and no padding bit is set."""
        index, bits = self._split(reports)
        return np.less(index, self.sketch.h) & bitmaps.valid(bits, self.sketch.m)

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports in which the bit of the cell's hash is set. Of valid reports."""
        index, bits = self._split(reports)
        places = self.sketch.hash_many(index, np.array([cell]))
        supported: NDArray[np.bool_] = np.not_equal(
            bits[np.arange(index.size), places >> 3] & (128 >> (places & 7)), 0
        )
        return supported

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How often each bit of each function was set, h rows of m, and then how many reports drew
        each function.
        """
        if not self.valid(reports).all():
            raise invalid(
                "a report names no function of the sketch, or has bits beyond its values: keep "
                "only the rows that valid() accepts"
            )
        h, m = self.sketch.h, self.sketch.m
        index, bits = self._split(reports)
        drew = np.bincount(index, minlength=h)
        order = np.argsort(index, kind="stable")
        counts = np.zeros((h, m), dtype=np.int64)
        for part in blocks(reports.shape[0], max(1, 64 * _WORDS_AT_ONCE // m)):
            chosen = order[part]
            set_bits = np.unpackbits(bits[chosen], axis=1, count=m)
            rows, first = np.unique(index[chosen], return_index=True)
            counts[rows] += np.add.reduceat(set_bits, first, axis=0, dtype=np.int64)
        return Tally(np.concatenate((counts.reshape(-1), drew)), reports.shape[0])

    def _split(self, reports: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """(functions, bitmaps) of the reports, unchecked. Raises INVALID for another shape."""
        if reports.ndim != 2 or reports.shape[1] != self.report_size or reports.dtype != np.uint8:
            raise invalid(f"reports are uint8[rows, {self.report_size}]")
        width = self._index_size
        index = np.ascontiguousarray(reports[:, :width]).view(f">u{width}")[:, 0].astype(np.int64)
        return index, np.ascontiguousarray(reports[:, width:])

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per label; ``sketches`` says what the standard errors are."""
        h, m = self.sketch.h, self.sketch.m
        counts = cells.counts_of(tally, h * (m + 1))
        rows = np.flatnonzero(counts[h * m :])
        drew = counts[h * m :][rows]
        table = (counts[: h * m].reshape(h, m)[rows] - drew[:, None] * (self.flip / WORDS)) * (
            WORDS / (WORDS - 2 * self.flip)
        )
        return self.sketch.estimate(rows, table, drew.astype(np.int64), self._noise)

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[labels] from int64[labels]: of an open vocabulary all devices hold a label."""
        return self.sketch.expected_stderr(counts, self._noise)

    def privacy(self) -> SymmetricLaw:
        """The law for two cells that the function tells apart, exactly: an upper bound for every
        pair. ``real`` names a pair of the labels, for lower bounds.
        """
        q = Fraction(self.flip, WORDS)
        return law(self.flip, self.sketch.pair(q, (1 - q) / q, q / (1 - q)))


def law(flip: int, real: RealPair | None = None) -> SymmetricLaw:
    """The output law of two cells that never collide, T = ``flip``; nothing is said of a third.
    ``real``: two labels, for lower bounds.
    """
    q = Fraction(flip, WORDS)
    three = laws.unary(3, 1 - q, q)
    return SymmetricLaw(one=three.one, two=three.two, least=three.least, real=real)


def ratio(flip: int) -> Fraction:
    """e^epsilon0 of a report, exactly."""
    return Fraction(WORDS - flip, flip) ** 2


def least_flip(epsilon0: float) -> int:
    """The smallest T that keeps epsilon0. Raises INVALID if none below one half does."""
    return least_noise(lambda flip: PureLaw(ratio(flip)), WORDS // 2 - 1, epsilon0)


def _create(spec: MechanismSpec, domain: Domain) -> CountSketch:
    return CountSketch(
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


FAMILY = Family(
    NAME,
    "count mean sketch: how many devices gave each of the words looked for",
    PARAMETERS,
    _create,
    _settings,
    words=True,
)

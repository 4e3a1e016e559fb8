"""Local hashing: a random hash function of the device's own to g values, and g-ary randomized
response on the hash of its cell.

Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation", USENIX
Security 2017, section 4.4 (g = 2, "binary") and 5.2 (g near e^epsilon0 + 1, "optimized"). A report
is the seed of the function, which anybody may read, and one cell of g: 9 or 10 bytes for any number
of cells.

**The hash.** a and b are uniform over all 32-bit words (a may be even, or 0), drawn by the device,
and

    h(x) = ((a x + b) mod 2^32) >> (32 - log2 g)

Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer arithmetic
without primes", STACS 1996. For any two different x, y below 2^16 the pair (h(x), h(y)) is
*exactly* uniform over all g^2 pairs. Proof: c = (a x + b) mod 2^32 is uniform and, b being uniform,
independent of a. With y - x = 2^t * odd, t <= 15, the word m = a (y - x) mod 2^32 is uniform over
the multiples of 2^t. h(x) and h(y) are the top log2 g <= 16 bits of c and of c + m, and whatever c
is, the upper 32 - t >= 17 bits of c + m are uniform. For keys of u bits and words of w bits this
wants w >= u + log2 g - 1. One bit less is too few: for y - x = 2^(u - 1) both values then have the
same lowest bit. Nothing is claimed of three cells: for three in arithmetic progression the third
hash nearly follows from the others.

**The law.** T = ``uniform``. Given the seed a cell is h(x) with weight g (2^64 - T) + T and any
other with weight T, out of g * 2^64. Over seed and cell together, how a report supports x (its cell
is h(x)) and x' is distributed as under an ideal hash, so the law is ``laws.local_hash(g, ratio, k,
wise=2)``, with ``third`` left out. Its ``least``, a lower bound on an output's weight under *every*
input, is the weight T even for outputs that support both x and x'. For k = 2 the law knows that
there it is the larger weight. For k >= 3 it is not exact but sound: the seeds that send all k cells
to one value (a = 0, or a k below 2^32 / g: some 1 seed in g k, far more than the g^(1-k) of an
ideal hash) make outputs that every input supports, and what is stated for them is too small. That
claims less of what all answers have in common, never more.

**Which g.** An estimate at frequency 0 has variance n / ((1 - T/2^64)^2 (g - 1)): of the n / (g -
1) reports that chance makes support a cell, and of the share 1 - T/2^64 that is true. Without a
shuffler most reports must be uniform, and the optimum is g near e^epsilon0 + 1. With one, few
uniform reports hide everybody, and chance support by *true* reports hides nobody: who knows the
others' cells reads it off their seeds. At a small g it is nearly all of the error, so after
shuffling a larger g wins, until the uniform share costs more than the chance that it saves; a cell
that many devices hold pays for uniform reports sooner. For k = 65,536, n = 10,000, central epsilon
1 and delta 1e-6, with the largest epsilon0 of ``accounting.solve.largest_epsilon0(lambda e: law(k,
g, least_uniform(g, e)), 1, 1e-6, n)`` and the standard errors of ``expected_stderr`` for a cell
that nobody and one that a tenth of the devices hold:

    g             2     16     64    256   1024   4096   8192  16384    krr
    epsilon0   5.94   5.58   5.71   6.06   6.62   7.27   7.59   7.86   8.34
    T / 2^64   0.01   0.06   0.18   0.37   0.58   0.74   0.80   0.86   0.94
    nobody    100.5   27.4   15.3   10.0    7.4    6.0    5.7    5.7    6.3
    a tenth    95.4   27.2   20.7   26.3   37.6   53.7   64.5   79.8  125.3

The g near e^epsilon0 + 1 is 512 here: 8.5 and 31.5. At g >= k, k-ary response is better in every
respect (``_free_g``). With 100,000 devices it is better for rare cells at k = 65,536 too (5.2,
against 6.8 at g = 16,384), though not for frequent ones (193, against 37 at g = 256).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import exp

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.limits import LIMITS
from shoal.mechanisms.base import Estimate, Family, Parameter, Setting, Tally, invalid
from shoal.mechanisms.categories.krr import check_k, least_uniform
from shoal.mechanisms.parts import cells, laws
from shoal.mechanisms.parts.draws import Draws, Field, Lane
from shoal.mechanisms.parts.hash_triple import HashTriple
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.sampling import blocks
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.privacy import SymmetricLaw
from shoal.task import MechanismSpec

NAME = "local_hash"
KEY_BITS = 16  # cells are below 2^16
WIDTH = 32  # bits of a, b and of their sums; 32 >= KEY_BITS + 16 - 1
_SEED = 8  # bytes: a, then b, both big-endian
_MOST_G = 1 << 16
PARAMETERS = (
    Parameter("g", 2, _MOST_G, "values of the hash function, a power of two"),
    Parameter("k", 2, LIMITS.cells, "number of cells of the domain"),
    Parameter(
        "uniform",
        1,
        WORDS - 1,
        "probability, out of 2^64, that the reported cell is uniform over the g values",
    ),
)
# Rows that are counted together: their two words (128 KiB each) stay in a core's second cache. Half
# of it is a fifth slower, at 4,096 the calls take as long as the arithmetic; twice of it gains a
# tenth at most.
_TALLY_BLOCK = 32_768
# Fewer rows than this, and than half the cells, are counted row by row: calls for every cell would
# cost more than the arithmetic.
_FEW = 2_048


def hashed(a: int, b: int, x: int, log2_g: int, width: int = WIDTH) -> int:
    """((a x + b) mod 2^width) >> (width - log2_g). Pure: tests enumerate it with small words."""
    return ((a * x + b) & ((1 << width) - 1)) >> (width - log2_g)


@dataclass(frozen=True, slots=True)
class LocalHash:
    """``labels``: one per cell, in the domain's order; ``g``: values of the hash; ``uniform``: T
    out of 2^64.
    """

    labels: tuple[str, ...]
    g: int
    uniform: int

    def __post_init__(self) -> None:
        if not 2 <= len(self.labels) <= 1 << KEY_BITS:
            raise invalid(f"{NAME}: k is 2 to {1 << KEY_BITS} cells")
        if not 2 <= self.g <= _MOST_G or self.g & (self.g - 1):
            raise invalid(f'{NAME}: the parameter "g" is a power of two from 2 to {_MOST_G}')
        if not 1 <= self.uniform < WORDS:
            raise invalid(f'{NAME}: the parameter "uniform" is 1 to 2^64 - 1')

    @property
    def k(self) -> int:
        """Cells of the domain, at least 2."""
        return len(self.labels)

    @property
    def log2_g(self) -> int:
        """Bits of a hash value."""
        return self.g.bit_length() - 1

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries: k, ``g`` and ``uniform``."""
        return MechanismSpec.of(NAME, k=self.k, g=self.g, uniform=self.uniform)

    @property
    def report_size(self) -> int:
        """8 bytes of seed and the hash value, in 1, 2 or 4 bytes."""
        return _SEED + cells.report_size(self.g)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    @property
    def chances(self) -> tuple[float, float, float]:
        """(p, q, p - q): how likely a report supports a cell that its device holds, and any other;
        p - q without cancellation.
        """
        q, keep = 1.0 / self.g, (WORDS - self.uniform) / WORDS
        gap = keep * (1.0 - q)
        return gap + q, q, gap

    def draw(self, value: Lane, draws: Draws) -> Field:
        """A seed, a coin and a cell of g, whatever the value is."""
        seed = draws.seed(_SEED)
        truth = hashed(draws.read(seed, 0), draws.read(seed, 1), value, self.log2_g)
        uniform = draws.coin(self.uniform)
        cell = draws.where(uniform, draws.below(self.g), truth)
        return draws.joined(seed, draws.number(cell, self.report_size - _SEED))

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws a seed of 8 bytes, a word of 8
        bytes and a uniform hash value. Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.k, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(self.draw, values, self.k, entropy, self.report_size)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: any seed may be drawn; the cell must be below g."""
        named: NDArray[np.bool_] = np.less(self._decode(reports)["cell"], self.g)
        return named

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports that name the hash of ``cell`` under their own function."""
        rows = self._decode(reports)
        hashed = (
            rows["a"].astype(np.uint32) * np.uint32(cell) + rows["b"].astype(np.uint32)
        ) >> np.uint32(WIDTH - self.log2_g)
        supported: NDArray[np.bool_] = np.equal(hashed, rows["cell"])
        return supported

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How many reports support each of the k cells: those whose cell is its hash under their
        own function.

        Time grows with rows * k. A report counts for about k / g cells, not for one.
        """
        rows = self._decode(reports)
        counts = np.zeros(self.k, dtype=np.int64)
        shift = WIDTH - self.log2_g
        for part in blocks(rows.shape[0], _TALLY_BLOCK):
            cell = rows["cell"][part].astype(np.uint32)
            if int(cell.max()) >= self.g:
                raise invalid(
                    "a report names no value of the hash function: keep only the rows that valid() "
                    "accepts"
                )
            # h(x) is the cell exactly when (a x + b - (cell << s)) mod 2^32 is below 2^s.
            start = rows["b"][part].astype(np.uint32) - (cell << np.uint32(shift))
            count_hits(rows["a"][part].astype(np.uint32), start, (1 << shift) - 1, counts)
        return Tally(counts, rows.shape[0])

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per cell. Raises INVALID for another number of cells.

        Of a device with another value a report supports the cell with probability exactly 1/g,
        whatever the value and whatever the coin: the two hashes are independent. Different devices
        have different seeds. So the count of a cell is a sum of independent coins and its variance
        that of ``cells.unbiased``. Counts of different cells depend on each other, which no single
        error bar sees.
        """
        return cells.estimated(
            self.labels, cells.counts_of(tally, self.k), tally.rows, *self.chances
        )

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[k]: exact standard errors, in devices, when ``counts`` (int64[k]) hold each cell.
        Raises INVALID for another number of cells.
        """
        return cells.expected(counts, self.k, *self.chances)

    def privacy(self) -> SymmetricLaw:
        """The law of a seed with its value, exactly."""
        return law(self.k, self.g, self.uniform)

    def _layout(self) -> np.dtype[np.void]:
        return np.dtype([("a", ">u4"), ("b", ">u4"), ("cell", f">u{self.report_size - _SEED}")])

    def _decode(self, reports: NDArray[np.uint8]) -> NDArray[np.void]:
        """Records a, b, cell of uint8[rows, report_size], unchecked. Raises INVALID for another
        shape.
        """
        if reports.ndim != 2 or reports.shape[1] != self.report_size or reports.dtype != np.uint8:
            raise invalid(f"reports are uint8[rows, {self.report_size}]")
        return np.ascontiguousarray(reports).view(self._layout())[:, 0]


def count_hits(
    steps: NDArray[np.uint32], at: NDArray[np.uint32], top: int, counts: NDArray[np.int64]
) -> None:
    """Adds to counts[x], for each x, in how many rows (at + x * steps) mod 2^32 <= top. Uses up
    ``at``.

    Many rows: three passes over them for each cell, of uint32 words that stay in cache, with
    nothing allocated. Few rows: one at a time.
    """
    limit = np.uint32(top)
    if steps.size < min(_FEW, counts.size // 2):
        every = np.arange(counts.size, dtype=np.uint32)
        points, hit = np.empty_like(every), np.empty(every.size, dtype=np.bool_)
        for step, first in zip(steps, at, strict=True):
            np.multiply(every, step, out=points)
            np.add(points, first, out=points)
            np.less_equal(points, limit, out=hit)
            np.add(counts, hit, out=counts)
        return
    hit = np.empty(steps.size, dtype=np.bool_)
    for x in range(counts.size):
        np.less_equal(at, limit, out=hit)
        counts[x] += np.count_nonzero(hit)
        np.add(at, steps, out=at)


def law(k: int, g: int, uniform: int) -> SymmetricLaw:
    """The output law at T = ``uniform``: the hash is pairwise independent, and no more is said of
    it. ``real`` names three cells, for lower bounds, where there are three.
    """
    ratio = Fraction(g * (WORDS - uniform) + uniform, uniform)
    stated = laws.local_hash(g, ratio, k, wise=2)
    return replace(stated, real=HashTriple(g, ratio)) if k > 2 else stated


def best_g(epsilon0: float) -> int:
    """The power of two from 2 to 2^16 whose estimates at frequency 0 vary least without a shuffler:
    near e^epsilon0 + 1.

    With E = e^epsilon0 that variance is n (E - 1 + g)^2 / ((E - 1)^2 (g - 1)) (Wang et al. 2017,
    section 5.2): what depends on g is E^2 / (g - 1) + g - 1.
    """
    ratio = exp(min(epsilon0, 99.0))
    return min(
        (1 << bits for bits in range(1, 17)), key=lambda g: ratio * ratio / (g - 1) + (g - 1)
    )


def _create(spec: MechanismSpec, domain: Domain) -> LocalHash:
    check_k(spec, domain)
    return LocalHash(domain.labels, spec.get("g"), spec.get("uniform"))


def _with_g(g: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    return MechanismSpec.of(NAME, k=domain.size, g=g, uniform=least_uniform(g, epsilon0))


def _optimized(domain: Domain, epsilon0: float) -> MechanismSpec:
    return _with_g(best_g(epsilon0), domain, epsilon0)


def _settings(domain: Domain) -> tuple[Setting, ...]:
    return (
        Setting(
            "olh",
            "optimized local hashing: g of least variance without a shuffler, near e^epsilon0 + 1",
            _optimized,
        ),
        Setting("blh", "binary local hashing: g = 2", partial(_with_g, 2)),
        *(
            Setting(f"g={g}", f"a hash function to {g} values", partial(_with_g, g))
            for g in _free_g(domain.size)
        ),
    )


def _free_g(k: int) -> tuple[int, ...]:
    """The powers of four from 4 up to k. At g >= k, k-ary response has at every epsilon0 a smaller
    error and a likelier blanket.
    """
    return tuple(1 << bits for bits in range(2, 17, 2) if 1 << bits < k)


FAMILY = Family(
    NAME,
    "local hashing: how many devices are in each cell, in 10 bytes at most",
    PARAMETERS,
    _create,
    _settings,
)

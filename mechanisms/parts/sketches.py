"""What the two sketches share: public hash functions of cells, and how many devices hold a label,
from one table of h rows and m columns.

Apple Differential Privacy Team, "Learning with privacy at scale", Apple Machine Learning Journal
1.8, 2017 (algorithms Client-CMS, Server-CMS, Client-HCMS, Server-HCMS). A task fixes h functions
from cells to m values (``keyed_hash``, applied to ``spread`` cells). A device draws one of them,
and randomizes the hash of its cell. With S(d) the sum over all rows j of what row j says of the
value h_j(d), made unbiased for the devices that drew row j and whose hash it is, the estimate of
the devices that hold d is

    f(d) = m / (m - 1) (S(d) - n / m).

**What it estimates.** Let c(x, d) be the share of the functions under which x and d collide. Over
the coins (those that flip, and those that choose a row) S(d) has the expectation n_d + sum of n_x
c(x, d) over all other x: the functions are fixed and public, so collisions are an error that no
number of devices averages out. Over the *seed* c(x, d) has the expectation 1/m exactly
(``keyed_hash``: pairs of hashes are uniform), so f(d) is unbiased over seeds, for every population.

**Its variance.** A device with another cell x adds a variable that has variance ``same`` if they
collide and ``other`` if not, and expectation 1 or 0: together c same + (1 - c) other + c (1 - c).
One that holds d adds ``same``. That is the coins' part, which ``expected_stderr`` gives exactly.
Over seeds c has variance (1/m)(1 - 1/m) / h, as the h functions are drawn apart; and c(x, d), c(x',
d) are uncorrelated for cells without small integer relations between their differences, which is
what ``spread`` is for (the hash is linear: of cells in a row, if d and d + 1 collide, d + 2 is near
too). So collisions add

    F / (h (m - 1)),     F = sum of n_x^2 over all x but d,

to the squared error. n_x^2 is not known, but its sum over all x is the *second moment* of the
population, which the table tells (Alon, Matias, Szegedy, STOC 1996, in ``second_moment``) with an
error that is small against the coins' share. Reported standard errors are the root of both parts,
the second erring upwards: they are larger than the coins alone, and hold over coins and seed
together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

from shoal.arrays import NDArray, np
from shoal.digests import sha256
from shoal.domain import Categories, Domain, Words
from shoal.mechanisms.base import Estimate, invalid
from shoal.mechanisms.parts import cells
from shoal.mechanisms.parts.keyed_hash import CELL_BITS, coefficients, hash_many, hashed
from shoal.mechanisms.parts.laws import table_of
from shoal.mechanisms.parts.sampling import blocks
from shoal.privacy import FiniteLaw

MOST_FUNCTIONS = 1 << 16
MOST_COUNTS = 1 << 20  # h m: the counts of a table, 8 MiB
MOST_PAIRED = 64  # labels among which a lower bound's pair is looked for
_HASHES = 1 << 22  # hashes of labels that are held at a time: 32 MiB
_EVERY = slice(None)
_EXACT = 256  # labels whose collisions are counted pair by pair
_MASK = (1 << CELL_BITS) - 1
_ODD = (0x1F58476D1CE4E5B9, 0x14D049BB133111EB)


def spread(cell: int) -> int:
    """A fixed permutation of the numbers below 2^62, after which neighbours have nothing in common.
    Public, and no secret of any kind.

    Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014: two odd
    multipliers, three shifts; here of 62 bits.
    """
    x = cell ^ cell >> 30
    x = x * _ODD[0] & _MASK
    x ^= x >> 27
    x = x * _ODD[1] & _MASK
    return x ^ x >> 31


def spread_many(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """``spread`` of each of int64[...]."""
    x, mask = cells.astype(np.uint64), np.uint64(_MASK)
    x ^= x >> np.uint64(30)
    x = x * np.uint64(_ODD[0]) & mask
    x ^= x >> np.uint64(27)
    x = x * np.uint64(_ODD[1]) & mask
    return (x ^ x >> np.uint64(31)).astype(np.int64)


@lru_cache(maxsize=4)
def functions(seed: int, h: int) -> NDArray[np.uint64]:
    """uint64[h, 3], read-only: the coefficients of a task's functions. The last few tables are
    kept.
    """
    table = np.array([coefficients(seed, index) for index in range(h)], dtype=np.uint64)
    table.setflags(write=False)
    return table


@dataclass(frozen=True, slots=True)
class Noise:
    """What one device adds to a number of the table, unbiased: its variance where the hash is its
    own and where it is not, and the expected squares of its contributions to all m numbers of its
    row together.
    """

    same: float
    other: float
    squares: float


@dataclass(frozen=True, slots=True)
class HashedPair:
    """The two of a task's labels that the fewest of its functions send to one value: the pair that
    tells most (``privacy.RealPair``). And, for the others to hold, the label that the fewest
    functions send to the value of either: a report in support of one of the two then seldom is in
    support of what the others hold.

    ``support``: how likely a report supports a cell in a row of its base measure, independently for
    different values of the hash; ``agrees``, ``differs``: its density where it does and where not
    (``laws``). Where two labels collide a report supports both or none. Looked for among at most
    ``MOST_PAIRED`` labels: any of them give a lower bound that is attained, and the pair closest to
    the stated law the best.
    """

    cells: tuple[int, ...]
    seed: int
    h: int
    m: int
    support: Fraction
    agrees: Fraction
    differs: Fraction

    def law(self) -> FiniteLaw:
        """The labels' laws of one report, exactly, the functions under which they collide included:
        a table of three rows, or of two where there is no third label. For lower bounds.
        """
        hashes = self._hashes()[self._chosen()]
        # which labels collide, as the first one of that value
        first = np.equal(hashes[:, None, :], hashes[None, :, :]).argmax(axis=0)
        patterns, counts = np.unique(first, axis=1, return_counts=True)
        return table_of(
            tuple(base * (self.agrees if bits[place] else self.differs) for place in pattern)
            for pattern, count in zip(patterns.T.tolist(), counts.tolist(), strict=True)
            for bits, base in self._supported(sorted(set(pattern)), Fraction(count, self.h))
        )

    def _supported(
        self, values: list[int], share: Fraction
    ) -> Iterator[tuple[dict[int, int], Fraction]]:
        """Which of some different values a report supports, and how likely that is."""
        for bits in product((1, 0), repeat=len(values)):
            chances = (self.support if bit else 1 - self.support for bit in bits)
            yield dict(zip(values, bits, strict=True)), math.prod(chances, start=share)

    def _hashes(self) -> NDArray[np.int64]:
        """int64[labels, h]."""
        cells = spread_many(np.array(self.cells, dtype=np.int64))
        return hash_many(
            cells[:, None], functions(self.seed, self.h)[None, :], self.m.bit_length() - 1
        )

    def _chosen(self) -> list[int]:
        """Places of the pair and of the third label; of one label twice if there is no other."""
        hashes, count = self._hashes(), len(self.cells)
        if count < 2:
            return [0, 0]
        collide = np.array([np.sum(hashes == one, axis=1) for one in hashes])
        np.fill_diagonal(collide, self.h + 1)
        one, two = divmod(int(collide.argmin()), count)
        if count == 2:
            return [one, two]
        either = np.sum((hashes == hashes[one]) | (hashes == hashes[two]), axis=1)
        either[[one, two]] = self.h + 1
        return [one, two, int(either.argmin())]


@dataclass(frozen=True, slots=True)
class Sketch:
    """``labels`` and the cells that they stand for; ``size``: cells of the domain; h = ``h``
    functions to m = ``m`` values by ``seed``.
    """

    labels: tuple[str, ...]
    label_cells: tuple[int, ...]
    size: int
    seed: int
    h: int
    m: int

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("h", self.h, 1, MOST_FUNCTIONS),
            ("m", self.m, 2, MOST_FUNCTIONS),
        ):
            if not low <= value <= high or value & (value - 1):
                raise invalid(
                    f'a sketch: the parameter "{name}" is a power of two from {low} to {high}'
                )
        if self.h * self.m > MOST_COUNTS:
            raise invalid(
                f"a sketch has at most {MOST_COUNTS} counts, h times m: use a smaller h or m"
            )
        if not 0 <= self.seed < 1 << 64:
            raise invalid('a sketch: the parameter "seed" is an integer below 2^64')

    @classmethod
    def of(cls, domain: Domain, seed: int, h: int, m: int) -> Sketch:
        """Raises INVALID for a domain that is neither words nor categories, and for other integers
        than a sketch has.
        """
        served = check_domain(domain)
        return cls(served.labels, served.label_cells, served.size, seed, h, m)

    @property
    def bits(self) -> int:
        """Bits of a hash value."""
        return self.m.bit_length() - 1

    def pair(self, support: Fraction, agrees: Fraction, differs: Fraction) -> HashedPair:
        """Two of the labels, for lower bounds."""
        return HashedPair(
            self.label_cells[:MOST_PAIRED], self.seed, self.h, self.m, support, agrees, differs
        )

    def hashed(self, index: int, cell: int) -> int:
        """h_index(cell), 0 to m - 1."""
        return hashed(spread(cell), coefficients(self.seed, index), self.bits)

    def hash_many(
        self, indices: NDArray[np.uint32] | NDArray[np.int64], cells: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """int64[n]: each cell's hash under the function of its own index; one cell for all of them,
        if there is one.
        """
        return hash_many(spread_many(cells), functions(self.seed, self.h)[indices], self.bits)

    def label_hashes(
        self, part: slice, rows: NDArray[np.int64] | slice = _EVERY
    ) -> NDArray[np.int64]:
        """int64[rows, labels of that part], under these functions."""
        chosen = spread_many(np.array(self.label_cells[part], dtype=np.int64))
        return hash_many(chosen[None, :], functions(self.seed, self.h)[rows][:, None, :], self.bits)

    def gather(self, rows: NDArray[np.int64], table: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[labels]: the sum of table[at, hash of the label] over the functions ``rows``,
        from float64[rows, m].
        """
        sums, at = np.zeros(len(self.labels)), np.arange(rows.size)[:, None]
        for part in blocks(len(self.labels), max(1, _HASHES // max(1, rows.size))):
            sums[part] = table[at, self.label_hashes(part, rows)].sum(axis=0)
        return sums

    def estimate(
        self,
        rows: NDArray[np.int64],
        table: NDArray[np.float64],
        drew: NDArray[np.int64],
        noise: Noise,
    ) -> Estimate:
        """``rows``: the functions that a device drew, and for each ``drew`` int64[rows], how many
        did, and ``table`` float64[rows, m], the unbiased numbers of these by hash.
        """
        count = int(drew.sum())
        values = self._lifted(self.gather(rows, table), float(count))
        coins = self._coins(np.clip(values, 0.0, float(count)), float(count), noise)
        # devices that d holds all but surely
        certain = np.clip(values - 2.0 * np.sqrt(coins), 0.0, float(count))
        others = np.minimum(
            second_moment(table, drew, noise.squares) - certain**2, (count - certain) ** 2
        )
        return Estimate.wald(
            self.labels, values, np.sqrt(coins + np.maximum(others, 0.0) / (self.h * (self.m - 1)))
        )

    def expected_stderr(self, counts: NDArray[np.int64], noise: Noise) -> NDArray[np.float64]:
        """float64[labels], over the coins, when ``counts``[i] devices hold label i and nobody
        anything else; int64[labels], >= 0.

        Up to 256 labels exactly, for the functions of this seed; beyond, the collisions of a pair
        are taken as 1 of m. How far collisions move the estimate itself is not in it: that is no
        matter of the coins.
        """
        held = cells.check_counts(counts, len(self.labels))
        if len(self.labels) > _EXACT:
            return np.sqrt(self._coins(held.astype(np.float64), float(held.sum()), noise))
        hashes = self.label_hashes(slice(None))
        variance = np.zeros(len(self.labels))
        for at in np.flatnonzero(held).tolist():
            share = np.mean(hashes == hashes[:, at : at + 1], axis=0)
            variance += held[at] * (
                share * noise.same + (1.0 - share) * noise.other + share * (1.0 - share)
            )
        deviations: NDArray[np.float64] = np.sqrt(variance) * (self.m / (self.m - 1))
        return deviations

    def _lifted(self, sums: NDArray[np.float64], count: float) -> NDArray[np.float64]:
        """m / (m - 1) (S - n / m)."""
        return (sums - count / self.m) * (self.m / (self.m - 1))

    def _coins(
        self, holders: NDArray[np.float64], count: float, noise: Noise
    ) -> NDArray[np.float64]:
        """The coins' variance, with the expectations of c and c (1 - c) over seeds for these."""
        hit = 1.0 / self.m
        other = (
            hit * noise.same + (1.0 - hit) * noise.other + hit * (1.0 - hit) * (1.0 - 1.0 / self.h)
        )
        return (holders * noise.same + (count - holders) * other) * (self.m / (self.m - 1)) ** 2


def second_moment(table: NDArray[np.float64], drew: NDArray[np.int64], squares: float) -> float:
    """The sum of n_x^2 over all x, by all but a few in a hundred chances not below it: an estimate
    and two of its standard deviations.

    Two devices that drew one row add to the square sum of its numbers: in expectation 1 if they
    hold one cell, and 1/m, over seeds, if not. A device and itself add ``squares``. With P ordered
    pairs of devices in one row, of n (n - 1) in all,

        sum of n_x^2 = m / (m - 1) (n (n - 1) / P (sum of squares - n ``squares``) + n - n^2 / m)
        in expectation.

    The squares are taken around n_j / m, the mean of a row, and n_j^2 / m added for each: the same
    expectation, with less variance. The m numbers of a row, each of about n_j ``squares`` / m
    variance around its expectation T, then have squares of the variance 2 (n_j squares / m)^2 + 4
    (T - n_j / m)^2 n_j squares / m.
    """
    m, count, each_row = table.shape[1], int(drew.sum()), drew.astype(np.float64)
    pairs, together = float(np.sum(each_row * (each_row - 1.0))), float(np.sum(each_row**2))
    if pairs == 0.0:
        return float(count) ** 2
    scale, noise = count * (count - 1.0) / pairs, squares / m
    uneven = float(np.square(table - each_row[:, None] / m).sum()) - count * squares
    square_sum = m / (m - 1) * (scale * (uneven + together / m) + count - count**2 / m)
    variance = 2.0 * m * together * noise**2 + 4.0 * together / count * noise * max(
        uneven + count, 0.0
    )
    return float(
        min(max(square_sum, count) + 2.0 * m / (m - 1) * scale * math.sqrt(variance), count**2)
    )


def check_domain(domain: Domain) -> Words | Categories:
    """The same domain. Raises INVALID for one that no sketch is for."""
    if isinstance(domain, Words | Categories):
        return domain
    raise invalid(
        "a sketch counts words or categories: for yes/no use binary_rr, for numbers one of the "
        "other mechanisms"
    )


def seed_of(domain: Domain) -> int:
    """The seed that a task gets when nobody names one: the first 8 bytes of SHA-256 over "shoal
    sketch seed 1" and each label, with its length in bytes (u32, big-endian) before it. Public, and
    the same whenever the same is asked: estimates of several windows share their collisions.
    Another seed in the task's parameters draws them anew.
    """
    parts = [label.encode() for label in check_domain(domain).labels]
    return int.from_bytes(
        sha256(
            b"shoal sketch seed 1" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        )[:8],
        "big",
    )


def shapes(domain: Domain) -> tuple[tuple[int, int], ...]:
    """(h, m) worth comparing for the domain, the default first: m the power of two at or above the
    labels, 16 to 1,024.

    A larger h costs counts at the analyzer, not bytes; a larger m both, and randomness. The error
    by collisions falls with the root of h (m - 1), the row's own share with that of m - 1.
    """
    labels = len(check_domain(domain).labels)
    m = min(max(16, 1 << (labels - 1).bit_length()), 1_024)
    if m == 16 and isinstance(domain, Categories):
        return ((1_024, m),)  # nothing is left for a larger sketch to gain
    return ((1_024, m), (4_096, min(m, 256)), *(((1_024, 4 * m),) if m <= 256 else ()))

"""Bloom filters of one cell: which of ``bits`` bits each of a cohort's hash functions sets, and
many candidates solved for at once.

A task's functions are ``keyed_hash``'s, public and fixed by its ``seed``: function i of cohort j is
number j * hashes + i. Two functions of a cohort may hit one bit, and the filter then has fewer than
``hashes`` bits. ``places`` runs on the device; the rest is the analyzer's.

**Decoding** (Erlingsson, Pihur, Korolova, CCS 2014, section 4; here without selection). Let s[j, i]
be the unbiased number of devices of cohort j whose filter has bit i. A device with candidate v is
in cohort j with probability 1 / C and adds 1 to the s of its bits, so

    E s = X n,    X[(j, i), v] = 1 / C where v's filter of cohort j has bit i, else 0,

and n is estimated by ordinary least squares over all C * bits rows: linear in the counts, hence
unbiased, whatever the noise of the rows is. Not by LASSO or non-negative least squares, which
shrink and clip. With G = C^2 X'X (how many bits two candidates share, whole numbers) the estimate
is C G^-1 B's, B = C X.

**What is exact.** Given their values devices are independent, and a device's report adds to the
estimate of l a number that depends on its cohort and bits. With H = G^-1 B', a device that holds v
adds with variance

    C G^-1[l, l] var0 + (var1 - var0) C sum over j, i of H[l, (j, i)]^2 B[(j, i), v]
        + C sum over j of (sum over i of H[l, (j, i)] B[(j, i), v])^2 - [l = v],

var0 and var1 the variances of a bit of the report, over the square of the gap, where the filter's
bit is 0 and 1. ``base``, ``ones`` and ``split`` are these three. The last is what the random cohort
adds: nothing where no bits are shared, and most of the error where reports have little noise (an
epsilon0 of 8 or more) and a frequent word shares bits with others. More bits help then, which cost
bytes alone.

**Words that nobody looks for.** Their filters fall on the rows by chance. Over random words a row
has their bit with probability 1 - (1 - 1 / bits)^hashes, the same for all rows: one more column of
that constant takes up their mean, and the candidates stay unbiased over words (or seeds). What is
left is an error that no coin averages out: a word's filter for this seed is what it is. It shows in
the residuals, as far as they exceed what coins and cohorts make, and ``collisions`` makes a
variance of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import invalid
from shoal.mechanisms.parts.keyed_hash import coefficients, hash_many, hashed

# candidates: time grows with their square times the rows, some 4 seconds for 1,000 labels and
# 16,384 rows
MOST_LABELS = 1_024
_LEAST_EIGENVALUE = 1e-7  # of the candidates' correlations: below it an estimate would be rounding


@dataclass(frozen=True, slots=True)
class Filters:
    """A task's filters: ``bits``, a power of two from 2; ``hashes`` functions in each of
    ``cohorts``; ``seed``: u64.
    """

    bits: int
    hashes: int
    cohorts: int
    seed: int

    @property
    def rows(self) -> int:
        """Bits of all cohorts together."""
        return self.bits * self.cohorts

    def places(self, cohort: int, cell: int) -> tuple[int, ...]:
        """The bit that each function of the cohort sets for a cell below 2^62: 0 to bits - 1,
        perhaps one twice.
        """
        first, width = cohort * self.hashes, self.bits.bit_length() - 1
        return tuple(
            hashed(cell, coefficients(self.seed, first + i), width) for i in range(self.hashes)
        )

    def functions(self) -> NDArray[np.uint64]:
        """uint64[cohorts, hashes, 3]: the coefficients of all functions. Read-only."""
        return _functions(self)

    def filters(self, cohorts: NDArray[np.int64], cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool[n, bits]: the filter of cells[i] in cohorts[i]."""
        places = hash_many(cells[:, None], self.functions()[cohorts], self.bits.bit_length() - 1)
        filter_bits = np.zeros((cells.shape[0], self.bits), dtype=np.bool_)
        filter_bits[np.arange(cells.shape[0])[:, None], places] = True
        return filter_bits


@lru_cache(maxsize=8)
def _functions(filters: Filters) -> NDArray[np.uint64]:
    count = filters.cohorts * filters.hashes
    functions = np.array(
        [coefficients(filters.seed, index) for index in range(count)], dtype=np.uint64
    )
    functions = functions.reshape(filters.cohorts, filters.hashes, 3)
    functions.setflags(write=False)
    return functions


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """Least squares for fixed candidates; k of them, and a last column for all others if ``open``.
    All arrays are read-only by agreement.

    ``matrix``: bool[cohorts * bits, k], row j * bits + i. ``inverse``: float64[columns, columns],
    G^-1. ``base``: float64[k], C times its diagonal. ``ones``, ``split``: float64[k, columns], the
    module's text; a column of a candidate, or of a random other word.
    """

    filters: Filters
    open: bool
    matrix: NDArray[np.bool_]
    inverse: NDArray[np.float64]
    base: NDArray[np.float64]
    ones: NDArray[np.float64]
    split: NDArray[np.float64]

    @property
    def density(self) -> float:
        """How likely a random word's filter has a bit."""
        return 1.0 - (1.0 - 1.0 / self.filters.bits) ** self.filters.hashes

    def solve(self, unbiased: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[columns]: numbers of devices from ``unbiased``, float64[cohorts * bits], those
        whose filter has each bit.
        """
        sums = unbiased @ self.matrix
        if self.open:
            sums = np.append(sums, self.density * unbiased.sum())
        solved: NDArray[np.float64] = self.filters.cohorts * (self.inverse @ sums)
        return solved

    def fitted(self, solution: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[cohorts * bits]: what the solution says of every row."""
        listed = self.matrix.shape[1]
        fit: NDArray[np.float64] = self.matrix @ solution[:listed] / self.filters.cohorts
        return fit + solution[listed] * self.density / self.filters.cohorts if self.open else fit

    def coins(
        self, holders: NDArray[np.float64], devices: float, zero: float, one: float
    ) -> NDArray[np.float64]:
        """float64[k]: the variances over bits and cohorts when ``holders`` (float64[columns]) of
        ``devices`` hold each column's word.

        ``zero``, ``one``: variances of a report's bit over the squared gap. With estimated holders,
        which may be below 0, an unbiased estimate of the variance, but never below that of the
        least noisy value.
        """
        more = (one - zero) * self.ones + self.split
        variances: NDArray[np.float64] = devices * zero * self.base + np.maximum(
            more @ holders, devices * more.min(axis=1)
        )
        return np.maximum(variances, 0.0)

    def collisions(
        self,
        unbiased: NDArray[np.float64],
        solution: NDArray[np.float64],
        sizes: NDArray[np.float64],
        zero: float,
        one: float,
    ) -> NDArray[np.float64]:
        """float64[k]: the variances that words outside of the candidates add by where their filters
        happen to fall; 0 unless ``open``.

        ``sizes``: reports per cohort. From the squared residuals per degree of freedom, less what
        coins and random cohorts make of them, plus two of its standard deviations: too large rather
        than too small.
        """
        rows, columns = self.matrix.shape[0], self.inverse.shape[0]
        if not self.open:
            return np.zeros(self.base.size)
        fit, cohorts = self.fitted(solution), self.filters.cohorts
        present = np.maximum(fit, 0.0)
        expected = (
            np.repeat(sizes, self.filters.bits) * zero
            + present * (one - zero)
            + present * (1.0 - 1.0 / cohorts)
        )
        freedom = rows - columns
        noise = float(np.maximum(expected, 0.0).mean())
        excess = float(((unbiased - fit) ** 2).sum()) / freedom - noise * (
            1.0 - 2.0 * (2.0 / freedom) ** 0.5
        )
        added: NDArray[np.float64] = cohorts * self.base * max(excess, 0.0)
        return added


@lru_cache(maxsize=4)
def decoder(filters: Filters, candidates: tuple[int, ...], *, open_words: bool) -> Decoder:
    """The decoder of these cells. ``open_words``: devices may hold others, too. Kept for the last
    few tasks.

    Raises INVALID if the candidates are too many, or can't be told apart by their filters.
    """
    k, cohorts, bits = len(candidates), filters.cohorts, filters.bits
    check_number(filters, k, open_words=open_words)
    cells, every = np.array(candidates, dtype=np.int64), np.arange(cohorts)
    # bool[cohorts, k, bits]
    cube = np.stack([filters.filters(np.full(k, cohort), cells) for cohort in every])
    matrix = np.ascontiguousarray(cube.transpose(0, 2, 1)).reshape(filters.rows, k)
    design = matrix.astype(np.float64)
    density = 1.0 - (1.0 - 1.0 / bits) ** filters.hashes
    if open_words:
        design = np.column_stack([design, np.full(filters.rows, density)])
    gram = design.T @ design
    scale = 1.0 / np.sqrt(np.diag(gram))
    if float(np.linalg.eigvalsh(gram * scale[:, None] * scale)[0]) < _LEAST_EIGENVALUE:
        raise invalid(
            "rappor: the filters of some of the labels can't be told apart: take more cohorts, "
            "more bits or another seed for the next task"
        )
    inverse = np.linalg.inv(gram)
    inverse = (inverse + inverse.T) / 2
    ones, split = np.zeros((k, design.shape[1])), np.zeros((k, design.shape[1]))
    for rows in np.split(design, cohorts):
        weights = inverse[:k] @ rows.T  # H of this cohort, float64[k, bits]
        ones += weights**2 @ rows
        split += (weights @ rows) ** 2
    base = cohorts * np.diag(inverse)[:k].copy()
    ones, split = cohorts * ones, cohorts * split
    split[np.arange(k), np.arange(k)] -= 1.0
    if open_words:  # a random word has a bit or not, while the column has the mean
        split[:, k] += base * density * (1.0 - density)
    return Decoder(filters, open_words, matrix, inverse, base, ones, np.maximum(split, 0.0))


def check_number(filters: Filters, count: int, *, open_words: bool) -> None:
    """Raises INVALID unless so many candidates leave room for an estimate."""
    if count > MOST_LABELS:
        raise invalid(
            f"rappor: {MOST_LABELS} labels at most are solved for together: choose count_sketch or "
            "hadamard_sketch"
        )
    if count + 2 * open_words > filters.rows:
        raise invalid(
            f"rappor: {count} labels can't be told apart by {filters.bits} bits in "
            f"{filters.cohorts} cohorts: "
            "their product must exceed the labels: take more of either"
        )

"""Hadamard response: one output of about 4 k, more likely one at which the true cell's row of a
Hadamard matrix is +1.

Acharya, Sun, Zhang, "Hadamard response: estimating distributions privately, efficiently, and with
little communication", AISTATS 2019, section 5. The K = B b outputs are B = ``blocks`` blocks of b,
b the least power of two such that the (b - 1) B rows but the first of all blocks are enough for k
cells. Cell x has block x mod B and row r = x div B + 1 of the Hadamard matrix of order b; its
support are the b / 2 outputs (block, y) with an even number of ones in r & y. Rows of one block
share half of a support, those of different blocks nothing. B = 1 is for small epsilon0; B near
e^epsilon0 / 2 is best for one report under local privacy and an even population.

A block is, for any row r, two *halves*: r & y even and odd. With I = ``include``: the report lies
in the true cell's own half with probability I / 2^64, else in one of the 2 B - 1 other halves (of
its own block, and of every other block by the same row), each equally likely; within a half it is
uniform. So an output of the support is

    ratio = I (2 B - 1) / (2^64 - I)

times as likely as another, exactly. A report is that output's index, block b + y, big-endian in 1,
2 or 4 bytes.

**Privacy.** With B = 1 every pair of cells looks alike, and the law is that of local hashing to 2
values; with B = k, too: one cell in each block, and supports of one output. Between, pairs of one
block and of two do not look alike. Up to 16 cells the law is then written out as a table, for which
the accountant computes the blanket of every pair and finds the best of many lower bounds. Beyond,
it is told the law of two cells of *different* blocks (and of a third block's): a real pair, so what
it refutes is refuted, and the pair with the largest upper bounds, so what it proves is proven for
every pair. With r the ratio, w the weight of an output outside a support and e = exp(epsilon), 1 <=
e <= r:

*The blanket's sum* (accounting/numerics/cells.py). A report adds L = (P(y | x) - e P(y | x')) / w
with probability w for each output y, else 0. For cells of different blocks L is r - e and 1 - e r
on b / 2 outputs each, 1 - e on the others. For cells of one block it is r - e, 1 - e r and r (1 -
e) on b / 4 outputs each, 1 - e on the others. The first law is the second after b / 4 outputs at r
(1 - e) and b / 4 at 1 - e have moved to r - e and 1 - e r. These lie outside of the former two and
have the same sum, so the first is larger in convex order; sums of independent values keep that
order, and (.)_+ is convex. The weights w are below those of every third cell for both kinds of
pair.

*The clones' sum* (accounting/bounds/clones.py). From the classes of different blocks its L is r - e
or 1 - e r with probability 1 / (r + 1) each, else 0. Take the blanket's L of the same pair: r - e
and 1 - e r have probability c = 1 / (r + 2 B - 1) each, 1 - e has (2 B - 2) c, 0 has (r - 1) c. Mix
1 - e into r - e and 1 - e r at 1 / (r + 1) each and 0 at (r - 1) / (r + 1): its mean stays, and
what comes out is the clones' L. So the clones' sum is at least the blanket's (Jensen), which bounds
the truth for all pairs. (The clones' theorem itself would give less for pairs of one block: where
both supports meet, a clone is rarer.)
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
from shoal.mechanisms.parts import cells, laws
from shoal.mechanisms.parts.draws import Draws, Field, Lane
from shoal.mechanisms.parts.hadamard_transform import walsh_hadamard
from shoal.mechanisms.parts.intervals import score
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import FiniteLaw, PureLaw, SymmetricLaw
from shoal.task import MechanismSpec

NAME = "hadamard_response"
PARAMETERS = (
    Parameter("blocks", 1, LIMITS.cells, "blocks that share the cells"),
    Parameter(
        "include",
        1,
        WORDS - 1,
        "probability, out of 2^64, that the report lies in the true cell's support",
    ),
    Parameter("k", 2, LIMITS.cells, "number of cells of the domain"),
)
# The accountant's blanket is computed for tables of at most so many inputs
# (accounting/numerics/cells.py); beyond, a table would lose it.
_MOST_LISTED = 16


@dataclass(frozen=True, slots=True)
class HadamardResponse:
    """``labels``: one per cell, in the domain's order; ``blocks``: B, 1 <= B <= k; ``include``: I
    out of 2^64.
    """

    labels: tuple[str, ...]
    blocks: int
    include: int

    def __post_init__(self) -> None:
        if not 2 <= self.k <= 1 << 24:
            raise invalid("k is 2 to 2^24 cells")
        if not 1 <= self.blocks <= self.k:
            raise invalid(
                f'{NAME}: the parameter "blocks" is {self.blocks}: it is 1 to k = {self.k}'
            )
        if not 1 <= self.include < WORDS or ratio(self.blocks, self.include) <= 1:
            raise invalid(
                f'{NAME}: the parameter "include" is below 2^64 and above 1 / (2 blocks) of it'
            )

    @property
    def k(self) -> int:
        """Cells of the domain, at least 2."""
        return len(self.labels)

    @property
    def order(self) -> int:
        """b: outputs of a block."""
        return block_size(self.k, self.blocks)

    @property
    def outputs(self) -> int:
        """K = B b."""
        return self.blocks * self.order

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries: k, ``blocks`` and ``include``."""
        return MechanismSpec.of(NAME, k=self.k, blocks=self.blocks, include=self.include)

    @property
    def report_size(self) -> int:
        """Bytes of a report, one of the outputs: 1, 2 or 4."""
        return cells.report_size(self.outputs)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    def draw(self, value: Lane, draws: Draws) -> Field:
        """A coin, one of the other halves, and a place within a half.

        The place becomes an output of the half by one bit, that of the row's lowest one: it is put
        in between the place's bits, and set where the number of ones in row & output is odd and
        should be even, or the other way around.
        """
        row, own = value // self.blocks + 1, 2 * (value % self.blocks)
        inside = draws.coin(self.include)
        other = draws.below(2 * self.blocks - 1)
        place = draws.below(self.order // 2)
        half = draws.where(inside, own, other + (other >= own))
        pivot = row & -row
        low = place & (pivot - 1)
        output = ((place ^ low) << 1) | low
        output = output + pivot * (draws.odd(output & row) ^ (half & 1))
        return draws.number((half >> 1) * self.order + output, self.report_size)

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws the coin, one of the other
        halves and a place within a half, whichever are used. Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.k, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(self.draw, values, self.k, entropy, self.report_size)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: the reports that name one of the outputs."""
        return cells.valid(reports, self.outputs)

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports of the cell's block, on a +1 of its row. Of valid reports."""
        row, block = divmod(cell, self.blocks)
        at, place = np.divmod(cells.decode(reports, self.outputs).astype(np.int64), self.order)
        supported: NDArray[np.bool_] = np.logical_and(
            at == block, np.equal(np.bitwise_count(place & (row + 1)) & 1, 0)
        )
        return supported

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How often each of the K outputs was reported."""
        return cells.tally(reports, self.outputs)

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per cell.

        A report counts +1 for a cell that it supports, -1 for the other cells of its block, 0
        elsewhere: a cell's sum is its entry of the transform of its block. On average a device that
        holds the cell adds ``gap`` to it, and every other device nothing. The squares add up to the
        block's reports, from which the error is estimated (``_error``).
        """
        counts = (
            cells.counts_of(tally, self.outputs).astype(np.int64).reshape(self.blocks, self.order)
        )
        transform = walsh_hadamard(counts)
        sums = transform[:, 1:].T.reshape(-1)[: self.k]
        chances = self._chances
        values = sums / float(chances.gap)
        in_block = np.clip(
            transform[:, 0], tally.rows * float(chances.other), tally.rows * float(chances.own)
        )
        held = np.clip(values, 0.0, tally.rows)
        strangers = np.maximum(
            in_block[np.arange(self.k) % self.blocks] - held * float(chances.own), 0.0
        )
        low, high = self._interval(
            values, in_block[np.arange(self.k) % self.blocks].astype(np.float64), tally.rows
        )
        return Estimate(self.labels, values, self._error(held, strangers), low, high)

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of devices that hold a cell, others of its block and those of other blocks, each has its
        own variance (``_error``).
        """
        held = cells.check_counts(counts, self.k).astype(np.float64)
        block_of = np.arange(self.k) % self.blocks
        in_block = np.bincount(block_of, weights=held, minlength=self.blocks)[block_of]
        strangers = (in_block - held) * float(self._chances.own) + (held.sum() - in_block) * float(
            self._chances.other
        )
        return self._error(held, strangers)

    def _error(
        self, held: NDArray[np.float64], strangers: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Standard errors of ``estimate``: ``held`` devices hold the cell, ``strangers`` is the sum
        of the others' squares.

        With a = P(its own half), c = P(any one other half): a device that holds the cell adds +1
        with a, -1 with c: variance a + c - (a - c)^2. Others add +1 or -1 equally often: a + c in
        the same block, 2 c in another. All over (a - c)^2.
        """
        chances = self._chances
        spread = float(chances.own - chances.gap**2)
        errors: NDArray[np.float64] = np.sqrt(held * spread + strangers) / float(chances.gap)
        return errors

    def _interval(
        self, values: NDArray[np.float64], squares: NDArray[np.float64], rows: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(low, high), float64[k] each: score intervals (``intervals``). ``squares``: float64[k],
        the reports of each cell's block.

        With a, c as in ``_error`` the sum of a cell that x devices hold has the variance x (a + c)
        + the others' squares - x (a - c)^2. Two lines in x are known of it: ``squares`` - x (a -
        c)^2, right on average, but it follows what came, and may come out as nothing where nearly
        all of the block hold the cell; and what is there if no other device holds a cell of the
        block, the least that it can be. The interval reaches as far as either line says. A device
        that holds the cell adds the third cumulant (a - c)(1 - 3 (a + c) + 2 (a - c)^2), others
        nothing. Where the block's reports are as good as known, sums are two apart.
        """
        chances = self._chances
        gap, own, other = float(chances.gap), float(chances.own), float(chances.other)
        spread = float(chances.own - chances.gap**2)
        third = gap * (1.0 - 3.0 * own + 2.0 * gap**2)
        low, high = values, values
        for at_zero, slope in (
            (squares, -(gap**2)),
            (np.full_like(squares, rows * other), spread - other),
        ):

            def moments(
                held: NDArray[np.float64],
                at_zero: NDArray[np.float64] = at_zero,
                slope: float = slope,
            ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
                return np.maximum(at_zero + slope * held, rows * other), third * held

            variance = (at_zero + slope * values) / gap**2
            ends = score(values, variance, slope / gap**2, 1.0 / gap, moments, rows, step=2.0)
            low, high = np.minimum(low, ends[0]), np.maximum(high, ends[1])
        return low, high

    @property
    def _chances(self) -> _Chances:
        own, other = (
            Fraction(self.include, WORDS),
            Fraction(WORDS - self.include, WORDS * (2 * self.blocks - 1)),
        )
        return _Chances(gap=own - other, own=own + other, other=2 * other)

    def privacy(self) -> SymmetricLaw | FiniteLaw:
        """The law of one output, exactly. With more than one block and more than 16 cells it is
        that of two cells of different blocks, whose bounds hold for every pair (docs/ACCOUNTING.md,
        section 3).
        """
        if self.blocks == 1:
            return laws.local_hash(2, ratio(1, self.include), self.k, wise=2)
        if self.blocks == self.k or self.k > _MOST_LISTED:
            return two_blocks(self.blocks, self.include)
        half = self.order // 2
        inside, outside = self.include * (self.outputs - half), (WORDS - self.include) * half
        return FiniteLaw(
            tuple(
                tuple(inside if hit else outside for hit in self._support(cell))
                for cell in range(self.k)
            )
        )

    def _support(self, cell: int) -> Iterator[bool]:
        """Output by output: whether it supports the cell."""
        row, block = divmod(cell, self.blocks)
        for output in range(self.outputs):
            at, place = divmod(output, self.order)
            yield at == block and (place & (row + 1)).bit_count() % 2 == 0


@dataclass(frozen=True, slots=True)
class _Chances:
    """Of one device and one cell: P(the cell's half) - P(the other half of its block) if the device
    holds it (``gap``); P(the cell's block) if the device's cell is of the block (``own``), and if
    it is not (``other``). Exact.
    """

    gap: Fraction
    own: Fraction
    other: Fraction


def block_size(k: int, count: int) -> int:
    """b: the least power of two such that ``count`` blocks have b - 1 rows each for k cells; at
    least 2.
    """
    return 1 << (-(-k // count)).bit_length()


def ratio(count: int, include: int) -> Fraction:
    """How many times as likely an output of the support is as another, exactly, with ``count``
    blocks.
    """
    return Fraction(include * (2 * count - 1), WORDS - include)


def two_blocks(count: int, include: int) -> SymmetricLaw:
    """The law of two cells of different blocks, ``count`` >= 2, exactly; it bounds cells of one
    block. Classes: the half that supports one, the half that supports the other, from three blocks
    on the half of a ``third`` cell of a third block, all other halves.
    """
    third = count > 2
    hit, miss = include * (2 * count - 1), WORDS - include
    rest = (2 * count - 2 - third) * miss
    if third:
        return SymmetricLaw(
            (hit, miss, miss, rest),
            (miss, hit, miss, rest),
            (miss, miss, miss, rest),
            (miss, miss, hit, rest),
        )
    return SymmetricLaw((hit, miss, rest), (miss, hit, rest), (miss, miss, rest))


def most_include(count: int, epsilon0: float) -> int:
    """The largest I that keeps epsilon0 with ``count`` blocks. Raises INVALID if none above 1 / (2
    count) of 2^64 does.
    """
    most_left_out = (WORDS * (2 * count - 1) - 1) // (2 * count)
    return WORDS - least_noise(
        lambda left_out: PureLaw(ratio(count, WORDS - left_out)), most_left_out, epsilon0
    )


def paper_blocks(k: int, epsilon0: float) -> int:
    """B of Acharya, Sun, Zhang: the largest power of two that is at most e^epsilon0, and here at
    most k too, so that no block is empty.
    """
    return 1 << int(math.log2(min(math.exp(min(epsilon0, 700.0)), k)))


def _spec(count: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    return MechanismSpec.of(
        NAME, k=domain.size, blocks=count, include=most_include(count, epsilon0)
    )


def _paper(domain: Domain, epsilon0: float) -> MechanismSpec:
    if not (math.isfinite(epsilon0) and epsilon0 > 0):
        raise invalid("epsilon0 is a finite number above 0: give one, such as 2")
    return _spec(paper_blocks(domain.size, epsilon0), domain, epsilon0)


def _settings(domain: Domain) -> tuple[Setting, ...]:
    """The paper's number of blocks first, then B = 1, 2, 4, ... up to the number of cells."""
    numbers = [1 << power for power in range(domain.size.bit_length())]
    return (
        Setting("standard", "the paper's number of blocks, about e^epsilon0", _paper),
        *(
            Setting(f"B={count}", f"{count} block{'s' * (count > 1)}", partial(_spec, count))
            for count in numbers
        ),
    )


def _create(spec: MechanismSpec, domain: Domain) -> HadamardResponse:
    check_k(spec, domain)
    return HadamardResponse(domain.labels, spec.get("blocks"), spec.get("include"))


FAMILY = Family(
    NAME,
    "Hadamard response: how many devices are in each cell, in short reports",
    PARAMETERS,
    _create,
    _settings,
)

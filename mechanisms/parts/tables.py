"""Randomizers that are a finite table of integers: P(output y | cell x) = rows[x][y] / 2^64, and a
report names the output.

What such members share: one draw from one 64-bit word per device, alone or for whole batches, the
bytes of reports, and two ways to get from real numbers to tables and from tables to estimates.
``row`` rounds weights to integers that add up to 2^64, in exact arithmetic, so that every machine
makes the same table of the same integers. ``unbiased`` finds what each output counts for.

A member has a ``SharedResponse``, here a ``TableResponse``, as ``kmean`` has that of k-ary
randomized response: what is left to it is its table, its estimate and its design. Members that
estimate a mean with "no answer" as the middle find theirs in ``means``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import Protocol

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.base import Tally, invalid
from shoal.mechanisms.parts import cells
from shoal.mechanisms.parts.sampling import blocks
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.privacy import FiniteLaw

MEAN_OF_ALL = "mean, no answer as the middle"
"""The label of a mean over all devices, in which those without an answer count with the middle of
the domain.
"""

# cells times outputs: the device holds the table, and the accountant looks at every entry
MOST_ENTRIES = 1 << 16
_FEW = 64  # values that are drawn one by one: below it the lookup for arrays is not worth making


@dataclass(frozen=True, slots=True)
class ProbabilityTable:
    """``rows[x][y]`` >= 1: the weight of output y under cell x, out of 2^64. At least 2 cells and 2
    outputs; every row sums to 2^64.

    Raises INVALID for anything else, or for more than 2^16 entries.
    """

    rows: tuple[tuple[int, ...], ...]
    _ends: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    _made: list[_Lookup] = field(init=False, repr=False, compare=False)
    _shares: list[NDArray[np.float64]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size, width = len(self.rows), len(self.rows[0]) if self.rows else 0
        if size < 2 or width < 2 or any(len(row) != width for row in self.rows):
            raise invalid(
                "a table has at least 2 cells and 2 outputs, and as many outputs for every cell"
            )
        check_entries(size, width)
        if any(min(row) < 1 or sum(row) != WORDS for row in self.rows):
            raise invalid("every row of a table has weights of 1 and more that add up to 2^64")
        object.__setattr__(self, "_ends", tuple(tuple(accumulate(row[:-1])) for row in self.rows))
        object.__setattr__(self, "_made", [])
        object.__setattr__(self, "_shares", [])

    @property
    def cells(self) -> int:
        """Rows: what may be reported on."""
        return len(self.rows)

    @property
    def outputs(self) -> int:
        """Columns: what may be reported."""
        return len(self.rows[0])

    def thresholds(self, cell: int) -> tuple[int, ...]:
        """int[outputs - 1], increasing: a word below the first one is output 0, one from the last
        on the last output.
        """
        return self._ends[cell]

    def law(self) -> FiniteLaw:
        """The table as a law: weights out of 2^64, exactly those that a word is compared with."""
        return FiniteLaw(self.rows)

    def draw(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
        """The function of that name."""
        return draw(self, values, entropy)

    def probabilities(self) -> NDArray[np.float64]:
        """float64[cells, outputs], read-only: each entry within a relative 1e-15. Made once: the
        errors of a plan ask for it at every value of a range.
        """
        if not self._shares:
            shares = np.array(self.rows, dtype=np.uint64) / float(WORDS)
            shares.setflags(write=False)
            self._shares.append(shares)
        return self._shares[0]

    def _lookup(self) -> _Lookup:
        """Made at the first draw of many values. Two threads that make it at once make the same."""
        if not self._made:
            self._made.append(_lookup(self._ends))
        return self._made[0]


@dataclass(frozen=True, slots=True, eq=False)
class _Lookup:
    """For arrays of words. ``first``: int64[cells * 2^bits], the output at the first word with
    these upper bits; ``ends``: uint64[cells * outputs], the thresholds, and in each row's last
    place a number that is not looked at.
    """

    bits: int
    first: NDArray[np.int64]
    ends: NDArray[np.uint64]


def _lookup(thresholds: tuple[tuple[int, ...], ...]) -> _Lookup:
    """2^bits is at least four times the outputs, so that most words are in a part of the range
    where no threshold is.
    """
    known = np.array(thresholds, dtype=np.uint64)
    size, width = known.shape
    bits = (4 * width + 3).bit_length()
    # The first part that begins at or above a threshold, 1 to 2^bits: from it on the threshold is
    # passed at once.
    passed = ((known - np.uint64(1)) >> np.uint64(64 - bits)).astype(np.int64) + 1
    counts = np.bincount(
        ((np.arange(size) * ((1 << bits) + 1))[:, None] + passed).ravel(),
        minlength=size * ((1 << bits) + 1),
    )
    first = np.cumsum(counts.reshape(size, -1)[:, :-1], axis=1, dtype=np.int64)
    ends = np.concatenate([known, np.zeros((size, 1), dtype=np.uint64)], axis=1)
    return _Lookup(bits, first.ravel(), ends.ravel())


def check_entries(size: int, width: int) -> None:
    """Raises INVALID if a table of ``size`` cells and ``width`` outputs is too large."""
    if size * width > MOST_ENTRIES:
        raise invalid(
            f"a table of {size} cells and {width} outputs has more than 2^16 entries: use fewer "
            "levels, or fewer outputs"
        )


class RowTable(Protocol):
    """What a ``RowsResponse`` asks of its table: all rows at once, as above, or made as they are
    wanted.
    """

    @property
    def cells(self) -> int:
        """Rows: what may be reported on."""
        ...

    @property
    def outputs(self) -> int:
        """Columns: what may be reported."""
        ...

    def thresholds(self, cell: int) -> tuple[int, ...]:
        """As ``ProbabilityTable.thresholds``."""
        ...

    def draw(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
        """int64[n]: the outputs that ``draw_one`` makes of the same words, one per value. Raises
        INVALID for another value.
        """
        ...

    def law(self) -> FiniteLaw:
        """All rows, as integers out of 2^64."""
        ...

    def probabilities(self) -> NDArray[np.float64]:
        """float64[cells, outputs], each within a relative 1e-15."""
        ...


def draw_one(table: RowTable, value: int, entropy: Entropy) -> int:
    """An output, from one word of 8 bytes. Raises INVALID for a value that is no cell of the
    table.
    """
    ends = table.thresholds(cells.check_value(value, table.cells))
    return bisect_right(ends, int.from_bytes(entropy.bytes(8), "little"))


def draw(table: ProbabilityTable, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
    """int64[n]: the outputs that ``draw_one`` makes of the same words, one per value. Raises
    INVALID for another value.

    The upper bits of a word say at which output to begin (Chen and Asau, "On generating random
    variates from an empirical distribution", 1974: a guide table), and few words have a threshold
    left to pass. Time does not grow with the number of outputs.
    """
    cells.check_values(values, table.cells)
    if values.size <= _FEW:
        words = entropy.words(values.size).tolist() if values.size else []
        return np.array(
            [
                bisect_right(table.thresholds(x), w)
                for x, w in zip(values.tolist(), words, strict=True)
            ],
            dtype=np.int64,
        )
    lookup, last = table._lookup(), table.outputs - 1
    drawn = np.empty(values.size, dtype=np.int64)
    shift = np.uint64(64 - lookup.bits)
    for part in blocks(values.size):
        cells_here, words = values[part], entropy.words(part.stop - part.start)
        outputs = lookup.first.take((cells_here << lookup.bits) + (words >> shift).astype(np.int64))
        starts = cells_here * table.outputs
        unsettled = np.flatnonzero((words >= lookup.ends.take(starts + outputs)) & (outputs < last))
        while unsettled.size:
            outputs[unsettled] += 1
            reached = outputs[unsettled]
            unsettled = unsettled[
                (words[unsettled] >= lookup.ends.take(starts[unsettled] + reached))
                & (reached < last)
            ]
        drawn[part] = outputs
    return drawn


@dataclass(frozen=True, slots=True)
class RowsResponse:
    """All of a mechanism that follows from its table: the draw, the bytes of reports, their counts
    and the law.
    """

    table: RowTable

    @property
    def report_size(self) -> int:
        """Bytes of a report, an output's number: 1, 2 or 4."""
        return cells.report_size(self.table.outputs)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell: the output that one word of 8 bytes falls on. Raises INVALID for
        what is no cell.
        """
        output = draw_one(self.table, value, entropy)
        return (output.to_bytes(self.report_size, "big"),)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size]."""
        reports = cells.empty_cells(values.shape[0] if values.ndim else 0, self.table.outputs)
        reports[...] = self.table.draw(values, entropy)
        return cells.to_reports(reports)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: the reports that name an output of the table."""
        return cells.valid(reports, self.table.outputs)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How often each output was reported."""
        return cells.tally(reports, self.table.outputs)

    def counts(self, tally: Tally) -> NDArray[np.float64]:
        """float64[outputs]. Raises INVALID for a tally of another number of outputs."""
        return cells.counts_of(tally, self.table.outputs)

    def privacy(self) -> FiniteLaw:
        """The table's own law."""
        return self.table.law()


@dataclass(frozen=True, slots=True)
class TableResponse(RowsResponse):
    """That of a table whose rows are all there."""

    table: ProbabilityTable


def row(weights: Sequence[int | Fraction]) -> tuple[int, ...]:
    """Integers >= 1 that add up to 2^64, each within 1 of its share of ``weights``, by largest
    remainder.

    A share below 1 becomes 1, at the cost of the largest; among equal remainders the first are
    rounded up. In exact arithmetic. Raises INVALID for a weight below 0, none above 0, or more than
    2^16 weights.
    """
    whole_numbers = all(isinstance(weight, int) for weight in weights)
    parts = weights if whole_numbers else [Fraction(weight) for weight in weights]
    if not parts or len(parts) > MOST_ENTRIES or min(parts) < 0 or not any(parts):
        raise invalid("a row of a table is made of 1 to 2^16 weights, none below 0 and one above")
    scale = 1 if whole_numbers else math.lcm(*(part.denominator for part in parts))
    whole = [part.numerator * (scale // part.denominator) for part in parts]
    total = sum(whole)
    shares = [divmod(weight * WORDS, total) for weight in whole]
    shares_out = [share for share, _ in shares]
    for at in sorted(range(len(shares_out)), key=lambda at: -shares[at][1])[
        : WORDS - sum(shares_out)
    ]:
        shares_out[at] += 1
    largest = shares_out.index(max(shares_out))
    shares_out[largest] -= shares_out.count(0)
    return tuple(max(weight, 1) for weight in shares_out)


def unbiased(
    rows: Sequence[Sequence[int]],
    targets: NDArray[np.float64],
    shares: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """float64[outputs]: a with sum_y P(y | x) a(y) = targets[x] for every cell x, of the least
    variance when cells are as frequent as ``shares`` (float64[cells] > 0, in any unit; None:
    alike).

    For the analyzer: floats, and numpy. Weighted least norm: with w_y = sum_x shares[x] P(y | x),
    the mean of a^2 is sum_y w_y a(y)^2, and the mean of a is given. The equations hold to 1e-9 of
    the largest target. Raises INVALID if no a does that.
    """
    table = np.array(rows, dtype=np.uint64) / float(WORDS)
    if targets.shape != table.shape[:1] or not np.isfinite(targets).all():
        raise invalid("the targets of a table's outputs are one finite number per cell")
    frequent = np.ones(len(table)) if shares is None else shares
    if frequent.shape != targets.shape or not (frequent > 0).all():
        raise invalid("the shares of a table's cells are one number above 0 per cell")
    scale = np.sqrt(frequent / frequent.sum() @ table)
    inverse = np.linalg.pinv(table / scale, rcond=1e-13) / scale[:, None]
    values: NDArray[np.float64] = inverse @ targets
    values = values + inverse @ (targets - table @ values)  # what rounding left over
    if not np.abs(table @ values - targets).max() <= 1e-9 * max(
        np.abs(targets).max(), np.finfo(np.float64).tiny
    ):
        raise invalid(
            "no values of the outputs of this table make an unbiased estimate: its rows tell too "
            "little of the cells"
        )
    return values

"""Numbers as people write them into tables, and the range that a question about them asks for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import islice

from shoal.arrays import np
from shoal.questions.answers import number_of

_GERMAN = re.compile(r"[+-]?([0-9]{1,3}(\.[0-9]{3})+|[0-9]+)(,[0-9]+)?")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")
_DATE = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([T ].*)?"
    r"|[0-9]{1,2}\.[0-9]{1,2}\.([0-9]{4}|[0-9]{2})"
    r"|[0-9]{1,2}/[0-9]{1,2}/([0-9]{4}|[0-9]{2})"
)
_NO_NUMBERS = frozenset({"nan", "inf", "infinity", "na", "n/a", "null", "none", "nil", "-", "?"})
_NICE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_TAIL = 0.01  # of the answers, at either end: so many may lie beyond the range
_STRETCH = 2.0  # a range of all answers is taken if it is at most so many times as wide


def is_date(text: str) -> bool:
    """Whether it looks like a day, in one of the usual ways to write it."""
    return _DATE.fullmatch(text) is not None


def is_no_number(text: str) -> bool:
    """Whether it is what programs write where a number is missing, or is none."""
    return text.lower().lstrip("+-") in _NO_NUMBERS or text in _NO_NUMBERS


def parsed(
    cells: Sequence[str | None], delimiter: str
) -> tuple[list[int | float | None], str | None]:
    """A number per cell, None for what is none; and what to say of how they were read."""
    plain = [None if cell is None else number_of(cell) for cell in cells]
    odd = [cell for cell, number in zip(cells, plain, strict=True) if cell and number is None]
    if not any("," in cell for cell in islice(odd, 1_000)):
        return plain, None
    ways = [(_german, _GERMAN, "1.234,5"), (_grouped, _GROUPED, "1,234.5")]
    for convert, pattern, shown in ways if delimiter != "," else reversed(ways):
        if all(pattern.fullmatch(cell) or number_of(cell) is not None for cell in odd):
            return [
                None if cell is None else convert(cell) for cell in cells
            ], f"numbers are written as {shown}"
    return plain, None


def _german(cell: str) -> int | float | None:
    return number_of(cell.replace(".", "").replace(",", ".")) if _GERMAN.fullmatch(cell) else None


def _grouped(cell: str) -> int | float | None:
    return number_of(cell.replace(",", ""))


def range_of(numbers: Iterable[int | float]) -> tuple[float, float]:
    """Round ends that nearly all numbers lie between: with the outermost hundredths left out where
    these would stretch it far. A range that a few outliers set would drown the rest in noise.
    """
    values = np.array(list(numbers), dtype=np.float64)
    least, most = float(values.min()), float(values.max())
    low, high = (float(q) for q in np.quantile(values, (_TAIL, 1.0 - _TAIL)))
    if least >= 0.0 and least <= 0.5 * high:
        least = low = 0.0
    if low == high:
        low, high = least, most
    inner = _rounded(low, high)
    whole = _rounded(least, most)
    return whole if whole[1] - whole[0] <= _STRETCH * (inner[1] - inner[0]) else inner


def _rounded(low: float, high: float) -> tuple[float, float]:
    """Outward, to ends of few digits."""
    step = 10.0 ** math.floor(math.log10(high - low))
    if low == 0.0:
        return 0.0, next(factor * step for factor in _NICE if factor * step >= high * (1 - 1e-12))
    step /= 10.0
    while True:
        ends = math.floor(low / step) * step, math.ceil(high / step) * step
        if ends[0] < ends[1]:
            return float(f"{ends[0]:.12g}"), float(f"{ends[1]:.12g}")
        step /= 10.0

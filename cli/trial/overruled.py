"""What was said of the columns: --kind, --range, --labels and --words, each for one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shoal.errors import Kind, ShoalError


class Sort(StrEnum):
    """What a column is asked for; the values are what --kind takes."""

    YES_NO = "yes_no"
    CATEGORIES = "categories"
    WHOLE = "whole"
    MEAN = "mean"
    QUANTILES = "quantiles"


_WITH = {
    "--range": {Sort.WHOLE, Sort.MEAN, Sort.QUANTILES},
    "--labels": {Sort.CATEGORIES},
    "--words": {Sort.CATEGORIES},
}


@dataclass(frozen=True, slots=True)
class Said:
    """Of one column; None where nothing was said."""

    sort: Sort | None = None
    ends: tuple[float, float] | None = None
    labels: tuple[str, ...] | None = None
    words: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        given = {"--range": self.ends, "--labels": self.labels, "--words": self.words}
        options = [option for option, value in given.items() if value is not None]
        if len(options) > 1:
            raise _wrong(f"{' and '.join(options)} are of one column: leave one of them out")
        for option in options:
            if self.sort is not None and self.sort not in _WITH[option]:
                raise _wrong(f"{option} is not for --kind {self.sort}: leave one of the two out")


def _wrong(message: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, message)


def said_of(
    columns: Sequence[str],
    kinds: Sequence[str],
    ranges: Sequence[str],
    labels: Sequence[str],
    words: Sequence[str],
) -> dict[str, Said]:
    """By column. Raises CONFIG naming the option."""
    by_kind = _by_column("--kind", kinds, columns)
    by_range = _by_column("--range", ranges, columns)
    by_labels = _by_column("--labels", labels, columns)
    by_words = _by_column("--words", words, columns)
    return {
        column: Said(
            _sort(by_kind[column]) if column in by_kind else None,
            _ends(by_range[column]) if column in by_range else None,
            _names("--labels", by_labels[column], 2) if column in by_labels else None,
            _names("--words", by_words[column], 1) if column in by_words else None,
        )
        for column in columns
    }


def _by_column(option: str, texts: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for typed in texts:
        text, named = typed, [column for column in columns if typed.startswith(f"{column}=")]
        if named:
            column = max(named, key=len)
            text = typed[len(column) + 1 :]
        elif len(columns) == 1:
            column = columns[0]
        else:
            raise _wrong(
                f"{option} {text}: of which column? Give {option} {columns[0]}={text}, once for "
                "each that it is about"
            )
        if column in found:
            raise _wrong(f'{option} is there twice for column "{column}": leave one out')
        found[column] = text
    return found


def _sort(text: str) -> Sort:
    try:
        return Sort(text)
    except ValueError:
        raise _wrong(f'--kind: one of {", ".join(Sort)} is wanted, got "{text}"') from None


def _ends(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        ends = float(low), float(high)
    except ValueError:
        ends = math.nan, math.nan
    if not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] < ends[1]):
        raise _wrong(f'--range: two numbers, the smaller first, as 0:100 are wanted, got "{text}"')
    return ends


def _names(option: str, text: str, fewest: int) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if len(set(names)) != len(names) or not all(names) or len(names) < fewest:
        raise _wrong(
            f"{option}: {fewest} or more different texts, with commas between them, are wanted"
        )
    return names

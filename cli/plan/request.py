"""From the options of ``shoal plan`` to what the planner is asked. Every mistake is one line naming
the option.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from shoal.analyzer.planner import (
    LEVELS,
    QUANTILE_LEVELS,
    Frequencies,
    Mean,
    Quantiles,
    Question,
    Request,
    Shape,
    Spread,
    Sum,
    heaped,
    hitting,
    of_numbers,
    with_levels,
)
from shoal.cli.epsilon.laws import fraction
from shoal.cli.output import read_bytes
from shoal.cli.plan.options import Asked
from shoal.domain import NO_ANSWER, Categories, YesNo
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.task import PPM, one_line

_HEAVY = 0.5
_MOST_DIGITS = 18  # of a count


def _wrong(message: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, message)


@dataclass(frozen=True, slots=True)
class Given:
    """The options that describe the question, as they were typed; None (or False) for those that
    were left out.
    """

    asked: Asked
    k: int | None
    labels: str | None
    counts: Path | None
    share: float | None
    low: float
    high: float
    unit: str
    levels: str | None
    value: float | None
    worst: bool
    quantiles: str | None = None
    shape: str | None = None
    heaps: str | None = None

    def question(self) -> tuple[Question, int | None]:
        """The question, and how many devices --counts adds up to. Raises CONFIG naming the option,
        INVALID for a domain that can't be.
        """
        self._only_what_belongs()
        for option, text in (("--unit", self.unit), ("--labels", self.labels or "")):
            if not one_line(text):
                raise _wrong(
                    f"{option}: one line without control characters is wanted, as a task shows it "
                    "to devices' owners"
                )
        match self.asked:
            case Asked.yes_no:
                if self.worst:
                    most = 1.0 if self.share is None else self._share(self.share)
                    return Frequencies(YesNo(), (), most, worst=True), None
                share = _HEAVY if self.share is None else self._share(self.share)
                shares = () if self.share is None else (1.0 - share, share)
                return Frequencies(YesNo(), shares, share), None
            case Asked.mean | Asked.sum:
                kind = Mean if self.asked is Asked.mean else Sum
                return kind(
                    self.low,
                    self.high,
                    self._levels(LEVELS),
                    self.value,
                    self.worst,
                    unit=self.unit,
                ), None
            case Asked.quantiles:
                return self._quantiles(), None
        heavy = _HEAVY if self.share is None else self._share(self.share)
        if self.counts is not None:
            labels, numbers = read_counts(self.counts)
            if not all(map(one_line, labels)):
                raise _wrong(
                    f"--counts {self.counts}: labels without control characters are wanted, as a "
                    "task shows them to owners"
                )
            total = sum(numbers)
            if total < 2:
                raise _wrong(
                    f"--counts {self.counts}: the counts add up to {total}: at least 2 devices are "
                    "wanted"
                )
            return Frequencies(
                Categories(labels),
                tuple(number / total for number in numbers),
                heavy,
                self.worst,
            ), total
        return Frequencies(Categories(self._names()), heavy=heavy, worst=self.worst), None

    def _levels(self, default: tuple[int, ...]) -> tuple[int, ...]:
        return (
            default
            if self.levels is None
            else tuple(_whole("--levels", part) for part in self.levels.split(","))
        )

    def _quantiles(self) -> Quantiles:
        shape = self._spread()
        levels = self._levels(QUANTILE_LEVELS)
        if self.levels is None:
            levels = with_levels(levels, hitting(shape, self.low, self.high))
        if self.quantiles is None:
            return Quantiles(self.low, self.high, levels=levels, shape=shape, unit=self.unit)
        try:
            at = tuple(float(part) for part in self.quantiles.split(","))
        except ValueError:
            raise _wrong(
                "--quantiles: numbers between 0 and 1 are wanted, ascending: 0.5,0.9"
            ) from None
        return Quantiles(self.low, self.high, at, levels, shape, unit=self.unit)

    def _spread(self) -> Spread:
        """Raises CONFIG naming --shape or --heaps."""
        if not self.low < self.high:
            return Shape.BELL  # the domain refuses it
        named = {str(shape): shape for shape in Shape}
        if self.shape is not None and self.shape not in named:
            if self.heaps is not None:
                raise _wrong(
                    "--heaps: a --shape of numbers has its heaps in it: leave one of the two out"
                )
            return of_numbers(
                read_numbers(Path(self.shape)), self.low, self.high, Path(self.shape).name
            )
        rest = named[self.shape or Shape.BELL]
        return rest if self.heaps is None else heaped(self.heaps, rest, self.low, self.high)

    def _only_what_belongs(self) -> None:
        """Raises CONFIG for an option of another kind of question."""
        of_categories: dict[str, object] = {
            "--k": self.k,
            "--labels": self.labels,
            "--counts": self.counts,
        }
        of_numbers: dict[str, object] = {"--levels": self.levels, "--unit": self.unit or None}
        of_numbers |= {
            "--low": None if self.low == 0.0 else self.low,
            "--high": None if self.high == 1.0 else self.high,
        }
        of_means: dict[str, object] = {"--value": self.value}
        worst: dict[str, object] = {"--worst": self.worst or None}
        of_quantiles: dict[str, object] = {
            "--quantiles": self.quantiles,
            "--shape": self.shape,
            "--heaps": self.heaps,
        }
        strange: dict[Asked, dict[str, object]] = {
            Asked.yes_no: of_categories | of_numbers | of_means | of_quantiles,
            Asked.categories: of_numbers | of_means | of_quantiles,
            Asked.mean: of_categories | of_quantiles | {"--share": self.share},
            Asked.sum: of_categories | of_quantiles | {"--share": self.share},
            Asked.quantiles: of_categories | of_means | worst | {"--share": self.share},
        }
        for option, value in strange[self.asked].items():
            if value is not None:
                raise _wrong(f"{option} is not for {self.asked}: leave it out")
        if (
            self.asked is Asked.categories
            and sum(value is not None for value in of_categories.values()) != 1
        ):
            raise _wrong("categories want one of --k, --labels and --counts")

    def _share(self, share: float) -> float:
        if not 0.0 < share <= 1.0:
            raise _wrong(f"--share must be above 0 and at most 1, got {share:g}")
        return share

    def _names(self) -> tuple[str, ...]:
        if self.labels is not None:
            return tuple(label.strip() for label in self.labels.split(","))
        if self.k is None or not 3 <= self.k <= LIMITS.cells:
            raise _wrong(
                "--k is the number of cells, that of no answer included: a whole number from 3 to "
                f"{LIMITS.cells}"
            )
        return tuple(f"category {i + 1}" for i in range(self.k - 1))


def devices(n: int | None, total: int | None) -> int:
    """--n, or what --counts adds up to. Raises CONFIG where neither is given."""
    if n is None and total is None:
        raise _wrong("--n is wanted: how many devices are expected in a batch")
    return n if n is not None else total or 0


def honest(text: str) -> Fraction:
    """The honest fraction in whole millionths, downward, as a task states it. Raises CONFIG."""
    share = Fraction(math.floor(fraction(text) * PPM), PPM)
    if share == 0:
        raise _wrong("--honest-fraction must be at least 0.000001")
    return share


def limited(
    request: Request,
    most_bytes: int | None,
    most_messages: int | None,
    most_epsilon0: float | None,
    mechanisms: list[str] | None,
) -> Request:
    """The same request within the limits that were given (None: not given)."""
    return replace(
        request,
        most_bytes=request.most_bytes if most_bytes is None else most_bytes,
        most_messages=request.most_messages if most_messages is None else most_messages,
        most_epsilon0=request.most_epsilon0 if most_epsilon0 is None else most_epsilon0,
        mechanisms=tuple(mechanisms or ()),
    )


def read_counts(path: Path) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """(labels, counts) of a text file with LABEL,COUNT or COUNT per line; counts have one more, of
    "no answer" (0 if it is not there).
    """
    try:
        # spreadsheets put a byte order mark first
        lines = read_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise _wrong(f"--counts {path}: not a text file in UTF-8") from None
    labels: list[str] = []
    seen: set[str] = set()
    counts: list[int] = []
    missing = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        label, text = _label_and_count(line)
        count = _count(f"--counts {path}, line {number}", text)
        if label == NO_ANSWER:
            missing += count
            continue
        label = label or f"category {len(labels) + 1}"
        if label in seen:
            raise _wrong(
                f"--counts {path}, line {number}: {label!r} is there already: labels are distinct"
            )
        seen.add(label)
        labels.append(label)
        counts.append(count)
    return tuple(labels), (*counts, missing)


def read_numbers(path: Path) -> dict[float, int]:
    """How often which number is in a text file with NUMBER or NUMBER,COUNT per line. Raises CONFIG
    naming the line, never the number.
    """
    if not path.is_file():
        raise _wrong(f"--shape: {', '.join(Shape)} or a file of numbers is wanted")
    counts: dict[float, int] = {}
    for at, line in enumerate(read_bytes(path).decode("utf-8-sig", "replace").splitlines(), 1):
        if not line.strip():
            continue
        number, comma, count = (part.strip() for part in line.partition(","))
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise _wrong(
                f"--shape {path}, line {at}: lines are NUMBER or NUMBER,COUNT, without a heading"
            )
        counts[value] = counts.get(value, 0) + (
            _count(f"--shape {path}, line {at}", count) if comma else 1
        )
    return {value: count for value, count in counts.items() if count}


def _label_and_count(line: str) -> tuple[str, str]:
    """Everything before the last comma, without the quotes in which spreadsheets put a label with a
    comma; and what follows it.
    """
    label, _, text = line.rpartition(",")
    label = label.strip()
    if len(label) >= 2 and label[0] == label[-1] == '"':
        label = label[1:-1].replace('""', '"').strip()
    return label, text.strip()


def _count(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise _wrong(
            f"{what}: {text!r} is no whole number of at least 0: lines are LABEL,COUNT or COUNT, "
            "without a heading"
        )
    return int(text)


def _whole(what: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise _wrong(f"{what}: whole numbers of at least 0 are wanted")
    return value

"""What a column asks: yes or no, categories, whole numbers, or a number with a range; looked up in
the data where nobody said it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from shoal.analyzer.planner import Frequencies, Mean, Quantiles, Shape
from shoal.cli.load.table import TableColumn
from shoal.cli.trial.asked import AskedColumn, beyond
from shoal.cli.trial.numbers import is_date, is_no_number, parsed, range_of
from shoal.cli.trial.overruled import Said, Sort
from shoal.domain import NO_ANSWER, Categories, YesNo
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.answers import Value
from shoal.task import one_line

MOST_LABELS = 30  # different texts that are taken for categories without being told
MOST_WHOLE = 21  # whole numbers in a row, of which each is counted
_LARGEST = 1e15  # of a number: beyond it stand ids, and not figures
_MOST_NUMBERS = 0.9  # from this share of numbers on, a text among them is a mistake
_NAMELESS = 0.9  # from this share of different texts on, they are names of people or things
_SHOWN = 6
_ENOUGH_NUMBERED = 10  # numbers in a row that are taken for a numbering
_YES = frozenset({"yes", "true", "1", "y", "ja", "j", "wahr", "oui", "si", "sí", "x"})
_NO = frozenset({"no", "false", "0", "n", "nein", "falsch", "non"})
_OTHER = "other"


def asked_of(column: TableColumn, said: Said) -> AskedColumn:
    """The column as a question. Raises CONFIG naming file, line and what would be right."""
    if said.labels is not None or said.words is not None:
        return _named(column, said)
    texts = Counter(cell for cell in column.cells if cell is not None)
    sort = said.sort
    if said.ends is not None or sort in {Sort.WHOLE, Sort.MEAN, Sort.QUANTILES}:
        return _numbers(column, said)
    if sort is Sort.YES_NO:
        return _yes_no(column, inferred=False)
    if sort is Sort.CATEGORIES:
        return _categories(column, texts, inferred=False)
    if len(texts) == 1:
        raise _wrong(
            f'{column.file}: column "{column.name}" holds one value alone: there is nothing to '
            "find out. If another answer could be, say which: --labels A,B"
        )
    folded = {text.lower() for text in texts}
    if folded <= _YES | _NO and folded & _YES and folded & _NO:
        return _yes_no(column, inferred=True)
    return _looked_at(column, texts, said)


def _looked_at(column: TableColumn, texts: Counter[str], said: Said) -> AskedColumn:
    """Numbers or categories."""
    numbers, _ = parsed(column.cells, column.delimiter)
    count = sum(number is not None for number in numbers)
    answered = texts.total()
    if count == answered:
        return _numbers(column, said)
    odd = next(
        cell
        for cell, number in zip(column.cells, numbers, strict=True)
        if cell is not None and number is None
    )
    without = answered - sum(times for text, times in texts.items() if is_no_number(text))
    if count == without or count >= _MOST_NUMBERS * answered:
        raise _wrong(
            f'{column.first(odd)}: column "{column.name}" has no number there, and else it '
            "has: mend it, or --missing TEXT if that text stands for no answer"
        )
    if all(map(is_date, texts)):
        raise _wrong(
            f'{column.file}: column "{column.name}" holds dates: a question asks for categories or '
            "numbers: add a column of years, ages or days"
        )
    return _categories(column, texts, inferred=True)


def _wrong(message: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, message)


def _short(text: str) -> str:
    """For a line of text."""
    plain = "".join(letter if one_line(letter) else "?" for letter in text)
    return plain if len(plain) <= 30 else f"{plain[:29]}…"


# --- yes or no -----------------------------------------------------------------------------------


def _yes_no(column: TableColumn, *, inferred: bool) -> AskedColumn:
    answers: list[bool | None] = []
    for index, cell in enumerate(column.cells):
        folded = None if cell is None else cell.lower()
        if folded is not None and folded not in _YES | _NO:
            raise _wrong(
                f'{column.where(index)}: column "{column.name}" has neither yes nor no (yes, '
                "no, true, false, 1, 0, ja, nein, ...): mend it, or --kind categories"
            )
        answers.append(None if folded is None else folded in _YES)
    if None not in answers:
        question, values = Frequencies(YesNo()), answers
        return AskedColumn(
            column.name, Sort.YES_NO, question, values, "yes or no", "--kind", inferred=inferred
        )
    # A yes/no task counts what is missing as no; here it has a cell of its own.
    names = {True: "yes", False: "no", None: None}
    return AskedColumn(
        column.name,
        Sort.YES_NO,
        Frequencies(Categories(("no", "yes"))),
        [names[answer] for answer in answers],
        "yes, no, or no answer",
        "--kind",
        inferred=inferred,
    )


# --- categories ----------------------------------------------------------------------------------


def _named(column: TableColumn, said: Said) -> AskedColumn:
    names = said.labels or said.words or ()
    if said.words is not None:
        if _OTHER in names:
            raise _wrong(f'--words: "{_OTHER}" is what every text is that is not named: leave it')
        kept = set(names)
        values: list[Value] = [
            None if cell is None else cell if cell in kept else _OTHER for cell in column.cells
        ]
        domain = _domain(column, (*names, _OTHER))
        says = f"{_listed(domain.names)}: the texts that were named, and all others"
        return AskedColumn(
            column.name, Sort.CATEGORIES, Frequencies(domain), values, says, "--words", False
        )
    for index, cell in enumerate(column.cells):
        if cell is not None and cell not in names:
            raise _wrong(
                f'{column.where(index)}: column "{column.name}" has none of --labels: name it '
                'too, mend it, or --words counts what is not named as "other"'
            )
    domain = _domain(column, names)
    return AskedColumn(
        column.name,
        Sort.CATEGORIES,
        Frequencies(domain),
        list(column.cells),
        _listed(names),
        "--labels",
        False,
    )


def _categories(column: TableColumn, texts: Counter[str], *, inferred: bool) -> AskedColumn:
    if inferred and len(texts) > MOST_LABELS:
        if len(texts) > _NAMELESS * texts.total():
            raise _wrong(
                f'{column.file}: column "{column.name}" holds {len(texts):,} different texts in '
                f"{texts.total():,} rows: names and free texts are no statistic. Take another "
                "column, or --words A,B,... counts those that you name"
            )
        raise _wrong(
            f'{column.file}: column "{column.name}" holds {len(texts):,} different texts: --words '
            'A,B,... counts those that you name and all others as "other"; or --kind categories '
            "counts each"
        )
    names = tuple(sorted(texts, key=lambda text: (text.casefold(), text)))
    return AskedColumn(
        column.name,
        Sort.CATEGORIES,
        Frequencies(_domain(column, names)),
        list(column.cells),
        f"{len(names)} categories: {_listed(names)}",
        "--labels, --words",
        inferred,
    )


def _domain(column: TableColumn, names: tuple[str, ...]) -> Categories:
    for name in names:
        if name == NO_ANSWER:
            raise _wrong(
                f'{column.file}: column "{column.name}" says "{NO_ANSWER}", which is what empty '
                f'cells are: --missing "{NO_ANSWER}"'
            )
        if len(name) > LIMITS.name_chars or not one_line(name):
            there = name in column.cells
            where = column.first(name) if there else column.file
            what = f'what column "{column.name}" has there' if there else f'"{_short(name)}"'
            raise _wrong(
                f"{where}: {what} is no name of a category: one line of at most "
                f"{LIMITS.name_chars} characters is"
            )
    if len(names) >= LIMITS.cells:
        raise _wrong(
            f'{column.file}: column "{column.name}" holds {len(names):,} different texts, and a '
            f"question has at most {LIMITS.cells - 1:,}: name some with --words A,B,..."
        )
    return Categories(names)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(_short(name) for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


# --- numbers -------------------------------------------------------------------------------------


def _numbers(column: TableColumn, said: Said) -> AskedColumn:
    numbers, written = parsed(column.cells, column.delimiter)
    for index, (cell, number) in enumerate(zip(column.cells, numbers, strict=True)):
        if cell is not None and (number is None or abs(number) >= _LARGEST):
            raise _wrong(
                f'{column.where(index)}: column "{column.name}" has no number there that can be '
                "asked for: mend it, or --missing TEXT if that text stands for no answer"
            )
    answers = [number for number in numbers if number is not None]
    if said == Said() and _numbering(answers):
        raise _wrong(
            f'{column.file}: column "{column.name}" counts the rows, one after the other, which '
            "says nothing of people: take another column, or --kind mean"
        )
    ends = said.ends
    sort = said.sort or (Sort.WHOLE if ends is None and _few(answers) else Sort.MEAN)
    if sort is Sort.WHOLE:
        return _whole(column, numbers, ends, inferred=said.sort is None)
    if ends is None:
        if len(set(answers)) == 1:
            raise _wrong(
                f'{column.file}: column "{column.name}" holds one number alone: say what others '
                "could be: --range LOW:HIGH"
            )
        ends = range_of(answers)
    outside = beyond(numbers, ends)
    what = "the mean of a number" if sort is Sort.MEAN else "quantiles of a number"
    says = f"{what} from {ends[0]:,.12g} to {ends[1]:,.12g}"
    if written is not None:
        says += f" ({written})"
    if outside:
        rows = "1 row beyond counts" if outside == 1 else f"{outside:,} rows beyond count"
        says += f"; {rows} as the end of the range"
    # amounts, ages, waiting times: what begins at 0 has many small numbers and few large ones
    shape = Shape.SKEWED if ends[0] == 0.0 else Shape.BELL
    question = Mean(*ends) if sort is Sort.MEAN else Quantiles(*ends, shape=shape)
    other = Sort.QUANTILES if sort is Sort.MEAN else Sort.MEAN
    return AskedColumn(
        column.name,
        sort,
        question,
        [None if number is None else min(max(number, ends[0]), ends[1]) for number in numbers],
        says,
        f"--range LOW:HIGH, --kind {other}",
        said.ends is None,
        outside,
        math.fsum(answers) / len(answers),
    )


def _numbering(answers: Sequence[int | float]) -> bool:
    """Whether they are 1, 2, 3, ... or the like."""
    return len(answers) >= _ENOUGH_NUMBERED and all(
        after == before + 1 for before, after in pairwise(answers)
    )


def _few(answers: Sequence[int | float]) -> bool:
    """Whether they are whole numbers close together."""
    return (
        all(isinstance(number, int) or float(number).is_integer() for number in answers)
        and max(answers) - min(answers) < MOST_WHOLE
    )


def _whole(
    column: TableColumn,
    numbers: Sequence[int | float | None],
    ends: tuple[float, float] | None,
    *,
    inferred: bool,
) -> AskedColumn:
    values: list[Value] = []
    low, high = (int(end) for end in ends or _span(numbers))
    if not 1 <= high - low < LIMITS.cells - 1:
        raise _wrong(
            f'column "{column.name}": from {low:,} to {high:,} each whole number would be counted: '
            f"2 to {LIMITS.cells - 1:,} of them can be; --kind mean asks for less"
        )
    for index, number in enumerate(numbers):
        if number is not None and not float(number).is_integer():
            raise _wrong(
                f'{column.where(index)}: column "{column.name}" has no whole number: mend it, '
                "or --kind mean"
            )
        values.append(None if number is None else min(max(int(number), low), high))
    bounds = tuple(range(low, high + 1))
    return AskedColumn(
        column.name,
        Sort.WHOLE,
        Frequencies(Categories(tuple(map(str, bounds)), bounds)),
        values,
        f"whole numbers from {low} to {high}, each counted",
        "--range LOW:HIGH, --kind mean",
        inferred and ends is None,
        0 if ends is None else beyond(numbers, (low, high)),
    )


def _span(numbers: Sequence[int | float | None]) -> tuple[float, float]:
    answers = [number for number in numbers if number is not None]
    return min(answers), max(answers)

"""``shoal load --values``: what simulated devices answer, from the rows of a table; and what is
true of it, to compare with what is released.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.analyzer.results.processed import MEANS
from shoal.cli.figures import counted
from shoal.cli.load.table import TableColumn, read_columns
from shoal.domain import NO_ANSWER, AnswerRecord, Domain, Numeric, Vector, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.numbers.quantiles import SHARES
from shoal.mechanisms.parts.tables import MEAN_OF_ALL
from shoal.questions.answers import Value, number_of


def _wrong(message: str) -> ShoalError:
    return ShoalError(Kind.CONFIG, message)


@dataclass(frozen=True, slots=True)
class RowsOfTasks:
    """``values``: of the tasks, by their number, for which a table was given: one per row.
    ``notes``: what to say of how the files were read.
    """

    values: Mapping[int, Sequence[Value]]
    notes: Sequence[str] = ()

    def devices(self, asked: int | None) -> int:
        """How many devices answer: as many as asked for, or one per row. Raises CONFIG."""
        if asked is not None:
            return asked
        counts = {len(values) for values in self.values.values()}
        if not counts:
            raise _wrong("how many devices? Give --devices N, or --values FILE:COLUMN, one per row")
        if len(counts) > 1:
            raise _wrong(
                f"the tables have {' and '.join(f'{count:,}' for count in sorted(counts))} rows: "
                "say how many devices answer, --devices N"
            )
        return counts.pop()

    def of(self, task: int, devices: range) -> tuple[Value, ...] | None:
        """A value per device; None for a task without a table. Device i answers with row i, and
        beyond the last row with the first again.
        """
        if task not in self.values:
            return None
        rows = self.values[task]
        return tuple(rows[device % len(rows)] for device in devices)

    def said(self, devices: int) -> list[str]:
        """Where rows and devices are not equally many."""
        notes = list(self.notes)
        for rows in sorted({len(values) for values in self.values.values()} - {devices}):
            notes.append(
                f"{counted(rows, 'row')} for {counted(devices, 'device')}: "
                + ("the first ones answer" if devices < rows else "they answer again and again")
            )
        return notes


def rows_of_tasks(given: Sequence[str], tasks: Sequence[tuple[str, Domain]]) -> RowsOfTasks:
    """``given``: "FILE:COLUMN", or "TASK=FILE:COLUMN" where there are several ``tasks`` (name and
    domain). Raises CONFIG, of a cell naming its place, itself, and what the task takes.
    """
    values: dict[int, Sequence[Value]] = {}
    notes: list[str] = []
    for typed in given:
        number, place = _task_of(typed, [name for name, _ in tasks])
        if number in values:
            raise _wrong(f"--values is there twice for task {tasks[number][0]}: leave one out")
        path, column = _place(place)
        (cells,), read = read_columns(path, [column])
        values[number] = _answers(cells, *tasks[number])
        notes += [f"{path.name}: {note}" for note in read]
    return RowsOfTasks(values, notes)


def _task_of(typed: str, names: Sequence[str]) -> tuple[int, str]:
    """Which task, and the rest of the option."""
    name, found, rest = typed.partition("=")
    if found and name in names:
        if names.count(name) > 1:
            raise _wrong(f"--values {name}=...: two tasks have that name: load one after the other")
        return names.index(name), rest
    if len(names) == 1:
        return 0, typed
    raise _wrong(
        f"--values {typed}: of which task? Give --values {names[0]}={typed}, once for each that it "
        f"is about ({', '.join(names)})"
    )


def _place(text: str) -> tuple[Path, str]:
    """File and column; either may hold a colon, and the file is there."""
    splits = [(Path(text[:at]), text[at + 1 :]) for at, letter in enumerate(text) if letter == ":"]
    if not splits:
        raise _wrong(f"--values {text}: FILE:COLUMN is wanted, as answers.csv:income")
    return next((split for split in splits if split[0].is_file()), splits[-1])


def _answers(column: TableColumn, task: str, domain: Domain) -> list[Value]:
    """As a device reads them. Raises CONFIG for the first cell that is no answer."""
    if isinstance(domain, Vector):
        raise _wrong(f"--values: task {task} asks for vectors, which no column has: leave it out")
    known = {cell for cell in set(column.cells) if cell is None or domain.understands(cell)}
    for index, cell in enumerate(column.cells):
        if cell is not None and cell not in known:
            raise _wrong(  # the place alone: what stands there is somebody's answer
                f'{column.where(index)}: column "{column.name}" has no answer to task {task}: '
                f"it takes {domain.accepted}"
            )
    return list(column.cells)


def truth_of(domain: Domain, values: Sequence[Value]) -> dict[str, float]:
    """What an exact count would release, by label of the estimates: devices per value, or of a
    number its mean, "quantile 0.5" and its like, and how many gave none.
    """
    if isinstance(domain, Numeric):
        return number_figures(values, domain.low, domain.high, clip=domain.clip)
    if isinstance(domain, AnswerRecord):
        return _tables_truth(domain, values)
    cells = Counter(map(domain.encode, values))
    labels = zip(domain.labels, domain.label_cells, strict=True)
    return {label: float(cells[cell]) for label, cell in labels}


def _tables_truth(record: AnswerRecord, values: Sequence[Value]) -> dict[str, float]:
    counts = Counter[int]()
    for answers, devices in Counter(map(record.answers_of, values)).items():
        for at in range(len(record.marginals)):
            counts[record.cell_of(at, answers)] += devices
    return {label: float(counts[cell]) for cell, label in enumerate(record.labels)}


def number_figures(
    values: Sequence[Value], low: float, high: float, *, clip: bool = True
) -> dict[str, float]:
    """Of numbers; those beyond the range count as its ends, or as no answer."""
    found = (number for value in values if (number := number_of(value)) is not None)
    numbers = sorted(
        min(max(number, low), high) for number in found if clip or low <= number <= high
    )
    missing = len(values) - len(numbers)
    figures: dict[str, float] = {NO_ANSWER: float(missing)}
    if not numbers:
        return figures
    figures |= dict.fromkeys(sorted(MEANS), math.fsum(numbers) / len(numbers))
    figures[MEAN_OF_ALL] = (math.fsum(numbers) + (low + high) / 2 * missing) / len(values)
    for share in SHARES:
        figures[f"quantile {share:g}"] = float(numbers[math.ceil(share * len(numbers)) - 1])
    return figures


def missing_words(domain: Domain, values: Sequence[Value]) -> str:
    """What becomes of empty cells where the task has no cell for them; "" otherwise."""
    missing = sum(value is None for value in values)
    if not missing or not isinstance(domain, YesNo):
        return ""
    return f"{counted(missing, 'device')} without an answer are counted as no by this task"

"""Several answers together, from releases alone: tables that agree, and a synthetic table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import product
from typing import Any

from shoal.analyzer.tables.consistent import consistent
from shoal.analyzer.tables.marginals import Names, ReleasedTables
from shoal.analyzer.tables.of_release import tables_of
from shoal.analyzer.tables.synthesis import MOST_ROWS, Synthesis, synthesize
from shoal.arrays import np
from shoal.errors import Kind, ShoalError
from shoal.study.arguments import about, whole, wrong_type
from shoal.study.frames import Cell, Table

_MOST_SAID = 3  # sentences under a table


class SyntheticTable(Table):
    """Rows that no device sent, drawn from a law that was fitted to a release: a column for each
    attribute. ``unanswered``: what they can't tell; ``held_out``: a row for each released table
    that a second fit did not see, all as shares of the devices; ``counts``: what the law says of
    each released table, with 95 % intervals, where these were asked for; ``misfit``: near 1 where
    the released tables lie as far from the law as their noise puts them.
    """

    def __init__(self, made: Synthesis) -> None:
        columns = [made.labelled(at) for at in range(len(made.columns))]
        rows: list[Sequence[Cell]] = list(zip(*columns, strict=True))
        self.unanswered = made.unanswered
        self.misfit = made.fitted.misfit
        self.held_out = Table(
            ("table", "difference", "noise", "independent"),
            [
                (" x ".join(one.names), one.difference, one.noise, one.independent)
                for one in made.tested
            ],
        )
        self.counts = _counts(made)
        caption = "; ".join(f"can't answer {said}" for said in made.unanswered[:_MOST_SAID])
        super().__init__(made.columns, rows, caption=caption)


def _answers(released: ReleasedTables, names: Names) -> Iterator[tuple[str, ...]]:
    """The labels of each cell of a table, in the order of its cells."""
    labels = {one.name: one.labels for one in released.attributes}
    return product(*(labels[name] for name in names))


def _counts(made: Synthesis) -> list[Table]:
    if made.errors is None:
        return []
    released = made.tables.released
    return [
        Table(
            (*one.names, "devices", "error", "ci_low", "ci_high"),
            [
                (*answers, *map(float, row))
                for answers, row in zip(
                    _answers(released, one.names),
                    np.stack([counts.values, counts.error, counts.low, counts.high], -1).reshape(
                        -1, 4
                    ),
                    strict=True,
                )
            ],
        )
        for one, counts in zip(released.marginals, made.errors.tables, strict=True)
    ]


def synthetic_table(
    release: dict[str, Any], rows: object, test: object, errors: object
) -> SyntheticTable:
    """``release``: in its JSON shape. Errors name the argument."""
    count = None if rows is None else whole("rows", rows, 1, MOST_ROWS)
    for name, flag in (("test", test), ("errors", errors)):
        if not isinstance(flag, bool):
            raise wrong_type(name, "give True or False")
    with about("task"):
        released = tables_of(release)
    if find_spec("mbi") is None:
        raise ShoalError(
            Kind.CONFIG, "this wants Shoal's extra [tables]: pip install 'shoal[tables]'"
        )
    return SyntheticTable(
        synthesize(released, rows=count, test=test is True, errors=errors is True)
    )


def agreeing_tables(release: dict[str, Any]) -> list[Table]:
    """One for each released marginal: the labels, the devices, and a standard error."""
    with about("task"):
        found = consistent(tables_of(release))
    return [
        Table(
            (*one.names, "devices", "stderr"),
            [
                (*answers, float(devices), error)
                for answers, devices in zip(
                    _answers(found.released, one.names), table.reshape(-1), strict=True
                )
            ],
        )
        for one, table, error in zip(
            found.released.marginals, found.tables, found.stderr, strict=True
        )
    ]

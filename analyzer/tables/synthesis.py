"""From a release's marginals to a synthetic table and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.analyzer.tables.consistent import ConsistentTables, consistent
from shoal.analyzer.tables.fit_errors import PLAYS, FitErrors, fit_errors
from shoal.analyzer.tables.fitting import Progress, TableFit, fit, part_of_progress
from shoal.analyzer.tables.marginals import ReleasedTables, wrong
from shoal.analyzer.tables.quality import HeldOut, held_out, unanswered
from shoal.arrays import NDArray, np
from shoal.entropy import SYSTEM, Entropy

MOST_ROWS = 10_000_000
_SOUGHT = 3  # times as long takes a fit that seeks its number of blocks
_SMALL = 1.5  # a misfit above which the law does not explain the marginals


@dataclass(frozen=True, slots=True, eq=False)
class Synthesis:
    """``rows``: int64[rows, attributes], cells of made-up records; ``tables``: the consistent
    marginals beside; ``tested``: of marginals that a second fit did not see; ``errors``: of the
    fit's counts, None unless asked for; ``unanswered``: what the rows can't tell.
    """

    tables: ConsistentTables
    fitted: TableFit
    rows: NDArray[np.int64]
    tested: tuple[HeldOut, ...]
    unanswered: tuple[str, ...]
    errors: FitErrors | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the attributes, in the order of the record."""
        return self.tables.released.names

    def labelled(self, column: int) -> list[str]:
        """The labels of one attribute, one for each row."""
        labels = self.tables.released.attributes[column].labels
        return [labels[cell] for cell in self.rows[:, column].tolist()]

    @property
    def explains(self) -> bool:
        """Whether the released marginals lie about as far from the fit as their noise puts them."""
        return self.fitted.misfit <= _SMALL

    def to_json(self) -> dict[str, Any]:
        """For programs: everything but the rows."""
        released = self.tables.released
        return {
            "attributes": [
                {"name": one.name, "labels": list(one.labels)} for one in released.attributes
            ],
            "n": released.n,
            "rows": len(self.rows),
            "form": self.fitted.law.form,
            "misfit": self.fitted.misfit,
            "tables": [
                {"names": list(one.names), "values": table.tolist(), "stderr": error}
                for one, table, error in zip(
                    released.marginals, self.tables.tables, self.tables.stderr, strict=True
                )
            ],
            "held_out": [
                {
                    "names": list(one.names),
                    "difference": one.difference,
                    "noise": one.noise,
                    "independent": one.independent,
                }
                for one in self.tested
            ],
            "unanswered": list(self.unanswered),
        } | ({} if self.errors is None else _counts_json(released, self.errors))


def _counts_json(released: ReleasedTables, errors: FitErrors) -> dict[str, Any]:
    return {
        "fit_error": errors.error,
        "fit_counts": [
            {
                "names": list(one.names),
                "values": counts.values.tolist(),
                "error": counts.error.tolist(),
                "ci_low": counts.low.tolist(),
                "ci_high": counts.high.tolist(),
            }
            for one, counts in zip(released.marginals, errors.tables, strict=True)
        ],
    }


def synthesize(
    released: ReleasedTables,
    *,
    rows: int | None = None,
    test: bool = True,
    errors: bool = False,
    progress: Progress | None = None,
    entropy: Entropy = SYSTEM,
) -> Synthesis:
    """A fit to all marginals, ``rows`` drawn from it (None: as many as there were devices);
    with ``test``, a second fit to four marginals in five, compared with the fifth; with ``errors``,
    how far the fit's counts are from the truth, by ``PLAYS`` fits more.

    Raises INVALID for a number of rows out of range; ModuleNotFoundError without the extra
    ``tables``.
    """
    count = released.n if rows is None else rows
    if not 1 <= count <= MOST_ROWS:
        raise wrong(f"rows: a synthetic table has 1 to {MOST_ROWS:,}: give another number")
    fits = _SOUGHT * (1 + test) + PLAYS * errors
    first, done = _SOUGHT / fits, _SOUGHT * (1 + test) / fits
    fitted = fit(released, progress=part_of_progress(progress, 0.0, first))
    tested = held_out(released, part_of_progress(progress, first, done)) if test else ()
    played = part_of_progress(progress, done, 1.0)
    tables = consistent(released)
    return Synthesis(
        tables,
        fitted,
        fitted.law.draw(count, entropy),
        tested,
        unanswered(tables, count),
        fit_errors(released, fitted, progress=played, entropy=entropy) if errors else None,
    )

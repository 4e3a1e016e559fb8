"""``shoal.read_release``: what an analyzer released, as rows of a data frame; the totals of a long
vector as an array that is read as it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shoal.analyzer.results.files.exports import rows_of
from shoal.analyzer.results.maps.parted import is_parted, parted_rectangle
from shoal.analyzer.results.maps.released import RectangleCount, rectangle_of
from shoal.analyzer.results.processed import MEANS
from shoal.analyzer.results.ranges import RangeCount, range_of
from shoal.analyzer.results.reading import read_releases, select
from shoal.analyzer.results.release_files import Truth, read_release_files
from shoal.analyzer.results.report_page import certificate_of
from shoal.analyzer.results.totals import FOLDER, array_of_json, layout_of_json
from shoal.analyzer.store import FILE_NAME
from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.questions.layout import spans
from shoal.storage.array_files import ArrayFile
from shoal.study.arguments import about, wrong_type, wrong_value
from shoal.study.frames import Cell, Table
from shoal.study.pictures import Picture, intervals
from shoal.study.promise import Promise
from shoal.study.tables import SyntheticTable, agreeing_tables, synthetic_table

COLUMNS = (
    "name",
    "window",
    "label",
    "value",
    "stderr",
    "ci_low",
    "ci_high",
    "n",
    "epsilon_upper",
    "delta",
    "withheld",
    "task_id",
)
"""As in a CSV of ``shoal results export``; "truth" is the last one where a file tells it."""
_WIDE = ("stderr", "delta", "withheld", "task_id")
_SHOWN = 8  # names that an error lists
_KNOWN = "a file of shoal results export --format json, a folder of them, or an analyzer's data_dir"


class ReleaseTable(Table):
    """Releases as rows: one per estimate, one per quantile, and one of a release that was withheld,
    or whose totals are an array (``array``). A 95 % interval is from ``ci_low`` to ``ci_high``.
    ``releases``: all that is known of each.
    """

    def __init__(
        self,
        releases: tuple[dict[str, Any], ...],
        truths: Mapping[str, Truth] | None = None,
        arrays: Path | None = None,
    ) -> None:
        told = truths or {}
        rows: list[list[Cell]] = []
        for row in rows_of(releases):
            shown = [row.get(name) for name in COLUMNS]
            shown[COLUMNS.index("withheld")] = row["withheld"] or None
            truth = told.get(row["task_id"], {}).get(str(row.get("label")))
            rows.append([*shown, *([truth] if told else [])])
        super().__init__((*COLUMNS, *(["truth"] if told else [])), rows, unseen=_WIDE)
        self.releases = releases
        self._truths, self._arrays = told, arrays

    def select(self, task: str) -> ReleaseTable:
        """Those of a task, or of one window: "outpatient-visit" or "outpatient-visit:0"; an id, or
        its beginning, instead of the name.
        """
        if not isinstance(task, str):
            raise wrong_type("task", "give a task's name, as 'outpatient-visit:0'")
        try:
            chosen = select(list(self.releases), task)
        except ShoalError as error:
            names = ", ".join(sorted({str(each["name"]) for each in self.releases}))
            said = (
                f"no such release: give one of {names}"
                if error.kind is Kind.NOT_FOUND
                else error.message
            )
            raise wrong_value("task", said) from None
        return ReleaseTable(tuple(chosen), self._truths, self._arrays)

    def range(self, task: str, low: float, high: float | None = None) -> RangeCount:
        """How many devices have a value from ``low`` to ``high`` (None: to the end), of a release
        whose task was asked for ranges: with the standard error and the 95 % interval of the whole,
        which are not those of its cells added up. Over bins ``high`` is where the next bin begins;
        over levels it is the last one. ``task``: as for ``select``, of one window.
        """
        release = self._one(task)
        for name, end in (("low", low), ("high", high)):
            if end is not None and (isinstance(end, bool) or not isinstance(end, int | float)):
                raise wrong_type(name, "give a number, as 18 or 0.5")
        with about("range"):
            return range_of(release, float(low), None if high is None else float(high))

    def rectangle(
        self,
        task: str,
        *,
        south: float | None = None,
        west: float | None = None,
        north: float | None = None,
        east: float | None = None,
    ) -> RectangleCount:
        """How many devices are in a box of degrees, of a release whose task was asked for places:
        with the standard error and the 95 % interval of the whole, which are not those of its cells
        added up. Bounds are edges of cells; None: the map's own. ``task``: as for ``select``, of
        one window; of a discovery of places all of its windows count, bounds may be any on the map,
        and the answer is a ``PartedCount``, which says how much of it nobody was asked for.
        """
        chosen = self.select(task.partition(":")[0] if isinstance(task, str) else task).releases
        release = None if is_parted(chosen) else self._one(task)
        bounds = {"south": south, "west": west, "north": north, "east": east}
        for name, end in bounds.items():
            if end is not None and (isinstance(end, bool) or not isinstance(end, int | float)):
                raise wrong_type(name, "give degrees, as 48.1")
        with about("rectangle"):
            if release is None:
                return parted_rectangle(chosen, south, west, north, east)
            return rectangle_of(release, south, west, north, east)

    def promise(self, task: str) -> Promise:
        """What the task's releases promise each person, in words; of sums, see ``releases``."""
        release = self._one(task)
        if "rounds" in release:
            raise wrong_value(
                "task", "a sum has another kind of promise: look at .releases[0]['privacy']"
            )
        return Promise(certificate_of(release["privacy"]))

    def plot(self, task: str) -> Picture:
        """The estimates of one release with their intervals, and the truth where it is known."""
        release = self._one(task)
        truth = self._truths.get(release["task_id"], {})
        rows = release["estimates"]
        means = [row for row in rows if row["label"] in MEANS and "rounds" not in release]
        marks = [
            (
                row["label"],
                {"low": row["ci_low"], "value": row["value"], "high": row["ci_high"]}
                | ({"truth": truth[row["label"]]} if row["label"] in truth else {}),
            )
            for row in means or rows
        ]
        if "array" in release:
            raise wrong_value("task", "its totals are too many to draw: use .array(task)")
        if not marks:
            raise wrong_value("task", "this release was withheld: there is nothing to draw")
        unit = "the number's unit" if means else "total" if "rounds" in release else "people"
        title = f"{release['name']}, window {release['window']}: {release['n']:,} reports"
        return intervals(title, unit, marks)

    def array(self, task: str, path: str | os.PathLike[str] | None = None) -> TotalsArray:
        """The totals of a release of a long vector, read from their file as they are asked for.
        ``path``: the file, unless it lies where the release was read from.
        """
        release = self._one(task)
        told = release.get("array")
        if told is None:
            raise wrong_value("task", "its totals are rows of this table, not an array")
        where = Path(path) if path is not None else None
        if where is None and self._arrays is not None:
            where = self._arrays / told["file"]
        if where is None or not where.is_file():
            raise wrong_value(
                "path",
                f"{told['file']} is not beside the release: give the file of shoal results export "
                "--format npy",
            )
        return TotalsArray(array_of_json(where, told), told)

    def tables(self, task: str) -> list[Table]:
        """Of a release of several answers together: one table for each marginal, made to agree."""
        return agreeing_tables(self._one(task))

    def synthesize(
        self, task: str, *, rows: int | None = None, test: bool = True, errors: bool = False
    ) -> SyntheticTable:
        """Made-up rows whose tables are those of a release of several answers together, as nearly
        as its noise allows. ``rows``: as many as there were reports, unless told; ``test``: also
        fit to four tables in five, and compare that with the fifth; ``errors``: also an interval
        for each count of the fit, in four times the time. Wants the extra [tables].
        """
        return synthetic_table(self._one(task), rows, test, errors)

    def _one(self, task: str) -> dict[str, Any]:
        found = self.select(task).releases
        if len(found) > 1:
            windows = ", ".join(str(each["window"]) for each in found)
            raise wrong_value(
                "task", f"it has several windows ({windows}): give one, as '{task}:0'"
            )
        return found[0]


class TotalsArray:
    """Totals in the task's unit, float64: ``totals[7]``, ``totals[1_000:2_000]``, ``len(totals)``;
    ``totals["layer1.weight"]`` in its shape, of those that the task names (``layout``: name to
    shape).

    Each has the standard error ``stderr``, and is in a 95 % interval of it plus and minus
    ``reach``.

    Nothing is read before it is asked for, and nothing is believed: a segment of the file that is
    not what was signed is refused with a line that names the file.
    """

    def __init__(self, file: ArrayFile, told: dict[str, Any]) -> None:
        self._file, self._held = file, (-1, np.zeros(0, np.int64))
        self._scale: tuple[float, int] = (float(told["clip"]), int(told["grid"]))
        self.stderr, self.reach = float(told["stderr"]), float(told["reach"])
        self.norm = float(told["norm"])
        named = layout_of_json(told)
        self.layout = {one.name: one.shape for one in named}
        self._spans = spans(named)

    def __len__(self) -> int:
        return self._file.form.length

    def __repr__(self) -> str:
        return f"TotalsArray({len(self):,} totals, standard error {self.stderr:,.6g} each)"

    def __getitem__(self, which: int | slice | str) -> Any:
        """float64[n] of a slice, a float of an index, an array by its name; only the segments that
        are needed are read. Raises MISMATCH (damaged), IndexError, TypeError.
        """
        if isinstance(which, str):
            return self._named(which)
        if isinstance(which, slice):
            return self._totals(range(len(self))[which])
        if isinstance(which, bool) or not isinstance(which, int | np.integer):
            raise wrong_type("index", "give a whole number, a slice or a name, as totals[:1_000]")
        at = range(len(self))[int(which)]
        return float(self._totals(range(at, at + 1))[0])

    def __iter__(self) -> Iterator[float]:
        for part in self.parts():
            yield from part.tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def parts(self) -> Iterator[NDArray[np.float64]]:
        """All of them, a segment at a time: memory for one. Raises MISMATCH."""
        with about("file"):
            for steps in self._file.segments():
                yield self._scaled(steps)

    def check(self) -> None:
        """Read all of the file and compare it with what was signed. Raises MISMATCH."""
        with about("file"):
            self._file.check()

    def _named(self, name: str) -> NDArray[np.float64]:
        if name not in self._spans:
            known = ", ".join(list(self._spans)[:_SHOWN]) or "none: its task has no layout"
            raise wrong_value("name", f"the release has no array {name!r}; it has {known}")
        return self[self._spans[name]].reshape(self.layout[name])  # type: ignore[no-any-return]  # of a slice

    def _totals(self, wanted: range) -> NDArray[np.float64]:
        result, size = np.zeros(len(wanted)), self._file.form.segment
        if not wanted:
            return result
        places = np.arange(wanted.start, wanted.stop, wanted.step)
        for number in np.unique(places // size).tolist():
            here = places // size == number
            result[here] = self._scaled(self._segment(number)[places[here] - number * size])
        return result

    def _segment(self, number: int) -> NDArray[np.int64]:
        if self._held[0] != number:
            with about("file"):
                self._held = (number, self._file.segment(number))
        return self._held[1]

    def _scaled(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        clip, grid = self._scale
        return steps / grid * clip


def read_release(path: str | os.PathLike[str]) -> ReleaseTable:
    """The releases of a JSON file (``shoal results export --format json``, or the results.json of
    ``shoal demo``, with its truths), of a folder of such files, or of an analyzer's data_dir.

    Nothing is believed: what is no release is refused in one line that names the place. Whether a
    release is what was signed, and whether its promise holds, is checked by ``shoal verify``.
    """
    if not isinstance(path, str | os.PathLike):
        raise wrong_type("path", f"give {_KNOWN}")
    where = Path(path)
    if where.suffix.lower() in {".csv", ".parquet", ".html"}:
        raise wrong_value(
            "path",
            f"{where.name} is for other programs (pandas reads csv and parquet): give {_KNOWN}",
        )
    with about("path"):
        if where.is_dir() and (where / FILE_NAME).exists():
            return ReleaseTable(tuple(read_releases(where, None)), arrays=where / FOLDER)
        found = read_release_files(where)
    folder = where if where.is_dir() else where.parent
    return ReleaseTable(found.releases, found.truths, folder)

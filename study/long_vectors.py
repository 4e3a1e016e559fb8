"""The totals of a long vector, for an analyst: an array that is read as it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal.analyzer.results.array_files import ArrayFile
from shoal.arrays import NDArray, np
from shoal.study.arguments import about, wrong_type


class TotalsArray:
    """Totals in the task's unit, float64: ``totals[7]``, ``totals[1_000:2_000]``, ``len(totals)``.
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

    def __len__(self) -> int:
        return self._file.form.length

    def __repr__(self) -> str:
        return f"TotalsArray({len(self):,} totals, standard error {self.stderr:,.6g} each)"

    def __getitem__(self, which: int | slice) -> Any:
        """float64[n] of a slice, a float of an index; only the segments that are needed are read.
        Raises MISMATCH (damaged), IndexError, TypeError.
        """
        if isinstance(which, slice):
            return self._totals(range(len(self))[which])
        if isinstance(which, bool) or not isinstance(which, int | np.integer):
            raise wrong_type("index", "give a whole number or a slice, as totals[:1_000]")
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

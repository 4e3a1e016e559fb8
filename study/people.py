"""The people of a simulation: their answers, known or made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shoal.analyzer.planner import Shape
from shoal.analyzer.planner.question import devices
from shoal.arrays import NDArray, np
from shoal.domain import Categories, Domain, Numeric, Words, YesNo
from shoal.entropy import SYSTEM, Entropy
from shoal.study.arguments import share, wrong_type, wrong_value
from shoal.study.cells import cells_of, levels_of, numbers_of
from shoal.study.columns import column_of


@dataclass(frozen=True, slots=True)
class People:
    """``cells``: int64[n], of a question with labels; ``values``: float64[n] of a number, NaN for a
    missing answer, moved into the range where the domain does so.
    """

    domain: Domain
    n: int
    cells: NDArray[np.int64] | None = None
    values: NDArray[np.float64] | None = None

    def taken(
        self, stays: NDArray[np.bool_] | None, entropy: Entropy
    ) -> tuple[NDArray[np.float64] | None, NDArray[np.int64]]:
        """Values and cells of those who stay (None: all); numbers are rounded to levels anew."""
        if self.values is not None and isinstance(self.domain, Numeric):
            values = self.values if stays is None else self.values[stays]
            return values, levels_of(self.domain, values, entropy)
        cells = np.zeros(0, dtype=np.int64) if self.cells is None else self.cells
        return None, cells if stays is None else cells[stays]

    def expected(self, part: float) -> tuple[NDArray[np.int64], float]:
        """(devices per cell that ``expected_stderr`` takes, variance of the sum of all levels by
        rounding), where a part of the people stays; not of an open vocabulary.
        """
        if self.values is not None and isinstance(self.domain, Numeric):
            return self._expected_levels(self.domain, part)
        cells = np.zeros(0, dtype=np.int64) if self.cells is None else self.cells
        held = np.bincount(cells, minlength=self.domain.size)
        return np.rint(held * part).astype(np.int64), 0.0

    def _expected_levels(self, domain: Numeric, part: float) -> tuple[NDArray[np.int64], float]:
        values = np.zeros(0) if self.values is None else self.values
        _, up = _between(domain, values[np.isfinite(values)])
        rounding = float((up * (1.0 - up)).sum()) * domain.step**2 * part
        return np.rint(_level_counts(domain, values) * part).astype(np.int64), rounding


def _level_counts(domain: Numeric, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[cells]: devices per level as they are expected, a number between two levels being
    shared by both; "no answer" last.
    """
    answered = values[np.isfinite(values)]
    below, up = _between(domain, answered)
    counts = np.zeros(domain.size, dtype=np.float64)
    counts += np.bincount(below, weights=1.0 - up, minlength=domain.size)
    counts += np.bincount(below + 1, weights=up, minlength=domain.size)
    counts[-1] = values.size - answered.size
    return counts


def _between(
    domain: Numeric, answered: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The level below each number, and how far above it the number is, in steps."""
    places = (answered - domain.low) / domain.step
    below = np.minimum(places.astype(np.int64), domain.levels - 2)
    return below, places - below


def people_of(
    domain: Domain, n: int | None, values: object, shares: object, unknown: str
) -> People:
    """From a column of answers, from shares of the labels, or made up: all labels alike, numbers in
    the shape of a bell. Errors name the argument.
    """
    if values is not None and shares is not None:
        raise wrong_value("shares", "give either values or shares: leave one of the two out")
    if values is not None:
        return _known(domain, n, values, unknown)
    if n is None:
        raise wrong_value("n", "say how many devices there shall be, or give values")
    if isinstance(domain, Numeric):
        if shares is not None:
            raise wrong_value("shares", "they are for labels: give values of a number instead")
        at = Shape.BELL.quantiles((np.arange(n) + 0.5) / n)
        return People(domain, n, values=domain.low + at * (domain.high - domain.low))
    counts = devices(shares_of(domain, shares), n)
    places = np.array(domain.label_cells, dtype=np.int64)
    return People(domain, n, cells=np.repeat(places, counts))


def _known(domain: Domain, n: int | None, values: object, unknown: str) -> People:
    column = column_of(values)
    size = len(column) if n is None else n
    spread = np.arange(size) * len(column) // size  # fewer or more: each of them as often
    missing = unknown == "missing"
    if isinstance(domain, Numeric):
        numbers = numbers_of(domain, column, unknown_is_missing=missing)
        return People(domain, size, values=numbers[spread])
    cells = cells_of(domain, column, SYSTEM, unknown_is_missing=missing)
    return People(domain, size, cells=cells[spread])


def shares_of(domain: Domain, shares: object) -> tuple[float, ...]:
    """One share per label, "no answer" the last, adding up to 1: from a list, or by label from a
    dict, where what is not named is 0. None: all labels alike, and everybody answers.
    """
    labels: tuple[str, ...] = domain.labels
    asked = labels if isinstance(domain, YesNo) else labels[:-1]
    if shares is None:
        given = [1.0 / len(asked)] * len(asked)
    elif isinstance(shares, Mapping):
        strange = [str(label) for label in shares if str(label) not in labels]
        if strange:
            raise wrong_value(
                "shares", f"they name no label of the question: give {', '.join(labels)}"
            )
        by_label = {str(label): each for label, each in shares.items()}
        given = [float(share("shares", by_label.get(label, 0), zero=True)) for label in labels]
    elif isinstance(shares, Sequence) and not isinstance(shares, str):
        given = [float(share("shares", each, zero=True)) for each in shares]
    else:
        raise wrong_type("shares", "give a list with one share per label, or a dict by label")
    if isinstance(domain, Categories | Words) and len(given) == len(asked):
        given.append(0.0)
    total = sum(given)
    if len(given) != len(labels) or not 0.99 <= total <= 1.01:
        raise wrong_value(
            "shares",
            f"give {len(asked)} shares that add up to 1, one per label in their order"
            + ("" if asked == labels else ", and one more of no answer if you like")
            + f"; got {len(given)} that add up to {total:.4g}",
        )
    return tuple(each / total for each in given)

"""A column as a question: its kind, each person's answer, and what would be true of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shoal.analyzer.planner import Frequencies, Question
from shoal.analyzer.results.processed import MEANS
from shoal.answers import Value, number_of
from shoal.arrays import np
from shoal.cli.trial.overruled import Sort
from shoal.domain import NO_ANSWER, Domain, Numeric
from shoal.mechanisms.numbers.quantiles import SHARES
from shoal.mechanisms.parts.tables import MEAN_OF_ALL


@dataclass(frozen=True, slots=True)
class AskedColumn:
    """``values``: one per row, None where the cell is empty. ``says``: what was taken for what, one
    line; ``inferred``: whether that was looked up in the data, and ``overrule`` says otherwise.
    ``beyond``: rows that the ends of the range stand for; ``unclipped``: the mean without these
    ends.
    """

    column: str
    sort: Sort
    question: Question
    values: Sequence[Value]
    says: str
    overrule: str
    inferred: bool = True
    beyond: int = 0
    unclipped: float | None = None

    @property
    def answered(self) -> int:
        """Rows with an answer."""
        return sum(value is not None for value in self.values)

    @property
    def is_number(self) -> bool:
        """Whether a mean or quantiles are asked for."""
        return self.sort in {Sort.MEAN, Sort.QUANTILES}

    def truth(self, domain: Domain, values: Sequence[Value]) -> dict[str, float]:
        """What an exact count would release, by label of the estimates that this domain has; of a
        number also its quantiles, as "quantile 0.5".
        """
        found: dict[str, float] = {}
        if self.is_number:
            found |= self._figures(values)
        if not isinstance(domain, Numeric):
            cells = np.bincount([domain.encode(value) for value in values], minlength=domain.size)
            found |= {
                label: float(count) for label, count in zip(domain.labels, cells, strict=True)
            }
        return found

    def _figures(self, values: Sequence[Value]) -> dict[str, float]:
        """Of numbers, which lie within the range."""
        numbers = sorted(number for value in values if (number := number_of(value)) is not None)
        missing = len(values) - len(numbers)
        found: dict[str, float] = {NO_ANSWER: float(missing)}
        if not numbers:
            return found
        question = self.question
        middle = 0.0 if isinstance(question, Frequencies) else (question.low + question.high) / 2
        mean = math.fsum(numbers) / len(numbers)
        found |= dict.fromkeys(sorted(MEANS), mean)
        found[MEAN_OF_ALL] = (math.fsum(numbers) + middle * missing) / len(values)
        for share in SHARES:
            found[f"quantile {share:g}"] = float(numbers[math.ceil(share * len(numbers)) - 1])
        return found


def beyond(numbers: Sequence[int | float | None], ends: tuple[float, float]) -> int:
    """How many lie outside."""
    return sum(number is not None and not ends[0] <= number <= ends[1] for number in numbers)

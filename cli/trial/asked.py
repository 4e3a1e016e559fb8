"""A column as a question: its kind, each person's answer, and what would be true of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.analyzer.planner import Frequencies, Question
from shoal.cli.load.values import number_figures, truth_of
from shoal.cli.trial.overruled import Sort
from shoal.domain import Domain, Numeric
from shoal.questions.answers import Value


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
        question = self.question
        if isinstance(question, Frequencies):
            return truth_of(domain, values)
        counts = {} if isinstance(domain, Numeric) else truth_of(domain, values)
        return counts | number_figures(values, question.low, question.high)


def beyond(numbers: Sequence[int | float | None], ends: tuple[float, float]) -> int:
    """How many lie outside."""
    return sum(number is not None and not ends[0] <= number <= ends[1] for number in numbers)

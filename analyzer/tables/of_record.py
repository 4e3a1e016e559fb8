"""A record's estimates as marginals."""

from __future__ import annotations

from itertools import pairwise

from shoal.analyzer.tables.marginals import NoisyMarginal, ReleasedTables, TableAttribute
from shoal.arrays import NDArray, np
from shoal.domain import AnswerRecord


def released_of(
    record: AnswerRecord, values: NDArray[np.float64], stderr: NDArray[np.float64], n: int
) -> ReleasedTables:
    """``values``, ``stderr``: float64[cells] of all marginals, one after the other, in devices of a
    batch of ``n``. Raises INVALID for what can be no estimates.
    """
    names = [one.name for one in record.attributes]
    marginals = tuple(
        NoisyMarginal(
            tuple(names[at] for at in marginal),
            values[start:end].reshape(record.shape(marginal)),
            stderr[start:end].reshape(record.shape(marginal)),
        )
        for marginal, (start, end) in zip(record.marginals, pairwise(record.starts), strict=True)
    )
    attributes = tuple(TableAttribute(one.name, one.answers.labels) for one in record.attributes)
    return ReleasedTables(attributes, marginals, n)

"""Tables played with made-up devices: every message of every device is drawn by the production
randomizer, tallied and estimated as an analyzer does it, beside the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from shoal.analyzer.planner.question import wrong
from shoal.analyzer.results.records import of_batch
from shoal.analyzer.tables.marginals import ReleasedTables
from shoal.analyzer.tables.of_record import released_of
from shoal.analyzer.tables.plan import TablesWay
from shoal.arrays import NDArray, np
from shoal.domain import AnswerRecord
from shoal.entropy import SYSTEM, Entropy
from shoal.mechanisms import Estimate
from shoal.mechanisms.parts.sampling import uniform_below
from shoal.mechanisms.several.protocol import Noisy

MOST_MESSAGES = 200_000_000
_BLOCK = 500  # devices
Answers: TypeAlias = "NDArray[np.int64]"
"""int64[devices, attributes]: the cell of each answer."""


@dataclass(frozen=True, slots=True, eq=False)
class TablesPlayed:
    """``truth``: float64[cells], devices; ``estimate``: as a release states it."""

    way: TablesWay
    truth: NDArray[np.float64]
    estimate: Estimate

    @property
    def error(self) -> float:
        """Root mean square over all cells, in devices."""
        return float(np.sqrt(np.mean((self.estimate.values - self.truth) ** 2)))

    @property
    def covered(self) -> float:
        """Share of the intervals that hold the truth."""
        found = self.estimate
        return float(np.mean((found.ci_low <= self.truth) & (self.truth <= found.ci_high)))

    @property
    def released(self) -> ReleasedTables:
        """What a release would be read as."""
        found = self.estimate
        return released_of(self.way.record, found.values, found.stderr, self.way.request.n)


def play(
    way: TablesWay,
    answers: Answers,
    entropy: Entropy = SYSTEM,
    *,
    tell: Callable[[int], None] | None = None,
) -> TablesPlayed:
    """One release of as many devices as ``answers`` has rows, which ``way`` was planned for.
    ``tell``: how many devices were done since it was called last. Raises CONFIG for other answers,
    and for more messages than are drawn in half an hour.
    """
    n, record = len(answers), way.record
    if answers.shape != (way.request.n, len(record.attributes)):
        raise wrong("answers have a row for each device of the plan, and a column per attribute")
    if n * way.messages > MOST_MESSAGES:
        raise wrong(
            f"{n:,} devices draw some {n * way.messages:.2g} messages one by one, and "
            f"{MOST_MESSAGES:,} are the most: give fewer rows"
        )
    nothing = np.zeros((0, way.made.report_size), dtype=np.uint8)
    total = way.made.tally(nothing)
    for start in range(0, n, _BLOCK):
        block = answers[start : start + _BLOCK]
        reports = way.made.randomize(_values(record, block, entropy), entropy)
        rows = reports if isinstance(reports, np.ndarray) else reports.rows
        total += way.made.tally(rows.reshape(-1, rows.shape[-1]))
        if tell is not None:
            tell(len(block))
    made = way.made
    raw = made.estimate(total, n) if isinstance(made, Noisy) else made.estimate(total)
    return TablesPlayed(way, truth_of(record, answers), of_batch(raw, record, n))


def truth_of(record: AnswerRecord, answers: Answers) -> NDArray[np.float64]:
    """float64[cells]: devices of each cell of all marginals."""
    counts = np.zeros(record.cells)
    for at in range(len(record.marginals)):
        np.add.at(counts, _cells(record, at, answers), 1.0)
    return counts


def _cells(record: AnswerRecord, at: int, answers: Answers) -> NDArray[np.int64]:
    marginal = record.marginals[at]
    columns = tuple(answers[:, place] for place in marginal)
    return np.asarray(
        record.starts[at] + np.ravel_multi_index(columns, record.shape(marginal)), dtype=np.int64
    )


def _values(record: AnswerRecord, answers: Answers, entropy: Entropy) -> NDArray[np.int64]:
    """What ``encode`` makes of each device's answers."""
    if record.together:
        columns = tuple(answers[:, place] for place in range(answers.shape[1]))
        return np.asarray(np.ravel_multi_index(columns, record.sizes), dtype=np.int64)
    drawn = uniform_below(len(record.marginals), len(answers), entropy)
    every = np.stack([_cells(record, at, answers) for at in range(len(record.marginals))], axis=1)
    return np.asarray(every[np.arange(len(answers)), drawn])

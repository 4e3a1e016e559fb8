"""Predicted against observed: the production randomizer, tally and estimate on made-up devices.

Each run draws the reports of n devices from scratch, tallies and estimates them, and takes the mean
square of (estimate - truth) over the cells or the quantiles; for a mean or a sum, of that figure
alone; the rounding to levels is included. The root of its average over the runs is the observed
error. It is itself uncertain: the average of R independent squares has a standard error, from which
the interval given is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.analyzer.planner.numbers import answer, at_value, place
from shoal.analyzer.planner.quantiles import drawn_cells, predict_quantiles, quantiles_of
from shoal.analyzer.planner.question import Mean, Quantiles, Question, Sum, devices, wrong
from shoal.arrays import NDArray, np
from shoal.domain import Domain, Numeric
from shoal.entropy import SYSTEM, Entropy
from shoal.mechanisms import Mechanism, Tally
from shoal.mechanisms.parts.sampling import bernoulli

_BLOCK_BYTES = 1 << 24  # of reports at a time
_MOST_BLOCK = 1 << 18  # devices at a time
_Z = 1.959963984540054
MOST_RUNS = 1_000_000
MOST_DEVICES = 10_000_000  # their cells are held in memory


@dataclass(frozen=True, slots=True)
class Simulation:
    """``predicted`` and ``observed`` error; [``low``, ``high``]: where the error that infinitely
    many runs would show lies, with 95 % confidence (normal approximation of the average over the
    runs: not below 30 runs or so).
    """

    runs: int
    predicted: float
    observed: float
    low: float
    high: float

    @property
    def agrees(self) -> bool:
        """Whether the predicted error lies within the interval of the observed one."""
        return self.low <= self.predicted <= self.high

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as ``shoal plan --json`` prints them."""
        return {
            "runs": self.runs,
            "predicted": self.predicted,
            "observed": self.observed,
            "observed_low": self.low,
            "observed_high": self.high,
            "agrees": self.agrees,
        }


def zipf(cells: int) -> tuple[float, ...]:
    """Shares of the cells as 1, 1/2, 1/3, ..."""
    weights = [1.0 / (i + 1) for i in range(cells)]
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def simulate_counts(
    mechanism: Mechanism,
    counts: NDArray[np.int64],
    runs: int,
    entropy: Entropy = SYSTEM,
    tell: Callable[[], None] | None = None,
) -> Simulation:
    """``counts``: int64[cells], the devices that hold each cell. Raises CONFIG unless ``runs`` is 2
    to a million, and for more than ten million devices.
    """
    _check(runs, int(counts.sum()))
    errors = mechanism.expected_stderr(counts)
    values = np.repeat(np.arange(counts.size, dtype=np.int64), counts)
    squares = np.empty(runs)
    for run in range(runs):
        estimates = mechanism.estimate(_tally(mechanism, values, entropy)).values
        squares[run] = np.mean((estimates - counts) ** 2)
        if tell is not None:
            tell()
    return _result(squares, math.sqrt(float(np.mean(errors**2))))


def simulate_mean(
    mechanism: Mechanism,
    domain: Numeric,
    n: int,
    value: float,
    runs: int,
    entropy: Entropy = SYSTEM,
    tell: Callable[[], None] | None = None,
    question: Mean | None = None,
) -> Simulation:
    """All ``n`` devices at ``value``, in [low, high], each rounding it anew as ``Numeric.encode``
    does. What is estimated is the mean, or what ``question`` asks. Raises like ``simulate_counts``.
    """
    asked = Mean(domain.low, domain.high, (domain.levels,)) if question is None else question
    wanted = n * value if isinstance(asked, Sum) else value
    _check(runs, n)
    at = place(domain, value)
    below = min(int(at), domain.levels - 1)
    threshold = np.array([int((at - below) * 2**64)], dtype=np.uint64)
    squares = np.empty(runs)
    for run in range(runs):
        up = bernoulli(np.broadcast_to(threshold, n), entropy)
        cells = np.minimum(below + up.astype(np.int64), domain.levels - 1)
        estimate = answer(asked, mechanism.estimate(_tally(mechanism, cells, entropy)), n)
        squares[run] = (estimate - wanted) ** 2
        if tell is not None:
            tell()
    return _result(squares, at_value(mechanism, domain, n, value, asked))


def simulate_quantiles(
    question: Quantiles,
    mechanism: Mechanism,
    domain: Domain,
    n: int,
    runs: int,
    entropy: Entropy = SYSTEM,
    tell: Callable[[], None] | None = None,
) -> Simulation:
    """``n`` devices spread as the question's shape says, each rounding its number anew. Raises like
    ``simulate_counts``.
    """
    _check(runs, n)
    squares, right = np.empty(runs), question.values()
    for run in range(runs):
        tally = _tally(mechanism, drawn_cells(question, domain, n, entropy), entropy)
        squares[run] = np.mean((quantiles_of(mechanism, domain, tally, question) - right) ** 2)
        if tell is not None:
            tell()
    return _result(
        squares, math.sqrt(float(predict_quantiles(question, mechanism, domain, n)[0].mean()))
    )


def simulate(
    question: Question,
    mechanism: Mechanism,
    domain: Domain,
    n: int,
    runs: int,
    *,
    shares: tuple[float, ...] = (),
    value: float | None = None,
    entropy: Entropy = SYSTEM,
    tell: Callable[[], None] | None = None,
) -> Simulation:
    """``shares`` of the cells (empty: those that errors were ranked at, or all alike); ``value`` of
    all devices (None: that of the question, or three tenths of the way up the range, which lies
    between levels more often than not).
    """
    if isinstance(question, Quantiles):
        return simulate_quantiles(question, mechanism, domain, n, runs, entropy, tell)
    if isinstance(question, Mean):
        if not isinstance(domain, Numeric):
            raise TypeError("a number is asked for over a numeric domain")
        where = value if value is not None else question.value
        middle = question.low + 0.3 * (question.high - question.low)
        return simulate_mean(
            mechanism, domain, n, middle if where is None else where, runs, entropy, tell, question
        )
    chosen = shares or question.shares or (1.0 / domain.size,) * domain.size
    return simulate_counts(mechanism, devices(chosen, n), runs, entropy, tell)


def _tally(mechanism: Mechanism, values: NDArray[np.int64], entropy: Entropy) -> Tally:
    """Randomized and tallied in blocks: tallies add."""
    block = max(1, min(_MOST_BLOCK, _BLOCK_BYTES // (mechanism.messages * mechanism.report_size)))
    total: Tally | None = None
    for start in range(0, values.size, block):
        reports = mechanism.randomize(values[start : start + block], entropy)
        part = mechanism.tally(np.ascontiguousarray(reports.reshape(-1, mechanism.report_size)))
        total = part if total is None else total + part
    if total is None:
        raise wrong("a simulation wants at least one device")
    return total


def _check(runs: int, n: int) -> None:
    if n > MOST_DEVICES:
        raise wrong(
            f"a simulation has at most {MOST_DEVICES} devices, got {n}: plan for fewer, and "
            "simulate that"
        )
    if not 2 <= runs <= MOST_RUNS:
        raise wrong(f"a simulation has 2 to {MOST_RUNS} runs, got {runs}")


def _result(squares: NDArray[np.float64], predicted: float) -> Simulation:
    average = float(squares.mean())
    reach = _Z * float(squares.std(ddof=1)) / math.sqrt(squares.size)
    low, high = math.sqrt(max(0.0, average - reach)), math.sqrt(average + reach)
    return Simulation(int(squares.size), predicted, math.sqrt(average), low, high)

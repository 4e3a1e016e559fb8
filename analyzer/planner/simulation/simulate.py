"""Predicted against observed: the production randomizer, tally and estimate on made-up devices.

Each run draws the reports of n devices from scratch, tallies and estimates them, and takes the mean
square of (estimate - truth) over the cells or the quantiles; for a mean or a sum, of that figure
alone; the rounding to levels is included. The root of its average over the runs is the observed
error. It is itself uncertain: the average of R independent squares has a standard error, from which
the interval given is made.

Devices are made up in blocks (``stretches``), which an ``Engine`` spreads over processes; memory
does not grow with their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from shoal.analyzer.planner.numbers import answer, at_value, place
from shoal.analyzer.planner.quantiles import cut_of, predict_quantiles, quantiles_of
from shoal.analyzer.planner.question import (
    MOST_DEVICES,
    Mean,
    Quantiles,
    Question,
    Sum,
    devices,
    wrong,
)
from shoal.analyzer.planner.simulation.crowd import AtValue, ByCounts, Shaped
from shoal.analyzer.planner.simulation.stretches import Engine, InProcess, Rehearsal, stretches_of
from shoal.arrays import NDArray, np
from shoal.domain import Domain, Numeric
from shoal.entropy import SYSTEM, Entropy
from shoal.mechanisms import Mechanism, Tally

_Z = 1.959963984540054
MOST_RUNS = 1_000_000
HERE = InProcess()
Tell = Callable[[int], None]  # how many devices were done since it was called last


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
    tell: Tell | None = None,
    engine: Engine = HERE,
) -> Simulation:
    """``counts``: int64[cells], the devices that hold each cell. Raises CONFIG unless ``runs`` is 2
    to a million, and for more than 1e9 devices.
    """

    def square(tally: Tally) -> float:
        return float(np.mean((mechanism.estimate(tally).values - counts) ** 2))

    crowd = ByCounts(counts)
    check_size(runs, crowd.n)
    squares = squares_of(Rehearsal(mechanism, crowd, entropy), runs, square, tell, engine)
    return result_of(squares, math.sqrt(float(np.mean(mechanism.expected_stderr(counts) ** 2))))


def simulate_mean(
    mechanism: Mechanism,
    domain: Numeric,
    n: int,
    value: float,
    runs: int,
    entropy: Entropy = SYSTEM,
    tell: Tell | None = None,
    question: Mean | None = None,
    engine: Engine = HERE,
) -> Simulation:
    """All ``n`` devices at ``value``, in [low, high], each rounding it anew as ``Numeric.encode``
    does. What is estimated is the mean, or what ``question`` asks. Raises like ``simulate_counts``.
    """
    asked = Mean(domain.low, domain.high, (domain.levels,)) if question is None else question
    wanted = n * value if isinstance(asked, Sum) else value

    def square(tally: Tally) -> float:
        return (answer(asked, mechanism.estimate(tally), n) - wanted) ** 2

    check_size(runs, n)
    crowd = AtValue.of(n, place(domain, value), domain.levels)
    squares = squares_of(Rehearsal(mechanism, crowd, entropy), runs, square, tell, engine)
    return result_of(squares, at_value(mechanism, domain, n, value, asked))


def simulate_quantiles(
    question: Quantiles,
    mechanism: Mechanism,
    domain: Domain,
    n: int,
    runs: int,
    entropy: Entropy = SYSTEM,
    tell: Tell | None = None,
    engine: Engine = HERE,
) -> Simulation:
    """``n`` devices spread as the question's shape says, each rounding its number anew. Raises like
    ``simulate_counts``.
    """
    right = question.values()

    def square(tally: Tally) -> float:
        return float(np.mean((quantiles_of(mechanism, domain, tally, question) - right) ** 2))

    check_size(runs, n)
    crowd = Shaped(n, question.shape, cut_of(domain))
    squares = squares_of(Rehearsal(mechanism, crowd, entropy), runs, square, tell, engine)
    return result_of(
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
    tell: Tell | None = None,
    engine: Engine = HERE,
) -> Simulation:
    """``shares`` of the cells (empty: those that errors were ranked at, or all alike); ``value`` of
    all devices (None: that of the question, or three tenths of the way up the range, which lies
    between levels more often than not).
    """
    if isinstance(question, Quantiles):
        return simulate_quantiles(question, mechanism, domain, n, runs, entropy, tell, engine)
    if isinstance(question, Mean):
        if not isinstance(domain, Numeric):
            raise TypeError("a number is asked for over a numeric domain")
        where = value if value is not None else question.value
        at = question.low + 0.3 * (question.high - question.low) if where is None else where
        return simulate_mean(mechanism, domain, n, at, runs, entropy, tell, question, engine)
    chosen = shares or question.shares or (1.0 / domain.size,) * domain.size
    return simulate_counts(mechanism, devices(chosen, n), runs, entropy, tell, engine)


def squares_of(
    work: Rehearsal,
    runs: int,
    square: Callable[[Tally], float],
    tell: Tell | None,
    engine: Engine,
) -> NDArray[np.float64]:
    """float64[runs]: the square of each batch's error, from the tally of all of it."""
    squares, open_runs, n = np.empty(runs), dict[int, tuple[Tally, int]](), work.crowd.n
    stretches = stretches_of(work.mechanism, n, runs)
    with closing(engine.tallies(work, stretches)) as answers:
        for stretch, tallies in answers:
            for run, tally in zip(stretch.runs, tallies, strict=True):
                total, done = tally, len(stretch.devices)
                if run in open_runs:
                    before, have = open_runs.pop(run)
                    total, done = before + tally, have + done
                if done < n:
                    open_runs[run] = total, done
                else:
                    squares[run] = square(total)
            if tell is not None:
                tell(stretch.size)
    return squares


def check_size(runs: int, n: int) -> None:
    """Raises CONFIG unless so many runs of so many devices can be simulated."""
    if not 1 <= n <= MOST_DEVICES:
        raise wrong(
            f"a simulation has 1 to {MOST_DEVICES} devices, got {n}: plan for fewer, and simulate "
            "that"
        )
    if not 2 <= runs <= MOST_RUNS:
        raise wrong(f"a simulation has 2 to {MOST_RUNS} runs, got {runs}")


def result_of(squares: NDArray[np.float64], predicted: float) -> Simulation:
    """From the squared error of each run, float64[runs], and the error that was predicted."""
    average = float(squares.mean())
    reach = _Z * float(squares.std(ddof=1)) / math.sqrt(squares.size)
    low, high = math.sqrt(max(0.0, average - reach)), math.sqrt(average + reach)
    return Simulation(int(squares.size), predicted, math.sqrt(average), low, high)

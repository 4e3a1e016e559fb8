"""Predicted against observed for a mechanism of several messages: every message of every device is
drawn by the production randomizer, tallied and estimated; nothing is drawn in aggregate.

Devices draw one after the other, so what a simulation takes grows with messages, not with arrays:
``MOST_MESSAGES`` are some minutes of one core. The error of counts is the same whatever devices
answer, but where true messages are randomized: there it is predicted for the answers that are
simulated. Numbers lie in the middle between two levels, where rounding adds most, unless the
question says where: so what is predicted is what a plan says.
"""

from __future__ import annotations

import math
from dataclasses import replace

from shoal.analyzer.planner.frontier.ranges import quantiles_error
from shoal.analyzer.planner.numbers import place
from shoal.analyzer.planner.quantiles import cut_of
from shoal.analyzer.planner.question import Mean, Quantiles, Question, Sum, devices, wrong
from shoal.analyzer.planner.simulation.crowd import AtValue, ByCounts, Shaped
from shoal.analyzer.planner.simulation.simulate import (
    HERE,
    Simulation,
    Tell,
    check_size,
    result_of,
    squares_of,
)
from shoal.analyzer.planner.simulation.stretches import Engine, Rehearsal
from shoal.arrays import np
from shoal.domain import Domain, Numeric
from shoal.entropy import SYSTEM, Entropy
from shoal.mechanisms import Tally
from shoal.mechanisms.several.protocol import Noisy, Several
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.shuffler_noise import ShufflerNoise
from shoal.mechanisms.several.split_mix import SplitMix

MOST_MESSAGES = 50_000_000
_WHERE = 0.3  # of the way up the range


def check_messages(made: Several, n: int, runs: int) -> None:
    """Raises CONFIG for more messages than are drawn in some minutes, with what would work."""
    check_size(runs, n)
    each = n * float(made.mean_messages)
    if runs * each <= MOST_MESSAGES:
        return
    fewer = math.floor(MOST_MESSAGES / each)
    if fewer >= 2:
        advice = f"--simulate {fewer} works, or fewer devices"
    else:
        most = math.floor(MOST_MESSAGES / (runs * float(made.mean_messages)))
        advice = f"plan for --n {most} or fewer, and simulate that, or leave --simulate out"
    raise wrong(
        f"simulating {runs:,} batches of {n:,} devices draws {runs * each:.2g} messages of "
        f"{made.name} one by one, and {MOST_MESSAGES:,} are the most (some minutes): {advice}"
    )


def simulate_several(
    question: Question,
    made: Several,
    domain: Domain,
    n: int,
    runs: int,
    *,
    shares: tuple[float, ...] = (),
    entropy: Entropy = SYSTEM,
    tell: Tell | None = None,
    engine: Engine = HERE,
) -> Simulation:
    """``runs`` batches of ``n`` devices; ``shares`` of the cells (empty: those that errors were
    ranked at, or all alike). Raises CONFIG for what ``check_messages`` refuses, and for noise that
    is not of the devices.
    """
    check_messages(made, n, runs)
    if isinstance(made, ShufflerNoise):
        raise wrong(
            f"the noise of {made.name} is the shuffler's, and no device draws it: simulate another"
        )
    if isinstance(question, Mean):
        return _of_number(question, made, domain, n, runs, entropy, tell, engine)
    if isinstance(question, Quantiles):
        return _of_quantiles(question, made, n, runs, entropy, tell, engine)
    counts = devices(shares or question.shares or (1.0 / domain.size,) * domain.size, n)

    def square(tally: Tally) -> float:
        return float(np.mean((made.estimate(tally, n).values - counts) ** 2))

    work = Rehearsal(made, ByCounts(counts), entropy)
    errors = np.array([_error_of(made, n, held) for held in counts.tolist()])
    predicted = math.sqrt(float(np.mean(errors**2)))
    return result_of(squares_of(work, runs, square, tell, engine), predicted)


def _error_of(made: Several, n: int, held: int) -> float:
    """Of a cell that so many of ``n`` devices hold."""
    if isinstance(made, Noisy) and made.truth_law is not None:
        return made.stderr_of(n, held)
    return made.expected_stderr(n)


def _of_quantiles(
    question: Quantiles,
    made: Several,
    n: int,
    runs: int,
    entropy: Entropy,
    tell: Tell | None,
    engine: Engine,
) -> Simulation:
    if not isinstance(made, Ranges):
        raise wrong(f"{made.name} answers no quantiles: ask for counts, a mean or a sum")
    question = replace(question, worst=False)
    values = question.values()

    def square(tally: Tally) -> float:
        found = [each.value for each in made.quantiles(tally, n, question.at)]
        return float(np.mean((np.array(found) - values) ** 2))

    crowd = Shaped(n, question.shape, cut_of(made.domain))
    squares = squares_of(Rehearsal(made, crowd, entropy), runs, square, tell, engine)
    return result_of(squares, quantiles_error(question, made, n))


def _of_number(
    question: Mean,
    made: Several,
    domain: Domain,
    n: int,
    runs: int,
    entropy: Entropy,
    tell: Tell | None,
    engine: Engine,
) -> Simulation:
    if not isinstance(domain, Numeric) or not isinstance(made, SplitMix):
        raise TypeError("a number is asked for over a numeric domain, in shares")
    at = (
        math.floor(_WHERE * (domain.levels - 1)) + 0.5
        if question.value is None
        else place(domain, question.value)
    )
    part, factor = at % 1.0, n if isinstance(question, Sum) else 1
    value = domain.low + at * domain.step

    def square(tally: Tally) -> float:
        return (factor * (float(made.estimate(tally, n).values[0]) - value)) ** 2

    work = Rehearsal(made, AtValue.of(n, at, domain.levels), entropy)
    # half steps squared, of a device: its noise, and the rounding of 2 x 1 half steps up or down
    variance = made.variance + 4.0 * part * (1.0 - part)
    predicted = factor * domain.step / 2.0 * math.sqrt(variance / n)
    return result_of(squares_of(work, runs, square, tell, engine), predicted)

"""The errors that a mechanism will have, and the frame that a device sends, predicted from its
integers: nothing is drawn.

Frequencies. A mechanism's ``expected_stderr`` is exact for devices that stand where they stand,
over the coins alone. Shown: at the profile (root of the mean over the cells of the squared errors)
or, if that is asked, at the worst cell wherever the devices are (module ``worst``); at a light cell
that no device holds, and at a heavy one. Means and sums: module ``numbers``. Quantiles: module
``quantiles``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.analyzer.planner.accuracy.worst import worst_count
from shoal.analyzer.planner.numbers import Numbers
from shoal.analyzer.planner.quantiles import (
    least_quantiles,
    predict_quantiles,
    ranked_of,
    ranked_quantiles,
)
from shoal.analyzer.planner.question import Frequencies, Mean, Quantiles, Question, devices
from shoal.arrays import NDArray, np
from shoal.crypto.envelope import frame_size, sealed_size
from shoal.crypto.suites import SuiteId
from shoal.domain import Domain, Numeric
from shoal.mechanisms import Mechanism
from shoal.mechanisms.several.protocol import Several


@dataclass(frozen=True, slots=True)
class Errors:
    """Predicted standard errors: of a count, in devices, or of a mean, a sum or quantiles, in the
    number's unit.

    ``ranked``: what the plan goes by. ``light``, ``heavy``: of an empty cell and of one with the
    heavy share; of a mean or a sum at the worst value within half a step of the middle, and at the
    worst value of all; of the quantile that errs least, and of the one that errs most. ``lost``:
    the share of a count that the randomizer thins out, in [0, 1). ``spread``: the share of the
    squared error that is not the randomizer's noise (thinning of a count, rounding of a number,
    bias of a quantile), in [0, 1].
    """

    ranked: float
    light: float
    heavy: float
    lost: float
    spread: float


def frame_bytes(made: Mechanism | Several) -> int:
    """What a device sends, sealed and padded, in the default suite. Raises OVERSIZE if no frame
    holds it.
    """
    suite = SuiteId.X25519_AES128
    return frame_size(suite, made.messages, sealed_size(suite, made.report_size))


def predict(question: Question, mechanism: Mechanism, domain: Domain, n: int) -> Errors:
    """The errors of one estimate from ``n`` devices."""
    if isinstance(question, Frequencies):
        return _frequencies(question, mechanism, n)
    if isinstance(question, Quantiles):
        squares, biases = predict_quantiles(question, mechanism, domain, n)
        total = float(squares.mean())
        bias = float((biases**2).mean()) / total if total > 0.0 else 0.0
        return Errors(
            ranked_of(question, squares),
            math.sqrt(squares.min()),
            math.sqrt(squares.max()),
            0.0,
            min(1.0, bias),
        )
    return _number(question, mechanism, _numeric(domain), n)


def ranked(question: Question, mechanism: Mechanism, domain: Domain, n: int) -> float:
    """``predict(...).ranked`` alone."""
    if isinstance(question, Frequencies) and question.worst:
        return worst_count(mechanism, question.domain.size, n, question.heavy)
    if isinstance(question, Frequencies):
        return _rms(mechanism.expected_stderr(profile(question, n)))
    if isinstance(question, Quantiles):
        return ranked_quantiles(question, mechanism, domain, n)
    return math.sqrt(sum(Numbers(question, mechanism, _numeric(domain), n).ranked()))


def least(question: Question, mechanism: Mechanism, domain: Domain, n: int) -> float:
    """What ``ranked`` is not below, in a fraction of its time where that is long; 0 elsewhere."""
    if isinstance(question, Quantiles):
        return least_quantiles(question, mechanism, domain, n)
    return 0.0


def profile(question: Frequencies, n: int) -> NDArray[np.int64]:
    """int64[cells]: how many of ``n`` devices hold each cell when errors are ranked."""
    size = question.domain.size
    return devices(question.shares or (1.0 / size,) * size, n)


def _rms(errors: NDArray[np.float64]) -> float:
    return math.sqrt(float(np.mean(errors**2)))


def _frequencies(question: Frequencies, mechanism: Mechanism, n: int) -> Errors:
    size = question.domain.size
    counts = profile(question, n)
    errors = mechanism.expected_stderr(counts)
    light, heavy = (
        float(
            mechanism.expected_stderr(
                devices((share, *((1.0 - share) / (size - 1),) * (size - 1)), n)
            )[0]
        )
        for share in (0.0, question.heavy)
    )
    # In a support estimator a device adds (1 - p) / p or so to the variance of its own cell: its
    # answer is kept with probability p.
    slope = max(0.0, heavy**2 - light**2) / (n * question.heavy)
    total = float(np.mean(errors**2))
    own = slope * float(np.mean(counts))
    return Errors(
        worst_count(mechanism, size, n, question.heavy) if question.worst else math.sqrt(total),
        light,
        heavy,
        slope / (1.0 + slope),
        min(1.0, own / total) if total > 0.0 else 0.0,
    )


def _numeric(domain: Domain) -> Numeric:
    if not isinstance(domain, Numeric):
        raise TypeError("a number is asked for over a numeric domain")
    return domain


def _number(question: Mean, mechanism: Mechanism, domain: Numeric, n: int) -> Errors:
    numbers = Numbers(question, mechanism, domain, n)
    rounding, noise = numbers.ranked()
    total, middle, worst = (
        rounding + noise,
        sum(numbers.near((domain.levels - 1) / 2)),
        sum(numbers.worst()),
    )
    return Errors(
        math.sqrt(total),
        math.sqrt(middle),
        math.sqrt(worst),
        0.0,
        rounding / total if total > 0.0 else 0.0,
    )

"""The mean of a number by one of two mechanisms, drawn by a coin: ``piecewise``, or the one bit of
``one_bit_mean``.

N. Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, "Collecting and analyzing multidimensional data with
local differential privacy", ICDE 2019, section III-C: the hybrid mechanism. The piecewise mechanism
errs most at the ends of the domain, one bit errs most in its middle. With the paper's coin, 1 -
e^(-epsilon0/2) for piecewise, the mixture errs alike everywhere, and its worst case is below that
of either; at epsilon0 of 0.61 and less it is one bit alone. A report names what was drawn and the
output of that, so it is one table: m bins, then the bits 0 and 1.

**Integers.** Of 2^64, ``piecewise`` words are for the bins, with ``window`` and ``gain`` as in
``piecewise``; the others, D of them, for the bits: D / 2 + ``slope`` (2 i - (L - 1)) for a 1 at
level i of L. Either part keeps the scores that make it unbiased by itself, so the whole is
unbiased, exactly. e^epsilon0 is the larger of the two parts' ratios. One bit alone is 0 for
``piecewise``, ``outputs``, ``window`` and ``gain``.

**The window** is the one of the least worst case of the mixture, which is the paper's up to the
rounding to bins, or below. From epsilon0 of 3 on ``piecewise`` itself, with the window that it
chooses, errs less at its worst than this mixture.
"""

from __future__ import annotations

import math

from shoal.domain import Domain, Numeric
from shoal.mechanisms.base import Family, Parameter, Setting, invalid
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.numbers.means import TableMean, numeric
from shoal.mechanisms.numbers.one_bit_mean import most_slope, ones, score, steepest
from shoal.mechanisms.numbers.piecewise import (
    GAIN,
    OUTPUTS,
    WINDOW,
    LikelyWindow,
    PiecewiseShape,
    fitting,
    most_gain,
    settings_of,
)
from shoal.mechanisms.parts.tables import MOST_ENTRIES, ProbabilityTable, check_entries
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.task import MechanismSpec

NAME = "hybrid"
_LEAST = 0.6093524930273093
"""ln((-5 + 2 cbrt(6353 - 405 sqrt(241)) + 2 cbrt(6353 + 405 sqrt(241))) / 27), section III-C: up to
here one bit alone errs less.
"""
# of the continuous mechanism's worst variance, at most, at the chosen number of outputs
_STATED = 1.01


def _or_none(bins: Parameter) -> Parameter:
    return Parameter(bins.name, 0, bins.high, f"{bins.meaning}, or 0: no bins")


PARAMETERS = (
    _or_none(GAIN),
    Parameter("k", 2, MOST_ENTRIES // 2, "number of cells of the domain: its levels and no answer"),
    _or_none(OUTPUTS),
    Parameter(
        "piecewise", 0, WORDS - 4, "probability, out of 2^64, that a bin is drawn and no bit: even"
    ),
    Parameter(
        "slope",
        1,
        WORDS // 2 - 1,
        "by how much, out of 2^64, the bit's probability grows over half a step of the levels",
    ),
    _or_none(WINDOW),
)


def continuous(epsilon0: float) -> float:
    """The worst variance of the paper's mechanism, in half widths of the domain: for epsilon0 above
    0.61 the variance at every place.
    """
    gained, root = math.expm1(min(epsilon0, 600.0)), math.exp(min(epsilon0, 600.0) / 2)
    bit = (1 + 2 / gained) ** 2
    return bit if epsilon0 <= _LEAST else (root + 3) / (3 * root * (root - 1)) + bit / root


def _create(spec: MechanismSpec, domain: Domain) -> TableMean:
    known, share, outputs = numeric(NAME, domain), spec.get("piecewise"), spec.get("outputs")
    check_k(spec, known)
    check_entries(known.size, outputs + 2)
    if share % 2:
        raise invalid(f'{NAME}: the parameter "piecewise" is even')
    if (
        (share == 0) != (outputs == 0)
        or (share == 0) != (spec.get("window") == 0)
        or (share == 0) != (spec.get("gain") == 0)
    ):
        raise invalid(
            f'{NAME}: the parameters "piecewise", "outputs", "window" and "gain" are all 0, for '
            "one bit alone, or none is"
        )
    slope, most = spec.get("slope"), most_slope(known.levels, WORDS - share)
    if slope > most:
        raise invalid(
            f'{NAME}: the parameter "slope" is 1 to {most} for {known.levels} levels and this '
            "share of one bit"
        )
    bits = [(WORDS - share - one, one) for one in ones(known.levels, slope, WORDS - share)]
    worth = score(known.levels, slope, WORDS - share)
    if not share:
        return TableMean(spec, known, ProbabilityTable(tuple(bits)), (-worth, worth))
    window = LikelyWindow(known.levels, outputs, spec.get("window"), spec.get("gain"), share)
    table = ProbabilityTable(
        tuple((*bins, *pair) for bins, pair in zip(window.rows(), bits, strict=True))
    )
    return TableMean(spec, known, table, (*window.scores(), -worth, worth))


def _shape(sizes: tuple[int, ...], share: float, epsilon0: float) -> PiecewiseShape:
    """The smallest size within 1 % of the continuous mechanism, or the largest."""
    bit, wanted = (1 + 2 / math.expm1(min(epsilon0, 600.0))) ** 2, _STATED * continuous(epsilon0)

    def worst(shape: PiecewiseShape) -> float:
        return shape.worst(share, (1 - share) * bit)

    for outputs in sizes:
        found = min(
            (PiecewiseShape.of(outputs, window, epsilon0) for window in range(1, outputs // 2 + 1)),
            key=worst,
        )
        if worst(found) <= wanted:
            break
    return found


def _design(sizes: tuple[int, ...], domain: Domain, epsilon0: float) -> MechanismSpec:
    known = numeric(NAME, domain)
    if not (math.isfinite(epsilon0) and epsilon0 > 0):
        raise invalid("epsilon0 is a finite number above 0: give one, such as 2")
    part = -math.expm1(-epsilon0 / 2) if epsilon0 > _LEAST else 0.0
    # A report is one bit with probability e^(-epsilon0/2), which words run out of where epsilon0 is
    # beyond 80 or so.
    share = min(2 * int(part * (WORDS // 2)), WORDS - (1 << 32)) if part else 0
    slope = steepest(known.levels, WORDS - share, epsilon0)
    if not share:
        return MechanismSpec.of(
            NAME, k=known.size, piecewise=0, outputs=0, window=0, gain=0, slope=slope
        )
    shape = _shape(sizes, part, epsilon0)
    gain = most_gain(known.levels, shape.outputs, shape.window, share, epsilon0)
    return MechanismSpec.of(
        NAME,
        k=known.size,
        piecewise=share,
        outputs=shape.outputs,
        window=shape.window,
        gain=gain,
        slope=slope,
    )


def _settings(domain: Domain) -> tuple[Setting, ...]:
    known: Numeric = numeric(NAME, domain)
    return settings_of(fitting(known.size, more=2), _design)


FAMILY = Family(
    NAME,
    "piecewise or one bit, by a coin: the mean of a number, no answer as the middle",
    PARAMETERS,
    _create,
    _settings,
)

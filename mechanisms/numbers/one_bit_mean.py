"""The mean of a number from one bit per device, set with a probability that grows evenly with the
number.

Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private estimation", JASA 2018,
in one dimension; the 1BitMean of Ding, Kulkarni, Yekhanin, "Collecting telemetry data privately",
NeurIPS 2017, section 2. With E = e^epsilon0 the bit is 1 with probability 1 / (E + 1) at the low
end and E / (E + 1) at the high end. A device without an answer flips a fair coin: the middle of the
domain.

With S = ``slope`` and L levels, level i sets the bit with probability (2^63 + S (2 i - (L - 1))) /
2^64: exactly even steps, exactly 1/2 in the middle. So the estimate is unbiased to the last digit
of the integers, and e^epsilon0 is (2^63 + S (L - 1)) / (2^63 - S (L - 1)).

**Its standard error** is an upper estimate, that of devices which all hold the mean (``means``).
Bits cannot tell more: the probability of one is a straight line in its device's place t, so the
expectation of any function of all bits is a straight line in each device's t, and the variance of a
coin, (E + 1)^2 / (E - 1)^2 - t^2, is none over three places.

It errs by 1 to (E + 1) / (E - 1) half widths per device, however large epsilon0 is: the price of
one bit. After shuffling, ``kmean`` with more levels errs much less. What speaks for one bit is a
memoized task: the report is one of two, shared by half of all devices.
"""

from __future__ import annotations

from fractions import Fraction

from shoal.domain import Domain, Numeric
from shoal.mechanisms.base import Family, Parameter, invalid, only
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.numbers.means import TableMean, numeric
from shoal.mechanisms.parts.tables import MOST_ENTRIES, ProbabilityTable, check_entries
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import KaryLaw
from shoal.task import MechanismSpec

NAME = "one_bit_mean"
PARAMETERS = (
    Parameter("k", 2, MOST_ENTRIES // 2, "number of cells of the domain: its levels and no answer"),
    Parameter(
        "slope",
        1,
        WORDS // 2 - 1,
        "by how much, out of 2^64, the bit's probability grows over half a step of the levels",
    ),
)


def ones(levels: int, slope: int, total: int) -> tuple[int, ...]:
    """The weight of a 1, out of an even ``total``, under every cell: even steps around one half,
    and one half without an answer.
    """
    return (
        *(total // 2 + slope * (2 * level - (levels - 1)) for level in range(levels)),
        total // 2,
    )


def score(levels: int, slope: int, total: int) -> Fraction:
    """What a 1 counts for, in half widths of the domain from its middle: (E + 1) / (E - 1). A 0
    counts for as much below.
    """
    return Fraction(total, 2 * slope * (levels - 1))


def most_slope(levels: int, total: int) -> int:
    """The largest slope at which both bits are possible at both ends."""
    return (total // 2 - 1) // (levels - 1)


def steepest(levels: int, total: int, epsilon0: float) -> int:
    """The largest slope that keeps epsilon0. Raises INVALID if none does."""
    most, half = most_slope(levels, total), total // 2

    def law(noise: int) -> KaryLaw:
        reach = (most - noise + 1) * (levels - 1)
        return KaryLaw(2, same=half + reach, other=half - reach)

    return most - least_noise(law, most, epsilon0) + 1


def _check(domain: Domain) -> Numeric:
    known = numeric(NAME, domain)
    check_entries(known.size, 2)
    return known


def _create(spec: MechanismSpec, domain: Domain) -> TableMean:
    known, slope = _check(domain), spec.get("slope")
    check_k(spec, known)
    if slope > (most := most_slope(known.levels, WORDS)):
        raise invalid(f'{NAME}: the parameter "slope" is 1 to {most} for {known.levels} levels')
    table = ProbabilityTable(tuple((WORDS - one, one) for one in ones(known.levels, slope, WORDS)))
    worth = score(known.levels, slope, WORDS)
    return TableMean(spec, known, table, (-worth, worth))


def _design(domain: Domain, epsilon0: float) -> MechanismSpec:
    known = _check(domain)
    return MechanismSpec.of(NAME, k=known.size, slope=steepest(known.levels, WORDS, epsilon0))


FAMILY = Family(
    NAME,
    "one bit per device: the mean of a number, no answer as the middle",
    PARAMETERS,
    _create,
    only(_design, _check),
)

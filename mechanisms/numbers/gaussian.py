"""The mean of a number with discrete Gaussian noise on its level, clamped to a range around the
domain: exact, one draw from a table.

Noise z has a probability in proportion to exp(-z^2 / (2 sigma^2)) on the integers (Canonne, Kamath,
Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020), sigma = ``sigma`` / 2^32
levels. The reported level is x + z, moved to the nearest end of a range that reaches ``margin``
levels beyond the domain on both sides: an end has the whole tail beyond it.

**Pure.** Without the clamp the reports of two levels have no bounded ratio, only an (epsilon,
delta) (Canonne and others, theorem 7): with D = levels - 1

    delta(epsilon) = P[z > epsilon sigma^2 / D - D / 2] - e^epsilon P[z > epsilon sigma^2 / D + D /
    2],

and D^2 / (2 sigma^2) of concentrated privacy. With it the outputs are finitely many, each possible
from every level, and the worst is an end: e^epsilon0 is the ratio of two tails, epsilon0 about D
(margin + D / 2) / sigma^2 or a little more, read off the integers of the table. That is pure local
differential privacy, with no delta. Example: 5 levels at epsilon0 1 have margin 6 and sigma 6.57
levels; the same noise without the clamp is (1, 0.0203)-private, and (0.5, 0.0881).

**When not.** ``laplace`` erred less at every epsilon0 and number of levels that was tried (5 and 21
levels, epsilon0 0.1 to 20), by 1.5 to some 30 times: Gaussian noise pays for its thin tails, and
pure privacy is a matter of tails. It is here for those who want Gaussian noise of a sigma that they
can name. Beyond some 50 levels the scores of a narrow range grow large: ask for fewer levels.

**The table** is made in decimal arithmetic of 80 digits, whose results are the same on every
machine, and rounded to integers at the end. Sums of tails are half of the sum over all integers
less finitely many terms. The sum over all is sigma sqrt(2 pi) for sigma >= 4 (by Poisson's formula
the relative difference is below 2 exp(-2 pi^2 sigma^2) < 10^-136), and added up below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import partial
from itertools import accumulate

from shoal.domain import Domain, Numeric
from shoal.mechanisms.base import Family, Parameter, Setting
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.numbers.means import numeric
from shoal.mechanisms.numbers.noisy_levels import NoisyLevels, create, weights_of
from shoal.mechanisms.parts.decay import BITS, least_noise_of_rows
from shoal.mechanisms.parts.tables import check_entries
from shoal.task import MechanismSpec

NAME = "gaussian"
UNIT = 1 << 32  # of the parameter "sigma"
LEAST, MOST = UNIT >> 8, UNIT << 20
PARAMETERS = (
    Parameter("k", 3, 256, "number of cells of the domain: its levels and no answer"),
    Parameter(
        "margin",
        0,
        1 << 14,
        "levels that the range of outputs reaches beyond the domain on either side",
    ),
    Parameter("sigma", LEAST, MOST, "standard deviation of the noise in levels, times 2^32"),
)
_DIGITS = Context(prec=80, rounding=ROUND_HALF_EVEN, Emin=-999_999_999, Emax=999_999_999)
_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534"
)
_BY_FORMULA = 4  # levels of sigma
_OUTPUTS = 256  # one byte


def weights(levels: int, margin: int, sigma: int) -> list[list[int]]:
    """Of the outputs from -margin to levels - 1 + margin (columns) for every level (rows), in one
    unit.
    """
    width = levels + 2 * margin
    inside, tails = noise(sigma, width)
    # inside[abs(y - at)] for y = 1 to width - 2 is a slice of the whole bell: a search makes
    # thousands of these tables.
    bell = inside[::-1] + inside[1:]
    places = range(margin, margin + levels)
    return [
        [tails[at], *bell[width - at : 2 * width - 2 - at], tails[width - 1 - at]] for at in places
    ]


def noise(sigma: int, count: int) -> tuple[list[int], list[int]]:
    """(exp(-z^2 / (2 s^2)), and the sum of it over z, z + 1, ...) for z = 0 to count - 1, out of
    2^BITS; s = sigma / 2^32.
    """
    with localcontext(_DIGITS):
        s = Decimal(sigma) / UNIT
        ratio = (-1 / (2 * s * s)).exp()
        if s >= _BY_FORMULA:
            single = _bell(ratio, count)
            everything = s * (2 * _PI).sqrt()
        else:  # 24 sigma are beyond 10^-125
            single = _bell(ratio, max(count, 24 * _BY_FORMULA))
            everything = 2 * sum(single, Decimal(0)) - 1
        before = accumulate(single, initial=Decimal(0))
        scale = Decimal(1 << BITS)
        tails = [
            (everything + 1) / 2 - below for below, _ in zip(before, range(count), strict=False)
        ]
        return [int(each * scale) for each in single[:count]], [
            max(int(each * scale), 0) for each in tails
        ]


def _bell(ratio: Decimal, count: int) -> list[Decimal]:
    """ratio^(z^2) for z = 0 to count - 1."""
    terms, factor, square = [Decimal(1)], ratio, ratio * ratio
    while len(terms) < count:
        terms.append(terms[-1] * factor)
        factor *= square
    return terms


def _checked(domain: Domain, margin: int = 0) -> Numeric:
    known = numeric(NAME, domain)
    check_entries(known.size, known.levels + 2 * margin)
    return known


def _create(spec: MechanismSpec, domain: Domain) -> NoisyLevels:
    margin = spec.get("margin")
    known = _checked(domain, margin)
    check_k(spec, known)
    return create(spec, known, weights(known.levels, margin, spec.get("sigma")))


def _design_at(margin: int, domain: Domain, epsilon0: float) -> MechanismSpec:
    known = _checked(domain, margin)

    def rows_at(sigma: int, cells: Sequence[int]) -> list[list[int]]:
        return weights_of(weights(known.levels, margin, sigma), cells)

    sigma = least_noise_of_rows(rows_at, known.size, MOST, epsilon0)
    return MechanismSpec.of(NAME, k=known.size, margin=margin, sigma=max(sigma, LEAST))


def _design(domain: Domain, epsilon0: float) -> MechanismSpec:
    return _design_at(_margin(_checked(domain).levels, epsilon0), domain, epsilon0)


def _margin(levels: int, epsilon0: float) -> int:
    """Near the best: a wider range wants more noise for the same epsilon0, a narrower one more for
    scores without bias. In a float: it only chooses an integer of the spec.
    """
    most = (_OUTPUTS - levels) // 2
    if not (math.isfinite(epsilon0) and epsilon0 > 0):
        return most  # refused by the search
    return min(most, math.ceil((1.5 if levels <= 8 else 3.0) * (levels - 1) / epsilon0))


def _settings(domain: Domain) -> tuple[Setting, ...]:
    levels = _checked(domain).levels
    ranges = [(times, -(-(times - 1) * (levels - 1) // 2)) for times in (2, 3, 5)]
    return (
        Setting("standard", "the range of outputs follows from epsilon0", _design),
        *(
            Setting(
                f"range={times}",
                f"outputs reach over {times} widths of the domain",
                partial(_design_at, margin),
            )
            for times, margin in ranges
            if levels + 2 * margin <= _OUTPUTS
        ),
    )


FAMILY = Family(
    NAME,
    "a level with discrete Gaussian noise, clamped: the mean of a number",
    PARAMETERS,
    _create,
    _settings,
)

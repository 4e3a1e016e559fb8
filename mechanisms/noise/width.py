"""How wide a masked word has to be so that no sum wraps unseen.

**Width.** Each of at most n devices brings a vector of integers with |q| <= Q in every coordinate,
and its share of the noise. The sum is read as a signed number of w bits. It is right if

    n Q + T <= 2^(w-1) - 1,

where T bounds the noise of all n shares in every one of the d coordinates, but for a probability of
2^-40. A device's own words wrap as they like: sums are taken modulo 2^w, so only the total has to
fit. Fewer devices than n have smaller noise (their sum's moment generating function is smaller), so
T holds for them too. It does not hold for devices that do not follow the protocol.

**Tails.** For every r > 0 where the mean exists, Markov's inequality for e^(rS) gives P[S >= T] <=
E[e^(rS)] e^(-rT) (Chernoff). S is symmetric and there are d coordinates, so P[any |S| >= T] <= 2 d
E[e^(rS)] e^(-rT): T is the smallest integer for which this is at most 2^-40 at the best r. Any r
gives a true bound, so the choice of r can cost width, never truth.

*Skellam.* A share is Poisson(v / 2h) - Poisson(v / 2h); n shares have the variance mu = n v / h and
E[e^(rS)] = exp(mu (cosh r - 1)). The best r has sinh r = T / mu.

*Discrete Laplace.* A share is NB(1/h, p) - NB(1/h, p) (Polya variables), p = exp(-65536 / scale),
where NB(a, p) has the generating function ((1 - p) / (1 - p z))^a. With a = n / h,

    E[e^(rS)] = ((1 - p)^2 / ((1 - p e^r)(1 - p e^-r)))^a,    0 < r < -ln p.

Its logarithm's slope is a p (u^2 - 1) / ((1 - p u)(u - p)) at u = e^r; setting it equal to T gives
p (T + a) u^2 - T (1 + p^2) u + p (T - a) = 0, whose larger root lies in (1, 1/p). For n = h it is
the discrete Laplace law itself, whose tail 2 p^T / (1 + p) the tests compare.

Numbers are computed in decimal arithmetic of fixed precision, which is the same on every machine;
the last comparison leaves a margin far above the rounding errors, so T is rounded up.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction

from shoal.errors import Kind, ShoalError
from shoal.secagg import WORD_BITS
from shoal.task import MechanismSpec

TAIL_BITS = 40  # the noise exceeds its bound in any coordinate with at most 2^-TAIL_BITS
SCALE_UNIT = 1 << 16  # of the parameter "scale" of the discrete Laplace law
_DIGITS = Context(prec=100, rounding=ROUND_HALF_EVEN, Emin=-999_999_999, Emax=999_999_999)
# Of the logarithm of a probability. Cancellation costs at most 30 of the 100 digits for 64-bit
# parameters.
_MARGIN = Decimal("1e-40")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, message)


def noise_tail(spec: MechanismSpec, dimension: int, devices: int) -> int:
    """T >= 1: the summed noise of ``devices`` shares or fewer stays below T in absolute value, in
    all coordinates, but for 2^-40.

    ``spec``: "skellam" (variance, shares) or "discrete_laplace" (scale, shares), in grid steps. An
    upper bound. Raises INVALID for another mechanism, or parameters below 1.
    """
    _require(
        dimension >= 1 and devices >= 1,
        "a bound of noise is for one coordinate and one device, or more",
    )
    laws = {"skellam": ("variance", _skellam), "discrete_laplace": ("scale", _discrete_laplace)}
    _require(
        spec.name in laws,
        f"mechanism {spec.name} is no noise for sums: use skellam or discrete_laplace",
    )
    name, law = laws[spec.name]
    size, shares = spec.get(name), spec.get("shares")
    _require(
        size >= 1 and shares >= 1, f"the parameters {name} and shares of {spec.name} are 1 or more"
    )
    with localcontext(_DIGITS):
        limit = -(TAIL_BITS + 1) * Decimal(2).ln() - Decimal(dimension).ln() - _MARGIN
        return _smallest(law(size, Fraction(devices, shares)), limit)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _skellam(variance: int, ratio: Fraction) -> Callable[[int], Decimal]:
    """T -> ln of the one-sided Chernoff bound, for the variance ``variance * ratio``."""
    mu = _decimal(variance * ratio)

    def bound(tail: int) -> Decimal:
        slope = tail / mu
        cosh = (slope * slope + 1).sqrt()
        # cosh - 1 without cancellation
        return mu * (slope * slope / (cosh + 1)) - tail * (slope + cosh).ln()

    return bound


def _discrete_laplace(scale: int, ratio: Fraction) -> Callable[[int], Decimal]:
    """T -> ln of the one-sided Chernoff bound, for ``ratio`` times as many shares as make one
    discrete Laplace variable.
    """
    p = (-Decimal(SCALE_UNIT) / scale).exp()
    a = _decimal(ratio)
    square = 1 + p * p

    def bound(tail: int) -> Decimal:
        # the discriminant, without cancellation
        root = tail * tail * (1 - p * p) ** 2 + 4 * p * p * a * a
        u = (tail * square + root.sqrt()) / (2 * p * (tail + a))
        return a * (2 * (1 - p).ln() - (1 - p * u).ln() - (1 - p / u).ln()) - tail * u.ln()

    return bound


def _smallest(bound: Callable[[int], Decimal], limit: Decimal) -> int:
    """The smallest T >= 1 with bound(T) <= limit; the bound falls as T grows."""
    high = 1
    while bound(high) > limit:
        high *= 2
    low = high // 2  # bound(low) > limit, or low == 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bound(middle) > limit else (low, middle)
    return high


def word_bits_for(devices: int, per_device: int, tail: int) -> int:
    """The smallest of 16, 32 and 64 with devices * per_device + tail <= 2^(w-1) - 1: ``devices``
    vectors and their noise fit.

    ``per_device``: largest absolute value of a coordinate of one integer vector; ``tail``: see
    ``noise_tail``. Raises INVALID if none fits.
    """
    _require(
        devices >= 1 and per_device >= 0 and tail >= 0,
        "the width of a word follows from numbers that are not negative",
    )
    largest = devices * per_device + tail
    for bits in WORD_BITS:
        if largest <= (1 << bits - 1) - 1:
            return bits
    raise ShoalError(
        Kind.INVALID,
        f"the sum may need {largest.bit_length() + 1} bits, more than the widest word of "
        f"{WORD_BITS[-1]}: "
        "use a coarser grid, less noise or fewer devices",
    )

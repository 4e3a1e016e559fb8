"""True values hidden among dummies: the exact privacy of a histogram of all messages, and the
fewest dummies that reach a target.

Every device sends its bucket (one of d) as it is, and dummies that do not depend on it. The view is
the histogram of all messages of the batch.

**Reduction.** The buckets of the other devices, and all that dishonest devices send, are constants
added to the histogram: subtracting them is a bijection, so the divergence is that of dummies + e_x
against dummies + e_x', whatever the others answered: every dataset is the worst one. Only the
counts of x and x' matter (below), and exchanging these two coordinates exchanges the two laws while
the dummies' law stays: both directions have one divergence. Nothing is given away in this
reduction, so upper bound, lower bound and truth are one number up to rounding. The protected device
is honest: its own dummies count.

**UniformDummies** (balls into bins; Luo, Wang, Yi, "Frequency Estimation in the Shuffle Model with
Almost a Single Message", CCS 2022). N = r n_honest uniform dummies. With c of them on x or x', the
rest says nothing about the pair, and (first count, second count) is (K + 1, c - K) or (K, c - K +
1), K ~ Bin(c, 1/2), c ~ Bin(N, 2/d). With m = c + 1 the two probabilities of k on x are C(m, k)
2^-m times 2 k / m and 2 (m - k) / m; and Bin(N, q)(m - 1) / m = Bin(N + 1, q)(m) / ((N + 1) q). So

    delta(epsilon) = E[(2/q) (K - e (m - K))_+] / (N + 1),
    m ~ Bin(N + 1, q), K ~ Bin(m, 1/2), q = 2/d, e = e^epsilon:

a ``Walk``, evaluated by ``curve`` in either direction (it is the clones walk with E = infinity).
Adding dummies is post-processing: more never hurt.

**BernoulliDummies**: each device adds to each bucket, independently, one dummy with probability p.
A, B ~ Bin(n_honest, p) are the counts of x and x', independent of each other and of the rest. With
f the pmf, the laws of (a, b) = (A + 1, B) and (A, B + 1) have the ratio g(a) / g(b), g(a) = f(a-1)
/ f(a) = a (1 - p) / ((n + 1 - a) p), which grows with a. So for each a the sum over b is up to one
threshold, b < (A + 1)(n + 1) / (e (n - A) + A + 1), and summed by parts it has positive terms only:

    sum_{b <= t} f(b) (1 - e g(b)/g(a)) = F(t) (1 - e g(t)/g(a)) + (e/g(a)) sum_{b < t} F(b) (g(b+1)
    - g(b)).

*Numbers.* pmf and sums are good to 1e-11; ``MARGIN`` = 1e-9 of delta is moved to the safe side.
Everything that decides between k and e g(b) is exact with e changed by less than 1e-14 of itself,
and delta falls with e: e is taken 1e-13 too small (upper) or too large (lower). Values outside a
Bernstein window of mass 1e-8 delta are added (upper: A too small or too large, B too small; B
beyond the window never has b < a) or dropped (lower). Beyond 1e8 dummies or devices: the upper
bound of 1e8, the lower bound 0.

The number of messages of a device is constant with ``UniformDummies``. With ``BernoulliDummies`` it
varies (independently of the value): whoever transports the messages should see bundles of one size.

*Checked* in both directions against the histogram of all messages in exact fractions at small
sizes, and against plain sums (tests/unit/accounting/several_messages/test_dummies.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from shoal.accounting.certificate import check_n
from shoal.accounting.numerics.binomial import half_width, pmf
from shoal.accounting.numerics.curve import LARGEST_N, MARGIN, TAIL_SHARE, Curve, Direction
from shoal.accounting.numerics.random_walk import Walk
from shoal.accounting.several_messages.messages import LARGEST_EPSILON, check_target, reaches
from shoal.arrays import np
from shoal.errors import Kind, ShoalError

_SAFE = 1e-13
# Probabilities are thresholds out of 2^64, as everywhere in the randomizers.
_UNIT = 1 << 64
# How close to the fewest the solver for p comes, relative.
_RESOLUTION = 20


def _zero(_: float) -> float:
    return 0.0


def _check_buckets(buckets: int) -> None:
    """Raises CONFIG unless ``buckets`` is a whole number of at least 2."""
    if isinstance(buckets, bool) or not isinstance(buckets, int) or buckets < 2:
        raise ShoalError(
            Kind.CONFIG,
            f"buckets must be a whole number of at least 2, got {buckets}: give the size of the "
            "domain",
        )


@dataclass(frozen=True, slots=True)
class UniformDummies:
    """Each device sends its true bucket and ``per_device`` >= 0 dummies, each uniform over the
    ``buckets`` >= 2.

    Raises ShoalError CONFIG for other numbers.
    """

    buckets: int
    per_device: int

    def __post_init__(self) -> None:
        _check_buckets(self.buckets)
        if (
            isinstance(self.per_device, bool)
            or not isinstance(self.per_device, int)
            or self.per_device < 0
        ):
            raise ShoalError(
                Kind.CONFIG,
                f"per_device must be a whole number of at least 0, got {self.per_device}: give the "
                "dummies of a device",
            )

    @property
    def name(self) -> str:
        """ "uniform-dummies": the method in a bound."""
        return "uniform-dummies"

    @property
    def messages_per_device(self) -> Fraction:
        """1 + ``per_device``, for every device alike."""
        return Fraction(1 + self.per_device)

    @property
    def epsilon0(self) -> float:
        """Infinite: a device's true message is its value."""
        return math.inf

    @property
    def assumptions(self) -> tuple[str, ...]:
        """One plain sentence: what every honest device adds."""
        return (
            f"every honest device adds {self.per_device} dummies, independent of everything, "
            f"uniform over all {self.buckets} buckets",
        )

    def curve(self, n_honest: int, direction: Direction, delta: float) -> Callable[[float], float]:
        """See ``SeveralMessages``: delta(epsilon) with ``per_device`` * ``n_honest`` dummies in
        all.
        """
        return uniform_curve(self.buckets, self.per_device * check_n(n_honest), direction, delta)


@dataclass(frozen=True, slots=True)
class BernoulliDummies:
    """Each device sends its true bucket and, for each of the ``buckets`` >= 2 independently, a
    dummy with ``probability`` in (0, 1).

    Raises ShoalError CONFIG for other numbers.
    """

    buckets: int
    probability: Fraction

    def __post_init__(self) -> None:
        _check_buckets(self.buckets)
        if not 0 < self.probability < 1:
            raise ShoalError(
                Kind.CONFIG,
                f"probability must lie strictly between 0 and 1, got {self.probability}: give an "
                "exact fraction",
            )

    @property
    def name(self) -> str:
        """ "bernoulli-dummies": the method in a bound."""
        return "bernoulli-dummies"

    @property
    def messages_per_device(self) -> Fraction:
        """1 + buckets * probability: the mean. The number of one device varies, whatever its value
        is.
        """
        return 1 + self.buckets * Fraction(self.probability)

    @property
    def epsilon0(self) -> float:
        """Infinite: a device's true message is its value."""
        return math.inf

    @property
    def assumptions(self) -> tuple[str, ...]:
        """One plain sentence: what every honest device adds."""
        chance = float(self.probability)
        return (
            "every honest device adds to each bucket, independently of everything, a dummy with "
            f"probability {chance:.9g}",
        )

    def curve(self, n_honest: int, direction: Direction, delta: float) -> Callable[[float], float]:
        """See ``SeveralMessages``: delta(epsilon) with Bin(``n_honest``, probability) dummies in
        each bucket.
        """
        if check_n(n_honest) > LARGEST_N and direction is Direction.LOWER:
            return _zero
        return _BernoulliCurve(
            min(n_honest, LARGEST_N), Fraction(self.probability), direction, delta
        ).delta


def uniform_curve(
    buckets: int, dummies: int, direction: Direction, delta: float
) -> Callable[[float], float]:
    """delta(epsilon) for epsilon in [0, 40] with ``dummies`` >= 0 uniform dummies in the whole
    batch, erring in ``direction``.
    """
    if dummies >= LARGEST_N and direction is Direction.LOWER:
        return _zero
    # The victim's own message is one of the n = N + 1 of the formula. More dummies never hurt, so
    # beyond 1e8 the upper bound of 1e8 holds.
    n, pair = min(dummies, LARGEST_N - 1) + 1, Fraction(2, buckets)
    walk = Walk(
        n=n, pair=pair, rho=Fraction(1, 2), slope=4 / pair, slope_e=2 / pair, per_pair=1 / pair
    )
    return Curve(walk, direction, delta, LARGEST_EPSILON).delta


class _BernoulliCurve:
    """The sum of the module's text for Bin(n, p) dummies in each bucket."""

    def __init__(self, n: int, probability: Fraction, direction: Direction, delta: float) -> None:
        self._n, self._upper = n, direction is Direction.UPPER
        p, q = float(probability), float(1 - probability)
        log_tail = math.log(delta) + math.log(TAIL_SHARE)
        mean, reach = n * p, float(half_width(n, p, q, log_tail))
        low, high = max(0, math.floor(mean - reach)), min(n, math.ceil(mean + reach))
        values = np.arange(low, high + 1, dtype=np.int64)
        self._low, self._high = low, high
        self._masses = pmf(values, n, p, q)
        self._cumulated = np.cumsum(self._masses)
        self._counts = values.astype(np.float64)
        # (g(b + 1) - g(b)) p / (1 - p), and its sum with F up to b - 1. The entry for b = n is
        # never reached.
        left = n - self._counts
        steps = (n + 1.0) / np.maximum(left, 1.0) / (left + 1.0)
        self._parts = np.concatenate([[0.0], np.cumsum(self._cumulated * steps)[:-1]])
        self._lost = (2 * int(low > 0) + int(high < n)) * math.exp(log_tail) if self._upper else 0.0

    def delta(self, epsilon: float) -> float:
        """The divergence at ``epsilon`` in [0, 40], moved to the safe side."""
        e = (
            max(1.0, math.exp(epsilon) * (1.0 - _SAFE))
            if self._upper
            else math.exp(epsilon) * (1.0 + _SAFE)
        )
        n, counts = self._n, self._counts
        # (1 - p) / p cancels between g(b) and 1 / g(a): it is left out of both.
        inverse = (n - counts) / (counts + 1.0)
        limit = (counts + 1.0) * (n + 1.0) / (e * (n - counts) + counts + 1.0)
        last = np.clip(np.ceil(limit).astype(np.int64) - 1, self._low - 1, self._high)
        some = last >= self._low
        at = np.maximum(last - self._low, 0)
        own = last / (n + 1.0 - last)
        inner = (
            self._cumulated[at] * np.maximum(1.0 - e * own * inverse, 0.0)
            + e * inverse * self._parts[at]
        )
        total = float(np.sum(self._masses * np.where(some, inner, 0.0)))
        return total * (1.0 + MARGIN) + self._lost if self._upper else total * (1.0 - MARGIN)


def fewest_uniform(buckets: int, epsilon: float, delta: float) -> int:
    """The fewest uniform dummies in a whole batch that prove (epsilon, delta). Errs upward: checked
    by the bound itself.

    ``epsilon`` in (0, 40]. Raises ShoalError CONFIG for bad numbers and where 1e8 dummies are not
    enough.
    """
    _check_buckets(buckets)
    check_target(epsilon, delta)

    def enough(dummies: int) -> bool:
        return uniform_curve(buckets, dummies, Direction.UPPER, delta)(epsilon) <= delta

    if enough(0):
        return 0
    low, high = 0, 1
    while not enough(high):
        if high >= LARGEST_N - 1:
            raise ShoalError(
                Kind.CONFIG,
                f"{LARGEST_N} dummies do not reach epsilon {epsilon:g} at delta {delta:g}: give a "
                "larger target",
            )
        low, high = high, min(high * 4, LARGEST_N - 1)
    while high - low > 1:
        middle = math.isqrt(low * high) if high > 2 * low > 0 else (low + high) // 2
        middle = min(max(middle, low + 1), high - 1)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def solve_uniform(buckets: int, n_honest: int, epsilon: float, delta: float) -> UniformDummies:
    """The fewest dummies per device with which ``n_honest`` honest devices reach (epsilon, delta);
    errs upward.

    ``certify_messages`` of the result gives at most ``epsilon``. Raises as ``fewest_uniform``.
    """
    check_n(n_honest)
    dummies = UniformDummies(buckets, -(-fewest_uniform(buckets, epsilon, delta) // n_honest))
    while not reaches(dummies, n_honest, epsilon, delta):
        # The search evaluates the curve at the target, the bound bisects and may stop 1e-9 above
        # it.
        dummies = UniformDummies(buckets, dummies.per_device + 1)
    return dummies


def solve_bernoulli(buckets: int, n_honest: int, epsilon: float, delta: float) -> BernoulliDummies:
    """The smallest probability found (k / 2^64, within 1e-6 of itself) that reaches (epsilon,
    delta); errs upward.

    Raises ShoalError CONFIG for bad numbers and where even 1/2 is not enough: then devices have to
    send several dummies per bucket.
    """
    _check_buckets(buckets)
    check_n(n_honest)
    check_target(epsilon, delta)

    def at(weight: int) -> BernoulliDummies:
        return BernoulliDummies(buckets, Fraction(weight, _UNIT))

    def enough(weight: int) -> bool:
        return at(weight).curve(n_honest, Direction.UPPER, delta)(epsilon) <= delta

    low, high = 0, _UNIT // 2
    if not enough(high):
        raise ShoalError(
            Kind.CONFIG,
            f"{n_honest} honest devices with one dummy per bucket at most do not reach epsilon "
            f"{epsilon:g} at delta {delta:g}: "
            "use uniform dummies, more devices or a larger target",
        )
    while high - low > max(1, high >> _RESOLUTION):
        middle = (
            math.isqrt(low * high)
            if high > 4 * low > 0
            else max(low + 1, high >> 3 if low == 0 else (low + high) // 2)
        )
        low, high = (low, middle) if enough(middle) else (middle, high)
    while not reaches(at(high), n_honest, epsilon, delta):
        high += (high >> _RESOLUTION) + 1
    return at(high)

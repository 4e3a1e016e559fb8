"""The sum of many rounds' losses by one tilted Fourier transform; ``compose`` has the theorem and
every error term.

In its terms: ``Moments`` finds theta, K and the Renyi epsilon; ``fitting`` coarsens the lattice
until one transform holds the window; ``Convolution`` makes nu, goes back to mu, and bounds
delta(epsilon) from above. Each rounding goes up: masses are moved upward in loss, errors are added
to delta, and negative entries are cut at 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shoal.accounting.composition.losses import MARGIN, LossLaw, on_lattice
from shoal.accounting.numerics.binomial import Floats
from shoal.arrays import NDArray, np

_UNIT = 2.0**-53
_TRANSFORM = 16.0 * _UNIT
# Mass beyond the window's upper end (added to delta) and, tilted, below its lower end, relative.
_WINDOW = 1e-9
_LONGEST = 1 << 17
# Above this the weights stand for "far more than any delta".
_LARGEST_EXPONENT = 300.0

Rounds = Sequence[tuple[LossLaw, int]]
"""Loss laws of releases, and how many releases have each."""


class Moments:
    """ln of the sums m(theta) of all rounds on one lattice, the best theta for ``delta``, and the
    Renyi epsilon there.

    ``parts``: the laws on one lattice of ``step``, with their counts. ``budget``: what is left of
    delta for finite losses; at most 0 where nothing can be proven. ``epsilon``: the least that a
    theta proves, an upper bound, math.inf if none does. ``theta`` > 0: where that is.
    """

    def __init__(self, rounds: Rounds, delta: float, step: float = 0.0) -> None:
        """``step``: a power of two; the finest law's if that is larger."""
        # All laws go on one lattice, so that losses are whole numbers of steps and their sum is a
        # convolution. A coarser lattice than a law's own moves mass upward (``on_lattice``): sound,
        # and a little looser.
        count = sum(n for _, n in rounds)
        square = sum(law.variance * n for law, n in rounds)
        # Never so fine that a loss's index would leave the integers that floats hold exactly.
        widest = sum(_size(law) * n for law, n in rounds)
        finest = math.ldexp(1.0, math.frexp(widest)[1] - 45) if widest > 0.0 else 0.0
        self.step = max(step, finest, min(_natural_step(law) for law, _ in rounds))
        if self.step == math.inf:
            self.step = 1.0
        self.parts = [(on_lattice(law, self.step), n) for law, n in rounds]
        # Total masses exceed 1 by the laws' margins; the logarithms' own rounding is the last term.
        excess = sum(
            max(0.0, float(np.sum(law.masses)) + law.infinity - 1.0) * n for law, n in self.parts
        )
        self.infinity = (
            sum(law.infinity * n for law, n in self.parts)
            * math.exp(min(excess, 1.0))
            * (1.0 + MARGIN)
        )
        self.delta, self.count = delta, count
        # delta pays first for what is beyond all losses; the rest is what the finite losses may
        # use. With nothing left (or with masses that add up to far more than 1) nothing is proven:
        # epsilon stays infinite.
        self.budget = delta - self.infinity if excess < 1.0 else 0.0
        self.epsilon, self.theta = math.inf, 0.0
        if self.budget <= 0.0:
            return
        # The best theta is about epsilon over the variance of the sum. The grid covers seven orders
        # of magnitude around 1 / spread and is narrowed twice; every theta proves its own epsilon,
        # so a poor grid costs tightness only.
        spread = math.sqrt(max(square, self.step * self.step))
        low, high = math.log(1e-3 / spread), math.log(1e4 / spread)
        for _ in range(3):
            theta = np.exp(np.linspace(low, high, 97))
            values = self._renyi(theta)
            best = int(np.argmin(values))
            if values[best] < self.epsilon:
                self.epsilon, self.theta = float(values[best]), float(theta[best])
            width = (high - low) / 48.0
            low, high = math.log(theta[best]) - width, math.log(theta[best]) + width

    def log_sums(self, theta: Floats) -> Floats:
        """K(theta) for an array of theta (any sign); relative error below 1e-12 of the largest
        argument.
        """
        total: Floats = np.zeros_like(theta)
        for law, n in self.parts:
            total = total + n * _log_sum(law, theta)
        return total

    def _renyi(self, theta: Floats) -> Floats:
        """The epsilon that each theta proves, float64 like ``theta``: (K(theta) + ln c(theta) - ln
        budget) / theta with the rounding of every term added. Direction: upper bound for each
        theta, so the least of them is one too.
        """
        # ln c(theta) of the module ``compose``. The terms cancel where theta is large, so the
        # rounding is taken from their sizes, not from their sum.
        log_c = theta * np.log(theta) - (1.0 + theta) * np.log1p(theta)
        k = self.log_sums(theta)
        size = (
            np.abs(k) + np.abs(log_c) + abs(math.log(self.budget)) + theta * np.log1p(theta) * 2.0
        )
        rounding = MARGIN * size + _UNIT * 8.0 * sum(
            n * (1.0 + theta * _size(law)) for law, n in self.parts
        )
        epsilon: Floats = np.maximum(0.0, (k + log_c - math.log(self.budget) + rounding) / theta)
        return epsilon


def _size(law: LossLaw) -> float:
    """The largest loss of the law, in modulus."""
    return max(abs(int(law.indices[0])), abs(int(law.indices[-1]))) * law.step


def _natural_step(law: LossLaw) -> float:
    """The largest power of two of which all the law's losses are multiples."""
    bits = int(np.bitwise_or.reduce(np.abs(law.indices)))
    return law.step * (bits & -bits) if bits else math.inf


def _log_sum(law: LossLaw, theta: Floats) -> Floats:
    """ln sum masses exp(theta loss), for each theta."""
    exponents = theta[:, None] * law.losses[None, :]
    largest = exponents.max(axis=1)
    sums: Floats = largest + np.log(np.exp(exponents - largest[:, None]) @ law.masses)
    return sums


def fitting(rounds: Rounds, moments: Moments) -> Moments:
    """The same rounds on a lattice coarse enough for a transform of ``_LONGEST``.

    A coarser lattice is sound and looser; the loop ends, since each turn doubles the step.
    """
    while True:
        low, high, _ = _window(moments)
        if high - low <= _LONGEST * moments.step:
            return moments
        moments = Moments(rounds, moments.delta, 2.0 * moments.step)


class Convolution:
    """delta(epsilon) of all rounds by one tilted transform; see the module's text for each error
    term.
    """

    def __init__(self, moments: Moments) -> None:
        # The transform is circular: what lies outside [low, high] comes back inside. Below the
        # window that counts mass too high, which is safe; above it too low, which ``_beyond`` makes
        # up for.
        low, high, self._beyond = _window(moments)
        step, theta = moments.step, moments.theta
        first = math.floor(low / step)
        length = 1 << max(4, math.ceil(math.log2(math.ceil(high / step) - first + 2)))
        k, relative, tilted = _tilted(moments, length)
        # Higham's bound: the error of a transform, in the Euclidean norm, relative to the norm of
        # what is transformed. ``one_error`` is one measure's; n-fold powers make it n times as
        # large, and ``grown`` bounds by how much more.
        transform = _TRANSFORM * math.log2(length)
        product: NDArray[np.complex128] = np.ones(length // 2 + 1, dtype=np.complex128)
        error = grown = 0.0
        for values, n in tilted:
            one_error = transform * float(np.linalg.norm(values))
            error += n * one_error
            grown += n * (one_error * math.sqrt(length) + abs(float(np.sum(values)) - 1.0))
            product *= _power(np.fft.rfft(values), n)
        nu = np.fft.irfft(product, length)
        norm = float(np.linalg.norm(nu))
        rounds_and_parts = moments.count + len(tilted)
        self._error = (
            error * math.exp(min(grown, _LARGEST_EXPONENT))
            + (3.0 * _UNIT * rounds_and_parts + transform) * norm
        ) * 1.01
        index = np.arange(first, first + length)
        self._losses: Floats = np.asarray(index * step, dtype=np.float64)
        # Back from the tilted measure nu to mu: mu(l) = nu(l) exp(K - theta l). Where that is
        # beyond e^300 any value stands for "far more than delta".
        exponent = k - theta * self._losses
        self._weights: Floats = np.exp(np.minimum(exponent, _LARGEST_EXPONENT))
        self._masses: Floats = np.maximum(np.roll(nu, -(first % length)), 0.0) * self._weights
        # What exponentials, K and the masses may be off by, all in one relative factor; it
        # multiplies every upper value.
        self._growth = (
            1.0
            + relative
            + 8.0 * _UNIT * (abs(k) + float(np.max(np.abs(theta * self._losses))) + length)
            + MARGIN
        )
        self._infinity = moments.infinity

    def delta(self, epsilon: float) -> float:
        """At ``epsilon`` >= 0; math.inf below the window. Direction: UPPER.

        Every error term of ``compose`` is in it: what the transform rounded (``_error``, by
        Cauchy-Schwarz), the mass above the window, the relative error of exponentials, and the mass
        at infinity.
        """
        if epsilon < self._losses[0]:
            return math.inf
        at = int(np.searchsorted(self._losses, epsilon, side="right"))
        gain = -np.expm1(epsilon - self._losses[at:])
        inside = float(np.dot(self._masses[at:], gain))
        # Cauchy-Schwarz: an error of norm E in nu moves a weighted sum by at most E times the norm
        # of the weights.
        rounding = self._error * float(np.linalg.norm(self._weights[at:] * gain))
        return (inside + rounding + self._beyond) * self._growth + self._infinity


def _window(moments: Moments) -> tuple[float, float, float]:
    """(low, high, mass above high): where the tilted sum lies, and where delta is decided. The mass
    is an upper bound.
    """
    bottom = sum(int(law.indices[0]) * n for law, n in moments.parts) * moments.step
    top = sum(int(law.indices[-1]) * n for law, n in moments.parts) * moments.step
    theta, log_delta = moments.theta, math.log(moments.delta * _WINDOW)
    # Chernoff's bound at 65 exponents around theta, for either end; the best counts. Where the
    # window would reach beyond the largest possible sum of losses, nothing is beyond it.
    ratios = np.exp(np.linspace(-4.0, 4.0, 65))
    up = theta * ratios
    # Against rounding of K: far more than its error; the mass that is added stays the same.
    k = moments.log_sums(np.append(up, theta))
    slack = 1e-9 * (1.0 + np.abs(k[:-1]))
    high = float(np.min((k[:-1] + slack - log_delta) / up)) + moments.step
    beyond = moments.delta * _WINDOW
    if high >= top:
        high, beyond = top, 0.0
    down = theta - theta * ratios
    low = float(np.max((math.log(_WINDOW) + k[-1] - moments.log_sums(down)) / (theta * ratios)))
    return max(bottom, min(low, high - moments.step)), high, beyond


def _tilted(moments: Moments, length: int) -> tuple[float, float, list[tuple[Floats, int]]]:
    """(K, relative error of all masses together, each round's tilted masses folded to
    ``length``).
    """
    theta = moments.theta
    logs: list[float] = []
    relative = 0.0
    tilted: list[tuple[Floats, int]] = []
    for law, n in moments.parts:
        log_sum = float(_log_sum(law, np.array([theta]))[0])
        arguments = theta * law.losses - log_sum
        values = np.asarray(
            np.bincount(law.indices % length, law.masses * np.exp(arguments), minlength=length),
            dtype=np.float64,
        )
        logs.append(n * log_sum)
        # Folding adds up to len / length + 1 masses in one place.
        relative += (
            n
            * _UNIT
            * (8.0 + 4.0 * (theta * _size(law) + abs(log_sum)) + len(law.indices) / length)
        )
        relative += 2.0 * _UNIT * abs(n * log_sum)
        tilted.append((values, n))
    return math.fsum(logs), math.expm1(min(relative, _LARGEST_EXPONENT)), tilted


def _power(values: NDArray[np.complex128], n: int) -> NDArray[np.complex128]:
    """values ** n by repeated squaring: a relative error of at most 3 u n."""
    result: NDArray[np.complex128] | None = None
    while n:
        if n & 1:
            result = values if result is None else result * values
        n >>= 1
        if n:
            values = values * values
    return np.ones_like(values) if result is None else result

"""What several releases give away together, through their privacy loss distributions; never below
the true epsilon.

Losses of independent (or adaptively chosen) rounds add (``losses`` proves it for its measures), so
with mu the convolution of all rounds' measures

    delta(epsilon) = sum over l > epsilon of mu(l) (1 - exp(epsilon - l)) + the mass at infinity.

*Tilting.* A discrete Fourier transform has an error of about 1e-16 of the *largest* mass, and what
is asked for may be 1e-14 of it. So each measure is multiplied by exp(theta l) and divided by its
sum m(theta). With K = sum of ln m over all rounds, mu(l) = nu(l) exp(K - theta l), where nu is the
convolution of the tilted measures. theta is where

    (1 - exp(epsilon - l))_+ <= c(theta) exp(theta (l - epsilon)),
    c(theta) = theta^theta / (1 + theta)^(1 + theta),

gives the smallest epsilon: nu then has its bulk at that epsilon, and nu's error is relative to what
is asked for. That smallest epsilon is itself the Renyi bound at order 1 + theta (Canonne, Kamath,
Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12, whose
c(theta) this is; Balle, Barthe, Gaboardi, Hsu, Sato, "Hypothesis testing interpretations and Renyi
differential privacy", AISTATS 2020), and caps the result.

*Errors, all added to delta.* u = 2^-53, N the length of the transform, norms Euclidean.

* Transform: Higham, "Accuracy and stability of numerical algorithms", 2nd ed., Theorem 24.2:
  relative error in norm of at most 7 u log2 N for radix 2 with twiddle factors good to u; 16 u log2
  N is taken. By Parseval the error of one tilted measure x is E_x = 16 u log2 N ||x|| in the time
  domain. n-fold powers, by repeated squaring, of numbers of at most 1 + sqrt(N) E_x in modulus give
  at most n E_x (1 + sqrt(N) E_x)^n, plus 3 u n of the result. ||error of nu|| is at most the sum of
  these over the rounds, plus 16 u log2 N ||nu|| for the way back. Against the weights w(l) = exp(K
  - theta l) (1 - exp(epsilon - l)) it costs at most ||error|| ||w|| (Cauchy-Schwarz).
* Negative entries are set to 0 (upward).
* Aliasing: mass below the window is counted again inside (upward). Mass above it, which would be
  counted too low, is at most exp(K(t) - t b) for every t >= 0 (Chernoff); the window's end b is
  chosen so that this is 1e-9 delta, which is added.
* exp and K: an absolute error of 4 u of every argument's size; the result is multiplied by 1 + the
  sum of these over all rounds.
* Masses at infinity: some round fails openly with at most the sum of the rounds' masses there,
  times the growth of the total masses, which exceed 1 by the loss laws' margins.
* Lattice: that of the finest law. Only if the window is more than 2^17 of its steps all laws are
  first coarsened (upward, ``losses.on_lattice``), to steps of less than 2^-16 of the window.
* Inversion: ``search.crossing`` returns the safe end, within 1e-9 of the value.

*Why not dp_accounting (0.6.0).* Its ``DensePLDPmf.self_compose`` raises the untilted transform to
the n-th power and adds nothing for its rounding. Measured on binary randomized response with
epsilon0 = 1/8, whose exact value is a binomial sum: 365 rounds at delta 1e-12 come out 1.8e-5
(relative) below the true epsilon, 100 rounds at 1e-14 3e-4 below it (truncating delta / 1000; with
its default truncation of 1e-15 1e-3 above), 365 rounds at 1e-16 5e-2 below it. Here the same cases
are above it, by 5e-10. It serves the tests as an independent check at 1e-8.

Rounds may be chosen adaptively, each within its own law. All rounds may concern the same devices,
each time with fresh randomness; memoized answers are refused (see ``compose_memoized``).

*Checked* against adaptive rounds by brute force, in exact fractions; against randomized response to
fifty digits, 365 rounds and deltas down to 1e-90 among them; against dp_accounting at 1e-6 to 1e-9
(tests/unit/accounting/composition/test_compose.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache, partial

from shoal.accounting.certificate import check_delta
from shoal.accounting.composition.basic import Composed, refuse_memoized
from shoal.accounting.composition.losses import (
    LARGEST_PURE,
    MARGIN,
    LossLaw,
    hockey,
    loss_law,
    pure_law,
)
from shoal.accounting.composition.tilted_sum import Convolution, Moments, Rounds, fitting
from shoal.accounting.numerics.search import crossing
from shoal.errors import Kind, ShoalError
from shoal.privacy import LocalPrivacy, epsilon0_upper

_UNIT = 2.0**-53
_MOST_ROUNDS = 1_000_000
# What one law may leave at infinity, relative to the delta it is built for: 365 rounds cost 0.15 %
# of delta, 0.01 % of epsilon. Curves add up to 1e-6 of their delta everywhere (``binary``); a tail
# below that would drag this floor out to epsilon0 as a finite loss.
_TAIL = 4e-6
# For a comparison value a thousandth will do.
_PAIR_STEPS = 512
_SHARES = tuple(2.0**-k for k in range(1, 8))

CurveOf = Callable[[LocalPrivacy, int, float], Callable[[float], float] | None]


def compose(rounds: Rounds, delta: float, *, memoized: bool = False) -> Composed:
    """The epsilon of all ``rounds`` (law, how many of them) together at the total ``delta`` in
    [1e-100, 1). Direction: UPPER.

    Adaptive choices allowed; the order does not matter. Never above the Renyi bound or the sum of
    the epsilon0's. Raises ShoalError CONFIG without rounds, for more than a million, for a bad
    delta, and for ``memoized`` answers, which do not compose.

    ``rounds``: laws with how many releases have each; equal objects are counted together. The
    epsilon returned is the safe end of a bracket 1e-9 wide, at most the sum of the laws' epsilon0
    and at most the Renyi bound, each of which is proven by itself.
    """
    if memoized:
        refuse_memoized()
    check_delta(delta)
    parts = _gathered(rounds)
    count = sum(n for _, n in parts)
    top = _pure(parts)
    moments = Moments(parts, delta)
    if moments.budget <= 0.0:
        return Composed(top, delta, count)
    top = min(top, moments.epsilon)
    if top <= 0.0:
        return Composed(0.0, delta, count)
    if math.isfinite(top):
        top = crossing(Convolution(fitting(parts, moments)).delta, delta, top)[1]
    return Composed(top, delta, count)


def composed_curve(rounds: Rounds, delta: float) -> Callable[[float], float]:
    """delta(epsilon) of all ``rounds`` together, for epsilon >= 0: what groups of devices start
    from. 0 from the sum of the epsilon0's on; inf where nothing is proven. Direction: UPPER.

    ``delta``: the value down to which it has to be tight. Raises like ``compose``.
    """
    parts = _gathered(rounds)
    top = _pure(parts)
    proven: Callable[[float], float]
    if len(parts) == 1 and parts[0][1] == 1:
        proven = partial(hockey, parts[0][0])
    else:
        moments = Moments(parts, check_delta(delta))
        if moments.budget <= 0.0 or not math.isfinite(moments.epsilon):
            return lambda epsilon: 0.0 if epsilon >= top else math.inf
        proven = Convolution(fitting(parts, moments)).delta
    return lambda epsilon: 0.0 if epsilon >= top else proven(epsilon)


def renyi(rounds: Rounds, delta: float) -> float:
    """The epsilon of all rounds by Renyi divergences of the laws, best order; infinity masses are
    taken off delta. Direction: UPPER.

    At most the sum of the epsilon0's, math.inf if nothing is proven. See the module's text for the
    theorem. Raises like ``compose``.
    """
    parts = _gathered(rounds)
    return min(_pure(parts), Moments(parts, check_delta(delta)).epsilon)


def basic(rounds: Rounds, delta: float) -> float:
    """The sum of the rounds' epsilons, each at delta / count, read off its law. Direction: UPPER;
    at most the sum of the epsilon0's.
    """
    parts = _gathered(rounds)
    count = sum(n for _, n in parts)
    each = math.nextafter(check_delta(delta) / count, 0.0)
    return min(_pure(parts), _dot((epsilon_of(law, each), n) for law, n in parts))


def advanced(rounds: Rounds, delta: float) -> float:
    """Advanced composition (Dwork, Rothblum, Vadhan, "Boosting and differential privacy", FOCS
    2010, Theorem III.3). Direction: UPPER.

    With each round (epsilon_i, delta_i) and delta = sum of delta_i + slack, the total is at most
    the sum of epsilon_i tanh(epsilon_i / 2) + sqrt(2 ln(1/slack) sum epsilon_i^2): the dominating
    loss is +-epsilon_i with that mean (Kairouz, Oh, Viswanath 2015, Theorem 3.5), then Hoeffding's
    inequality. The split of delta is the best of seven.
    """
    parts = _gathered(rounds)
    best = _pure(parts)
    for share in _SHARES:
        split = _split(parts, check_delta(delta), share)
        mean = _dot((epsilon * math.tanh(epsilon / 2.0), n) for epsilon, n in split)
        squares = _dot((epsilon * epsilon, n) for epsilon, n in split)
        slack = delta * share
        best = min(best, (mean + math.sqrt(-2.0 * math.log(slack) * squares)) * (1.0 + MARGIN))
    return best


def optimal(rounds: Rounds, delta: float) -> float:
    """The best that follows from the rounds' (epsilon_i, delta_i) alone. Direction: UPPER. The
    split of delta is the best of seven.

    (k - 2i) epsilon at 1 - (1 - delta)^k (1 - delta_i) with delta_i = sum over l < i of C(k, l)
    (e^((k-l) epsilon) - e^((k-2i+l) epsilon)) / (1 + e^epsilon)^k, for k equal rounds (Kairouz, Oh,
    Viswanath 2015, Theorem 3.3). It is the composition of the pairs of ``losses.pure_law``, which
    dominate any such round; computed as that, different rounds are no harder.
    """
    parts = _gathered(rounds)
    count = sum(n for _, n in parts)
    best = _pure(parts)
    for share in _SHARES:
        each = delta * (1.0 - share) / count
        split = _split(parts, check_delta(delta), share)
        if not all(math.isfinite(epsilon) for epsilon, _ in split):
            continue
        pairs = [(pure_law(epsilon, each, steps=_PAIR_STEPS), n) for epsilon, n in split]
        best = min(best, compose(pairs, delta).epsilon_upper)
    return best


def compare_composition(rounds: Rounds, delta: float) -> dict[str, float]:
    """Epsilon at the total ``delta`` by five ways, all upper bounds: pld, renyi, optimal, advanced,
    basic. Raises like ``compose``.
    """
    return {
        "pld": compose(rounds, delta).epsilon_upper,
        "renyi": renyi(rounds, delta),
        "optimal": optimal(rounds, delta),
        "advanced": advanced(rounds, delta),
        "basic": basic(rounds, delta),
    }


def epsilon_of(law: LossLaw, delta: float) -> float:
    """The epsilon of one round at ``delta``: the safe end of where the law's curve crosses it.
    math.inf if it never does.
    """
    top = min(float(law.epsilon0), math.inf)
    if law.infinity * (1.0 + MARGIN) <= delta:
        top = min(top, float(max(0, int(law.indices[-1])) * law.step))
    if top == 0.0 or not math.isfinite(top):
        return top
    return crossing(lambda epsilon: hockey(law, epsilon), delta, top)[1]


def compose_memoized(permanent_epsilon0: float, fresh: Rounds, delta: float) -> Composed:
    """All windows of answers that repeat one permanent report, each window adding fresh randomness
    on top. Direction: UPPER.

    ``permanent_epsilon0``: of the permanent report, finite, >= 0. ``fresh``: for each window the
    loss law of its fresh layer *between any two permanent reports* (whatever everybody else
    reports), shuffled or not. Two bounds hold, and the smaller is returned: all windows are a
    post-processing of the permanent report; and with V_b all windows' views given the permanent
    report b, the view of an answer x is the mixture of V_b over b, whose divergence is at most the
    largest between two V_b (joint convexity), which the fresh layers compose to. No more may be
    claimed: without a fresh layer (``fresh`` empty) the first alone, whatever each window was
    certified at. Raises ShoalError CONFIG for numbers out of range.
    """
    check_delta(delta)
    if not 0.0 <= permanent_epsilon0 < math.inf:
        raise ShoalError(
            Kind.CONFIG,
            "epsilon0 of the permanent report is a finite number of at least 0, got "
            f"{permanent_epsilon0}: give that of the law which is drawn once",
        )
    if not fresh:
        return Composed(permanent_epsilon0, delta, 1)
    layers = compose(fresh, delta)
    return Composed(min(permanent_epsilon0, layers.epsilon_upper), delta, layers.count)


def release_law(curve_of: CurveOf, privacy: LocalPrivacy, n_honest: int, delta: float) -> LossLaw:
    """The loss law of one release, cached by (curve_of, privacy, n_honest, power of ten not above
    ``delta``). Direction: UPPER.

    ``delta``: the total it will be composed to; a law built for another one is sound too, only less
    tight.
    """
    if not isinstance(curve_of, Hashable) or not isinstance(privacy, Hashable):
        raise ShoalError(
            Kind.INVALID,
            "curve_of and the law must be hashable: pass a function and a frozen dataclass",
        )
    return _release_law(
        curve_of, privacy, n_honest, max(1e-100, 10.0 ** math.floor(math.log10(check_delta(delta))))
    )


@lru_cache(maxsize=1024)
def _release_law(curve_of: CurveOf, privacy: LocalPrivacy, n_honest: int, delta: float) -> LossLaw:
    """``release_law``, by the power of ten. A law of epsilon0 alone where nothing is amplified, or
    where e^epsilon0 is beyond the floats. What lies beyond the tail, 4e-6 of delta, counts as
    infinite.
    """
    epsilon0 = epsilon0_upper(privacy)
    curve = (
        curve_of(privacy, n_honest, delta)
        if n_honest > 1 and 0.0 < epsilon0 < LARGEST_PURE
        else None
    )
    return pure_law(epsilon0) if curve is None else loss_law(curve, epsilon0, delta * _TAIL)


def _gathered(rounds: Rounds) -> list[tuple[LossLaw, int]]:
    """Equal laws (by identity) once, with their counts added."""
    counts: dict[LossLaw, int] = {}
    for law, n in rounds:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise ShoalError(
                Kind.CONFIG,
                f"a count of rounds is a whole number of at least 0, got {n}: give how often each "
                "law was used",
            )
        counts[law] = counts.get(law, 0) + n
    parts = [(law, n) for law, n in counts.items() if n]
    total = sum(n for _, n in parts)
    if not 0 < total <= _MOST_ROUNDS:
        raise ShoalError(
            Kind.CONFIG,
            f"composition is over 1 to {_MOST_ROUNDS} rounds, got {total}: give the releases to "
            "compose",
        )
    return parts


def _pure(parts: Rounds) -> float:
    """The sum of the epsilon0's, rounded up."""
    return _dot((law.epsilon0, n) for law, n in parts)


def _dot(parts: Iterable[tuple[float, int]]) -> float:
    """Sum of value * count over values >= 0, rounded up: each product and fsum's result err by at
    most half a unit.
    """
    total = math.fsum(value * n for value, n in parts)
    return total if total == 0.0 else total * (1.0 + 8.0 * _UNIT)


def _split(parts: Rounds, delta: float, share: float) -> list[tuple[float, int]]:
    """The rounds' epsilons when all but ``share`` of delta is divided evenly between them."""
    count = sum(n for _, n in parts)
    each = math.nextafter(delta * (1.0 - share) / count, 0.0)
    return [(epsilon_of(law, each), n) for law, n in parts]

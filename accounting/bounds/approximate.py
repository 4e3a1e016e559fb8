"""Shuffling approximately private reports: Gaussians, and any (epsilon0, delta0)-LDP randomizer.

**Statement.** Let D(epsilon) bound the local curve of the randomizer R (``shoal.approximate``). For
*every* E = e^a > 1 and q = e^-b < 1, n honest shuffled reports satisfy, at every epsilon with e =
e^epsilon,

    delta(epsilon) <= clones(epsilon; n, E, q, s) + (1 + e) eta,
    eta = D(a) / (E + 1) + (n - 1) q D(b),    s = min(1, D(0) (E+1)/(E-1)).

clones(...) is the divergence of the following pair of views: each of the n - 1 others shows, with
probability q, a symbol: 0 or 1 (s/2 each) or "neither" (1 - s); the victim shows "neither" with
probability 1 - s, else 0 rather than 1 with odds E : 1 or 1 : E. With s = 1 it is the pair of
``bounds.clones``. a and b are free: each choice is proven by itself, and the search below only
looks for good ones. D(0) is the total variation of two answers: a Gaussian of large sigma has a
long tail of ratios but a small D(0), and most of its reports show neither.

**Compared with** Feldman, McMillan, Talwar, "Hiding Among the Clones" (FOCS 2021, arXiv
2012.12803), Theorem 3.8, as it is cited (its text could not be read here): a = b = epsilon0, s = 1
and (1 + e) (1 + e^-epsilon0 / 2) n delta0 as the extra term. Ours is (1 + e) delta0 ((n - 1) / E +
1 / (E + 1)): smaller for every n, by a factor of about E. So theirs is not needed.

**Proof.** P = R(x) and Q = R(x') are the victim's two laws, M = (P + Q) / 2; densities with respect
to any common measure.

1. *The victim's pair* (Dwork and Roth 2014, Lemma 3.17, with two additions). There are laws P*, Q*
   with P* <= E Q*, Q* <= E P*, P* + Q* = P + Q, TV(P*, Q*) <= TV(P, Q), and TV(P, P*) = TV(Q, Q*)
   <= D(a) / (E + 1). On S = {P > E Q} replace (P, Q) by (E, 1) (P + Q) / (E + 1): P loses s1 =
   int_S (P - E Q) / (E + 1) <= D(a) / (E + 1) and Q gains as much. On {Q > E P} likewise: Q loses
   s2, P gains s2. If s1 > s2, P is short of s1 - s2 and Q has as much too much; then int (Q - P)
   over {P < Q} (as they now are) is at least 2 (s1 - s2), so one density r <= (Q - P) / 2 there
   with integral s1 - s2 can be added to P and taken from Q: the order P <= Q stays, so the ratios
   only shrink. Everywhere what one gains the other loses: the sum is P + Q, and |P - Q| never
   grows. P was lowered by s1 in all and raised by s1: TV = max(s1, s2).
2. *The others.* For any z every event has M(S) <= e^b R(z)(S) + D(b) (the mean of two such lines),
   so int (q M - R(z))_+ = q int (M - e^b R(z))_+ = k <= q D(b). Give R(z) this missing density and
   take the same mass k off R(z) - min(R(z), q M), whose mass is 1 - q + k >= k: the new law R*(z)
   contains q M = q (P* + Q*) / 2 exactly, and TV(R(z), R*(z)) = k.
3. *Three symbols.* Let v = TV(P*, Q*) > 0 and s* = v (E + 1)/(E - 1), at most 1 since |P* - Q*| <=
   (E - 1)/(E + 1) (P* + Q*). With Q0 = (P* - Q*)_+ / v, Q1 = (Q* - P*)_+ / v and (1 - s*) Z = M -
   s* (Q0 + Q1)/2, which is >= 0 by the same inequality, P* = s* (E Q0 + Q1)/(E + 1) + (1 - s*) Z
   and Q* = s* (Q0 + E Q1)/(E + 1) + (1 - s*) Z, and R*(z) >= q M. So the starred views arise from
   the symbols' counts by drawing each symbol's report from Q0, Q1, Z (and the unmarked ones from
   what is left of R*(z)): post-processing, as in the clones theorem. A larger s dominates: turn 0
   and 1 into "neither" at random.
4. *Back.* The reports are independent given the data: each true view is within TV eta = max(s1, s2)
   + (n - 1) k of its starred one, and P_view(S) - e Q_view(S) <= P*_view(S) - e Q*_view(S) + eta +
   e eta for every event S.

*Evaluation.* Given how many reports show a symbol, the victim stands at a random place among them;
as in ``bounds.blanket`` delta = E[(sum L)_+] / (q n) over Bin(n, q) symbols drawn from M, with
L = 2 (E - e)/(E + 1), 2 (1 - e E)/(E + 1) and 1 - e: a ``Walk``.

*Adaptive choices.* As in the pure theorem the data are shuffled first and the i-th randomizer may
depend on the first i - 1 reports; each must have the curve D. Steps 1 to 3 are done at each step
for each history, the total variation of a chain of kernels is at most the sum of the steps' largest
ones, and the victim's step occurs once: eta is the same. What is *not* covered: devices that run
different randomizers of their own. A clone of the victim's report has to come from somebody else
running the victim's randomizer.

**Many levels** instead of three symbols, where more than two ratios are known of D:
``bounds.levels``, with (n - 1) q D(b) as eta.

**Numbers.** All terms are positive; exponentials are rounded to the safe side by 1e-12
(``_ratio_above``), eta and s by 1e-12. The curves err upward (``curve``, ``lattice``). The search
is free: a bad guess costs tightness only.

**Checked**: every step of the proof as it is written, in exact fractions, for tables; the bound
against every dataset and every split at small n; Gaussians cut into cells, which is
post-processing, against every dataset (tests/unit/accounting/bounds/test_approximate.py). Lower
ends come from thresholds of one report, also post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from shoal.accounting.bounds.gaussian_cells import gaussian_table
from shoal.accounting.bounds.levels import Evidence, evidence, level_sum
from shoal.accounting.certificate import check_delta, check_n
from shoal.accounting.numerics.cells import dataset_sums, named_sums
from shoal.accounting.numerics.curve import DEFAULT_EFFORT, LARGEST_N, Curve, Direction, Effort
from shoal.accounting.numerics.lattice import LatticeCurve
from shoal.accounting.numerics.multinomial import sum_curve
from shoal.accounting.numerics.random_walk import Walk
from shoal.accounting.numerics.search import crossing
from shoal.approximate import ApproximateLaw, GaussianLaw, LocalCurve, lower_phi, upper_phi
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, KaryLaw

# Methods, as they appear in certificates.
LOCAL = "local"
APPROXIMATE_CLONES = "approximate-clones"

# No exponent above this is tried, as in the accountant.
_LARGEST_EXPONENT = 40.0
# Above this no local epsilon is looked for.
_LARGEST_LOCAL = 1e5
_SAFE = 1e-12
# Smallest a and b: E = 1 would be a walk without slope, q = 1 one in which nobody is left over.
_SMALLEST_EXPONENT = 1e-6
# Shares of delta spent on the victim's and on the others' extra term.
_FIRST_SHARES = (0.1, 0.1)
_SHARES = ((0.01, 0.03), (0.01, 0.12), (0.06, 0.25), (0.25, 0.06))
# The same for many levels, where the victim costs nothing extra; and what may lie beyond the last
# level.
_LEVEL_SHARE = 0.3
_LAST_LEVEL = 0.002
_HALF = Fraction(1, 2)
_QUICK = Effort(cells=100_000, third_cells=50_000)
_WEIGHTS = 1 << 62
# Thresholds of the Gaussian's two-cell view, in standard deviations from the others' value; the
# best few are evaluated.
_THRESHOLDS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_MOST_VIEWS = 2


class Choice(Protocol):
    """One choice of exponents: a curve without the extra term, and ``eta``, rounded up."""

    @property
    def eta(self) -> float:
        """How far the true views are from the starred ones, in total variation; ``added(eta,
        epsilon)`` of delta pays for it. At least 0, rounded up.
        """
        ...

    def curve(self, n: int, delta: float, top: float, effort: Effort) -> Callable[[float], float]:
        """The divergence of the starred views for epsilon in [0, top]. Direction: upper bound."""
        ...


def added(eta: float, epsilon: float) -> float:
    """(1 + e^epsilon) eta, rounded up."""
    return (1.0 + math.exp(epsilon)) * eta * (1.0 + _SAFE)


@dataclass(frozen=True, slots=True)
class Split:
    """Three symbols: E, q and s of the module's text, and what they cost."""

    pair_ratio: Fraction
    clone: Fraction
    informative: Fraction
    eta: float

    def walk(self, n: int) -> Walk:
        """The walk of ratio E, clone probability q and share s of informative symbols; R counts the
        symbols "neither".
        """
        q, s = self.clone, self.informative
        slope = 2 * (self.pair_ratio - 1) / (self.pair_ratio + 1) / q
        third = q * (1 - s) / (1 - q * s) if s < 1 else Fraction(0)
        per_third = 1 / q if s < 1 else Fraction(0)
        return Walk(
            n=n,
            pair=q * s,
            rho=_HALF,
            slope=2 * slope,
            slope_e=slope,
            third=third,
            per_pair=1 / q,
            per_third=per_third,
        )

    def curve(self, n: int, delta: float, top: float, effort: Effort) -> Callable[[float], float]:
        """See ``Choice``. One walk, evaluated in full with ``effort``."""
        return Curve(self.walk(n), Direction.UPPER, delta, top, effort).delta


@dataclass(frozen=True, slots=True)
class Levels:
    """Many levels of evidence (``bounds.levels``) instead of three symbols; nothing but the
    others' term is lost.
    """

    law: Evidence
    clone: Fraction
    eta: float

    def curve(self, n: int, delta: float, top: float, effort: Effort) -> Callable[[float], float]:
        """See ``Choice``. A contour integral over the levels; ``effort`` changes nothing of it."""
        return LatticeCurve(level_sum(self.law, self.clone, n), Direction.UPPER, delta, top).delta


def split_at(local: LocalCurve, n: int, pair_epsilon: float, clone_epsilon: float) -> Split:
    """The split with a = ``pair_epsilon`` and b = ``clone_epsilon`` (both in [0, 40]) for ``n``
    honest reports.
    """
    pair_ratio = _ratio_above(max(pair_epsilon, _SMALLEST_EXPONENT))
    clone = 1 / _ratio_above(max(clone_epsilon, _SMALLEST_EXPONENT))
    informative = min(
        Fraction(1),
        Fraction(local.delta_at(0.0) * (1.0 + _SAFE)) * (pair_ratio + 1) / (pair_ratio - 1),
    )
    # D falls with epsilon and the ratios are rounded up: D at the smaller exponent covers them.
    victim = local.delta_at(pair_epsilon) / (1.0 + math.exp(pair_epsilon))
    return Split(
        pair_ratio, clone, informative, (victim + _others(local, n, clone_epsilon)) * (1.0 + _SAFE)
    )


def local_epsilon(local: LocalCurve, delta: float) -> float:
    """The epsilon of one report alone at ``delta``: what shuffling can only improve. Direction:
    upper bound.

    Raises ShoalError CONFIG if no epsilon up to 1e5 reaches ``delta`` (for an ``ApproximateLaw``,
    if delta is below delta0), INVALID if the local curve is NaN or negative.
    """
    check_delta(delta)
    if isinstance(local, ApproximateLaw) and delta >= local.delta0:
        return crossing(local.delta_at, delta, local.epsilon0)[1]

    def checked(epsilon: float) -> float:
        # A NaN is neither above nor below delta: it would pass for a proof.
        if not (value := local.delta_at(epsilon)) >= 0.0:
            raise ShoalError(
                Kind.INVALID,
                f"a local curve gave {value} at epsilon {epsilon:g}: it has to lie in [0, 1]",
            )
        return value

    top = 1.0
    while checked(top) > delta:
        top *= 2.0
        if top > _LARGEST_LOCAL:
            raise ShoalError(
                Kind.CONFIG,
                f"delta {delta:g} is below what one report gives away at any epsilon "
                f"({local.delta_at(_LARGEST_LOCAL):g}): "
                "give a larger delta or a smaller delta0",
            )
    return crossing(checked, delta, top)[1]


def approximate_bound(
    local: LocalCurve, n_honest: int, delta: float, effort: Effort = DEFAULT_EFFORT
) -> tuple[float, str]:
    """(epsilon, method) proven for ``n_honest`` mutually hiding reports at ``delta`` in [1e-100,
    1). Direction: upper bound.

    Never above ``local_epsilon``. Some choices are tried, three symbols coarsely first and with
    ``effort`` at the end. Raises ShoalError CONFIG for bad numbers and where the local epsilon does
    not exist.
    """
    epsilon, choice = _best(local, check_n(n_honest), delta)
    if choice is None:
        return epsilon, LOCAL
    if isinstance(choice, Split):
        epsilon = min(epsilon, _solve(choice, min(n_honest, LARGEST_N), delta, epsilon, effort))
    return epsilon, APPROXIMATE_CLONES


def approximate_curve(
    local: LocalCurve, n_honest: int, delta: float, effort: Effort = DEFAULT_EFFORT
) -> Callable[[float], float]:
    """delta(epsilon) of the batch for composition: epsilon >= 0 -> [0, 1]. Direction: upper bound,
    at every epsilon.

    Tuned for ``delta``: elsewhere it is sound, only less tight. The local curve caps it.
    """
    _, choice = _best(local, check_n(n_honest), delta)
    if choice is None:
        return local.delta_at
    top, eta = min(local_epsilon(local, delta), _LARGEST_EXPONENT), choice.eta
    curve = choice.curve(min(n_honest, LARGEST_N), delta, top, effort)

    def bound(at: float) -> float:
        # The true curve falls with epsilon: beyond the range of the table its last value still
        # bounds it.
        inside = min(at, top)
        return min(1.0, local.delta_at(at), curve(inside) + added(eta, inside))

    return bound


def _best(local: LocalCurve, n_honest: int, delta: float) -> tuple[float, Choice | None]:
    """The smallest epsilon found (coarsely for a ``Split``), and its choice; None where nothing
    beats the local guarantee.
    """
    best = local_epsilon(local, delta)
    chosen: Choice | None = None
    if n_honest <= 1 or best <= 0.0:
        return best, None
    n = min(n_honest, LARGEST_N)

    def attempt(candidates: Iterable[Choice]) -> None:
        nonlocal best, chosen
        for candidate in candidates:
            epsilon = _solve(candidate, n, delta, best, _QUICK)
            if epsilon < best:
                best, chosen = epsilon, candidate

    # The extra term holds 1 + e^epsilon, and epsilon is what is sought: begin with both ends of its
    # range.
    for guess in (0.0, best):
        attempt(_splits(local, n, delta, _FIRST_SHARES, guess))
    for shares in _SHARES:
        attempt(_splits(local, n, delta, shares, best))
    if not isinstance(local, ApproximateLaw):
        # Of a step law nothing is known but the two ratios that three symbols have already. Twice:
        # the first guess of epsilon, from three symbols, is too large by a factor of 2 or so.
        for _ in range(2):
            attempt(_levels(local, n, delta, _LEVEL_SHARE, best))
    return best, chosen


def _splits(
    local: LocalCurve, n: int, delta: float, shares: tuple[float, float], guess: float
) -> Iterator[Split]:
    """The smallest exponents whose extra terms stay within their shares of ``delta``, if epsilon is
    about ``guess``.
    """
    a = _smallest(
        lambda at: local.delta_at(at) / (1.0 + math.exp(at)), _budget(delta, shares[0], guess)
    )
    b = _smallest(lambda at: _others(local, n, at), _budget(delta, shares[1], guess))
    if a is not None and b is not None:
        yield split_at(local, n, a, b)


def _levels(
    local: LocalCurve, n: int, delta: float, share: float, guess: float
) -> Iterator[Levels]:
    """The same for many levels: D beyond the last one goes to certain evidence, which costs that
    much of delta, once.
    """
    reach = _smallest(local.delta_at, delta * _LAST_LEVEL)
    b = _smallest(lambda at: _others(local, n, at), _budget(delta, share, guess))
    if reach is not None and b is not None:
        law = evidence(local, max(reach, _SMALLEST_EXPONENT))
        yield Levels(
            law, 1 / _ratio_above(max(b, _SMALLEST_EXPONENT)), _others(local, n, b) * (1.0 + _SAFE)
        )


def _others(local: LocalCurve, n: int, b: float) -> float:
    """(n - 1) q D(b), nearly: the caller rounds it up."""
    return (n - 1) * math.exp(-b) * local.delta_at(b)


def _budget(delta: float, share: float, guess: float) -> float:
    """What eta may be if (1 + e^guess) eta is to be ``share`` of ``delta``; only a guide."""
    return math.exp(max(-690.0, math.log(delta * share) - guess - math.log1p(math.exp(-guess))))


def _smallest(cost: Callable[[float], float], budget: float) -> float | None:
    """The smallest exponent with cost <= budget, or None if none up to 40 has. ``cost`` falls."""
    if cost(_LARGEST_EXPONENT) > budget:
        return None
    return crossing(lambda at: min(1.0, cost(at)), min(budget, 0.5), _LARGEST_EXPONENT)[1]


def _solve(choice: Choice, n: int, delta: float, top: float, effort: Effort) -> float:
    """The smallest epsilon in [0, top] proven by this choice; ``top`` itself (proven already) where
    it proves nothing below.
    """
    # The extra term grows with epsilon: look where it takes at most half of delta.
    eta = choice.eta
    room = 0.5 * delta / eta - 1.0 if eta > 0.0 else math.inf
    if room <= 1.0:
        return top
    end = min(top, math.log(room), _LARGEST_EXPONENT)
    curve = choice.curve(n, delta, end, effort)

    def total(at: float) -> float:
        return curve(at) + added(eta, at)

    return crossing(total, delta, end)[1] if total(end) <= delta else top


def _ratio_above(exponent: float) -> Fraction:
    """A fraction of at least e^exponent, within 2e-12 of it."""
    return Fraction(math.exp(exponent) * (1.0 + _SAFE)) if exponent > 0.0 else Fraction(1)


def approximate_lower(local: LocalCurve, n_honest: int, delta: float) -> float:
    """An epsilon that is refuted at ``delta`` for ``n_honest`` reports: no accountant can certify
    less. Direction: lower bound.

    * ``ApproximateLaw``: a member of the class gives its input away with probability delta0 and is
      k-ary randomized response of the same ratio else; the others hold values with the same
      response but another giveaway. The victim's giveaway is seen for certain, and without it the n
      responses are at least as exposed as if nobody else's were missing: delta(epsilon) >= delta0 +
      (1 - delta0) delta_response(epsilon).
    * ``GaussianLaw``: each report is replaced by the cell in which it lies (``gaussian_cells``), or
      by whether it lies above a threshold, which is post-processing; the others all hold one of the
      victim's two values.
    * Any other curve: 0, for nothing is known of the randomizer behind it.

    0 beyond 1e8 reports. Raises ShoalError CONFIG for bad numbers and where the local epsilon does
    not exist.
    """
    top = min(local_epsilon(local, delta), _LARGEST_EXPONENT)
    if check_n(n_honest) > LARGEST_N or top <= 0.0:
        return 0.0
    if isinstance(local, GaussianLaw):
        cut = gaussian_table(local)
        datasets = list(named_sums(cut, n_honest)) if cut is not None else []
        datasets += [each for law in _threshold_laws(local) for each in dataset_sums(law, n_honest)]
        target = delta
    elif isinstance(local, ApproximateLaw):
        ratio = min(local.ratio, Fraction(1 << 59))
        members = (
            [KaryLaw(k=k, same=ratio.numerator, other=ratio.denominator) for k in (2, 3)]
            if ratio > 1
            else []
        )
        datasets = [each for law in members for each in dataset_sums(law, n_honest)]
        target = max(
            (delta - local.delta0) / (1.0 - local.delta0) * (1.0 + _SAFE), delta * 1e-12, 1e-100
        )
    else:
        return 0.0
    best = 0.0
    for dataset in datasets:
        curve = sum_curve(dataset, Direction.LOWER, target, top)
        if curve.delta(best) > target:
            best = crossing(curve.delta, target, top)[0]
    return best


def _threshold_laws(law: GaussianLaw) -> tuple[FiniteLaw, ...]:
    """Binary tables that are post-processings of the Gaussian at 0 and at the largest distance m
    (in standard deviations).

    For the threshold t the true pair is (P(y > t | 0), P(y > t | m)). Rounding the first up and the
    second down moves the pair towards (1, 1) and the diagonal: still inside the triangle of what
    the threshold's bit, further randomized, can show.
    """
    m = math.nextafter(law.sensitivity / law.sigma, 0.0)
    scored: list[tuple[float, FiniteLaw]] = []
    for t in {*_THRESHOLDS, m / 2.0}:
        near = math.ceil(Fraction(upper_phi(-t)) * _WEIGHTS)
        far = math.floor(Fraction(lower_phi(m - t, m * _SAFE)) * _WEIGHTS)
        if not 0 < near < far < _WEIGHTS:
            continue
        # What one report tells about the victim's pair if the others are at 0.
        score = (far - near) ** 2 / (near * (_WEIGHTS - near))
        scored.append((score, FiniteLaw(((_WEIGHTS - near, near), (_WEIGHTS - far, far)))))
    scored.sort(key=lambda item: -item[0])
    return tuple(table for _, table in scored[:_MOST_VIEWS])

"""The victim takes the place of one of the others, whose own report goes into a small crowd.

A blanket gives away of every device whether its report looks at its input. Here that is given away
of a few devices only, and for large n the bound meets the lower end of a dataset of equal answers.

*Setting.* R(. | z) are the laws of one report, w_y > 0 is at most R(y | z) for every z, gamma the
sum of w. The n - 1 others answer anything. Any s of them are the *crowd*, the other N = n - 1 - s
>= 1 the *places*. Of the crowd a report comes from w / gamma with probability gamma, else from the
rest of its law (as in ``cells``).

*Step 1: a finer view.* Draw one place I of N uniformly. Show the adversary the reports of all
places but I, each with its place; at place I the victim's report; the crowd's reports that are not
from w; and, mixed, its m reports from w together with device I's own. The multiset of all these is
the real view, so this one bounds it from above. m ~ Bin(s, gamma) looks at no answer. Given m, the
density against independent y_i ~ R(. | z_i) and b_1 .. b_(m+1) ~ w / gamma is

    (1/N) sum_i W_i R(y_i | x) / R(y_i | z_i),   W_i = 1/(m+1) sum_j gamma R(b_j | z_i) / w(b_j).

So with L_i = (R(y_i | x) - e R(y_i | x')) / R(y_i | z_i), for every ordered pair,

    delta(epsilon) <= E[(W_1 L_1 + ... + W_N L_N)_+] / N.

*Step 2: simple weights.* Given m this is a convex function of the vector (W_1 .. W_N). Each term of
W_i has the mean 1 and lies in [low, high], the extremes of gamma R / w over all outputs and inputs.
Let coins that are independent given all b_j, with the right means, choose low or high in its place:
Jensen's inequality, for all i at once. Every W_i by itself then has the law of

    V = low + (high - low) B / (m + 1),   B ~ Bin(m + 1, (1 - low) / (high - low)).

By the same inequality a smaller m may be taken: the mean of all terms is the expected mean of the
first ones, given the set of all.

*Step 3: one answer at a time.* Let phi_z(u) = E[exp(u L(z))], u = t + i omega, for any t > 0. Given
the weights, the L_i are independent, and

    E[(sum_i W_i L_i)_+] = 1/(2 pi) int prod_i phi_i(u W_i) / u^2 d omega
                        <= 1/N sum_i F_i(W_i),  F_z(v) = 1/(2 pi) int |phi_z(u v)|^N / |u|^2 d omega

(the geometric mean is at most the arithmetic one). Each term has one weight. Every W_i may first be
moved to its neighbours in a grid, its mean kept (Jensen). So F_i counts at the points of the grid
and is replaced by its chords between them, which lie below a convex H_i; E[H_i(W_i)] <= E[H_i(V)]:

    delta(epsilon) <= max over answers z of E[H_z(V)] / N.

*A cap.* F grows like exp(v^2), and rare crowds would count for too much. Where some answer's weight
is above c, the sum is at most sum_i W_i (each L has E[L_+] <= 1), hence the largest weight on
average. That costs E[max W_z; max W_z > c] <= K max_z E[W_z; W_z > c], K different answers, and
w 1(w > c) <= c exp(theta (w - c)) for theta >= 1/c. Elsewhere all weights are at most c, so that F
is wanted up to c, and H is straight beyond it.

At a saddle point t hardly anything oscillates, and the derivative in V vanishes: modulus, average
and crowd each cost second order. Any s, t, grid and c >= 1 are sound.

*Which laws.** Tables of few inputs: all pairs of ``worst_rows`` (the bound of step 1 is jointly
convex in the victim's two laws) with all z. Symmetric laws that are ``alike``: z a third value, x
or x'.

**Direction.** Upper bounds. **Checked**: step 1 against every dataset in exact rationals, steps 2
and 3 against sums written out, the whole against lower ends of real datasets
(tests/unit/accounting/bounds/test_swap.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import TypeAlias

from shoal.accounting.bounds.many_pairs import ManyPairs, many_pairs
from shoal.accounting.numerics.binomial import Floats, pmf
from shoal.accounting.numerics.cells import worst_rows
from shoal.accounting.numerics.modulus import WeightedSums, most
from shoal.arrays import np
from shoal.privacy import FiniteLaw, SymmetricLaw

Triples: TypeAlias = "tuple[tuple[int, int, int], ...]"

SWAP = "swap"
# Of a table: most different rows, most outputs, and most triples times outputs. A certificate is
# asked for by devices and before every release: this one takes up to some 5 s of one core.
_MOST_ROWS, _MOST_OUTPUTS, _MOST_WORK = 64, 512, 550_000
# The law of V: points of its grid, and how far they reach, in standard deviations.
_POINTS, _BELOW, _ABOVE = 48, 9.0, 13.0
# Crowds are tried of these sizes, against the one that balances its costs; and points t, against
# the saddle point of equal weights. Of laws with little work all of them, of others the first.
_CROWDS, _TILTS = (1.0, 0.5, 2.0), (0.9, 0.85, 1.0)
_LITTLE_WORK = 5_000
# Where between the ends known so far crowds are compared: the first place where one proves delta.
_RUNGS = (0.05, 0.2, 0.5, 1.0)
# The share of delta that a cap may cost.
_BEYOND = 1e-3
# The share of delta at which crowds that prove it are compared.
_GUIDE = 1e-3
# The bracket of epsilon is closed to this share of it, with little work and with much.
_FINE, _COARSE = 2e-4, 1e-3
_MOST_STEPS = 24
_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True)
class Swap:
    """One law. ``rows``: probabilities, float64[inputs, outputs]; ``triples``: (x, x', z) of its
    rows that have to be looked at; ``pairs``: those of a table's worst rows, with the blanket's
    sums. ``gamma``, ``low`` and ``high`` as in the module's text: low rounded down, high up.
    """

    rows: Floats = field(repr=False)
    triples: Triples = field(repr=False)
    pairs: ManyPairs | None = field(repr=False)
    gamma: Fraction
    low: float
    high: float

    def bound(self, n: int, delta: float, low: float, ceiling: float) -> float:
        """An epsilon proven at ``delta`` for ``n`` >= 2 reports: in (``low``, ``ceiling``), within
        1e-3 of the smallest such; or ``ceiling``, which is proven otherwise.
        """
        triples = self._left(n, delta, low)
        crowds, high = list(self._crowds(n, delta)), math.inf
        for rung in _RUNGS if low < ceiling else ():
            high = low + rung * (ceiling - low)
            proving = [one for one in crowds if self.delta(triples, one, delta, high) <= delta]
            if proving:
                break
        else:
            return ceiling
        best = min(proving, key=lambda one: self.delta(triples, one, _GUIDE * delta, high))
        for _ in range(_MOST_STEPS):
            if high - low <= (_FINE if self._thorough else _COARSE) * high:
                break
            middle = (low + high) / 2.0
            proven = self.delta(triples, best, delta, middle) <= delta
            low, high = (low, middle) if proven else (middle, high)
        return min(high, ceiling)

    def _left(self, n: int, delta: float, epsilon: float) -> Triples:
        """The triples whose pairs the blanket does not prove at ``epsilon``, and so at every larger
        one.
        """
        if self.pairs is None:
            return self.triples
        first, second = self.pairs.near(n, delta, epsilon)
        near = set(zip(first.tolist(), second.tolist(), strict=True))
        return tuple(each for each in self.triples if each[:2] in near)

    @property
    def _thorough(self) -> bool:
        return bool(len(self.triples) * self.rows.shape[1] <= _LITTLE_WORK)

    def _crowds(self, n: int, delta: float) -> Iterator[SwapCrowd]:
        """Crowds worth trying: s devices cost s / n of n, and their weights' variance."""
        spread = (1.0 - self.low) * (self.high - 1.0)
        middle = math.sqrt(n * spread / float(self.gamma))
        crowds, tilts = (_CROWDS, _TILTS) if self._thorough else (_CROWDS[:1], _TILTS[:1])
        sizes = {max(1, round(middle * factor)) for factor in crowds}
        for size in sorted(size for size in sizes if 2 * size < n):
            weights = crowd_weights(size, self.gamma, self.low, self.high)
            places = n - 1 - size
            most_answers = places if self.pairs is None else min(places, len(self.rows))
            below, beyond = cap(*weights, _BEYOND * delta / most_answers)
            for tilt in tilts:
                yield SwapCrowd(places, weights, below, most_answers * beyond, tilt)

    def delta(self, triples: Triples, crowd: SwapCrowd, delta: float, epsilon: float) -> float:
        """The divergence at ``epsilon`` >= 0 of some of the triples. Direction: upper bound; below
        ``delta`` it may be delta, and where it is above, any number above.
        """
        if not triples:
            return delta
        e = math.exp(epsilon)
        x, other, z = (np.array(column) for column in zip(*triples, strict=True))
        masses = self.rows[z]
        values = (self.rows[x] - e * self.rows[other]) / masses
        # All roundings so far, of shares, e, difference and quotient.
        values += 8.0 * _UNIT * (self.rows[x] + e * self.rows[other]) / masses
        worst = int((values * values * masses).sum(axis=1).argmax())
        t = crowd.tilt * _saddle(values[worst], masses[worst], crowd.places)
        weights, chances = crowd.law
        question = WeightedSums(values, masses, t, crowd.places, weights, chances, crowd.below)
        value = most(question, delta - crowd.beyond)
        return delta if value <= delta - crowd.beyond else value + crowd.beyond


@dataclass(frozen=True, slots=True)
class SwapCrowd:
    """``places`` = N; V is one of the points ``law``[0] with probabilities ``law``[1], rounded up.
    The cap is the last of the first ``below`` points, ``beyond`` what it costs. ``tilt`` times the
    saddle point is where the integral is taken.
    """

    places: int
    law: tuple[Floats, Floats]
    below: int
    beyond: float
    tilt: float


@lru_cache(maxsize=16)  # one law is asked at several epsilons in a row
def crowd_weights(size: int, gamma: Fraction, low: float, high: float) -> tuple[Floats, Floats]:
    """(points, chances) of V for a crowd of ``size`` devices, moved to a grid. Chances err upward:
    their sum is at least 1.
    """
    share, rest = float(gamma), float(1 - gamma)
    spread = math.sqrt(size * share * rest)
    step = max(1, round(spread / 8.0))
    edges = np.arange(0, size + 1, step)
    sizes = np.arange(size + 1)
    chance = pmf(sizes, size, share, rest) if rest > 0.0 else 1.0 * (sizes == size)
    blocks = np.add.reduceat(chance, edges)
    up = (1.0 - low) / (high - low)
    grid = _grid(low, high, math.sqrt(up * (1.0 - up) / max(1.0, size * share)) * (high - low))
    chances = np.zeros(len(grid))
    for m, block in zip(edges.tolist(), blocks.tolist(), strict=True):
        if block < 1e-290:
            chances[-1] += block + 1e-290
            continue
        count = np.arange(m + 2)
        points = np.clip(low + (high - low) * (count / (m + 1)), low, high)
        mass = block * pmf(count, m + 1, up, 1.0 - up)
        at = np.clip(np.searchsorted(grid, points, side="right") - 1, 0, len(grid) - 2)
        gap = grid[at + 1] - grid[at]
        right = (points - grid[at]) / gap
        slack = 8.0 * _UNIT * high / gap
        chances += np.bincount(at, mass * (1.0 - right + slack), len(grid))
        chances += np.bincount(at + 1, mass * (right + slack), len(grid))
    # No point is left out, also where a mass is below the smallest float: weights lie between them.
    return grid, np.maximum(chances, 1e-290) * (1.0 + 1e-9)


def cap(points: Floats, chances: Floats, delta: float) -> tuple[int, float]:
    """(how many points are at most c, a bound on E[W; W > c]): the smallest c for which it is at
    most ``delta``, or the last point, beyond which there is nothing.
    """
    caps = points[(points > 1.0) & (points < points[-1])]
    if not len(caps):
        return len(points), 0.0
    thetas = np.geomspace(1.0, 1e5, 60)[:, None]
    with np.errstate(over="ignore", divide="ignore"):
        moments = np.exp(thetas * (points - 1.0)) @ chances
        bounds = caps * np.exp(np.log(moments)[:, None] - thetas * (caps - 1.0))
    least = bounds.min(axis=0) * (1.0 + 1e-9)
    enough = np.flatnonzero(least <= delta)
    if not len(enough):
        return len(points), 0.0
    return int(np.searchsorted(points, caps[enough[0]])) + 1, float(least[enough[0]])


def _grid(low: float, high: float, deviation: float) -> Floats:
    """Points from ``low`` to ``high``: evenly around 1, then ever farther apart."""
    even = np.linspace(1.0 - _BELOW * deviation, 1.0 + _ABOVE * deviation, _POINTS)
    far = 1.0 + _ABOVE * deviation * 1.3 ** np.arange(1.0, 40.0)
    inner = np.concatenate([even, far])
    inner = inner[(inner > low + 0.01 * (1.0 - low)) & (inner < high - 0.01 * (high - 1.0))]
    return np.concatenate([[low], inner, [high]])


def _saddle(values: Floats, masses: Floats, places: int) -> float:
    """About the t > 0 with N E[L exp(t L)] / E[exp(t L)] = 2 / t; any number above 0 is sound."""
    highest = float(values.max())
    if highest <= 0.0:  # then the sum is never positive
        return 1.0 / places

    def score(t: float) -> float:
        weights = masses * np.exp(t * (values - highest))
        return places * t * float(weights @ values) / float(weights.sum()) - 2.0

    low, high = 1.0 / (places * highest), 2.0 / (places * highest)
    while score(high) < 0.0 and high * highest < 600.0:
        low, high = high, 2.0 * high
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if score(middle) < 0.0 else (low, middle)
    return high


@lru_cache(maxsize=8)
def swap(law: FiniteLaw | SymmetricLaw) -> Swap | None:
    """What the bound needs of a law; None where it does not apply, or would take too long."""
    pairs = None
    if isinstance(law, SymmetricLaw):
        if not law.alike:
            return None
        least = law.least
        rows = [law.one, law.two, *([] if law.third is None else [law.third])]
        triples = [(0, 1, z) for z in range(len(rows))]
    else:
        least = tuple(min(column) for column in zip(*law.rows, strict=True))
        extreme = worst_rows(law)  # first, as ``many_pairs`` numbers them
        rows = list(dict.fromkeys([*extreme, *law.rows]))
        if len(rows) > _MOST_ROWS or len(least) > _MOST_OUTPUTS:
            return None
        pairs = many_pairs(law)
        triples = [
            (*pair, z) for pair in permutations(range(len(extreme)), 2) for z in range(len(rows))
        ]
        if len(triples) * len(least) > _MOST_WORK:
            return None
    total, gamma = law.total, Fraction(sum(least), law.total)
    ratios = [Fraction(a, w) * gamma for row in rows for a, w in zip(row, least, strict=True)]
    low, high = min(ratios), max(ratios)
    if low >= 1 or high <= 1:  # no output tells any answer from another
        return None
    shares = np.array([[a / total for a in row] for row in rows])
    return Swap(
        shares,
        tuple(triples),
        pairs,
        gamma,
        float(low) * (1.0 - 4.0 * _UNIT),
        float(high) * (1.0 + 4.0 * _UNIT),
    )

"""How much more than a sum the mixture of additive shares tells: an upper bound of a statistical
distance.

Each of n devices splits a number y_i modulo q = 2^bits into M messages: M - 1 uniform ones, and one
that makes their sum y_i. Whoever sees all n M messages in random order learns the sum of all y_i.
Anything else is little: the idea of Ishai, Kushilevitz, Ostrovsky and Sahai, "Cryptography from
anonymity", FOCS 2006; that so few messages do is due to Balle, Bell, Gascon and Nissim, "Private
summation in the multi-message shuffle model", CCS 2020, and to Ghazi, Manurangsi, Pagh and
Velingker, "Private aggregation from fewer anonymous messages", EUROCRYPT 2020. The bound below is
derived here from the ground, and computed rather than rounded to a closed form: a message or so
fewer than the published m = ceil((2 sigma + log2 q) / (log2 n - log2 e) + 2) asks for.

**Claim.** Let V be the view for given y_1, ..., y_n. There is a law Sim(s), of the sum s alone,
with total variation TV(V, Sim(sum y)) <= A for *every* y, where with m = M - 1

    A = sqrt(G - 1) / 2,      G = E[q^(C - 1)],

and C is the number of connected components of a random graph: n vertices, each with m tails and m
heads, the n m tails joined to the n m heads by a uniform bijection.

**Proof.** *1. From all y to uniform ones.* Tell more than V: of every device one of its M messages,
r_i, uniform and independent, with its name; of the other m messages of all, W, the mixture. W is
the view of the numbers y_i - r_i split into m messages each, and these numbers are uniform and
independent whatever y is. Let U_t be the average of such a W over all numbers whose sum is t. Take
Sim(s) as: r uniform, then U_(s - sum r). Then TV((r, W), (r, U)) is the mean over uniform numbers z
of TV(W given z, U_(sum z)). V is a function of (r, W), which only lowers it.

*2. Both as laws of pairs.* That mean is the distance of (z, W) from (z', W), z' uniform among the
numbers with the sum that W has: for both W is one law, uniform over (Z_q)^(n m) when its order is
uniform. Given W = w, z is the vector of the sums of the groups of a uniform partition of w into n
named groups of m: p(z | w). z' has probability q^-(n - 1) on the vectors of the right sum. By
Cauchy-Schwarz, TV given w <= sqrt(q^(n - 1) sum_z p(z | w)^2 - 1) / 2, and by Jensen the mean over
w is at most sqrt(q^(n - 1) E[sum_z p(z | W)^2] - 1) / 2.

*3. A count of circulations.* sum_z p(z | w)^2 is the chance that two independent uniform partitions
have the same sums on w. Fix one; the other is a uniform bijection of the n m places to n groups of
m. Place j is an edge from its group in the first to its group in the second: the sums agree if and
only if w is a circulation of that graph, at every vertex as much in as out. Over any finite abelian
group there are |group|^(edges - vertices + components) circulations, of |group|^edges vectors. So
the chance is E[q^(C - n)], and q^(n - 1) times it G. QED

**G.** The vertices S, k of them, are one component or more if and only if the m k tails of S are
joined to its heads: with probability 1 / binom(n m, k m). Of the rest the graph is again uniform.
So with the component of vertex 1 of size k,

    G_n <= 1 + q sum over k = 1..n-1 of binom(n - 1, k - 1) / binom(n m, k m) G_(n - k),

G_1 = 1 (a component of size k is connected with probability 1 at most). Up to n = 2 J these are
summed. Let w_n(j) = binom(n, j) / binom(n m, j m): it falls with j up to (n - 1) / 2, is symmetric,
and falls with n, as does n w_n(J). If n > 2 J, and G_j <= 2 for all j from J to n - 1, then G_n - 1
is at most

    q (sum_{j < J} w_n(j) G_j + 2 n w_n(J) + 2 sum_{k < J} (k / n) w_n(k)),

which falls with n. So if it is at most 1 at n = 2 J + 1, and G_j <= 2 from J to 2 J, then by
induction G_n <= 2 from there on, and it bounds G_n - 1 for every n > 2 J. The largest term is that
of one vertex alone, q n / binom(n m, m).

**Fewer devices than n** in the batch are not covered; more are: what they send is independent of
the rest, and adding it is post-processing.

*Checked* against all bijections, and the distance against all views, at small sizes, in fractions
(tests/unit/accounting/several_messages/test_splitting.py).
"""

from __future__ import annotations

import math
from functools import lru_cache

from shoal.accounting.certificate import check_n
from shoal.accounting.numerics.binomial import Floats
from shoal.arrays import np
from shoal.errors import Kind, ShoalError

LEAST_MESSAGES = 3
_LEAST_HALF = 6  # J, at least: a smaller one makes 2 n w_n(J) large
_MOST_SUMMED = 256  # J: with as few devices as that and G still large, nothing is proven
_LOG_TWO = math.log(2.0)
_ROUNDING = 1e-9
_LGAMMA = 2.0**-48  # relative, of a logarithm of a factorial and of what is done with it


def distance_of_split(devices: int, messages: int, bits: int) -> float:
    """A of the module's text for n = ``devices`` >= 1 honest devices, M = ``messages`` and q =
    2^``bits``; 1.0 where nothing is proven. Direction: UPPER.

    Raises ShoalError CONFIG for fewer than 3 messages, no device, or bits outside 1..64.
    """
    check_n(devices)
    if messages < LEAST_MESSAGES or not 1 <= bits <= 64:
        raise ShoalError(Kind.CONFIG, "a number is split into 3 messages or more, of 1 to 64 bits")
    return min(1.0, math.sqrt(excess(devices, messages - 1, bits)) / 2.0 * (1.0 + _ROUNDING))


def fewest_messages(devices: int, bits: int, distance: float, most: int) -> int | None:
    """The smallest M up to ``most`` with ``distance_of_split`` <= ``distance``; None: there is
    none.
    """
    for messages in range(LEAST_MESSAGES, most + 1):
        # One vertex alone, the largest term, shows at once that too few won't do.
        one = bits * _LOG_TWO + float(_log_weights(devices, np.ones(1), messages - 1)[0])
        hopeless = devices > 1 and one > 2.0 * math.log(2.0 * distance) + 1.0
        if not hopeless and distance_of_split(devices, messages, bits) <= distance:
            return messages
    return None


@lru_cache(maxsize=256)
def excess(devices: int, shares: int, bits: int) -> float:
    """G_n - 1 for n = ``devices`` and m = ``shares`` >= 2; math.inf where it is not small.
    Direction: UPPER.
    """
    if devices == 1:
        return 0.0
    factor = bits * _LOG_TWO
    logs = np.zeros(1)  # ln G_j, j = 1, 2, ...
    for n in range(2, _MOST_SUMMED + 1):
        half = len(logs) // 2
        few = logs[: half - 1]
        if (
            2 * half == len(logs) >= 2 * _LEAST_HALF
            and bool(np.all(logs[half - 1 :] <= _LOG_TWO))
            and bound_beyond(2 * half + 1, few, shares, factor) <= 1.0
        ):
            return bound_beyond(devices, few, shares, factor)
        sizes = np.arange(1, n, dtype=np.float64)
        more = factor + _log_sum(np.log1p(-sizes / n) + _log_weights(n, sizes, shares) + logs)
        if n == devices:
            return _exp(more)
        logs = np.append(logs, np.logaddexp(0.0, more) * (1.0 + _ROUNDING) + _ROUNDING)
    return math.inf


def bound_beyond(n: int, logs: Floats, shares: int, factor: float) -> float:
    """The bound of G_n - 1 for n > 2 J from ln G_j, j = 1..J - 1."""
    sizes = np.arange(1, len(logs) + 2, dtype=np.float64)
    weights = _log_weights(n, sizes, shares)
    parts = (
        weights[:-1] + logs,
        weights[-1:] + math.log(2.0 * n),
        weights[:-1] + np.log(2.0 * sizes[:-1] / n),
    )
    return _exp(factor + _log_sum(np.concatenate(parts)))


def _exp(log: float) -> float:
    """Never 0: what is smaller than any float is taken as e^-700."""
    return math.exp(max(log, -700.0)) * (1.0 + _ROUNDING) if log < 700.0 else math.inf


def _log_weights(n: int, sizes: Floats, shares: int) -> Floats:
    """ln w_n(j) for float64[sizes], whole numbers in 0..n. Direction: UPPER."""
    up = _log_binomial(n, sizes)
    down = _log_binomial(n * shares, sizes * shares)
    slack = _LGAMMA * 4.0 * n * shares * (1.0 + math.log(n * shares))
    return np.asarray(up - down + slack, dtype=np.float64)


def _log_binomial(n: int, sizes: Floats) -> Floats:
    return np.array(
        [math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) for j in sizes.tolist()]
    )


def _log_sum(terms: Floats) -> float:
    """ln of the sum of exp(``terms``)."""
    most = float(terms.max())
    return most + math.log(float(np.exp(terms - most).sum()))

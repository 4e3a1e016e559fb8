"""``certify``: the tightest sound bound for what is known of the randomizer, with a matching lower
bound.

**What is bounded.** The epsilon at a given delta of one shuffled batch: the largest over all pairs
of datasets that differ in one device's answer, and over both directions. ``upper_bound`` errs
upward and is the guarantee. ``lower_bound`` errs downward: it shows how much no better accounting
can save. Between them lies the truth.

**Why the smallest upper bound may be taken.** Every route is a theorem about the law by itself, and
its rounding goes upward. So each of them is at or above the truth, and so is the smallest. A route
that can say nothing returns epsilon0, which always holds: one report has at most that ratio, and
shuffling is post-processing.

**Checked** at small n against every dataset and every outcome, in exact fractions
(tests/unit/accounting/brute.py, tests/property/test_accounting_bounds.py), and at large n between
two ways of computing that share no step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

from shoal.accounting.bounds.approximate import approximate_bound, approximate_lower, local_epsilon
from shoal.accounting.bounds.binary import Interval
from shoal.accounting.bounds.swap import SWAP, swap
from shoal.accounting.certificate import (
    Certificate,
    check_delta,
    check_honest,
    check_n,
    count_honest,
)
from shoal.accounting.numerics.cells import CellSum, dataset_sums, named_sums
from shoal.accounting.numerics.curve import DEFAULT_EFFORT, LARGEST_N, Direction, Effort
from shoal.accounting.numerics.multinomial import sum_curve
from shoal.accounting.numerics.search import RESOLUTION, crossing
from shoal.accounting.routes import (
    BLANKET,
    BUDGET,
    CLONES,
    EXACT,
    LOCAL,
    METHODS,
    STEEP,
    TABLE_CLONES,
    WHY,
    WHY_NOT,
    WHY_PURE,
    DeltaCurve,
    general_routes,
    proving_routes,
    routes,
)
from shoal.approximate import GaussianLaw, LocalCurve
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, PureLaw, SymmetricLaw, epsilon0_upper

# Above this local epsilon no amplification is looked for: the certificate is epsilon0 itself.
LARGEST_EPSILON0 = 40.0

# The swap is looked at from so many reports on, and where the ends are farther apart than this.
_LEAST_SWAP, _APART = 200, 1.002

_ALONE = "the shuffler and the analyzer do not collude: against both together only epsilon0 holds"
_ALONE_AT_DELTA = (
    "the shuffler and the analyzer do not collude: against both together only epsilon0 holds, at "
    "this delta"
)
FRESH = "one report per device in the batch, drawn with fresh randomness"
_BASIC = (
    "neighbouring datasets differ in one device's answer; the number of reports is public and does "
    "not depend on any answer",
    FRESH,
)
_SAME_LAW = "every honest device runs the same randomizer, chosen before any report is seen"
_ANY_CURVE = "every honest device runs the same randomizer, of at most this local curve"
_REAL = (
    "the noise is Gaussian over the real numbers: a sampler on floats or integers has another law"
)
# The clones theorem gives randomizers to places in the shuffled order. Devices with randomizers of
# their own (other outputs, say) need not hide one another at all.
_ANY_LAW = (
    "every honest device runs the same randomizer, of at most this epsilon0; where it is chosen "
    "adaptively, the choice depends on"
    " reports seen so far and never on the device"
)


def certify(
    privacy: LocalPrivacy, n: int, delta: float, *, honest_fraction: Fraction | float = 1
) -> Certificate:
    """The certificate of one batch of ``n`` shuffled reports of a mechanism with this output law.

    ``n`` in reports (>= 1), ``delta`` in [1e-100, 1), ``honest_fraction`` in (0, 1]:
    floor(honest_fraction * n) of the reports, computed exactly, are taken to hide one another; the
    rest may belong to the adversary. ``epsilon_upper`` errs upward, ``epsilon_lower`` downward,
    always; both are at most epsilon0. With at most one honest report the upper bound is epsilon0.
    Raises ShoalError CONFIG for bad numbers.
    """
    share, n_honest = _checked(n, delta, honest_fraction)
    law = simplest(privacy)
    epsilon0 = epsilon0_upper(law)
    try:
        hash(law)
    except TypeError:
        raise ShoalError(
            Kind.INVALID, "a law must be hashable: give a frozen dataclass of numbers and tuples"
        ) from None
    assert isinstance(law, Hashable)  # noqa: S101 - for type checkers: it has just been hashed
    lower, upper, method = _both_ends(law, n_honest, delta)
    assumed = _SAME_LAW if method in {EXACT, SWAP, BLANKET, TABLE_CLONES} else _ANY_LAW
    return Certificate(
        epsilon_upper=upper,
        epsilon_lower=lower,
        epsilon0=epsilon0,
        delta=delta,
        n=n,
        honest_fraction=share,
        method=method,
        assumptions=(_ALONE, *_BASIC, _honest(n, n_honest), assumed),
        # The blanket of a mere ratio is that of binary responses: sums, as of clones.
        error_budget=BUDGET[CLONES if isinstance(law, PureLaw) and method == BLANKET else method],
    )


@lru_cache(maxsize=32)  # a task's promise is asked for when it is planned, linted, shown, released
def _both_ends(privacy: LocalPrivacy, n_honest: int, delta: float) -> tuple[float, float, str]:
    """(lower, upper, method): both ends of the certificate. Laws are frozen and compare by all of
    their integers, so one that is equal has equal bounds.
    """
    interval, method = _search(privacy, n_honest, delta, DEFAULT_EFFORT)
    upper = interval.upper
    lower = interval.lower or lower_bound(privacy, max(1, n_honest), delta, upper)
    if upper > _APART * lower and (closer := _swapped(privacy, n_honest, delta, lower, upper)):
        upper, method = min((upper, method), (closer, SWAP))
    return lower, upper, method


def _swapped(
    privacy: LocalPrivacy, n_honest: int, delta: float, lower: float, upper: float
) -> float | None:
    """An epsilon that the swap proves, at most ``upper``; None where it does not apply.

    Certificates alone ask for it: it takes up to some seconds, and a planner's many questions are
    answered by ``routes``.
    """
    if not isinstance(privacy, FiniteLaw | SymmetricLaw) or privacy.max_ratio > STEEP:
        return None
    if n_honest < _LEAST_SWAP or not _amplifies(privacy, n_honest):
        return None
    found = swap(privacy)
    return None if found is None else found.bound(min(n_honest, LARGEST_N), delta, lower, upper)


def certify_approximate(
    local: LocalCurve, n: int, delta: float, *, honest_fraction: Fraction | float = 1
) -> Certificate:
    """``certify`` for a randomizer that is only approximately private: a Gaussian, or any
    (epsilon0, delta0)-LDP one.

    ``epsilon0`` of the certificate is the local epsilon *at this delta*: a report's own guarantee
    is that pair. ``method`` is "approximate-clones", or "local" where shuffling adds nothing.
    Arguments and errors as for ``certify``; also CONFIG where there is no local epsilon at this
    delta.
    """
    share, n_honest = _checked(n, delta, honest_fraction)
    upper, method = approximate_bound(local, max(1, n_honest), delta)
    epsilon0 = local_epsilon(local, delta)
    upper = min(upper, epsilon0)
    real = (_REAL,) if isinstance(local, GaussianLaw) else ()
    return Certificate(
        epsilon_upper=upper,
        epsilon_lower=min(approximate_lower(local, max(1, n_honest), delta), upper),
        epsilon0=epsilon0,
        delta=delta,
        n=n,
        honest_fraction=share,
        method=method,
        assumptions=(_ALONE_AT_DELTA, *_BASIC, _honest(n, n_honest), _ANY_CURVE, *real),
        error_budget=BUDGET[method],
    )


def _checked(n: int, delta: float, honest_fraction: Fraction | float) -> tuple[Fraction, int]:
    """The exact share, and floor(share * n). Raises ShoalError CONFIG for bad numbers."""
    check_n(n)
    check_delta(delta)
    share = check_honest(honest_fraction)
    return share, count_honest(n, share)


def _honest(n: int, n_honest: int) -> str:
    """The assumption about how many reports hide one another, as a sentence of the certificate."""
    which = f"all {n}" if n_honest == n else f"at least {n_honest} of the {n}"
    return f"{which} reports come from devices that follow the protocol"


def simplest(privacy: LocalPrivacy) -> LocalPrivacy:
    """The same law in the form that is bounded best: a table that is k-ary randomized response
    becomes a ``KaryLaw``.

    Nothing is rounded: weights are compared as integers. Tables that are not of that form, and laws
    of other kinds, come back as they are.
    """
    if not isinstance(privacy, FiniteLaw):
        return privacy
    rows, k = privacy.rows, len(privacy.rows)
    if k < 2 or len(rows[0]) != k:
        return privacy
    same, other = rows[0][0], rows[0][1]
    others = k if same == other else k - 1  # of each row
    if same < other or any(
        row[x] != same or row.count(other) != others for x, row in enumerate(rows)
    ):
        return privacy
    return KaryLaw(k=k, same=same, other=other)


def upper_bound(
    privacy: LocalPrivacy, n_honest: int, delta: float, effort: Effort = DEFAULT_EFFORT
) -> tuple[float, str]:
    """(epsilon, method): the smallest epsilon proven for ``n_honest`` mutually hiding reports.
    Direction: upper bound.
    """
    interval, method = _search(privacy, n_honest, delta, effort)
    return interval.upper, method


def _search(
    privacy: LocalPrivacy, n_honest: int, delta: float, effort: Effort
) -> tuple[Interval, str]:
    """The smallest upper end of any route, with the largest lower end that came along, and the
    method of the upper end.
    """
    # epsilon0 is proven to begin with. Later routes need only look below the best so far: ``bound``
    # returns that ceiling where it finds nothing smaller.
    best, method, lower = epsilon0_upper(privacy), LOCAL, 0.0
    if not _amplifies(privacy, n_honest):
        return Interval(0.0, best), method
    for route in routes(privacy, min(n_honest, LARGEST_N), effort):
        interval = route.bound(delta, best, effort)
        lower = max(lower, interval.lower if n_honest <= LARGEST_N else 0.0)
        if interval.upper < best:
            best, method = interval.upper, route.method
    return Interval(min(lower, best), best), method


def proves(
    privacy: LocalPrivacy,
    n_honest: int,
    delta: float,
    epsilon: float,
    effort: Effort = DEFAULT_EFFORT,
) -> bool:
    """Whether (epsilon, delta) is proven for ``n_honest`` reports by some route: one evaluation
    instead of a search.

    False says nothing: another epsilon, or more ``effort``, may prove more.
    """
    if epsilon >= epsilon0_upper(privacy):
        return True
    if not _amplifies(privacy, n_honest):
        return False
    return any(
        route.proves(delta, epsilon, effort)
        for route in proving_routes(privacy, min(n_honest, LARGEST_N), effort)
    )


def upper_curve(
    privacy: LocalPrivacy, n_honest: int, delta: float, effort: Effort = DEFAULT_EFFORT
) -> Callable[[float], float]:
    """The divergence as a function of epsilon >= 0, never below the truth, tight near ``delta``:
    what composition starts from.

    It bounds both directions for every pair of neighbouring datasets; it is at most
    ``local_delta``, so 0 from epsilon0 on.
    """
    epsilon0 = epsilon0_upper(privacy)
    tightest: Callable[[float], float] | None = None
    if _amplifies(privacy, n_honest):
        n = min(n_honest, LARGEST_N)
        applicable = list(routes(privacy, n))
        best = (
            min(applicable, key=lambda route: route.bound(delta, epsilon0, effort).upper)
            if len(applicable) > 1
            else applicable[0]
        )
        tightest = best.curve(delta, epsilon0, effort)

    def curve(epsilon: float) -> float:
        if epsilon >= epsilon0:
            return 0.0
        # Shuffling is post-processing, so the curve of a single report bounds the batch as well.
        alone = local_delta(epsilon0, epsilon)
        return alone if tightest is None else min(alone, tightest(epsilon))

    return curve


def local_delta(epsilon0: float, epsilon: float) -> float:
    """The largest divergence at ``epsilon`` of any pair with ratios of at most e^epsilon0: (E - e)
    / (E + 1), rounded up.

    P and Q have sum (P - e Q)_+ largest for the two-point pair with ratios E and 1/E (Kairouz, Oh,
    Viswanath 2015, Theorem 2.4).
    """
    if epsilon >= epsilon0:
        return 0.0
    return -math.expm1(epsilon - epsilon0) / (1.0 + math.exp(-epsilon0)) * (1.0 + 1e-14)


def _amplifies(privacy: LocalPrivacy, n_honest: int) -> bool:
    """Whether shuffling is looked at: somebody to hide among, something to hide, and an epsilon0
    that floats can handle.
    """
    return n_honest > 1 and 0.0 < epsilon0_upper(privacy) <= LARGEST_EPSILON0


@dataclass(frozen=True, slots=True)
class RouteValue:
    """What one route says. ``epsilon``: its value, at most epsilon0, if it ``applies``, else None.
    ``why``: why it does or does not, in one line for people.
    """

    method: str
    epsilon: float | None
    applies: bool
    why: str


def compare(
    privacy: LocalPrivacy, n: int, delta: float, *, honest_fraction: Fraction | float = 1
) -> tuple[RouteValue, ...]:
    """Every route, whether it applies to this law, why, and what it would certify. Same arguments
    and errors as ``certify``.

    One ``RouteValue`` per method, in the order of ``METHODS``. Methods that do not apply have no
    epsilon.
    """
    _, n_honest = _checked(n, delta, honest_fraction)
    law = simplest(privacy)
    epsilon0 = epsilon0_upper(law)
    values = {LOCAL: epsilon0}
    if _amplifies(law, n_honest):
        for route in (
            *routes(law, min(n_honest, LARGEST_N)),
            *general_routes(law, min(n_honest, LARGEST_N)),
        ):
            values.setdefault(route.method, route.bound(delta, epsilon0, DEFAULT_EFFORT).upper)
        lower = lower_bound(law, n_honest, delta, epsilon0)
        if (closer := _swapped(law, n_honest, delta, lower, min(values.values()))) is not None:
            values[SWAP] = closer
    why = {**WHY, BLANKET: WHY_PURE} if isinstance(law, PureLaw) else WHY
    few = "" if n_honest > 1 else " (with at most one honest report only epsilon0 is left)"
    return tuple(
        RouteValue(method, values[method], True, why[method])
        if method in values
        else RouteValue(method, None, False, (WHY_NOT[method] or why[method]) + few)
        for method in METHODS
    )


def lower_bound(privacy: LocalPrivacy, n: int, delta: float, upper: float) -> float:
    """The largest epsilon that real datasets of ``n`` reports are shown to exceed at ``delta``.
    Direction: lower bound.

    ``upper`` is a proven epsilon: the search ends there. For a ``PureLaw``, the best of two real
    members of the class, binary and ternary randomized response of that ratio. Laws with ratios
    above STEEP (epsilon0 = 16) are first softened to it.

    Why it errs to the safe side: the value returned is the low end of a bracket, where a lower
    curve of a real pair is still above ``delta``. The true divergence of that pair is above it too,
    so no epsilon up to there holds at ``delta``. 0 where nothing was refuted, and beyond 1e8
    reports, where no error budget is claimed.
    """
    if privacy.max_ratio == 1 or n > LARGEST_N:
        return 0.0
    # No epsilon above a proven one can be refuted, so the search need not look there.
    top = min(upper, LARGEST_EPSILON0)
    best, start, curves = (
        0.0,
        0.0,
        [sum_curve(dataset, Direction.LOWER, delta, top) for dataset in _datasets(privacy, n)],
    )
    while start < top and (
        above := [(value, curve) for curve in curves if (value := curve.delta(start)) > delta]
    ):
        worst = max(above, key=lambda pair: pair[0])[1]
        # From there on: what floats make of a curve need not fall, and may cross delta further down
        # as well.
        best = min(top, start + crossing(partial(_beyond, worst, start), delta, top - start)[0])
        curves = [curve for _, curve in above if curve is not worst]
        # A hair above the best so far: views that only equal it are not worth a search.
        start = best * (1.0 + 4.0 * RESOLUTION)
    return best


def _beyond(curve: DeltaCurve, start: float, step: float) -> float:
    """The curve, counted from ``start`` on: a search from 0 then finds the first crossing beyond
    it.
    """
    return curve.delta(start + step)


def _softened(law: FiniteLaw | SymmetricLaw) -> FiniteLaw | SymmetricLaw:
    """A post-processing of a very telling law whose ratio is at most STEEP: sometimes the output is
    replaced by another draw.

    For a table a uniform one, for classes one with their least weights: neither looks at the input.
    """
    if isinstance(law, FiniteLaw):
        return _softened_table(law)
    if law.max_ratio <= STEEP:
        return law
    # (one + t least) / (two + t least) <= 1 + one / (t least), so t = the largest one / least over
    # STEEP
    # - 1 is enough.
    share = max(-(-a // low) for a, low in zip(law.one, law.least, strict=True)) // (STEEP - 1) + 1

    def mixed(row: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(weight + share * low for weight, low in zip(row, law.least, strict=True))

    return SymmetricLaw(
        mixed(law.one),
        mixed(law.two),
        mixed(law.least),
        None if law.third is None else mixed(law.third),
    )


def _softened_table(law: FiniteLaw) -> FiniteLaw:
    """``_softened``: the same weight more for every output of every input, which is a uniform
    report with some probability. The largest ratio is then at most STEEP.
    """
    if law.max_ratio <= STEEP:
        return law
    extra = max(map(max, law.rows)) // STEEP + 1
    return FiniteLaw(tuple(tuple(weight + extra for weight in row) for row in law.rows))


def _datasets(privacy: LocalPrivacy, n: int) -> Iterable[CellSum]:
    """Real pairs of datasets: the divergence of each is one of these expectations."""
    if isinstance(privacy, KaryLaw):
        # A smaller ratio is a post-processing of a larger one (answer at random a little more
        # often).
        return dataset_sums(
            KaryLaw(
                k=privacy.k, same=min(privacy.same, privacy.other * STEEP), other=privacy.other
            ),
            n,
        )
    if isinstance(privacy, SymmetricLaw) and privacy.real is not None:
        # the pair stated may be none of the task's own
        return named_sums(_softened_table(privacy.real.law()), n)
    if isinstance(privacy, FiniteLaw | SymmetricLaw):
        return dataset_sums(_softened(privacy), n)
    if isinstance(privacy, PureLaw):
        ratio = min(privacy.ratio, Fraction(STEEP))
        members = (KaryLaw(k=k, same=ratio.numerator, other=ratio.denominator) for k in (2, 3))
        return (dataset for law in members for dataset in dataset_sums(law, n))
    raise ShoalError(
        Kind.INVALID,
        f"no accountant for a law of type {type(privacy).__name__}: give a KaryLaw, FiniteLaw, "
        "SymmetricLaw or PureLaw",
    )

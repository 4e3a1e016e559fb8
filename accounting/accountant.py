"""``certify``: the tightest sound bound for what is known of the randomizer, with a matching lower bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from shoal.accounting.blanket import binary_blanket, kary_blanket
from shoal.accounting.certificate import Certificate, check_delta, check_honest, check_n
from shoal.accounting.clones import clones, kary_clones, table_clones
from shoal.accounting.curve import DEFAULT_EFFORT, Curve, Direction, Effort
from shoal.accounting.datasets import finite_datasets, kary_datasets
from shoal.accounting.search import crossing
from shoal.accounting.walk import Walk
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, PureLaw, epsilon0_upper

# Methods, as they appear in certificates. docs/ACCOUNTING.md has a section on each.
LOCAL = "local"
BLANKET = "blanket"
CLONES = "clones"
TABLE_CLONES = "table-clones"

# Above this local epsilon no amplification is looked for: the certificate is epsilon0 itself.
LARGEST_EPSILON0 = 40.0
# Beyond this many reports the error budget of curve.py is not claimed: a larger batch gets the upper bound of this many
# (sound, since more reports never hurt) and the lower bound 0.
LARGEST_N = 100_000_000
# Lower bounds of laws with larger ratios are those of this ratio (e^41, above LARGEST_EPSILON0): floats reach it comfortably.
_LARGEST_RATIO = 640_000_000_000_000_000

_BASIC = (
    "the shuffler and the analyzer do not collude: against both together only epsilon0 holds",
    "neighbouring datasets differ in one device's answer; the number of reports is public and does not depend on any answer",
    "one report per device in the batch, drawn with fresh randomness",
)
_SAME_LAW = "every honest device runs the same randomizer, chosen before any report is seen"
_ANY_LAW = "every honest device runs a randomizer of at most this epsilon0"


@dataclass(frozen=True, slots=True)
class _Route:
    """One way to an upper bound: the worst of its walks counts."""

    method: str
    walks: tuple[Walk, ...]


def certify(privacy: LocalPrivacy, n: int, delta: float, *, honest_fraction: Fraction | float = 1) -> Certificate:
    """The certificate of one batch of ``n`` shuffled reports of a mechanism with this output law.

    ``n`` in reports (>= 1), ``delta`` in [1e-100, 1), ``honest_fraction`` in [0, 1]: floor(honest_fraction * n) of the
    reports, computed exactly, are taken to hide one another; the rest may belong to the adversary. ``epsilon_upper`` errs
    upward, ``epsilon_lower`` downward, always; both are at most epsilon0. With at most one honest report the upper bound is
    epsilon0. Raises ShoalError CONFIG for bad numbers.
    """
    check_n(n)
    check_delta(delta)
    share = check_honest(honest_fraction)
    n_honest = n * share.numerator // share.denominator
    law = simplest(privacy)
    epsilon0 = epsilon0_upper(law)
    upper, method = upper_bound(law, n_honest, delta)
    lower = lower_bound(law, max(1, n_honest), delta, upper)
    honest = f"at least {n_honest} of the {n} reports come from devices that follow the protocol" if share < 1 else _all_honest(n)
    assumed = _SAME_LAW if method in {BLANKET, TABLE_CLONES} else _ANY_LAW
    return Certificate(
        epsilon_upper=upper,
        epsilon_lower=lower,
        epsilon0=epsilon0,
        delta=delta,
        n=n,
        honest_fraction=share,
        method=method,
        assumptions=(*_BASIC, honest, assumed),
    )


def _all_honest(n: int) -> str:
    return f"all {n} reports come from devices that follow the protocol"


def simplest(privacy: LocalPrivacy) -> LocalPrivacy:
    """The same law in the form that is bounded best: a table that is k-ary randomized response becomes a ``KaryLaw``."""
    if not isinstance(privacy, FiniteLaw):
        return privacy
    rows, k = privacy.rows, len(privacy.rows)
    if k < 2 or len(rows[0]) != k:
        return privacy
    same, other = rows[0][0], rows[0][1]
    if same < other or any(row[y] != (same if x == y else other) for x, row in enumerate(rows) for y in range(k)):
        return privacy
    return KaryLaw(k=k, same=same, other=other)


def upper_bound(privacy: LocalPrivacy, n_honest: int, delta: float, effort: Effort = DEFAULT_EFFORT) -> tuple[float, str]:
    """(epsilon, method): the smallest epsilon proven for ``n_honest`` mutually hiding reports. Direction: upper bound."""
    best, method = epsilon0_upper(privacy), LOCAL
    if n_honest <= 1 or not 0.0 < best <= LARGEST_EPSILON0:
        return best, method
    for route in _routes(privacy, min(n_honest, LARGEST_N)):
        curves = [Curve(walk, Direction.UPPER, delta, best, effort) for walk in route.walks]
        if any(curve.delta(best) > delta for curve in curves):
            continue
        # Later walks start from the worst so far: an epsilon that satisfies all of them.
        epsilon = 0.0
        for curve in curves:
            if curve.delta(epsilon) > delta:
                # Never below what the earlier walks proved, even if rounding made this curve cross twice.
                epsilon = max(epsilon, crossing(curve.delta, delta, best)[1])
        if epsilon < best:
            best, method = epsilon, route.method
    return best, method


def proves(privacy: LocalPrivacy, n_honest: int, delta: float, epsilon: float, effort: Effort = DEFAULT_EFFORT) -> bool:
    """Whether (epsilon, delta) is proven for ``n_honest`` reports by some route: one evaluation instead of a search."""
    if epsilon >= epsilon0_upper(privacy):
        return True
    if n_honest <= 1 or epsilon0_upper(privacy) > LARGEST_EPSILON0:
        return False
    return any(
        all(Curve(walk, Direction.UPPER, delta, epsilon, effort).delta(epsilon) <= delta for walk in route.walks)
        for route in _routes(privacy, min(n_honest, LARGEST_N))
    )


def _routes(privacy: LocalPrivacy, n: int) -> Iterable[_Route]:
    """The sound routes for a law with a ratio above 1, the cheapest first: a later one is evaluated below the best so far."""
    if isinstance(privacy, KaryLaw):
        if privacy.k > 2:
            yield _Route(TABLE_CLONES, (kary_clones(privacy, n),))
        yield _Route(BLANKET, (kary_blanket(privacy, n),))
    elif isinstance(privacy, FiniteLaw):
        if len(privacy.rows[0]) == 2:
            yield _Route(BLANKET, binary_blanket(privacy, n))
        else:
            yield _Route(TABLE_CLONES, table_clones(privacy, n))
    else:
        yield _Route(CLONES, (clones(privacy.max_ratio, n),))


def lower_bound(privacy: LocalPrivacy, n: int, delta: float, upper: float, effort: Effort = DEFAULT_EFFORT) -> float:
    """The largest epsilon that real datasets of ``n`` reports are shown to exceed at ``delta``. Direction: lower bound.

    ``upper`` is a proven epsilon: the search ends there. For a ``PureLaw``, the best of two real members of the class,
    binary and ternary randomized response of that ratio.
    """
    if privacy.max_ratio == 1 or n > LARGEST_N:
        return 0.0
    top = min(upper, LARGEST_EPSILON0)
    best = 0.0
    for walk in _datasets(privacy, n):
        curve = Curve(walk, Direction.LOWER, delta, top, effort)
        if curve.delta(best) > delta:
            best = crossing(curve.delta, delta, top)[0]
    return best


def _softened(law: FiniteLaw) -> FiniteLaw:
    """A post-processing of the law (sometimes replace the output by a uniform one) whose ratio floats can reach."""
    if law.max_ratio <= _LARGEST_RATIO:
        return law
    extra = max(map(max, law.rows)) // _LARGEST_RATIO + 1
    return FiniteLaw(tuple(tuple(weight + extra for weight in row) for row in law.rows))


def _datasets(privacy: LocalPrivacy, n: int) -> Iterable[Walk]:
    if isinstance(privacy, KaryLaw):
        # A smaller ratio is a post-processing of a larger one (answer at random a little more often).
        same = min(privacy.same, privacy.other * _LARGEST_RATIO)
        return kary_datasets(KaryLaw(k=privacy.k, same=same, other=privacy.other), n)
    if isinstance(privacy, FiniteLaw):
        return finite_datasets(_softened(privacy), n)
    if isinstance(privacy, PureLaw):
        ratio = min(privacy.ratio, Fraction(_LARGEST_RATIO))
        members = (KaryLaw(k=k, same=ratio.numerator, other=ratio.denominator) for k in (2, 3))
        return (walk for law in members for walk in kary_datasets(law, n))
    raise ShoalError(Kind.INVALID, f"no accountant for a law of type {type(privacy).__name__}: give a KaryLaw, FiniteLaw or PureLaw")

"""Published amplification bounds, evaluated for comparison. Nothing here certifies anything:
``certify`` never imports this module.

For each paper the value that its theorem (or its authors' program) gives for a law, clipped at
epsilon0, with a flag that says whether it is an upper bound *for this law*. Formulas, and how far
each was checked:

* Erlingsson, Feldman, Mironov, Raghunathan, Talwar, Thakurta, SODA 2019: epsilon = 12 epsilon0
  sqrt(ln(1/delta) / n) for n >= 1000, epsilon0 < 1/2, delta < 1/100. Checked against the program
  published with Balle and others 2019; the paper itself was recalled, not read again. Their theorem
  swaps a uniformly random report for the first one; the constants are the paper's.
* Balle, Bell, Gascon, Nissim, CRYPTO 2019, section 5. Lemma 5.3 (module ``blanket``) leaves E[(L_1
  + ... + L_M)_+] / (gamma n), M ~ Bin(n, gamma), with E[L] = -a, a = e^epsilon - 1. Integrating a
  tail bound gives, derived here anew,

      Hoeffding, L in an interval of width w:
      E[(.)_+ | M = m] <= w^2 / (4 a) exp(-2 m a^2 / w^2)
      Bennett, L <= b and E[L^2] <= v:
      E[(.)_+ | M = m] <= b / ln(1 + u) exp(-m (v / b^2) ((1 + u) ln(1 + u) - u)), u = a b / v

  (Bennett with second moments: Boucheron, Lugosi, Massart, "Concentration Inequalities", 2013,
  Theorem 2.9; its exponent is convex and lies above its tangent at t = 0.) Both depend on m as z^m,
  and E[z^M; M >= 1] = (1 - gamma + gamma z)^n - (1 - gamma)^n. The two forms agree with the
  authors' program, which keeps the term of M = 0 in Hoeffding's case; it is kept here too. For
  tables gamma, w, b and v are exact. For an unknown randomizer gamma >= 1/E, and with gamma <= 1 in
  the range w = (e^epsilon + 1) (E - 1/E), as in their program; w could be smaller, the published
  value is what is compared.
* Feldman, McMillan, Talwar, FOCS 2021, Theorem 3.1, in two closed forms: with s = 8 sqrt(E
  ln(4/delta) / n) + 8 E / n,

      theorem, for E <= n / (16 ln(2/delta)):             epsilon = ln(1 + s (E - 1)/(E + 1))
      authors' program, for E <= n / (16 ln(4/delta)):
      epsilon = ln(1 + s (1 - 1/E) / (1 + 1 / (E (1 + s)))).

  The second was read in their program and is the larger (by up to 25 % at n = 1000); the first was
  recalled and found so in the differential privacy library of another group, which cites the
  theorem. The numerical form is ours (``clones``), evaluated in full.
* Feldman, McMillan, Talwar, SODA 2023 (arXiv 2208.04591), "stronger clones": clone probability
  2/(E+1). The erratum in its abstract (read) withdraws it for general randomizers. It applies where
  the table itself has the three properties that the proof of the 2021 theorem uses with that
  probability (``clones.pair_constants``): k-ary responses do; for two outputs it equals the
  blanket.
* Wang and others, VLDB 2024, variation ratio with their parameters for k-ary responses (read in
  their program): beta = (E-1)/(E+k-1), q = E. That triple is the histogram merged to (x, x', rest)
  while the others answer a third value: for k >= 3 a *projection*, so the number is a lower bound
  of the truth (tests/unit/accounting/reference/test_published.py holds n = 3, k = 3). For other
  laws their general row is the stronger clones number, and shares its flag.

Numbers: closed forms in floats, rounded up by 1e-12; inverted ones return the safe end of
``search.crossing``. The values of moments carry some 1e-14, against which every inverted curve is
raised by 1e-9 of itself. Direction: upward, but these are comparisons, not proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations

from shoal.accounting.accountant import LARGEST_EPSILON0, simplest
from shoal.accounting.bounds.blanket import kary_blanket
from shoal.accounting.bounds.clones import clones, pair_constants
from shoal.accounting.certificate import check_delta, check_n
from shoal.accounting.numerics.curve import LARGEST_N, MARGIN, Curve, Direction
from shoal.accounting.numerics.random_walk import Walk
from shoal.accounting.numerics.search import crossing
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, epsilon0_upper

_EFMRTT = "Erlingsson, Feldman, Mironov, Raghunathan, Talwar, Thakurta, SODA 2019"
_BALLE = "Balle, Bell, Gascon, Nissim, CRYPTO 2019"
_FMT21 = "Feldman, McMillan, Talwar, FOCS 2021 (arXiv 2012.12803), Theorem 3.1"
_FMT22 = "Feldman, McMillan, Talwar, SODA 2023 (arXiv 2208.04591), with its erratum"
_WANG = "Wang and others, VLDB 2024 (variation ratio)"

_UP = 1.0 + 1e-12
_ALMOST = 1.0 - 1e-15
# Larger tables (ordered pairs of inputs times outputs) get no blanket moments here.
_LARGE_TABLE = 100_000
# Points of (0, epsilon0) at which an inverted curve is looked at before the search.
_STEPS = 128


@dataclass(frozen=True, slots=True)
class PublishedBound:
    """One published figure for one law.

    ``epsilon``: the value, at most epsilon0, or None where the paper gives none. ``applies``:
    whether it is an upper bound on the central epsilon of this law; if not, ``why`` says why not
    (and ``epsilon``, if given, is only what a program that ignored it would print). Raises INVALID
    for a negative or missing epsilon of a bound that applies.
    """

    name: str
    citation: str
    applies: bool
    why: str
    epsilon: float | None

    def __post_init__(self) -> None:
        sound = (
            not self.applies
            if self.epsilon is None
            else math.isfinite(self.epsilon) and self.epsilon >= 0.0
        )
        if not sound or not self.name or not self.citation or not self.why:
            raise ShoalError(
                Kind.INVALID,
                "a published bound has a name, a citation, a reason, and an epsilon of at least 0 "
                "if it applies",
            )


def published(law: LocalPrivacy, n: int, delta: float) -> tuple[PublishedBound, ...]:
    """Every published bound for ``n`` shuffled reports (all honest) of ``law`` at ``delta``, oldest
    first.

    ``n`` >= 1, ``delta`` in [1e-100, 1). Raises ShoalError CONFIG for bad numbers, also for
    epsilon0 above 40 and n above 1e8, where the numerical ones are not evaluated.
    """
    check_n(n)
    check_delta(delta)
    law = simplest(law)
    epsilon0 = epsilon0_upper(law)
    if epsilon0 > LARGEST_EPSILON0 or n > LARGEST_N:
        raise ShoalError(
            Kind.CONFIG,
            f"published bounds are compared up to epsilon0 = {LARGEST_EPSILON0:g} and n = "
            f"{LARGEST_N}: give less",
        )
    return (
        _erlingsson(epsilon0, n, delta),
        *_balle(law, epsilon0, n, delta),
        *_clones_closed(law, epsilon0, n, delta),
        _numeric(
            "clones",
            _FMT21,
            clones(law.max_ratio, n) if epsilon0 > 0.0 else None,
            epsilon0,
            delta,
            "every epsilon0-LDP randomizer",
        ),
        _stronger(law, epsilon0, n, delta),
        _variation_ratio(law, epsilon0, n, delta),
    )


def smallest_sound(bounds: Iterable[PublishedBound]) -> PublishedBound:
    """The smallest epsilon among those that apply (the numerical clones bound always does). Raises
    INVALID if none does.
    """
    sound = [bound for bound in bounds if bound.applies and bound.epsilon is not None]
    if not sound:
        raise ShoalError(Kind.INVALID, "none of these bounds applies")
    return min(sound, key=lambda bound: bound.epsilon if bound.epsilon is not None else math.inf)


def _erlingsson(epsilon0: float, n: int, delta: float) -> PublishedBound:
    """The closed form of 2019, where its three conditions hold."""
    name = "shuffling, closed form"
    if not (n >= 1000 and epsilon0 < 0.5 and delta < 0.01):
        return PublishedBound(
            name, _EFMRTT, False, "wants n >= 1000, epsilon0 < 1/2 and delta < 1/100", None
        )
    value = 12.0 * epsilon0 * math.sqrt(-math.log(delta) / n) * _UP
    return PublishedBound(
        name, _EFMRTT, True, "n >= 1000, epsilon0 < 1/2, delta < 1/100", min(value, epsilon0)
    )


def _clones_closed(
    law: LocalPrivacy, epsilon0: float, n: int, delta: float
) -> list[PublishedBound]:
    """Both closed forms of Theorem 3.1, the theorem's first."""
    ratio = float(law.max_ratio)
    s = 8.0 * math.sqrt(ratio * math.log(4.0 / delta) / n) + 8.0 * ratio / n
    gain = -math.expm1(-epsilon0)  # 1 - 1/E
    bounds = []
    for name, least, factor in (
        ("clones, closed form of the theorem", 2.0, gain / (1.0 + 1.0 / ratio)),
        ("clones, closed form of the program", 4.0, gain / (1.0 + 1.0 / (ratio * (1.0 + s)))),
    ):
        why = f"e^epsilon0 <= n / (16 ln({least:g}/delta))"
        if ratio * 16.0 * math.log(least / delta) <= n:
            bounds.append(
                PublishedBound(name, _FMT21, True, why, min(math.log1p(factor * s) * _UP, epsilon0))
            )
        else:
            bounds.append(PublishedBound(name, _FMT21, False, f"wants {why}", None))
    return bounds


@dataclass(frozen=True, slots=True)
class _Moments:
    """What the two inequalities need of L at one epsilon: blanket mass, width of its range, largest
    value, second moment.
    """

    gamma: float
    width: float
    largest: float
    second: float


def _balle(law: LocalPrivacy, epsilon0: float, n: int, delta: float) -> list[PublishedBound]:
    """Hoeffding's and Bennett's forms with the law's own moments, and Hoeffding's for an unknown
    randomizer.
    """
    bounds = []
    families = _families(law)
    for kind, tail in (("Hoeffding", _hoeffding), ("Bennett", _bennett)):
        name = f"blanket, {kind}"
        if families is None:
            why = (
                "the blanket of this law is not known"
                if not isinstance(law, FiniteLaw)
                else "not evaluated for a table of this size"
            )
            bounds.append(PublishedBound(name, _BALLE, False, why, None))
        else:
            value = _worst(families, tail, epsilon0, n, delta)
            bounds.append(
                PublishedBound(
                    name,
                    _BALLE,
                    True,
                    "identical randomizers with this blanket, not adaptive",
                    value,
                )
            )
    generic = _worst([lambda epsilon: _generic(epsilon0, epsilon)], _hoeffding, epsilon0, n, delta)
    bounds.append(
        PublishedBound(
            "blanket, generic Hoeffding",
            _BALLE,
            True,
            "identical pure-LDP randomizers, not adaptive",
            generic,
        )
    )
    return bounds


_Family = Callable[[float], _Moments]


def _worst(
    families: list[_Family],
    tail: Callable[[_Moments, float, int], float],
    epsilon0: float,
    n: int,
    delta: float,
) -> float:
    """The largest over the families (pairs of answers) of the smallest epsilon with delta(epsilon)
    <= delta; epsilon0 at most.
    """
    worst = 0.0
    for family in families:

        def curve(epsilon: float, family: _Family = family) -> float:
            return (
                tail(family(epsilon), math.expm1(epsilon), n) * (1.0 + MARGIN)
                if epsilon > 0.0
                else math.inf
            )

        worst = max(
            worst,
            crossing(curve, delta, _top(curve, delta, epsilon0))[1] if epsilon0 > 0.0 else 0.0,
        )
    return worst


def _top(curve: Callable[[float], float], delta: float, epsilon0: float) -> float:
    """A proven epsilon to search below: these curves may rise again towards epsilon0, where they
    are of no use.
    """
    steps = (epsilon0 * step / _STEPS for step in range(1, _STEPS))
    return next((epsilon for epsilon in steps if curve(epsilon) <= delta), epsilon0)


def _hoeffding(moments: _Moments, a: float, n: int) -> float:
    """delta of the Hoeffding form, 0 where L is the constant -a. Direction: upper bound."""
    if moments.width <= 0.0:
        return 0.0
    z = -math.expm1(-2.0 * (a / moments.width) ** 2)
    log_power = n * math.log1p(-min(moments.gamma * z, _ALMOST))
    return moments.width**2 / (4.0 * a * moments.gamma * n) * math.exp(log_power)


def _bennett(moments: _Moments, a: float, n: int) -> float:
    """delta of the Bennett form; 0 where L is never positive. Direction: upper bound."""
    if moments.largest <= 0.0:
        return 0.0
    u = a * moments.largest / moments.second
    # (1 + u) ln(1 + u) - u: below 1e-4 its series, whose first omitted term is positive, so that
    # the exponent errs to the safe side.
    phi = u * u / 2.0 - u**3 / 6.0 if u < 1e-4 else (1.0 + u) * math.log1p(u) - u
    z = math.exp(-moments.second / moments.largest**2 * phi)
    with_zero = n * math.log1p(-min(moments.gamma * (1.0 - z), _ALMOST))
    # E[z^M] - P(M = 0) as a product: (1 - gamma + gamma z)^n (1 - ((1 - gamma) / (1 - gamma + gamma
    # z))^n).
    share = moments.gamma * z / (1.0 - moments.gamma) if moments.gamma < 1.0 else math.inf
    some = -math.expm1(-n * math.log1p(share)) if math.isfinite(share) else 1.0
    return moments.largest / (moments.gamma * n * math.log1p(u)) * math.exp(with_zero) * some


def _generic(epsilon0: float, epsilon: float) -> _Moments:
    """An unknown epsilon0-LDP randomizer: gamma >= 1/E, the range as published."""
    width = (math.exp(epsilon) + 1.0) * 2.0 * math.sinh(epsilon0)
    return _Moments(
        gamma=math.exp(-epsilon0), width=width, largest=math.exp(epsilon0), second=math.inf
    )


def _families(law: LocalPrivacy) -> list[_Family] | None:
    """Moments of L as functions of epsilon, one for each pair of answers that may be the worst;
    None where they aren't known.
    """
    if isinstance(law, KaryLaw):
        return [_kary_family(law)]
    if not isinstance(law, FiniteLaw):
        return None
    rows = sorted(set(law.rows))
    if len(rows) ** 2 * len(rows[0]) > _LARGE_TABLE:
        return None
    least = [min(column) for column in zip(*law.rows, strict=True)]
    gamma = float(Fraction(sum(least), law.total))
    # Against the blanket's own weights: P(y | x) / omega(y) = gamma R(x)_y / least_y.
    masses = [float(Fraction(weight, sum(least))) for weight in least]
    scaled = {
        row: [gamma * float(Fraction(a, b)) for a, b in zip(row, least, strict=True)]
        for row in rows
    }
    return [
        _pair_family(gamma, masses, scaled[row_x], scaled[row_x2])
        for row_x, row_x2 in permutations(rows, 2)
    ]


def _kary_family(law: KaryLaw) -> _Family:
    """gamma = k other / total; L = -gamma a, plus (1 - gamma) k on x, minus (1 - gamma) k e^epsilon
    on x'.
    """
    gamma = float(Fraction(law.k * law.other, law.total))
    step = float(Fraction(law.k * (law.same - law.other), law.total))  # (1 - gamma) k
    square = float(Fraction((law.same - law.other) ** 2 * law.k, law.total**2))  # (1 - gamma)^2 k

    def moments(epsilon: float) -> _Moments:
        e, a = math.exp(epsilon), math.expm1(epsilon)
        second = gamma * (2.0 - gamma) * a * a + square * (e * e + 1.0)
        return _Moments(
            gamma=gamma, width=step * (e + 1.0), largest=step - gamma * a, second=second
        )

    return moments


def _pair_family(
    gamma: float, masses: list[float], density_x: list[float], density_x2: list[float]
) -> _Family:
    """Moments of L for one ordered pair of rows: ``masses`` of the blanket's outputs, and how dense
    each row is against them.
    """

    def moments(epsilon: float) -> _Moments:
        e = math.exp(epsilon)
        values = [p - e * q for p, q in zip(density_x, density_x2, strict=True)]
        second = math.fsum(mass * value * value for mass, value in zip(masses, values, strict=True))
        return _Moments(
            gamma=gamma, width=max(values) - min(values), largest=max(values), second=second
        )

    return moments


def _numeric(
    name: str,
    citation: str,
    walk: Walk | None,
    epsilon0: float,
    delta: float,
    why: str,
    applies: bool = True,
) -> PublishedBound:
    """The full expectation of one walk, inverted. None stands for a law that tells nothing."""
    value = (
        0.0
        if walk is None
        else crossing(Curve(walk, Direction.UPPER, delta, epsilon0).delta, delta, epsilon0)[1]
    )
    return PublishedBound(name, citation, applies, why, value)


def _stronger(law: LocalPrivacy, epsilon0: float, n: int, delta: float) -> PublishedBound:
    """The numerical form with clone probability 2/(E+1), flagged as sound only where the law itself
    has it.
    """
    ratio = law.max_ratio
    applies = ratio == 1 or _has_stronger_clones(law)
    why = (
        "the table's own constants give 2/(e^epsilon0 + 1)"
        if applies
        else "withdrawn for general randomizers by its erratum"
    )
    # With two symmetric outputs the blanket of binary randomized response of this ratio is the
    # clones pair with 2/(E+1).
    walk = (
        None
        if ratio == 1
        else kary_blanket(KaryLaw(2, same=ratio.numerator, other=ratio.denominator), n)
    )
    return _numeric("stronger clones", _FMT22, walk, epsilon0, delta, why, applies)


def _has_stronger_clones(law: LocalPrivacy) -> bool:
    """Whether every pair of answers has clone probability 2/(E+1) or more, E the law's largest
    ratio. Sufficient, not necessary.
    """
    if isinstance(law, KaryLaw):
        return True
    if not isinstance(law, FiniteLaw):
        return False
    rows = sorted(set(law.rows))
    if len(rows) ** 2 * len(rows[0]) > _LARGE_TABLE:
        return False
    return all(
        pair_constants(law, row_x, row_x2)[1] >= 2 / (law.max_ratio + 1)
        for row_x, row_x2 in combinations(rows, 2)
    )


def _variation_ratio(law: LocalPrivacy, epsilon0: float, n: int, delta: float) -> PublishedBound:
    """Their value: for k-ary responses of k >= 3 a lower bound of the truth, which is flagged; else
    stronger clones.
    """
    name = "variation ratio"
    if isinstance(law, KaryLaw) and law.k > 2 and law.max_ratio > 1:
        why = (
            "for k >= 3 a projection of the histogram: a lower bound on the truth, not an upper one"
        )
        return _numeric(name, _WANG, _projection(law, n), epsilon0, delta, why, applies=False)
    general = _stronger(law, epsilon0, n, delta)
    return PublishedBound(
        name, _WANG, general.applies, f"equals stronger clones: {general.why}", general.epsilon
    )


def _projection(law: KaryLaw, n: int) -> Walk:
    """(x, x', rest) of the histogram while the others answer a third value: L = t (1 - e) on the
    rest, t = P(rest | x) / P(rest | z).
    """
    rest = Fraction((law.k - 2) * law.other, law.total - 2 * law.other)
    ratio = law.max_ratio
    return Walk(
        n=n,
        pair=Fraction(2 * law.other, law.total),
        rho=Fraction(1, 2),
        slope=2 * (ratio - 1),
        slope_e=ratio - 1,
        constant=n * rest,
        per_pair=(ratio + 1) / 2 - rest,
    )

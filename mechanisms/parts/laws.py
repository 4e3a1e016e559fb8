"""Output laws of the field's randomizers, as exact integer weights of classes of outputs
(``privacy.SymmetricLaw``).

What they share: fix inputs x, x' and a third z. How likely an output is under an input depends only
on whether it *supports* that input (its bit is set, its hash value agrees, its subset contains it),
so a class is a pattern (a, b, c) of supports. No input is treated differently from another.

**The least weight.** An output is least likely under an input that it does not support. Outputs
that support *every* input (all bits set, a hash value that all inputs share) have no such input;
their true least weight is the larger one. For two inputs that is pattern (1, 1), and exact here.
For k > 2 the smaller weight is used for it too: sound (``cells``: any smaller w is), and looser by
no more than such outputs are likely: q^k or so for bits and for an ideal hash, 2^-m for a Hadamard
index of m bits (index 0), and about 1 / (g k) for a multiply-shift hash to g values (a near 0 sends
neighbours to one value). Subsets of d < k values always leave one out: exact.

Parameters are exact: ``ratio`` is a Fraction, an upper bound on e^epsilon0 (``ratio_below`` makes
one from a float), and every law's ``max_ratio`` is at most it. These are laws for the accountant:
that a mechanism has such a law is for its own tests to show.

Not here: Hadamard response with blocks (Acharya, Sun, Zhang, AISTATS 2019). Inputs of one block
share half of it and inputs of different blocks do not, so pairs do not look alike:
``hadamard_response`` states its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import product

from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, PureLaw, SymmetricLaw, epsilon0_upper

# Square roots are rounded down to so many binary digits after the point.
_ROOT_BITS = 64
_ONE = Fraction(1)
# (weight under x, under x', least, under z) of one class of outputs.
Class = tuple[Fraction, Fraction, Fraction, Fraction | None]


def ratio_below(epsilon0: float) -> Fraction:
    """A ratio within 1e-14 of e^epsilon0 whose epsilon0, rounded up, is at most the one asked for.
    epsilon0 in (0, 700].
    """
    if not 0.0 < epsilon0 <= 700.0:
        raise ShoalError(Kind.CONFIG, f"epsilon0 must lie in (0, 700], got {epsilon0}")
    ratio = 1 + Fraction(math.expm1(epsilon0))
    step = (ratio - 1) / (1 << 50)
    while epsilon0_upper(PureLaw(ratio)) > epsilon0:
        ratio -= step
        step *= 2
    return ratio


def unary(k: int, p: Fraction, q: Fraction) -> SymmetricLaw:
    """Unary encoding: k bits, the true one is set with probability p, every other with q.

    Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation",
    USENIX Security 2017, section 4.3. k >= 2, 0 < q <= p < 1. max_ratio = p (1 - q) / (q (1 - p)).
    Beyond k = 3 nothing depends on k. Raises CONFIG for other numbers.
    """
    _check_inputs(k)
    if not 0 < q <= p < 1:
        raise ShoalError(Kind.CONFIG, f"unary encoding wants 0 < q <= p < 1, got p = {p}, q = {q}")
    return _supports(k, q, Fraction(p) / q, (1 - Fraction(p)) / (1 - q))


def sue(ratio: Fraction, k: int = 3) -> SymmetricLaw:
    """Symmetric unary encoding, the basic RAPPOR of one time: p = s / (s + 1), q = 1 - p with s the
    square root of ``ratio``, rounded down.

    ``ratio`` > 1; k matters only in being 2 or more than 2. (Erlingsson, Pihur, Korolova, CCS 2014;
    Wang et al. 2017, section 4.3.)
    """
    _check_ratio(ratio)
    root = Fraction(
        math.isqrt((ratio.numerator << (2 * _ROOT_BITS)) // ratio.denominator), 1 << _ROOT_BITS
    )
    return unary(k, root / (root + 1), 1 / (root + 1))


def oue(ratio: Fraction, k: int = 3) -> SymmetricLaw:
    """Optimized unary encoding: p = 1/2, q = 1 / (ratio + 1) (Wang et al. 2017, section 5.1).
    ``ratio`` > 1, exactly met.
    """
    _check_ratio(ratio)
    return unary(k, Fraction(1, 2), 1 / (ratio + 1))


def local_hash(g: int, ratio: Fraction, k: int = 3, *, wise: int = 3) -> SymmetricLaw:
    """Local hashing: a public random hash to g values, and g-ary randomized response on the hash
    value (Wang et al. 2017, section 4.4).

    The hash is *ideal*: two different inputs collide with probability exactly 1/g and their values
    are uniform; ``wise`` = 3 says so of every three inputs (a fully random function). With ``wise``
    = 2 nothing is claimed of three, so ``third`` is None: upper bounds need pairs only. A hash
    family that is merely close to this has another law. The random function is part of the report.
    g >= 2, ``ratio`` > 1, exactly met.
    """
    _check_inputs(k)
    _check_ratio(ratio)
    if g < 2 or wise not in {2, 3}:
        raise ShoalError(
            Kind.CONFIG, f"local hashing wants g >= 2 and wise 2 or 3, got g = {g}, wise = {wise}"
        )
    # Against h random and the value uniform, P = g ratio / (ratio + g - 1) where it is x's value, g
    # / (ratio + g - 1) elsewhere.
    total = ratio + g - 1
    return _supports(k, Fraction(1, g), g * ratio / total, g / total, triples=wise == 3)


def hadamard_bit(ratio: Fraction, k: int = 3) -> SymmetricLaw:
    """One bit of the Hadamard transform: a public random index l and (-1)^popcount(l & x), flipped
    with probability 1 / (ratio + 1).

    It is local hashing with g = 2, and *exactly* so with l uniform over 2^m >= k indices: the value
    of x against a fair bit is the parity of l' & (1, x) for a uniform l' of m + 1 bits, and any
    three different (1, x) are linearly independent over GF(2). (Nguyen et al. 2016, arXiv
    1606.05053; Bassily, Nissim, Stemmer, Thakurta, NIPS 2017.) ``ratio`` > 1, exactly met.
    """
    return local_hash(2, ratio, k)


def subset(k: int, d: int, ratio: Fraction) -> SymmetricLaw:
    """Subset selection: a set of d of the k values, ``ratio`` times as likely if it contains the
    true one.

    Ye, Barg, "Optimal Schemes for Discrete Distribution Estimation under Locally Differential
    Privacy", IEEE T-IT 2018; S. Wang et al. 2016. k >= 2, 1 <= d < k, ``ratio`` > 1, exactly met. d
    = 1 is k-ary randomized response.
    """
    _check_inputs(k)
    _check_ratio(ratio)
    if not 1 <= d < k:
        raise ShoalError(Kind.CONFIG, f"subset selection wants 1 <= d < k, got d = {d}, k = {k}")
    fixed = min(k, 3)
    classes: list[Class] = []
    for pattern in product((1, 0), repeat=fixed):
        taken = sum(pattern)
        sets = math.comb(k - fixed, d - taken) if taken <= d else 0
        if sets:
            weights = [sets * (ratio if inside else _ONE) for inside in pattern]
            classes.append(
                (weights[0], weights[1], Fraction(sets), weights[2] if fixed == 3 else None)
            )
    return integers(classes, alike=True)


def _supports(
    k: int, q: Fraction, agrees: Fraction, differs: Fraction, *, triples: bool = True
) -> SymmetricLaw:
    """Against a measure under which every input is supported with probability q independently:
    density ``agrees`` or ``differs``.
    """
    known = 3 if k > 2 and triples else 2
    classes: list[Class] = []
    for pattern in product((1, 0), repeat=known):
        base = math.prod((q if bit else 1 - q for bit in pattern), start=_ONE)
        weights = [base * (agrees if bit else differs) for bit in pattern]
        least = base * (agrees if k == 2 and all(pattern) else differs)
        classes.append((weights[0], weights[1], least, weights[2] if known == 3 else None))
    return integers(classes, alike=triples)


def integers(classes: Iterable[Class], *, alike: bool = False) -> SymmetricLaw:
    """The law of these classes: the same proportions in the smallest integers. For every mechanism
    whose outputs fall into few of them. ``alike`` as in ``SymmetricLaw``.
    """
    rows = list(classes)
    flat = [weight for row in rows for weight in row if weight is not None]
    scale = Fraction(math.lcm(*(weight.denominator for weight in flat)), 1)
    scale /= math.gcd(*((weight * scale).numerator for weight in flat))

    def column(at: int) -> tuple[int, ...]:
        return tuple(int(weight * scale) for row in rows if (weight := row[at]) is not None)

    return SymmetricLaw(
        one=column(0), two=column(1), least=column(2), third=column(3) or None, alike=alike
    )


def table_of(classes: Iterable[tuple[Fraction, ...]]) -> FiniteLaw:
    """The rows of some inputs from the probabilities of each output under them, all > 0, those of
    each input summing to 1.

    Outputs of one proportion are joined, in the order in which they come: who compares these inputs
    loses nothing by it.
    """
    joined: dict[tuple[Fraction, ...], tuple[Fraction, ...]] = {}
    for weights in classes:
        key = tuple(weight / weights[-1] for weight in weights)
        known = joined.get(key, (Fraction(0),) * len(weights))
        joined[key] = tuple(a + b for a, b in zip(known, weights, strict=True))
    scale = math.lcm(*(weight.denominator for row in joined.values() for weight in row))
    rows = zip(*([int(weight * scale) for weight in row] for row in joined.values()), strict=True)
    return FiniteLaw(tuple(rows))


def _check_inputs(k: int) -> None:
    if k < 2:
        raise ShoalError(Kind.CONFIG, f"a randomizer wants k >= 2 inputs, got {k}")


def _check_ratio(ratio: Fraction) -> None:
    if ratio <= 1:
        raise ShoalError(
            Kind.CONFIG, f"ratio, the bound on e^epsilon0, must be above 1, got {ratio}"
        )

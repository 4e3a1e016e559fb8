"""Properties of certificates over random laws, batch sizes and deltas; the truth by exact rational
enumeration.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.accounting import certify
from shoal.accounting.accountant import proves, simplest
from shoal.accounting.bounds.swap import SWAP, swap
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, PureLaw, epsilon0_upper
from tests.sizes import size
from tests.unit.accounting.brute import Truth, rows_of_kary

COMMON = settings(
    max_examples=size(40, 400),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
SMALL = settings(COMMON, max_examples=size(25, 250))

deltas = st.floats(-12, -0.5).map(lambda x: 10.0**x)
sizes = st.integers(1, 20_000) | st.integers(1, 60)


@st.composite
def kary_laws(draw: st.DrawFn) -> KaryLaw:
    other = draw(st.integers(1, 1000))
    return KaryLaw(
        draw(st.integers(2, 40)), same=other + draw(st.integers(1, 100_000)), other=other
    )


@st.composite
def tables(draw: st.DrawFn, most: int = 4) -> FiniteLaw:
    width, height = draw(st.integers(2, most)), draw(st.integers(2, most))
    rows = [
        draw(st.lists(st.integers(1, 40), min_size=width, max_size=width)) for _ in range(height)
    ]
    top = max(sum(row) for row in rows)
    # One common sum: the missing weight goes to an entry that hypothesis chooses.
    for row in rows:
        row[draw(st.integers(0, width - 1))] += top - sum(row)
    return FiniteLaw(tuple(tuple(row) for row in rows))


laws: st.SearchStrategy[LocalPrivacy] = st.one_of(
    kary_laws(), tables(), st.fractions(1, 1000, max_denominator=1000).map(PureLaw)
)


@COMMON
@given(law=laws, n=sizes, delta=deltas, share=st.fractions(Fraction(1, 50), 1, max_denominator=50))
def test_certificates_are_ordered(law: LocalPrivacy, n: int, delta: float, share: Fraction) -> None:
    """0 <= lower <= upper <= epsilon0 for anything (construction checks it), and the upper end is
    proven at once: by a route, or, where it is smaller than what they prove, by swapping.

    Planted: ``epsilon_upper`` 1 % smaller, of routes or of swapping -> fails.
    """
    found = certify(law, n, delta, honest_fraction=share)
    assert found.n_honest == math.floor(share * n)
    assert found.epsilon0 == epsilon0_upper(law)
    if found.method == SWAP:
        # asked in a bracket around it: the smallest that is proven, to 1e-3, is not above it
        assert isinstance(law, Hashable)
        again = swap(law)
        assert again is not None
        low, high = 0.99 * found.epsilon_upper, 1.01 * found.epsilon_upper
        proven = again.bound(found.n_honest, delta, low, high)
        assert proven <= found.epsilon_upper * (1.0 + 1e-3)
        return
    # Windows depend on the range of epsilon that a curve is built for: 1e-8 of delta, which matters
    # where epsilon is nearly 0.
    assert proves(simplest(law), found.n_honest, delta, found.epsilon_upper + 1e-7 * found.epsilon0)


@COMMON
@given(law=laws, n=st.integers(1, 3000), more=st.integers(1, 3000), delta=deltas)
def test_more_reports_never_hurt(law: LocalPrivacy, n: int, more: int, delta: float) -> None:
    """While nothing is merged, exactly so. Planted: ``per_pair`` of the blanket larger by 3 / n of
    itself -> this fails.
    """
    assert certify(law, n + more, delta).epsilon_upper <= certify(
        law, n, delta
    ).epsilon_upper + 1e-8 * epsilon0_upper(law)


@COMMON
@given(law=laws, n=sizes, delta=deltas)
def test_unknown_randomizers_are_worse(law: LocalPrivacy, n: int, delta: float) -> None:
    """Knowing the law never gives a larger epsilon than knowing its ratio alone, and no member
    beats the class.
    """
    known, unknown = certify(law, n, delta), certify(PureLaw(law.max_ratio), n, delta)
    assert known.epsilon_upper <= unknown.epsilon_upper + 1e-8 * known.epsilon0
    assert known.epsilon_lower <= unknown.epsilon_upper


@SMALL
@given(law=tables(), n=st.integers(1, 4), delta=deltas)
def test_tables_hold_the_truth(law: FiniteLaw, n: int, delta: float) -> None:
    """Random tables, all datasets, all pairs, exactly. Planted: dataset cells weighted by x, not by
    z -> this fails.
    """
    truth = Truth([[Fraction(weight, law.total) for weight in row] for row in law.rows], n)
    found = certify(law, n, delta)
    assert truth.delta(Fraction(math.exp(found.epsilon_upper)) * (1 + Fraction(1, 10**14))) <= delta
    assert (
        found.epsilon_lower == 0.0
        or truth.delta(Fraction(math.exp(found.epsilon_lower)) * (1 - Fraction(1, 10**14))) >= delta
    )


@SMALL
@given(
    k=st.integers(2, 4),
    same=st.integers(2, 400),
    other=st.integers(1, 30),
    n=st.integers(1, 5),
    delta=deltas,
)
def test_kary_holds_the_truth(k: int, same: int, other: int, n: int, delta: float) -> None:
    """Random k-ary laws, all datasets, exactly. Planted: "others answer x" used as the upper bound
    -> this fails.
    """
    same = max(same, other)
    truth = Truth(rows_of_kary(k, same, other), n, symmetric=True)
    found = certify(KaryLaw(k, same, other), n, delta)
    assert truth.delta(Fraction(math.exp(found.epsilon_upper)) * (1 + Fraction(1, 10**14))) <= delta
    assert (
        found.epsilon_lower == 0.0
        or truth.delta(Fraction(math.exp(found.epsilon_lower)) * (1 - Fraction(1, 10**14))) >= delta
    )

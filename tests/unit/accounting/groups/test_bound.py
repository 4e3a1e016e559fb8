"""Groups of every kind of report: against exact fractions at small sizes, against laws that are
known at large ones, and against the single-device bound that they start from.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest

from shoal.accounting.accountant import certify, upper_curve
from shoal.accounting.composition.basic import group
from shoal.accounting.composition.compose import compose, composed_curve, release_law
from shoal.accounting.groups.bound import (
    CHAIN,
    LADDER,
    LOCAL,
    GroupBound,
    group_of_law,
)
from shoal.accounting.groups.of_messages import (
    group_by_ladder,
    group_of_protocol,
    group_of_several,
)
from shoal.accounting.several_messages.dummies import UniformDummies, solve_uniform
from shoal.accounting.several_messages.messages import certify_messages
from shoal.accounting.several_messages.of_domain import design_several
from shoal.cli.epsilon.mechanism_domain import domain_of_several
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create
from shoal.privacy import KaryLaw
from tests.cases import for_each
from tests.unit.accounting.brute import Law
from tests.unit.accounting.groups.group_truth import e_above, group_delta
from tests.unit.accounting.groups.test_chain import among_dummies, responses

KRR = KaryLaw(k=16, same=55, other=1)


@for_each("k, ratio", [(2, 2), (2, 6), (3, 3)])
@for_each("size", (2, 3))
def test_reports_of_one_message_at_four_devices(k: int, ratio: int, size: int) -> None:
    """The bound holds for the worst of all datasets and groups. Planted: the epsilon of one device
    for that of the group -> this fails.
    """
    exact = group_delta(responses(k, ratio), k, 4, size)
    for delta in (0.2, 0.05):
        found = group_of_law(KaryLaw(k=k, same=ratio, other=1), 4, delta, size)
        assert exact(e_above(found.epsilon_upper)) <= Fraction(delta)


@for_each("delta, method", [(0.3, CHAIN), (0.1, CHAIN), (1e-3, LOCAL)])
def test_two_windows_at_four_devices(delta: float, method: str) -> None:
    """Both views of the same devices, who keep their answers: the worst of all datasets and groups
    of two. Planted: one window for two -> this fails.
    """
    one = responses(2, 4)

    def both(data: tuple[int, ...]) -> Law:
        law = one(data)
        pairs = product(law.weights.items(), repeat=2)
        return Law({(*a, *b): x * y for (a, x), (b, y) in pairs}, law.total**2)

    exact = group_delta(both, 2, 4, 2)
    found = group_of_law(KaryLaw(k=2, same=4, other=1), 4, delta, 2, 2)
    assert exact(e_above(found.epsilon_upper)) <= Fraction(delta)
    assert found.method == method


@for_each("size", (2, 3))
def test_dummies_at_four_devices(size: int) -> None:
    """Whole views of messages. Planted: the epsilon of one device -> this fails."""
    exact = group_delta(among_dummies(2, 6), 2, 4, size)
    for delta in (0.3, 0.1):
        found = group_of_protocol(UniformDummies(2, 6), 4, delta, size)
        assert exact(e_above(found.epsilon_upper)) <= Fraction(delta)


@for_each("devices, most", [(2, 2.2), (5, 6.2), (20, 30.0)])
def test_more_than_one_device_times_their_number(devices: int, most: float) -> None:
    """A group costs at least its number of devices at small epsilon, and not much more. Planted:
    devices - 1 links -> this fails.
    """
    one = certify(KRR, 100_000, 1e-8)
    found = group_of_law(KRR, 100_000, 1e-8, devices)
    assert found.method == CHAIN
    assert devices * one.epsilon_lower < found.epsilon_upper < most * one.epsilon_upper


def test_the_smallest_way_counts() -> None:
    """Among three reports no shuffling helps two of one person. Planted: ``max`` for ``min`` ->
    this fails.
    """
    few = group_of_law(KaryLaw(k=2, same=3, other=1), 3, 1e-8, 2)
    assert few.method == LOCAL
    assert 2 * math.log(3) <= few.epsilon_upper <= 2 * math.log(3) * (1 + 1e-12)


def test_windows_compose_before_they_are_chained() -> None:
    """Two devices in four windows: between twice the composed epsilon of one and twice that plus a
    tenth; below four windows added up. Planted: windows ignored -> this fails.
    """
    law = release_law(upper_curve, KRR, 100_000, 1e-8)
    one = compose([(law, 4)], 1e-8).epsilon_upper
    found = group_of_law(KRR, 100_000, 1e-8, 2, 4)
    assert (found.devices, found.windows, found.method) == (2, 4, CHAIN)
    assert 1.95 * one < found.epsilon_upper < 2.2 * one
    assert found.epsilon_upper < 4 * group_of_law(KRR, 100_000, 2.5e-9, 2).epsilon_upper


def test_the_composed_curve_is_that_of_compose() -> None:
    """At the epsilon that ``compose`` proves it is at most delta, a hundredth below it is more; 0
    from the sum of the epsilon0's on. Planted: one round for two -> this fails.
    """
    law = release_law(upper_curve, KRR, 100_000, 1e-8)
    epsilon = compose([(law, 2)], 1e-8).epsilon_upper
    curve = composed_curve([(law, 2)], 1e-8)
    assert curve(epsilon) <= 1e-8 * (1 + 1e-6)
    assert curve(epsilon * 0.99) > 1e-8
    assert curve(2.001 * law.epsilon0) == 0.0


def several(name: str, cells: int, delta: float) -> Several:
    domain = domain_of_several(name, cells)
    spec = design_several(name, domain, 18_000, 1.0, delta, windows=1, most=20_000)
    return create(spec, domain)


@for_each(
    "name, cells", [("dummies", 16), ("cancelling", 16), ("signed_count", 2), ("split_mix", 102)]
)
def test_several_messages(name: str, cells: int) -> None:
    """Two devices: at least 1.9 times one, at most 2.3 times. Planted: one device for two, or two
    windows for two devices (which cost dummies 1.4) -> this fails.
    """
    found = group_of_several(several(name, cells, 1e-6), 18_000, 1e-6, 2)
    assert found.method == CHAIN
    assert 1.9 < found.epsilon_upper < 2.3


def test_noise_that_is_cut_off_proves_nothing_for_many() -> None:
    """Designed for one device at 1e-6 its charges are worth no delta for eight; designed at 1e-9
    they are. Planted: charges left out of the law of losses -> this fails.
    """
    with pytest.raises(ShoalError, match="designed for a smaller delta") as caught:
        group_of_several(several("cancelling", 16, 1e-6), 18_000, 1e-6, 8)
    assert caught.value.kind is Kind.CONFIG
    assert group_of_several(several("cancelling", 16, 1e-9), 18_000, 1e-6, 5).epsilon_upper < 6


def test_windows_of_a_protocol_without_losses_add_up() -> None:
    """Two windows of one device each at half of delta. Planted: epsilon shared, delta not -> this
    fails.
    """
    protocol = solve_uniform(64, 1_000, 1.0, 1e-6)
    each = certify_messages(protocol, 1_000, 5e-7)
    assert each is not None
    found = group_of_protocol(protocol, 1_000, 1e-6, 1, 2)
    assert 2 * each.epsilon_upper <= found.epsilon_upper <= 2.01 * each.epsilon_upper


def test_certificates_alone() -> None:
    """Equal links: what is said of three is what ``group`` makes of one at a smaller delta.
    Planted: the first part tried returned unchecked -> this fails.
    """
    parts: list[float] = []

    def certified(part: float) -> float:
        parts.append(part)
        return 1.0 + 0.01 * math.log(1e-6 / part)

    found = group_by_ladder(certified, 1e-6, 3, n_honest=1_000)
    epsilon, total = group(math.nextafter(certified(parts[-1]), 9.0), parts[-2], 3)
    assert found.method == LADDER
    assert total <= 1e-6
    assert len(parts) > 2
    assert found.epsilon_upper == pytest.approx(epsilon)


def test_a_group_larger_than_the_honest_is_refused() -> None:
    """Planted: no check -> this fails."""
    with pytest.raises(ShoalError, match="give a smaller group, or more reports") as caught:
        group_of_law(KRR, 10, 1e-8, 11)
    assert caught.value.kind is Kind.CONFIG


@for_each("epsilon, windows", [(math.inf, 1), (-1.0, 1), (math.nan, 1), (1.0, 0)])
def test_a_bound_that_says_nothing_is_refused(epsilon: float, windows: int) -> None:
    """Planted: no check -> this fails."""
    with pytest.raises(ShoalError, match="finite and at least 0") as caught:
        GroupBound(2, windows, epsilon, 1e-6, CHAIN)
    assert caught.value.kind is Kind.INVALID

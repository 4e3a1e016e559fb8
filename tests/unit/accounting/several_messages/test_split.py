"""The account of split numbers: against all views of a few devices, and the law of the sum by
itself; designs; composition.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from shoal.accounting.composition.compose import compose
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.of_task import guaranteed_several
from shoal.accounting.several_messages.messages import certify_messages, epsilon_interval
from shoal.accounting.several_messages.of_domain import design_several
from shoal.accounting.several_messages.of_mechanism import losses_of, protocol_of
from shoal.accounting.several_messages.split import SplitProtocol
from shoal.accounting.several_messages.splitting import distance_of_split
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.noise.polya import UNIT
from shoal.mechanisms.several.parameters import MOST_SPLIT_SCALE
from shoal.mechanisms.several.registry import create
from shoal.mechanisms.several.split_mix import SplitMix
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.unit.accounting.several_messages.test_splitting import splits

UNIT_INTERVAL = Numeric(0.0, 1.0, 1001)
DELTA = 1e-6


def split(levels: int, b: float, shares: int, slots: int, size: int = 4) -> SplitMix:
    spec = MechanismSpec.of(
        "split_mix", scale=round(UNIT * b), shares=shares, slots=slots, bytes=size
    )
    return SplitMix(spec, Numeric(0.0, 1.0, levels))


def small(made: SplitMix, bits: int) -> SplitProtocol:
    """The account of ``made`` with a modulus of a few bits, so that all views can be listed."""
    protocol = SplitProtocol(made)
    protocol.__dict__["distance"] = distance_of_split(made.least_devices, made.messages, bits)
    return protocol


def laplace(b: float, reach: int) -> dict[int, float]:
    p = math.exp(-1.0 / b)
    return {x: math.tanh(0.5 / b) * p ** abs(x) for x in range(-reach, reach + 1)}


def polya(b: float, shares: int, reach: int) -> list[float]:
    """The law of one device's share, from its definition, on -reach..reach."""
    p, r = math.exp(-1.0 / b), 1.0 / shares
    one = [(1.0 - p) ** r]
    for k in range(reach):
        one.append(one[-1] * p * (k + r) / (k + 1))
    return list(np.convolve(one, one[::-1]))


@for_each("b, bits, slots", [(0.5, 2, 12), (1.5, 1, 8), (3.0, 3, 3), (6.0, 1, 4)])
def test_no_view_of_all_devices_tells_more_than_the_bound(b: float, bits: int, slots: int) -> None:
    """Two devices, every noise and every view, both directions. Planted: (1 + e) A left out ->
    less than is seen at epsilon 1, fails; each device's noise split over twice as many -> fails.
    """
    q, reach = 1 << bits, 60 * math.ceil(b)
    made = split(2, b, 2, slots)
    residues = [0.0] * q
    for at, mass in enumerate(polya(b, 2, reach)):
        residues[(at - reach) % q] += mass
    views = {y: splits(y, slots, q) for y in product(range(q), repeat=2)}

    def seen(x: tuple[int, int]) -> dict[tuple[int, ...], float]:
        found: dict[tuple[int, ...], float] = {}
        for y, view in views.items():
            weight = residues[(y[0] - x[0]) % q] * residues[(y[1] - x[1]) % q]
            for key, share in view.items():
                found[key] = found.get(key, 0.0) + weight * float(share)
        return found

    protocol = small(made, bits)
    curve = protocol.curve(2, Direction.UPPER, DELTA)
    epsilons = (0.0, 0.01, 0.3, 1.0, 2.0)
    worst = dict.fromkeys(epsilons, 0.0)
    for other in range(2):
        laws = [seen((x, other)) for x in range(made.width + 1)]
        for one, two in product(laws, repeat=2):
            for epsilon in epsilons:
                e = math.exp(epsilon)
                delta = sum(max(mass - e * two.get(key, 0.0), 0.0) for key, mass in one.items())
                worst[epsilon] = max(worst[epsilon], delta)
    for epsilon, delta in worst.items():
        assert delta <= curve(epsilon)
    assert worst[0.0] > 0.0


@for_each("levels, b", [(2, 1.0), (2, 3.0), (4, 5.0), (11, 19.5)])
def test_the_noisy_sum_has_the_delta_that_is_stated(levels: int, b: float) -> None:
    """Its law by itself, shifted by 2 (L - 1). Planted: D = L - 1 -> below, fails; the mass below 0
    left out -> below, fails.
    """
    made = split(levels, b, 10**5, 9)
    width = 2 * (levels - 1)
    law = laplace(b, 60 * math.ceil(b) + width)
    protocol = SplitProtocol(made)
    for epsilon in (0.0, 0.1, width / b * 0.5, width / b * 0.99, width / b * 1.01):
        e = math.exp(epsilon)
        exact = math.fsum(
            max(mass - e * law[x - width], 0.0) for x, mass in law.items() if x - width in law
        )
        charge = (1.0 + e) * protocol.distance
        low, high = (
            protocol.curve(10**5, direction, DELTA)(epsilon)
            for direction in (Direction.LOWER, Direction.UPPER)
        )
        assert low <= exact + 1e-12
        assert exact <= high + 1e-15
        assert high - low <= 1.1 * charge + 3e-9


def test_fewer_honest_devices_than_shares_prove_nothing_and_more_prove_the_same() -> None:
    """Planted: n_honest not compared with shares -> a bound, fails."""
    protocol = SplitProtocol(split(11, 20.0, 1000, 12))
    assert epsilon_interval(protocol, 999, DELTA) is None
    exact, more = (epsilon_interval(protocol, n, DELTA) for n in (1000, 5000))
    assert exact is not None
    assert more is not None
    assert exact[1] == more[1]
    assert more[0] == 0.0
    with pytest.raises(ShoalError, match="split over 1000 devices, and only 999") as caught:
        guaranteed_several(split(11, 20.0, 1000, 12), 999, 1, DELTA)
    assert caught.value.kind is Kind.CONFIG


@for_each(
    "n, epsilon, delta, most, slots, size",
    [
        (10**5, 1.0, 1e-6, 120_000, 7, 4),
        (10**5, 1.0, 1e-6, 0, 8, 5),
        (10**4, 1.0, 1e-6, 0, 9, 5),
        (10**3, 0.5, 1e-8, 0, 11, 5),
        (20, 2.0, 1e-6, 100, 16, 3),
    ],
)
def test_designs_reach_the_target_with_the_error_of_a_curator(
    n: int, epsilon: float, delta: float, most: int, slots: int, size: int
) -> None:
    """A mean of [0, 1] in a thousand steps: the certificate within 1e-5 of the target, its error
    that of the continuous Laplace law, sqrt(2) / (n epsilon), and of rounding; at n = 1e5, epsilon
    1 at most 1.45e-5. Planted: D = L - 1 in the mechanism -> half the certificate, fails.
    ``slots``, ``size``: as first found, so that a change is seen.
    """
    spec = design_several("split_mix", UNIT_INTERVAL, n, epsilon, delta, windows=1, most=most)
    made = create(spec, UNIT_INTERVAL)
    bound = certify_messages(protocol_of(made), n, delta)
    assert bound is not None
    assert bound.epsilon_upper <= epsilon
    assert bound.epsilon_lower >= epsilon * (1.0 - 1e-5)
    assert math.isinf(bound.epsilon0)
    assert (spec.get("slots"), spec.get("bytes")) == (slots, size)
    assert isinstance(made, SplitMix)
    assert made.most_reports >= max(n, most)
    central = math.sqrt(2.0) / (n * epsilon)
    assert central <= made.expected_stderr(n) * (1.0 + 1e-6)
    assert made.expected_stderr(n) <= math.hypot(central, 0.0005 / math.sqrt(n)) * (1.0 + 1e-6)
    if n == 10**5:
        assert made.expected_stderr(n) <= 1.45e-5


def test_windows_compose_by_the_law_of_the_sum() -> None:
    """Thirty windows at a small epsilon: hardly above what the Laplace law by itself composes to,
    found here from its masses by brute force. Planted: the charge for A left out of the losses ->
    infinity has none, fails.
    """
    windows, epsilon = 30, 0.1
    domain = Numeric(0.0, 1.0, 401)
    spec = design_several("split_mix", domain, 10**5, epsilon, DELTA, windows=windows)
    made = create(spec, domain)
    assert isinstance(made, SplitMix)
    law = losses_of(made, 10**5, DELTA)
    assert law is not None
    assert law.infinity >= (1.0 + math.exp(epsilon)) * SplitProtocol(made).distance
    found = compose([(law, windows)], DELTA).epsilon_upper
    assert composed_laplace(epsilon, windows, 1.2 * DELTA) <= found
    assert found <= 1.01 * composed_laplace(epsilon, windows, DELTA)
    assert losses_of(made, 10**5 - 1, DELTA) is None


def composed_laplace(epsilon: float, windows: int, delta: float) -> float:
    """Of the continuous Laplace law on a grid, rounded to the nearest."""
    steps = 2_000
    losses = np.linspace(-epsilon, epsilon, 2 * steps + 1)
    # loss l at x = (1 - l / epsilon) / 2 of the shift: density e^(-epsilon x) epsilon / 2
    inner = np.exp(-(epsilon - losses) / 2.0) * (epsilon / steps) / 4.0
    inner[[0, -1]] = 0.5 * math.exp(-epsilon), 0.5
    inner /= inner.sum()
    size = 1 << math.ceil(math.log2(windows * 2 * steps + 1))
    masses = np.fft.irfft(np.fft.rfft(inner, size) ** windows, size)[: windows * 2 * steps + 1]
    at = (np.arange(len(masses)) - windows * steps) * (epsilon / steps)
    low, high = 0.0, windows * epsilon
    for _ in range(60):
        middle = (low + high) / 2.0
        above = at > middle
        got = float(np.sum(np.maximum(masses[above], 0.0) * -np.expm1(middle - at[above])))
        low, high = (middle, high) if got > delta else (low, middle)
    return high


@for_each(
    "domain, n, epsilon, delta, reason",
    [
        (YesNo(), 1000, 1.0, 1e-6, "mean of numbers"),
        (Categories(("a", "b")), 1000, 1.0, 1e-6, "mean of numbers"),
        (Numeric(0.0, 1.0, 60_000), 1000, 0.5, 1e-6, "levels or fewer"),
        (UNIT_INTERVAL, 2, 1.0, 1e-60, "raise min_batch"),
        (UNIT_INTERVAL, 1000, 0.0, 1e-6, "target epsilon"),
        (UNIT_INTERVAL, 1000, 1.0, 0.0, "delta"),
    ],
)
def test_what_can_not_be_designed_is_refused(
    domain: Domain, n: int, epsilon: float, delta: float, reason: str
) -> None:
    with pytest.raises(ShoalError, match=reason) as caught:
        design_several("split_mix", domain, n, epsilon, delta, windows=1)
    assert caught.value.kind is Kind.CONFIG


def test_the_levels_that_a_refusal_names_will_do() -> None:
    with pytest.raises(ShoalError) as caught:
        design_several("split_mix", Numeric(0.0, 1.0, 60_000), 1000, 0.5, 1e-6, windows=1)
    levels = int(str(caught.value).split("give the domain ")[1].split()[0])
    domain = Numeric(0.0, 1.0, levels)
    assert design_several("split_mix", domain, 1000, 0.5, 1e-6, windows=1).get("shares") == 1000
    with pytest.raises(ShoalError):
        design_several("split_mix", replace(domain, levels=levels + 1), 1000, 0.5, 1e-6, windows=1)
    assert Fraction(UNIT * 2 * (levels - 1), MOST_SPLIT_SCALE) <= Fraction(1, 2)


def test_the_modulus_has_room_for_the_noise() -> None:
    """A hundred and sixty reports of a hundred levels fit into two bytes, but their noise does not.
    Planted: reports compared with the modulus alone -> two bytes, fails.
    """
    domain = Numeric(0.0, 1.0, 101)
    sizes = {
        epsilon: design_several("split_mix", domain, 100, epsilon, 1e-6, windows=1, most=160).get(
            "bytes"
        )
        for epsilon in (0.05, 2.0)
    }
    assert sizes == {0.05: 3, 2.0: 2}


def test_no_distance_is_zero() -> None:
    """Smaller than any float it is still above 0. Planted: exp of -1282 -> 0, fails."""
    assert 0.0 < distance_of_split(257, 200, 16) < 1e-100

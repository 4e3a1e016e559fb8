"""What the numbers of messages of devices, which the shuffler knows, tell beside a release: exact,
at small sizes, by whole multisets.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import numpy as np

from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.messages import certify_messages
from shoal.accounting.several_messages.noise import SIZES, NoiseProtocol
from shoal.accounting.several_messages.noise_design import design_cancelling
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from tests.cases import for_each
from tests.unit.accounting.several_messages.devices import (
    Masses,
    View,
    divergence_of,
    noise_of_one,
    plus,
    truth_of,
)

SIGNS = NoiseLaw(Truth.SIGN, 1, 2, 44, Fraction(1, 2), 12, Fraction(4), 2)
DUMMIES = NoiseLaw(Truth.CELL, 2, 3, 8, dummies=Fraction(2))
EPSILONS = (0.5, 1.0, 1.5, 2.0)


def views(law: NoiseLaw, values: tuple[int, ...]) -> dict[tuple[View, View], float]:
    """Of all devices: how many messages each sent, and the mixture."""
    one = {view: mass for view, mass in noise_of_one(law).items() if mass > 1e-9}
    found: dict[tuple[View, View], float] = {((), (0,) * (2 * law.cells)): 1.0}
    for value in values:
        further = defaultdict[tuple[View, View], float](float)
        for (sizes, mixture), mass in found.items():
            for noise, share in one.items():
                if mass * share > 1e-12:
                    sent = plus(mixture, plus(noise, truth_of(law, value)))
                    further[(*sizes, sum(noise)), sent] += mass * share
        found = dict(further)
    return found


def released(law: NoiseLaw, mixture: View) -> View:
    """What a release shows of it: differences of + and -, or numbers of messages."""
    if not law.signed:
        return mixture
    return tuple(np.subtract(mixture[: law.cells], mixture[law.cells :]).tolist())


def seen(
    law: NoiseLaw, found: dict[tuple[View, View], float], *, sizes: bool, mixture: bool
) -> Masses:
    """With the numbers of messages or without; of the mixture all, or what is released."""
    out = defaultdict[View, float](float)
    for (sent, whole), mass in found.items():
        shown = whole if mixture else released(law, whole)
        out[(*(sent if sizes else ()), *shown)] += mass
    return dict(out)


def apart(pair: list[Masses], epsilon: float) -> float:
    one, other = pair
    return divergence_of(one, other, math.exp(epsilon))


def test_of_signs_sizes_and_release_tell_more_than_the_mixture() -> None:
    """So certificates must say that the shuffler does not read the release."""
    law = SIGNS
    pair = [views(law, values) for values in ((1, 0), (0, 0))]
    analyzer, shuffler, public = (
        [seen(law, each, sizes=sizes, mixture=mixture) for each in pair]
        for sizes, mixture in ((False, True), (True, False), (False, False))
    )
    upper = NoiseProtocol(law).curve(2, Direction.UPPER, 1e-3)
    for epsilon in EPSILONS:
        assert apart(public, epsilon) <= apart(analyzer, epsilon) <= upper(epsilon)
    assert 0.0598 < apart(analyzer, 1.5) < 0.0605
    assert 0.0897 < apart(shuffler, 1.5) < 0.0907


def test_of_dummies_sizes_tell_nothing_beside_the_release() -> None:
    """Planted: numbers that depend on the value -> they tell, fails."""
    law = DUMMIES
    pair = [views(law, values) for values in ((0, 1, 1), (1, 1, 1))]
    with_sizes, without = (
        [seen(law, each, sizes=sizes, mixture=False) for each in pair] for sizes in (True, False)
    )
    for epsilon in EPSILONS:
        assert abs(apart(with_sizes, epsilon) - apart(without, epsilon)) < 1e-6
        assert apart(without, epsilon) > 1e-3


def test_at_a_hundred_thousand_devices() -> None:
    """A signed count designed for (1, 1e-6), but for its empties, and one test of the shuffler's:
    every device sent an odd number of messages, its true one among them, and the released count is
    at the truth or above. Then all singles are even but for devices with two odd ones, and the
    noise moves the count by whole steps of a device.
    """
    n = 100_000
    law = design_cancelling(Truth.SIGN, 1, n, 1.0, 1e-6).bare
    certified = certify_messages(NoiseProtocol(law), n, 1e-6)
    assert certified is not None
    assert certified.epsilon_upper <= 1.0
    q, longest, room = float(law.singles), law.longest, 400
    rates = {size: q**size / size for size in range(1, longest + 1)}
    odd = 2.0 * sum(rate for size, rate in rates.items() if size % 2)
    none_odd, all_even = math.exp(-odd), ((1.0 + math.exp(-2.0 * odd / n)) / 2.0) ** n
    halves = {size // 2: rate for size, rate in rates.items() if size % 2 == 0}
    side = np.zeros(room)
    side[0] = math.exp(-sum(halves.values()))
    for total in range(1, room):
        steps = (size * rate * side[total - size] for size, rate in halves.items() if size <= total)
        side[total] = sum(steps) / total
    difference = np.convolve(side, side[::-1])
    here, moved = float(difference[room - 1 :].sum()), float(difference[room:].sum())
    two_odd = all_even - none_odd  # some device has two odd ones: counted against
    assert 0.065 < none_odd * here - math.e * (none_odd * moved + two_odd) < 0.066


@for_each(
    "law",
    [
        SIGNS,
        DUMMIES,
        NoiseLaw(Truth.CELL, 2, 2, 44, Fraction(1, 2), 12, Fraction(4), 2),
        NoiseLaw(Truth.CELL, 4, 2, 44, Fraction(1, 2), 12, Fraction(4), 2, truths=2),
        replace(SIGNS, full=True),
        replace(SIGNS, empties=Fraction(30), widest=4),
    ],
)
def test_a_certificate_says_so(law: NoiseLaw) -> None:
    """Planted: said of none, or of dummies too, or of hidden numbers too -> fails."""
    tells = law.signed and not law.full and not law.empties
    assert (SIZES in NoiseProtocol(law).assumptions) == tells

"""Several messages per device with the noise of a law: against everything that devices can send, at
small sizes, and against laws of forty-five digits.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.accounting.numerics.curve import Direction
from shoal.accounting.of_task import guaranteed_several
from shoal.accounting.several_messages.charges import (
    full_submissions,
    long_singles,
    singles_beyond,
    surplus,
)
from shoal.accounting.several_messages.messages import (
    SeveralMessages,
    certify_messages,
    epsilon_interval,
)
from shoal.accounting.several_messages.more_devices import shown_many
from shoal.accounting.several_messages.noise import NoiseProtocol, exact_delta
from shoal.accounting.several_messages.one_more import Shown, divergence
from shoal.accounting.several_messages.signed_count import count_divergence
from shoal.domain import Categories, YesNo
from shoal.errors import ShoalError
from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseLaw, Truth
from shoal.mechanisms.several.registry import create
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.unit.accounting.several_messages.devices import divergence_of, pairs_of_views

DELTA = 1e-6
EPSILONS = (0.0, 0.2, 0.7, 1.5, 3.0)
THIRD = Fraction(1, 3)

HISTOGRAM = NoiseLaw(Truth.CELL, 2, 2, 8, Fraction(1, 4), 3, Fraction(1, 3), 1)
COUNT = NoiseLaw(Truth.SIGN, 1, 3, 12, Fraction(2, 5), 6, Fraction(4, 5), 2)
DUMMIES = NoiseLaw(Truth.CELL, 3, 2, 9, dummies=Fraction(3, 2))
LAWS = {
    "a histogram": (HISTOGRAM, 2, 0),
    "one that somebody else is in": (replace(HISTOGRAM, slots=6), 2, 1),
    "a histogram of three cells": (
        NoiseLaw(Truth.CELL, 3, 2, 5, Fraction(1, 8), 2, Fraction(1, 9), 1),
        2,
        0,
    ),
    "a histogram of three devices": (
        NoiseLaw(Truth.CELL, 2, 3, 5, Fraction(1, 5), 2, Fraction(1, 4), 2),
        3,
        0,
    ),
    "a count": (COUNT, 3, 0),
    "a count of one device": (replace(COUNT, shares=1, slots=24), 1, 2),
    "a full histogram": (replace(HISTOGRAM, full=True), 2, 0),
    "a full count": (replace(COUNT, shares=2, full=True), 2, 0),
    "dummies": (DUMMIES, 2, 0),
    "dummies of three devices": (replace(DUMMIES, cells=2, shares=3), 3, 1),
    "a cap that is often met": (replace(HISTOGRAM, slots=3), 2, 0),
    "a cut that is often met": (replace(HISTOGRAM, longest=1, singles=THIRD), 2, 0),
}


def curves(law: NoiseLaw, honest: int, epsilon: float) -> tuple[float, float]:
    """(lower, upper) at ``epsilon``."""
    protocol = NoiseProtocol(law)
    lower, upper = (
        protocol.curve(honest, direction, DELTA)(epsilon)
        for direction in (Direction.LOWER, Direction.UPPER)
    )
    return lower, upper


@pytest.mark.parametrize("name", LAWS)
def test_the_curves_hold_what_devices_send(name: str) -> None:
    """Every multiset, device by device, with cap, cut and integers; every dataset of the others,
    every pair of answers, both directions.

    Planted: each of ``full_submissions``, ``long_singles`` = 0 -> a case where it is often met
    fails; one cell for two in ``cells_looked_at`` -> fails; ``certain`` = 0 -> fails; w with q for
    q^2 -> fails.
    """
    law, honest, known = LAWS[name]
    pairs = list(pairs_of_views(law, honest, known))
    for epsilon in EPSILONS:
        found = [divergence_of(p, q, math.exp(epsilon)) for p, q in pairs]
        truth = max(found)
        assert min(found) == pytest.approx(truth, rel=1e-9)  # every dataset, both directions
        lower, upper = curves(law, honest, epsilon)
        assert lower <= truth * (1 + 1e-12)
        assert truth <= upper * (1 + 1e-12)
        charge = (1 + math.exp(epsilon)) * (
            long_singles(law) + full_submissions(law, law.shares, DELTA)
        )
        assert upper - lower <= 2 * charge + 1e-6 * upper


@for_each(
    "law",
    [
        replace(COUNT, shares=2, empties=Fraction(5), widest=2),
        replace(HISTOGRAM, empties=Fraction(4), widest=1),
    ],
)
def test_empties_tell_the_analyzer_nothing(law: NoiseLaw) -> None:
    """How many came is seen, and says no more than a fuller submission does: within the charges the
    divergence is that without empties, and both curves hold it.

    Planted: empties left out of ``message_rates`` -> fails (the cap is met more often).
    """
    bare = law.bare
    pairs, without = (list(pairs_of_views(each, 2)) for each in (law, bare))
    for epsilon in EPSILONS:
        truth, plain = (
            max(divergence_of(p, q, math.exp(epsilon)) for p, q in each)
            for each in (pairs, without)
        )
        charge = (1 + math.exp(epsilon)) * full_submissions(law, 2, DELTA)
        assert abs(truth - plain) <= charge
        lower, upper = curves(law, 2, epsilon)
        assert lower <= truth <= upper
        exact = exact_delta(law, epsilon, DELTA) + (1 + math.exp(epsilon)) * long_singles(law)
        assert truth <= (exact + charge) * (1 + 1e-9)


@for_each("field", ["cap", "cut"])
def test_what_the_charges_are_for(field: str) -> None:
    """Without its charge the exact law promises less than the truth: the cap and the cut do hurt.

    Planted: noise of a capped device kept in ``devices`` -> the first case fails.
    """
    law = LAWS[f"a {field} that is often met"][0]
    pairs = list(pairs_of_views(law, 2))
    truth = max(divergence_of(p, q, math.e) for p, q in pairs)
    assert exact_delta(law, 1.0, DELTA) < truth * 0.99
    assert truth <= curves(law, 2, 1.0)[1]


def test_noise_shared_among_too_many() -> None:
    """Two honest devices with the shares of three make less noise than the law of three: nothing is
    proven for them, and the number of three would be wrong.

    Planted: ``n_honest`` not looked at in ``curve`` -> fails.
    """
    law = replace(HISTOGRAM, shares=3)
    truth = max(divergence_of(p, q, math.e) for p, q in pairs_of_views(law, 2, 1))
    assert truth > 1.05 * curves(law, 3, 1.0)[1]
    assert curves(law, 2, 1.0) == (0.0, 2.0)
    assert epsilon_interval(NoiseProtocol(law), 2, 0.99) is None


@for_each("kind", ["histogram", "count", "dummies"])
def test_more_devices_than_shares(kind: str) -> None:
    """The upper curve stays, and the truth only falls; the lower curve follows it.

    Planted: the lower curve of ``shares`` devices for more of them -> fails; F_(d+1) for F_(d-1) in
    ``more_devices`` -> fails.
    """
    law = {
        "histogram": replace(HISTOGRAM, slots=6, floods=Fraction(1, 9), singles=Fraction(1, 9)),
        "count": replace(COUNT, shares=2, slots=20, longest=10),
        "dummies": replace(DUMMIES, cells=2),
    }[kind]
    before = curves(law, 2, 1.0)
    truth = max(divergence_of(p, q, math.e) for p, q in pairs_of_views(law, 3))
    lower, upper = curves(law, 3, 1.0)
    assert lower <= truth <= upper == before[1]
    assert before[0] > truth
    assert lower > 0.95 * truth


@for_each("truth", list(Truth))
def test_two_ways_to_one_law(truth: Truth) -> None:
    """The closed forms against a plain table of all (u, v), from the integers that are drawn; and
    what more devices have is below it.

    Planted: bins of ratios 2^-4 wide -> fails; singles of one device for those of all -> fails.
    """
    cells = 16 if truth is Truth.CELL else 1
    law = NoiseLaw(truth, cells, 10_000, 60, Fraction(16, 25), 60, Fraction(195), 4)
    for devices, most in ((10_000, 1.0001), (10_200, 0.9), (20_000, 0.01)):
        found = shown_many(law, devices, DELTA * 1e-8)
        assert found is not None
        for epsilon in (0.3, 1.0):
            other = (
                divergence(found, epsilon, Direction.LOWER)
                if isinstance(found, Shown)
                else count_divergence(found, epsilon, Direction.LOWER)
            )
            exact = exact_delta(law, epsilon, DELTA)
            assert other <= exact * (most if epsilon == 1.0 else 1.0001)
            if devices == 10_000:
                assert other >= exact * 0.9995


def test_a_count_whose_zero_can_be_seen() -> None:
    """A "0" of a kind of its own is not hidden by any noise of + and -: delta is 1.

    Planted: zeros sent as - -> the last line fails.
    """
    for p, q in pairs_of_views(COUNT, 3):
        # The same devices, but zeros as messages of a third kind: + and - of the others stay, and
        # how many zeros there are shows the sum of all.
        shown = [
            {(*view, zeros): mass for view, mass in law.items()} for law, zeros in ((p, 1), (q, 2))
        ]
        assert divergence_of(shown[0], shown[1], 1e6) == pytest.approx(1.0)
        assert divergence_of(p, q, 3.0) < 0.9


def test_the_charges_against_exact_numbers() -> None:
    """Planted: sums from ``longest`` on, not from above it -> fails; P(T > slots) -> fails."""
    q = Fraction(2, 3)
    exact = sum(q**j / j for j in range(8, 400))
    assert 1.0 <= singles_beyond(q, 7) / float(exact) < 1 + 1e-8
    law = replace(COUNT, singles=q, longest=7)
    assert long_singles(law) == pytest.approx(2 * float(exact), rel=1e-8)
    assert long_singles(replace(HISTOGRAM, singles=q, longest=7)) == pytest.approx(
        4 * float(exact), rel=1e-8
    )
    assert long_singles(DUMMIES) == 0.0
    mean = float(Fraction(3 * DUMMIES.rates()[0].weight, 1 << RATE_BITS))
    below = math.fsum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(9))
    assert full_submissions(DUMMIES, 5, 1e-15) == pytest.approx(5 * (1 - below), rel=1e-8)
    assert 0.0 < surplus(HISTOGRAM) < 1e-17


@for_each(
    "epsilon, s, floods, largest, delta",
    [
        (1.0, 0.45, 191.57, 4, 9.988341210462e-07),
        (1.0, 0.4, 64.86, 4, 9.976669143332e-07),
        (1.0, 0.45, 320.98, 4, 9.986483620174e-09),
        (1.0, 0.45, 1234.6, 1, 9.980268769562e-07),
    ],
)
def test_the_exact_law_at_large_sizes(
    epsilon: float, s: float, floods: float, largest: int, delta: float
) -> None:
    """Values by another program. Planted: floods of one size for those of all -> fails."""
    law = NoiseLaw(Truth.CELL, 16, 1000, 99, Fraction(math.exp(-s)), 99, Fraction(floods), largest)
    upper = exact_delta(law, epsilon, delta)
    lower = exact_delta(law, epsilon, delta, Direction.LOWER)
    assert lower * (1 - 1e-11) <= delta <= upper * (1 + 1e-11)
    assert upper / lower < 1 + 1e-6


def test_more_noise_promises_more() -> None:
    """Planted: charges left out -> the last two fail."""
    law = NoiseLaw(Truth.CELL, 16, 10_000, 63, Fraction(16, 25), 39, Fraction(190), 4)
    delta = curves(law, 10_000, 1.0)[1]
    assert curves(replace(law, floods=Fraction(195)), 10_000, 1.0)[1] < delta
    assert curves(replace(law, singles=Fraction(65, 100)), 10_000, 1.0)[1] < delta
    assert exact_delta(replace(law, largest=5), 1.0, DELTA) < exact_delta(law, 1.0, DELTA)
    assert curves(replace(law, slots=55), 10_000, 1.0)[1] > delta * 1.001
    assert curves(replace(law, longest=36), 10_000, 1.0)[1] > delta * 1.001
    fewer = NoiseLaw(Truth.CELL, 16, 10_000, 9, dummies=Fraction(42))
    assert (
        curves(replace(fewer, dummies=Fraction(43)), 10_000, 1.0)[1] < curves(fewer, 10_000, 1.0)[1]
    )


def test_the_interval_is_narrow_and_names_what_it_needs() -> None:
    """Upper and lower within 0.2 %. Planted: the charges twice in the lower curve, delta a hundred
    times too large -> fails.
    """
    for law, name in (
        (NoiseLaw(Truth.CELL, 16, 9_000, 63, Fraction(16, 25), 39, Fraction(195), 4), "cancelling"),
        (
            NoiseLaw(Truth.SIGN, 1, 9_000, 40, Fraction(16, 25), 39, Fraction(210), 4),
            "signed-count",
        ),
        (NoiseLaw(Truth.CELL, 16, 9_000, 8, dummies=Fraction(43)), "poisson-dummies"),
    ):
        protocol = NoiseProtocol(law)
        assert isinstance(protocol, SeveralMessages)
        bound = certify_messages(protocol, 10_000, DELTA, honest_fraction=Fraction(9, 10))
        assert bound is not None
        assert bound.method == name
        assert bound.epsilon_upper * 0.998 < bound.epsilon_lower < bound.epsilon_upper < 1.05
        assert any("9000 honest devices" in text for text in bound.assumptions)
        assert any(f"{law.slots} messages" in text for text in bound.assumptions)
        assert 1 < bound.messages_per_device == law.mean_messages
        assert certify_messages(protocol, 9_999, DELTA, honest_fraction=Fraction(9, 10)) is None


@for_each("epsilon", [0.0, 1.0, 39.9, 40.0])
def test_extremes_stay_in_order(epsilon: float) -> None:
    """Large and small everything. Planted: no ``min`` with 1 -> fails."""
    for law in (
        NoiseLaw(Truth.CELL, 1 << 20, 10**5, 20_000, Fraction(16, 25), 39, Fraction(190), 4),
        NoiseLaw(Truth.CELL, 2, 1, 1, Fraction(1, 1 << 32), 1, Fraction(1, 1 << 32), 1),
        NoiseLaw(Truth.SIGN, 1, 10**8, 5, Fraction(99, 100), 256, Fraction(5000), 256),
        NoiseLaw(Truth.CELL, 2, 10**8, 1, dummies=Fraction(1, 1 << 32)),
        NoiseLaw(Truth.CELL, 2, 7, 10_000, dummies=Fraction(20_000)),
    ):
        for delta in (1e-100, DELTA, 0.9):
            lower, upper = (
                NoiseProtocol(law).curve(law.shares, direction, delta)(epsilon)
                for direction in (Direction.LOWER, Direction.UPPER)
            )
            assert 0.0 <= lower <= upper <= 1.0


@pytest.mark.timeout(60)
@for_each(
    "name, numbers",
    [
        ("signed_count", {"largest": 256}),
        ("cancelling", {"largest": 256, "k": 4}),
        ("cancelling", {"largest": 1, "k": 4}),
    ],
)
def test_integers_of_any_size_end_in_a_word(name: str, numbers: dict[str, int]) -> None:
    """The largest that a task may state: nothing is proven, which services and devices that meet
    such a task are told within a moment, whoever signed it. Planted: all terms of q^j / j summed ->
    240 GiB of them, fails; the law looked at before its charges -> minutes, fails.
    """
    most = {"q": (1 << 32) - 1, "floods": (1 << 52) - 1, "longest": 256, "shares": 2, "slots": 200}
    domain = YesNo() if name == "signed_count" else Categories(("a", "b", "c"))
    made = create(MechanismSpec.of(name, **most, **numbers), domain)
    with pytest.raises(ShoalError, match="nothing is proven"):
        guaranteed_several(made, 10, 1.0, 1e-6)

"""The least noise that reaches a target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.accounting.several_messages.charges import full_submissions, long_singles
from shoal.accounting.several_messages.messages import certify_messages, epsilon_interval
from shoal.accounting.several_messages.noise import NoiseProtocol
from shoal.accounting.several_messages.noise_design import (
    UNIT_BITS,
    design_cancelling,
    design_dummies,
    rounded,
)
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from tests.cases import for_each

CELL, SIGN = Truth.CELL, Truth.SIGN


@for_each(
    "epsilon, delta, s, largest, floods, deviation",
    [
        (1.0, 1e-6, 0.40, 4, 65.25, 3.512),
        (1.0, 1e-6, 0.45, 4, 192.96, 3.116),
        (1.0, 1e-8, 0.48, 85, 19.814, 2.918),
        (0.5, 1e-6, 0.225, 8, 196.56, 6.272),
        (2.0, 1e-6, 0.90, 4, 68.35, 1.5195),
    ],
)
def test_histograms_that_are_known(
    epsilon: float, delta: float, s: float, largest: int, floods: float, deviation: float
) -> None:
    """Floods and messages within 1 % of another program's, which took 95 % of delta for the noise.

    Planted: ``largest`` ignored -> fails; the variance of + alone -> fails.
    """
    law = design_cancelling(CELL, 16, 100_000, epsilon, delta, s=s, largest=largest)
    assert float(law.floods) == pytest.approx(floods, rel=0.01)
    assert NoiseProtocol(law).deviation == pytest.approx(deviation, rel=1e-3)
    noise = 16 / 100_000 * (floods * (largest + 1) + 2 / math.expm1(s))
    assert float(law.bare.mean_messages) == pytest.approx(1 + noise, rel=0.01)


@for_each(
    "cells, n, slots, messages",
    [
        (16, 10_000, 63, 2.5493),
        (16, 100_000, 44, 1.1549),
        (1024, 100_000, 117, 10.916),
        (1024, 1_000_000, 63, 1.9916),
    ],
)
def test_slots_that_are_known(cells: int, n: int, slots: int, messages: float) -> None:
    """Those were for 2 % of delta, without empty messages, so ours are at most as many, for 3 %;
    with empty ones more.

    Planted: 3 % of delta for each device -> fails; the tail of one cell -> fails.
    """
    law = design_cancelling(CELL, cells, n, 1.0, 1e-6)
    assert law.longest == 39
    assert float(law.bare.mean_messages) == pytest.approx(messages, rel=0.01)
    factor = 1 + math.e

    def charged(one: NoiseLaw, room: int) -> float:
        return factor * full_submissions(replace(one, slots=room), n, 1e-14)

    assert charged(law.bare, slots) <= 0.03e-6 < charged(law.bare, slots - 3)
    assert charged(law, law.slots) <= 0.03e-6
    assert charged(law, law.slots - 1) > 0.029e-6
    assert factor * long_singles(law) <= 0.02e-6
    assert factor * long_singles(replace(law, longest=38)) > 0.02e-6


@for_each(
    "epsilon, delta, dummies, n, slots",
    [
        (1.0, 1e-6, 42.65, 10_000, 27),
        (1.0, 1e-6, 42.65, 1_000_000, 8),
        (1.0, 1e-8, 62.09, 100_000, 15),
        (0.5, 1e-6, 136.1, 100_000, 18),
        (2.0, 1e-6, 18.1, 1_000_000, 7),
    ],
)
def test_dummies_that_are_known(
    epsilon: float, delta: float, dummies: float, n: int, slots: int
) -> None:
    """Planted: the dummies of one cell for those of all in ``message_rates`` -> fails."""
    law = design_dummies(1024, n, epsilon, delta)
    assert float(law.dummies) == pytest.approx(dummies, rel=0.005)
    assert NoiseProtocol(law).deviation == pytest.approx(math.sqrt(dummies), rel=0.005)
    assert law.slots == slots


@for_each(
    "epsilon, delta, s, largest, floods, deviation, messages",
    [
        (1.0, 1e-6, 0.45, 34, 13.871, 1.5582, 488.98),
        (1.0, 1e-6, 0.48, 85, 13.356, 1.4591, 1151.8),
        (1.0, 1e-8, 0.40, 4, 110.17, 1.7560, 554.92),
        (0.5, 1e-6, 0.225, 4, 661.92, 3.1361, 3317.5),
        (2.0, 1e-6, 0.80, 9, 14.800, 0.8607, 149.63),
    ],
)
def test_counts_that_are_known(
    epsilon: float,
    delta: float,
    s: float,
    largest: int,
    floods: float,
    deviation: float,
    messages: float,
) -> None:
    """Planted: the deviation of a cell for that of a count -> fails."""
    law = design_cancelling(SIGN, 1, 100_000, epsilon, delta, s=s, largest=largest)
    assert float(law.floods) == pytest.approx(floods, rel=0.01)
    assert NoiseProtocol(law).deviation == pytest.approx(deviation, rel=1e-3)
    assert float(law.bare.mean_messages - 1) * 100_000 == pytest.approx(messages, rel=0.01)


@for_each(
    "epsilon, delta, n",
    [
        (0.25, 1e-6, 5_000),
        (0.5, 1e-9, 200_000),
        (1.0, 1e-4, 300),
        (1.0, 1e-6, 10**9),
        (3.0, 1e-10, 10_000),
    ],
)
def test_the_certificate_reaches_the_target_and_not_much_less(
    epsilon: float, delta: float, n: int
) -> None:
    """Multiples of 2^-32, the bound at most the target, and with 2 % less of it above the target.

    Planted: charges left out of what the floods have -> the bound misses, the search goes on and
    the design takes 1 % more floods; ``slots`` = 1 -> fails.
    """
    shares = min(n, 10**8)
    for law in (
        design_cancelling(CELL, 64, n, epsilon, delta),
        design_cancelling(SIGN, 1, n, epsilon, delta),
        design_dummies(64, n, epsilon, delta),
    ):
        assert law.shares == shares
        for value in (law.singles, law.floods, law.dummies):
            assert (1 << UNIT_BITS) % value.denominator == 0
        bound = certify_messages(NoiseProtocol(law), n, delta)
        assert bound is not None
        assert epsilon * 0.999 <= bound.epsilon_upper <= epsilon
        assert bound.epsilon_lower == 0.0 or bound.epsilon_lower > epsilon * 0.99
        fewer = replace(
            law, floods=law.floods * Fraction(98, 100), dummies=law.dummies * Fraction(98, 100)
        )
        found = epsilon_interval(NoiseProtocol(fewer), shares, delta)
        assert found is None or found[1] > epsilon


@for_each(
    "truth, epsilon, s, largest, floods",
    [
        (
            CELL,
            8.5,
            3.825,
            4,
            7.189,
        ),  # charges at the next fixed epsilon, 16, are 1800 times as large
        (CELL, 0.125, 0.05, 64, 4.24),  # few and large floods: delta hardly falls beyond the target
    ],
)
def test_targets_that_a_certificate_finds_only_when_it_looks_closely(
    truth: Truth, epsilon: float, s: float, largest: int, floods: float
) -> None:
    """Planted: the fixed rungs of ``epsilon_interval`` alone -> the first is refused."""
    law = design_cancelling(truth, 16, 46_521, epsilon, 7.6e-4, s=s, largest=largest)
    assert float(law.floods) == pytest.approx(floods, rel=0.03)
    found = epsilon_interval(NoiseProtocol(law), 46_521, 7.6e-4)
    assert found is not None
    assert epsilon * 0.8 < found[0] <= found[1] <= epsilon


@for_each(
    "truth, cells, n, epsilon, empties, mean",
    [
        (SIGN, 1, 100_000, 1.0, (12_600, 13_800), 1.52),
        (CELL, 16, 100_000, 1.0, (21_000, 23_000), 2.01),
        (CELL, 16, 10_000, 1.0, (21_000, 23_000), 11.08),
        (CELL, 16, 1_000_000, 2.0, (5_600, 6_300), 1.024),
        (CELL, 16, 100_000, 0.5, (102_000, 110_000), 5.74),
    ],
)
def test_a_large_batch_hides_among_so_many_empty_messages(
    truth: Truth, cells: int, n: int, epsilon: float, empties: tuple[int, int], mean: float
) -> None:
    """As many whatever the batch, which a first program found with a transform; 8 % fewer are not
    enough, and floods do not make up for them.

    Planted: empties chosen for a tenth of delta -> more than so many, fails; the larger of both
    curves left out of the certificate -> 8 % fewer reach it too, fails.
    """
    law = design_cancelling(truth, cells, n, epsilon, 1e-6)
    assert not law.full
    assert empties[0] <= law.empties <= empties[1]
    assert float(law.mean_messages) == pytest.approx(mean, rel=0.01)
    assert law.widest == math.ceil((0.65 if epsilon >= 1.0 else 0.5) * law.longest)
    assert law.slots <= LIMITS.messages
    fewer = replace(law, empties=law.empties * Fraction(92, 100), floods=2 * law.floods)
    found = epsilon_interval(NoiseProtocol(fewer), n, 1e-6)
    assert found is not None
    assert found[1] > epsilon


@for_each(
    "truth, cells, n, epsilon",
    [(SIGN, 1, 1_000, 1.0), (SIGN, 1, 300, 2.0), (CELL, 16, 1_000, 1.0), (CELL, 16, 100_000, 0.25)],
)
def test_a_small_batch_or_a_small_epsilon_fills_its_submissions(
    truth: Truth, cells: int, n: int, epsilon: float
) -> None:
    """Where that takes fewer messages, or empty ones would want more slots than there may be.
    Planted: ``full`` never taken -> fails.
    """
    law = design_cancelling(truth, cells, n, epsilon, 1e-6)
    assert law.full
    assert law.empties == 0
    assert law.mean_messages == law.slots <= LIMITS.messages
    found = epsilon_interval(NoiseProtocol(law), n, 1e-6)
    assert found is not None
    assert found == epsilon_interval(NoiseProtocol(law.bare), n, 1e-6)


def test_q_is_the_nearest_fraction() -> None:
    """Planted: rounded down to 0 -> fails."""
    assert rounded(math.exp(-0.45)) == Fraction(round(math.exp(-0.45) * 2**32), 2**32)
    assert rounded(1e-12) == Fraction(1, 2**32)
    assert rounded(1 - 1e-12) == 1 - Fraction(1, 2**32)


BAD: list[Callable[[], NoiseLaw]] = [
    lambda: design_cancelling(CELL, 16, 0, 1.0, 1e-6),
    lambda: design_cancelling(CELL, 1, 100, 1.0, 1e-6),
    lambda: design_cancelling(SIGN, 2, 100, 1.0, 1e-6),
    lambda: design_cancelling(CELL, 16, 100, math.nan, 1e-6),
    lambda: design_cancelling(CELL, 16, 100, 1.0, 0.0),
    lambda: design_cancelling(CELL, 16, 100, 1.0, 1e-6, s=0.5),
    lambda: design_cancelling(CELL, 16, 100, 1.0, 1e-6, s=math.nan),
    lambda: design_cancelling(CELL, 16, 100, 1.0, 1e-6, largest=0),
    lambda: design_cancelling(CELL, 16, 100, 1.0, 1e-6, s=0.4999),  # too many floods
    lambda: design_cancelling(CELL, 16, 100, 0.05, 1e-6),  # singles too long
    lambda: design_cancelling(CELL, 1 << 20, 100, 1.0, 1e-6),  # too many messages
    lambda: design_dummies(16, 100, 0.001, 1e-6),
    lambda: design_dummies(16, 100, 1.0, 1e-6, windows=0),
    lambda: design_dummies(1, 100, 1.0, 1e-6),
]


@for_each("call", BAD)
def test_what_cannot_be_reached_is_refused(call: Callable[[], NoiseLaw]) -> None:
    """In one line that says how to mend it. Planted: no limit of floods -> goes on for minutes."""
    with pytest.raises(ShoalError) as caught:
        call()
    assert caught.value.kind is Kind.CONFIG
    assert "\n" not in str(caught.value)
    assert ":" in str(caught.value)

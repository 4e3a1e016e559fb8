"""Pauses between attempts: how long at most, how short at least, and what a server may ask."""

from __future__ import annotations

import pytest

from shoal.clocks.backoff import Backoff, spread
from shoal.entropy import SeededEntropy, uniform
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS


def test_lengths_double_up_to_the_longest() -> None:
    """Also after more failures than a float has doublings. Planted: ``2.0 ** failures`` unbounded
    -> OverflowError; one doubling too early -> fails.
    """
    backoff = Backoff(0.5, 60.0)
    assert [backoff.length(n) for n in (1, 2, 3, 8, 100_000)] == [0.5, 1.0, 2.0, 60.0, 60.0]


@pytest.mark.parametrize("shares", [(0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (0.75, 1.25)])
def test_a_pause_lies_between_its_shares_of_a_length(shares: tuple[float, float]) -> None:
    """4,000 draws: a correct one misses the outer 5 % with probability below 1e-80. Planted: the
    length itself without jitter; ``least`` or ``largest`` not heeded -> fails.
    """
    least, largest = shares
    entropy, backoff = SeededEntropy(f"backoff {least}"), Backoff(1.0, 8.0, least, largest)
    drawn = [backoff.pause(3, entropy) for _ in range(4_000)]
    outer = 0.05 * (largest - least)
    assert 4.0 * least <= min(drawn) <= 4.0 * (least + outer)
    assert 4.0 * (largest - outer) <= max(drawn) <= 4.0 * largest


def test_what_devices_are_told_to_wait_is_spread_by_a_quarter() -> None:
    """Planted: the seconds themselves; half to both sides -> fails."""
    entropy = SeededEntropy("told")
    drawn = [spread(8.0, entropy) for _ in range(4_000)]
    assert 6.0 <= min(drawn) < 6.2
    assert 9.8 < max(drawn) <= 10.0


def test_what_a_failure_asks_is_obeyed_within_bounds() -> None:
    """Never less than asked, a quarter more at most; nobody parks a device. Planted: the asked
    seconds left out, their bound left out -> fails.
    """
    entropy, backoff = SeededEntropy("asked"), Backoff(0.1, 10.0)
    for asked, least in ((7.0, 7.0), (1e9, LIMITS.retry_after_most_s)):
        drawn = [backoff.pause(1, entropy, asked) for _ in range(200)]
        assert least <= min(drawn)
        assert max(drawn) < 1.25 * least


@pytest.mark.parametrize("wrong", [(0.0, 1.0, 0.0), (2.0, 1.0, 0.0), (1.0, 2.0, 1.1)])
def test_numbers_that_make_no_pause_are_refused(wrong: tuple[float, float, float]) -> None:
    """Planted: no look at them -> nothing is raised."""
    with pytest.raises(ShoalError) as refused:
        Backoff(*wrong)
    assert refused.value.kind is Kind.INVALID


def test_a_uniform_draw_never_reaches_one() -> None:
    """The largest word there is. Planted: all 64 bits divided by 2^64, which rounds to 1.0."""

    class Largest(SeededEntropy):
        def bytes(self, count: int) -> bytes:
            return b"\xff" * count

    assert uniform(Largest(0)) < 1.0

"""When a device measures and sends: the law of the draws, and the edges of windows."""

from __future__ import annotations

import math

import pytest

from shoal.clients.timetable import exponential_before, first_send, margin, next_moment
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.task import WindowPlan
from tests.cases import for_each
from tests.sizes import size

PLAN = WindowPlan(start_s=1_000_000, length_s=1_000, count=3, grace_s=100, skew_s=10)


class Bits:
    """Entropy that gives one word over and over: the edges of the inversion."""

    def __init__(self, word: int) -> None:
        self.word = word

    def bytes(self, count: int) -> bytes:
        return self.word.to_bytes(8, "little")[:count]

    def words(self, count: int):  # type: ignore[no-untyped-def] # never called
        raise NotImplementedError


def never(_: int) -> bool:
    return False


def distance(draws: list[float], law: list[float]) -> float:
    """Kolmogorov's: the largest gap between the empirical distribution function and the law at the
    draws (sorted together).
    """
    n = len(draws)
    return max(max(abs(i / n - p), abs((i + 1) / n - p)) for i, p in enumerate(law))


@for_each("mean, limit", [(10.0, 1e9), (10.0, 10.0), (1_000.0, 1.0), (1.0, 2.5)])
def test_waits_follow_the_truncated_exponential_law(mean: float, limit: float) -> None:
    """Kolmogorov-Smirnov against 1 - e^(-t/m) over its mass below the limit; false alarm 1e-6 per
    case (2 e^(-2 n d^2), fixed seed).

    Planted: min(wait, limit) instead of conditioning -> the mass beyond the limit sits on it, and
    the second and fourth case fail. Planted: uniform on [0, limit) -> all but the third fail (there
    the law is uniform to within 1/2000).
    """
    n = size(2_000, 200_000)
    entropy = SeededEntropy(f"truncated {mean} {limit}")
    draws = sorted(exponential_before(mean, limit, entropy) for _ in range(n))
    assert all(0.0 <= draw < limit for draw in draws)
    law = [math.expm1(-draw / mean) / math.expm1(-limit / mean) for draw in draws]
    assert distance(draws, law) < math.sqrt(math.log(2 / 1e-6) / (2 * n))


@for_each("word", [0, (1 << 64) - 1])
@for_each(
    "mean, limit",
    [(0.0, 5.0), (1e-12, 1e12), (1e12, 1e-12), (5e-324, 1.0), (1e308, 1e-308), (3.0, 3.0)],
)
def test_the_largest_and_smallest_draws_stay_inside(word: int, mean: float, limit: float) -> None:
    assert 0.0 <= exponential_before(mean, limit, Bits(word)) < limit


@for_each(
    "mean, limit",
    [(-1.0, 1.0), (math.inf, 1.0), (math.nan, 1.0), (1.0, 0.0), (1.0, math.inf), (1.0, math.nan)],
)
def test_senseless_waits_are_refused(mean: float, limit: float) -> None:
    with pytest.raises(ShoalError) as caught:
        exponential_before(mean, limit, SeededEntropy(1))
    assert caught.value.kind is Kind.INVALID


def test_a_restart_in_the_wait_changes_nothing_about_the_law() -> None:
    """Half of the devices restart in the middle of their wait and draw anew: the moments still
    follow the one law.

    Kolmogorov-Smirnov, false alarm 1e-6, fixed seed. Planted: a restart waits from the window's
    start again, or keeps the mean of what remains (a quarter of the rest) -> fails.
    """
    n, entropy, mean = size(3_000, 100_000), SeededEntropy("restart"), 300.0
    room = 1_000.0 - 50.0
    found = []
    for device in range(n):
        moment = next_moment(PLAN, 1_000_000.0, mean, 50.0, never, entropy)
        assert moment is not None
        restart = 1_000_000.0 + 200.0 + device % 300
        if device % 2 and moment.at_s > restart:
            moment = next_moment(PLAN, restart, mean, 50.0, never, entropy)
        assert moment is not None
        found.append(moment.at_s - 1_000_000.0)
    found.sort()
    law = [math.expm1(-draw / mean) / math.expm1(-room / mean) for draw in found]
    assert distance(found, law) < math.sqrt(math.log(2 / 1e-6) / (2 * n))


def moment_at(  # type: ignore[no-untyped-def]
    now: float,
    word: int = 0,
    margin_s: float = 50.0,
    answered: tuple[int, ...] = (),
    mean: float | None = None,
):
    found = next_moment(PLAN, now, mean, margin_s, lambda window: window in answered, Bits(word))
    return None if found is None else (found.window, found.at_s - PLAN.start_s)


def test_which_window_a_moment_is_in() -> None:
    """Planted: room counted to the window's end without the margin -> the third line fails;
    answered windows not skipped -> the fifth.
    """
    assert moment_at(999_000.0) == (0, 0.0)  # before the plan: from its start
    assert moment_at(1_000_400.0) == (0, 400.0)  # under way: from now
    assert moment_at(1_000_950.0) == (1, 1_000.0)  # too little left: skipped
    assert moment_at(1_000_949.0) == (0, 949.0)
    assert moment_at(1_000_400.0, answered=(0,)) == (1, 1_000.0)
    assert moment_at(1_000_400.0, answered=(0, 1)) == (2, 2_000.0)
    assert moment_at(1_000_400.0, answered=(0, 1, 2)) is None
    assert moment_at(1_002_950.0) is None  # the last window has too little left
    assert moment_at(1_003_000.0) is None
    assert moment_at(2_000_000.0) is None


@for_each("now", [999_000.0, 1_000_000.0, 1_000_949.0, 1_001_500.0, 1_002_949.9])
def test_the_last_possible_moment_leaves_the_margin(now: float) -> None:
    found = moment_at(now, word=(1 << 64) - 1, mean=1e9)
    assert found is not None
    window, at = found
    assert window * 1_000 <= at <= (window + 1) * 1_000 - 50


def test_the_margin_leaves_room_for_reading_but_never_takes_the_window() -> None:
    assert margin(PLAN, 5.0) == 6.0
    assert margin(WindowPlan(0, 8, 1, 0, 0), 5.0) == 2.0


def test_first_sends_are_exponential_gaps_apart() -> None:
    """Planted: each from ``now`` instead of from the send before -> the spread of a queue of 50 is
    one gap, not fifty.
    """
    entropy, last, gaps = SeededEntropy("gaps"), 0.0, []
    for _ in range(50):
        at = first_send(100.0, last, 30.0, 1e9, 40.0, entropy)
        gaps.append(at - max(last, 100.0))
        last = at
    assert all(gap >= 0.0 for gap in gaps)
    # a sum of 50 exponentials leaves this with probability < 1e-5; fixed seed
    assert 50 * 30 * 0.4 < last - 100.0 < 50 * 30 * 2.0


@for_each("seed", range(20))
def test_every_first_send_comes_before_its_deadline_however_long_the_queue(seed: int) -> None:
    """And they don't pile up. Planted: no cut -> with a mean of an hour most of these come after
    the window; every gap cut after the one before -> nearly all of them within a second of the
    limit.
    """
    entropy, sends = SeededEntropy(seed), [0.0]
    for _ in range(100):
        sends.append(first_send(100.0, sends[-1], 3_600.0, 700.0, 40.0, entropy))
    assert all(100.0 <= send < 660.0 for send in sends[1:])
    assert sum(send > 650.0 for send in sends) < 20


def test_first_send_at_the_edges() -> None:
    assert first_send(100.0, 0.0, 0.0, 700.0, 40.0, SeededEntropy(1)) == 100.0  # no gap wanted
    # over by this clock: try at once
    assert first_send(700.0, 0.0, 30.0, 700.0, 40.0, SeededEntropy(1)) == 700.0
    assert first_send(900.0, 0.0, 30.0, 700.0, 40.0, SeededEntropy(1)) == 900.0
    # little is left: half of it
    assert 690.0 <= first_send(690.0, 0.0, 1e6, 700.0, 40.0, SeededEntropy(1)) < 695.0

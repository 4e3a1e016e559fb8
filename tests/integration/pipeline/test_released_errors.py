"""Counts by several messages err by what the account says, in releases of real services: devices
draw, seal and send, a shuffler stores, mixes and delivers, an analyzer opens and releases.

What is expected is written out here, from the law's fractions alone: in a cell the noise of as many
devices as it is split over is a difference of two geometric numbers, or a Poisson number of
dummies; all devices add noise, so its variance is N / n_h times as large. Draws of services can't
be seeded. The root mean square of 1,024 errors (or 480) lies within 5 of its standard errors of
what it should be, but for a probability of 2e-6 at most by the law's own tails (summed exactly, by
Fourier transform); their mean within 5 of its own, 1e-6; the number of messages within 6, 1e-8.

Where the noise is split over half of all devices, the same measurement is held against noise that
is split over all, and against twice the noise: it refutes both, but for a probability below 1e-5.
Planted: weights of half or twice the share -> the stated error or the certificate fails; events of
half the rate, or of twice -> the spread fails; singles of - left out -> the mean fails (the spread
does not: what it loses is what the shift adds).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from shoal.cli.demo.workspace import prepare
from shoal.mechanisms.several.noise_law import NoiseKind, NoiseLaw
from tests.sizes import size
from tests.worlds.ports import free_port
from tests.worlds.services.releasing import (
    EPSILON,
    Counting,
    Window,
    ask,
    released,
    spread_of,
)

WITHIN = 5.0  # standard errors
COUNTINGS = (
    Counting("dummies", 16, size(400, 1_000), size(30, 80), honest_ppm=500_000),
    Counting("dummies", size(480, 1_024), 2_000, size(1, 4), honest_ppm=500_000),
    # a small s: few floods
    Counting("cancelling", 1_024, 4_000, size(1, 4), s=0.2),
)


@dataclass(frozen=True)
class Measured:
    """``ratio``: of the root mean square error to what is expected; ``uncertain``: its error."""

    ratio: float
    uncertain: float

    def refutes(self, times: float) -> bool:
        """That the standard deviation is so many times the expected one."""
        return abs(self.ratio / times - 1.0) > WITHIN * self.uncertain


def expected(counting: Counting, law: NoiseLaw) -> float:
    """The standard deviation of a released count."""
    if law.signed:
        q = float(law.singles)
        variance = 2.0 * q / (1.0 - q) ** 2
    else:
        variance = float(law.dummies)
    return math.sqrt(variance * counting.devices / counting.honest)


def check_messages(counting: Counting, law: NoiseLaw, windows: list[Window]) -> None:
    """As many were opened as the law says, the true ones among them."""
    rows, reports = sum(one.rows for one in windows), counting.devices * len(windows)
    if law.full:
        assert rows == law.slots * reports
        return
    noise = [0.0, 0.0]  # mean and variance, of all shares: of one cell, then of all
    if law.signed:
        for size_ in range(1, law.longest + 1):
            singles = 2.0 * float(law.singles) ** size_ / size_
            noise = [noise[0] + singles * size_, noise[1] + singles * size_**2]
        for size_ in range(1, law.largest + 1):
            floods = float(law.floods) / law.largest
            noise = [noise[0] + floods * 2 * size_, noise[1] + floods * (2 * size_) ** 2]
    else:
        noise = [float(law.dummies), float(law.dummies)]
    noise = [counting.cells * each for each in noise]
    for size_ in range(1, law.widest + 1):
        events = float(law.empties) / size_**2
        noise = [noise[0] + events * size_, noise[1] + events * size_**2]
    times = len(windows) * counting.devices / counting.honest
    assert abs(rows - reports - noise[0] * times) < 6.0 * math.sqrt(noise[1] * times)


@pytest.mark.timeout(size(240, 1_200))
@pytest.mark.parametrize("counting", COUNTINGS, ids=lambda one: f"{one.name}-{one.cells}")
async def test_released_counts_err_by_what_the_account_says(
    counting: Counting, tmp_path: Path
) -> None:
    site = prepare(tmp_path, free_port)
    asked = ask(site, counting)
    law = asked.mechanism.noise
    assert law.shares == counting.honest
    windows = await released(site, asked, processes=1)
    for one in windows:
        privacy = one.release["privacy"]
        assert one.release["n"] == counting.devices
        assert 0.99 < privacy["epsilon_lower"] <= privacy["epsilon_upper"] <= EPSILON
        for estimate in one.release["estimates"]:
            assert estimate["stderr"] == pytest.approx(expected(counting, law), rel=1e-4)
    spread = spread_of(counting, asked.mechanism, windows)
    measured = Measured(spread.measured / expected(counting, law), spread.uncertain)
    assert not measured.refutes(1.0), spread
    errors = np.concatenate([one.errors(counting) for one in windows])
    assert abs(errors.mean()) < WITHIN * expected(counting, law) / math.sqrt(len(errors))
    if counting.honest < counting.devices:
        assert measured.refutes(math.sqrt(counting.honest / counting.devices))
    assert measured.refutes(math.sqrt(2.0))
    check_messages(counting, law, windows)


def test_kinds_of_noise_that_are_summed_here_are_all() -> None:
    """A kind that is added wants a line in ``expected``."""
    assert {kind.value for kind in NoiseKind} == {"plus", "minus", "flood", "empty"}

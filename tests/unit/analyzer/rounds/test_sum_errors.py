"""The totals of a release of sums, and their errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.analyzer.rounds.sum_release import (
    reach95,
    standard_errors,
    total,
)
from shoal.domain import Norm, Vector
from shoal.entropy import SeededEntropy
from shoal.ids import Digest
from shoal.mechanisms.noise.registry import create_noise
from shoal.mechanisms.quantize import quantize
from shoal.secagg import Mode
from shoal.task import MechanismSpec, Task
from tests.cases import for_each
from tests.sizes import size
from tests.unit.analyzer.rounds.windows_of_sums import SERVED, Round, rounds, serve, shown
from tests.worlds.sums import designed, task_of
from tests.worlds.tasks import PAIRWISE

# --- totals ---------------------------------------------------------------------------------------


@for_each("clip, grid", [(10.0, 1_000), (1 / 3, 7), (1e-100, (1 << 48) - 1), (1e100, 1), (0.1, 3)])
def test_totals_are_the_floats_nearest_to_the_exact_sum(clip: float, grid: int) -> None:
    """Also where the sum of 64-bit words leaves 64 bits. Planted: int64 addition -> wraps, and this
    fails.
    """
    domain = Vector(4, Norm.COORDINATE, clip, grid)
    most = (1 << 63) - 1
    vectors = [[most, -most - 1, 3, 0], [most, -most - 1, 4, 0], [5, -most, -1, 0]]
    sums = [
        Round(Digest.of(bytes([i])), 90, np.array(v, dtype=np.int64)) for i, v in enumerate(vectors)
    ]
    expected = [float(sum(v[i] for v in vectors) * Fraction(clip) / grid) for i in range(4)]
    assert total(sums, domain).tolist() == expected
    assert all(map(math.isfinite, expected))


def test_a_release_of_a_hundred_thousand_coordinates_has_them_all() -> None:
    """Without names they are numbered."""
    domain = Vector(100_000, Norm.L2, 1.0, 40_000)
    made = designed(
        100_000,
        mode=Mode.STRICT,
        cohort_max=120,
        cohort_min=100,
        dropout_ppm=200_000,
        epsilon=1.0,
        delta=1e-8,
        grid=domain.grid,
    )
    # as tasks were before long vectors travelled in segments
    whole = replace(made, plan=replace(made.plan, segment_words=0))
    served = serve(task_of(whole, domain=domain, min_batch=100))
    sums = [Round(Digest.of(b"r"), 100, np.arange(100_000, dtype=np.int64))]
    release = shown(sums, served)
    assert len(release["estimates"]) == 100_000
    assert release["estimates"][40_000]["label"] == "40000"
    assert release["estimates"][40_000]["value"] == 1.0


# --- errors ---------------------------------------------------------------------------------------

LAPLACE = designed(
    400,
    norm=Norm.L1,
    clip=4.0,
    noise="discrete_laplace",
    cohort_max=40,
    cohort_min=30,
    dropout_ppm=200_000,
    delta=1e-8,
    grid=50,
)
SKELLAM = designed(
    400,
    norm=Norm.COORDINATE,
    clip=4.0,
    cohort_max=40,
    cohort_min=30,
    dropout_ppm=200_000,
    epsilon=60.0,
    delta=1e-6,
    grid=4,
)
LOOSE = {"min_batch": 24, "target_epsilon": 100.0, "delta": 1e-6}


def played(task: Task, sizes: Sequence[int], seed: str) -> tuple[list[Round], NDArray[np.float64]]:
    """Finished rounds of real quantized vectors with real shares of the noise, and the true totals
    of those devices.
    """
    domain, entropy = task.domain, SeededEntropy(seed)
    assert isinstance(domain, Vector)
    noise, truth, made = create_noise(task.mechanism), np.zeros(domain.dimension), []
    for number, devices in enumerate(sizes):
        added = np.zeros(domain.dimension, dtype=np.int64)
        for device in range(devices):
            # Within the clip in every norm, at fractions of a grid step.
            values = (
                np.linspace(-1.0, 1.0, domain.dimension)
                * domain.clip
                / domain.dimension
                * (0.3 + 0.01 * device)
            )
            truth += values
            added += quantize(values, domain, entropy).vector + noise.sample(
                domain.dimension, entropy
            )
        made.append(Round(Digest.of(bytes([number])), devices, added))
    return made, truth


@for_each("design", [LAPLACE, SKELLAM], ids=["laplace", "skellam"])
@for_each("sizes", [(24,), (40,), (24, 30, 40)], ids=str)
def test_estimates_are_unbiased_and_their_errors_true(design: Any, sizes: tuple[int, ...]) -> None:
    """z-scores of 400 (full: 4,000) totals: mean 0, and a mean square between that without rounding
    and 1.

    Five standard errors each way, from the law's own fourth moment: a false alarm of below 1e-5
    over seeds. The rounding's variance is an upper bound, so the mean square may be below 1 by its
    share. Planted: noise of the guaranteed survivors alone, one round's survivors alone, or a step
    of 1 / grid -> this fails.
    """
    task = task_of(design, **LOOSE)
    served = serve(task)
    scores = []
    for again in range(size(1, 10)):
        sums, truth = played(task, sizes, f"estimates {sizes} {again}")
        release = shown(sums, served)
        scores += [
            (row["value"] - true) / row["stderr"]
            for row, true in zip(release["estimates"], truth.tolist(), strict=True)
        ]
    count, (noise, rounding) = len(scores), standard_errors(task, sum(sizes))
    # at most: that of a discrete Laplace variable is 6 and above 3
    kurtosis = 3.0 + 3.0 * design.mechanism.get("shares") / sum(sizes)
    assert abs(float(np.mean(scores))) < 5.0 / math.sqrt(count)
    square, spread = float(np.mean(np.square(scores))), 5.0 * math.sqrt((kurtosis - 1.0) / count)
    least = noise**2 / (noise**2 + rounding**2)
    assert least * (1 - spread) < square < 1 + spread


@pytest.mark.parametrize("design", [LAPLACE, SKELLAM], ids=["laplace", "skellam"])
def test_intervals_hold_the_truth_as_often_as_they_say(design: Any) -> None:
    """2,400 (full: 24,000) intervals over one round: 95 % and no fewer, 5 standard errors of a
    binomial (a false alarm below 3e-7).

    The full size tells 95.3 from 93.8 %, what +-1.96 standard errors give for discrete Laplace
    noise. Planted: half the reach -> fails.
    """
    task = task_of(design, **LOOSE)
    served, inside, count = serve(task), 0, 0
    for again in range(size(6, 60)):
        sums, truth = played(task, (24,), f"intervals {again}")
        for row, true in zip(shown(sums, served)["estimates"], truth.tolist(), strict=True):
            inside += row["ci_low"] <= true <= row["ci_high"]
            count += 1
    assert inside / count > 0.95 - 5.0 * math.sqrt(0.05 * 0.95 / count)
    assert inside / count < 0.965 + 5.0 * math.sqrt(0.05 * 0.95 / count)


@pytest.mark.parametrize(("survivors", "outside"), [(24, 0.0475), (40, 0.0490), (400, 0.0500)])
def test_the_reach_of_laplace_noise_against_its_exact_law(survivors: int, outside: float) -> None:
    """P(beyond the reach), from the exact law of ``survivors`` Polya shares: 5 % at most, where
    1.96 would give up to 6.2 %.

    The tolerance of 0.0008 is a lattice step of probability. Planted: the plain normal quantile ->
    the first two fail.
    """
    mechanism = MechanismSpec.of("discrete_laplace", scale=40 << 16, shares=21)
    task = task_of(LAPLACE, mechanism=mechanism)
    p, r = math.exp(-1 / 40), survivors / 21
    count = 6_000
    k = np.arange(1, count)
    one = np.exp(
        np.concatenate([[0.0], np.cumsum(np.log(p * (k - 1 + r) / k))]) + r * math.log1p(-p)
    )
    spectrum = np.fft.rfft(one, 2 * count)
    law = np.fft.irfft(np.abs(spectrum) ** 2, 2 * count)[:count]
    assert law[0] + 2 * law[1:].sum() == pytest.approx(1.0, abs=1e-9)
    deviation = math.sqrt(2 * r * p) / (1 - p)
    assert standard_errors(task, survivors)[0] == pytest.approx(deviation * 4.0 / 50, rel=1e-9)
    beyond = 2 * float(law[math.floor(reach95(task, survivors) * deviation) + 1 :].sum())
    assert beyond == pytest.approx(outside, abs=0.0008)


def test_the_reach_is_never_more_than_chebyshev_wants() -> None:
    """Noise that is nearly always 0 has a kurtosis without meaning; for large Skellam noise the
    reach is the normal one.
    """
    rare = task_of(
        LAPLACE, mechanism=MechanismSpec.of("discrete_laplace", scale=1 << 12, shares=21)
    )
    assert reach95(rare, 24) == pytest.approx(math.sqrt(20))
    assert reach95(PAIRWISE, 200) == pytest.approx(1.959964, abs=1e-6)


def test_what_cohorts_add_is_the_root_of_their_number() -> None:
    """By brute force: one round of all devices has R times the guaranteed survivors, each adding an
    R-th of a share's variance.

    Planted: R for sqrt(R) -> this fails.
    """
    task = SERVED.task
    for sizes in ((100, 100), (80, 120, 100, 90)):
        count, devices = len(sizes), sum(sizes)
        told = shown(rounds(*sizes))["rounds"]
        spec = MechanismSpec.of(
            "skellam", variance=task.mechanism.get("variance"), shares=70 * count
        )
        together = replace(task, mechanism=spec)
        assert told["noise_stderr"] == standard_errors(task, devices)[0]
        assert told["one_round_noise_stderr"] == pytest.approx(
            standard_errors(together, devices)[0], rel=1e-12
        )
        assert told["rounding_stderr"] == pytest.approx(
            0.5 * math.sqrt(devices) * 10.0 / 1_000, rel=1e-12
        )
    assert (
        shown(rounds(120))["rounds"]["noise_stderr"]
        == shown(rounds(120))["rounds"]["one_round_noise_stderr"]
    )

"""Decoding Bloom filters: exact means and variances on filters small enough to write out, and what
words outside of the candidates do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.domain import Categories, Words
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Mechanism, create, design
from shoal.mechanisms.base import Tally
from shoal.mechanisms.longitudinal.bloom import Filters, decoder
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size

THREE = Categories(("a", "b"))
WORDS = 1 << 64


def small(seed: int, half_f: int = WORDS // 5) -> Mechanism:
    """4 bits, 2 hash functions, 2 cohorts; p and q on one side of 1/2, so that both kinds of bits
    have their own variance.
    """
    return create(
        MechanismSpec.of(
            "rappor",
            bits=4,
            hashes=2,
            cohorts=2,
            seed=seed,
            half_f=half_f,
            p=WORDS // 8,
            q=WORDS // 2,
        ),
        THREE,
    )


def solvable(count: int) -> Iterator[int]:
    """The first seeds whose three filters can be told apart."""
    found = 0
    for seed in itertools.count():
        try:
            decoder(Filters(4, 2, 2, seed), (0, 1, 2), open_words=False)
        except ShoalError:
            continue
        yield seed
        found += 1
        if found == count:
            return


def reports_of(mechanism: Mechanism, cell: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """(rows, probabilities): every report of a device with this cell, from the mechanism's own
    filters and its p and q alone.
    """
    get = mechanism.spec.get
    keep = 1 - get("half_f") / WORDS
    on, off = (
        share * get("q") / WORDS + (1 - share) * get("p") / WORDS for share in (keep, 1 - keep)
    )
    rows, chances = [], []
    for cohort in range(2):
        places = Filters(4, 2, 2, get("seed")).places(cohort, cell)
        for bits in itertools.product((0, 1), repeat=4):
            rows.append([cohort, int("".join(map(str, bits)), 2) << 4])
            rates = [on if at in places else off for at in range(4)]
            chances.append(
                0.5
                * np.prod(
                    [rate if bit else 1 - rate for rate, bit in zip(rates, bits, strict=True)]
                )
            )
    return np.array(rows, dtype=np.uint8), np.array(chances)


@for_each("seed", list(solvable(4)))
def test_one_device_adds_its_value_on_average_with_the_stated_variance(seed: int) -> None:
    """All 32 reports of each cell, weighed by their probabilities: mean 1 for the cell's label and
    0 for the others, and the variances that ``expected_stderr`` states. So every sum of devices is
    unbiased and has that variance.

    Planted: ``split`` or ``ones`` left out, ``split`` without its - 1, the cohort's size left out
    of ``solution`` -> each fails.
    """
    mechanism = small(seed)
    for cell in range(3):
        rows, chances = reports_of(mechanism, cell)
        estimates = np.array(
            [mechanism.estimate(mechanism.tally(row[None])).values for row in rows]
        )
        mean = chances @ estimates
        assert mean == pytest.approx((np.arange(3) == cell).astype(float), abs=1e-9)
        variance = chances @ (estimates - mean) ** 2
        assert variance == pytest.approx(
            mechanism.expected_stderr((np.arange(3) == cell).astype(np.int64)) ** 2, rel=1e-9
        )


def test_stderr_estimates_what_is_expected() -> None:
    """Over many runs the mean of the squared standard error is the variance: the holders are not
    clipped in it.
    """
    mechanism, held = small(next(solvable(1))), np.array([300, 40, 0])
    values, entropy = np.repeat(np.arange(3), held), SeededEntropy(5)
    runs = [
        mechanism.estimate(mechanism.tally(mechanism.randomize(values, entropy)[:, 0])).stderr ** 2
        for _ in range(200)
    ]
    assert np.mean(runs, axis=0) == pytest.approx(mechanism.expected_stderr(held) ** 2, rel=0.02)


def vocabulary(seed: int, hashes: int = 2, bits: int = 32) -> tuple[Words, Mechanism]:
    domain = Words(("flu", "cold", "cough"))
    given = dict(design("rappor", domain, 4.0, f"h={hashes}").parameters)
    return domain, create(
        MechanismSpec.of("rappor", **{**given, "bits": bits, "cohorts": 8, "seed": seed}), domain
    )


def crowd() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(devices of the four labels, cells of devices with other words): a few words that many hold,
    and many that few hold.
    """
    others = np.random.default_rng(1).integers(0, 1 << 62, 60)
    return np.array([500, 100, 0, 400]), np.repeat(others, [400] * 4 + [100] * 6 + [10] * 50)


def test_words_that_nobody_looks_for_leave_candidates_unbiased_over_seeds() -> None:
    """Fixed devices, many seeds of the hash functions: mean errors within 4 of their standard
    errors (false alarm 6e-5 for each of 4 labels), and intervals that hold the truth at least as
    often as they say, which they can't if they know of coins alone.

    Planted: no column for the others -> each label is too large by a fortieth of them, many of its
    standard errors, and this fails. Without ``collisions`` the intervals hold the truth in 80 % of
    the runs and fail.
    """
    held, others = crowd()
    seeds, errors, covered = size(100, 1_500), [], []
    for seed in range(seeds):
        domain, mechanism = vocabulary(seed)
        values = np.concatenate([np.repeat(np.array(domain.label_cells), held), others])
        estimate = mechanism.estimate(
            mechanism.tally(mechanism.randomize(values, SeededEntropy(seed))[:, 0])
        )
        errors.append(estimate.values - held)
        covered.append((estimate.ci_low <= held) & (held <= estimate.ci_high))
    mean, spread = np.mean(errors, axis=0), np.std(errors, axis=0) / seeds**0.5
    assert (np.abs(mean) < 4 * spread).all(), (mean, spread)
    assert np.mean(covered) > 0.93, np.mean(covered, axis=0)


def test_the_number_of_devices_with_other_words_is_estimated_too() -> None:
    """The last entry of ``solution``. Planted: the column not scaled by the filters' density ->
    this fails.
    """
    held, others = crowd()
    domain, mechanism = vocabulary(3)
    values = np.concatenate([np.repeat(np.array(domain.label_cells), held), others])
    solution, errors = mechanism.solution(  # type: ignore[attr-defined]
        mechanism.tally(mechanism.randomize(values, SeededEntropy(7))[:, 0])
    )
    assert errors.shape == (4,)
    assert solution[4] == pytest.approx(others.size, rel=0.15)


def test_labels_with_one_filter_are_refused_before_anything_is_released() -> None:
    """Planted: no look at the eigenvalues -> a singular matrix, numpy's error instead of ours."""
    seed = next(seed for seed in itertools.count() if _same_filter(Filters(4, 2, 2, seed)))
    mechanism = small(seed)
    empty = Tally(np.zeros(10, dtype=np.int64), 0)
    for act in (
        lambda: mechanism.estimate(empty),
        lambda: mechanism.expected_stderr(np.zeros(3, dtype=np.int64)),
    ):
        with pytest.raises(ShoalError, match="more cohorts, more bits or another seed") as caught:
            act()
        assert caught.value.kind is Kind.INVALID


def _same_filter(filters: Filters) -> bool:
    return all(
        set(filters.places(cohort, 0)) == set(filters.places(cohort, 1))
        for cohort in range(filters.cohorts)
    )


@pytest.mark.parametrize(
    "domain", [Categories(("a", "b", "c", "d")), Words(tuple(f"word {i}" for i in range(6)))]
)
def test_more_labels_than_bits_are_refused_when_the_task_is_made(
    domain: Categories | Words,
) -> None:
    """An open vocabulary needs a row for the others and one to measure collisions with."""
    given = dict(design("rappor", domain, 1.0).parameters)
    with pytest.raises(ShoalError, match="take more of either") as caught:
        create(
            MechanismSpec.of(
                "rappor",
                **{**given, "bits": 4, "cohorts": 1 if isinstance(domain, Categories) else 2},
            ),
            domain,
        )
    assert caught.value.kind is Kind.INVALID


def test_filters_of_many_are_those_of_one() -> None:
    """Cells up to the last below 2^62. Planted: functions of cohort j at j + i -> the two differ,
    this fails.
    """
    filters = Filters(64, 3, 16, 99)
    cells = np.array([0, 1, (1 << 62) - 1, 1 << 31, 12_345_678_901_234_567])
    for cohort in range(16):
        found = filters.filters(np.full(cells.size, cohort), cells)
        for row, cell in zip(found, cells.tolist(), strict=True):
            assert set(np.flatnonzero(row)) == set(filters.places(cohort, cell))

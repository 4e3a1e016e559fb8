"""What a task of sums comes to, and what is refused of one that somebody signed: noise, words and
survivors must fit each other.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from shoal import codec
from shoal.accounting.sums.pairwise import certify_sum
from shoal.accounting.sums.sum_task import SumDesign, check_sum, design_sum
from shoal.domain import Norm, Vector
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.noise.width import noise_tail
from shoal.mechanisms.quantize import bounds, default_grid
from shoal.secagg import WORD_BITS, Mode
from shoal.task import MechanismSpec, Task
from tests.cases import for_each
from tests.worlds.tasks import PAIRWISE, TASK, pairwise

ASKED: dict[str, Any] = {
    "dimension": 3,
    "norm": Norm.L2,
    "clip": 10.0,
    "noise": "skellam",
    "mode": Mode.DEFAULT,
    "cohort_max": 120,
    "cohort_min": 100,
    "dropout_ppm": 200_000,
    "honest_fraction_ppm": 900_000,
    "epsilon": 1.0,
    "delta": 1e-8,
}


def designed(**changes: Any) -> SumDesign:
    return design_sum(**{**ASKED, **changes})


def task_of(made: SumDesign, **changes: Any) -> Task:
    """The task that has this design and ``ASKED``'s guarantee."""
    size = made.plan.vector_bytes(made.domain.dimension)
    fields = {
        "domain": made.domain,
        "mechanism": made.mechanism,
        "pairwise": made.plan,
        "report_size": size,
    }
    return pairwise(**{**fields, "min_batch": made.plan.survivors_min, **changes})


def with_noise(**parameters: int) -> MechanismSpec:
    return MechanismSpec.of("skellam", **{**dict(PAIRWISE.mechanism.parameters), **parameters})


def refusal(task: Task) -> str:
    with pytest.raises(ShoalError) as caught:
        check_sum(task)
    assert caught.value.kind is Kind.INVALID
    assert "\n" not in caught.value.message
    return caught.value.message


DESIGNS = [
    {},
    {"mode": Mode.STRICT, "dimension": 40},
    {"mode": Mode.HELPER, "cohort_max": 20_000, "cohort_min": 10_000},
    {"norm": Norm.L1, "noise": "discrete_laplace"},
    {"norm": Norm.COORDINATE, "noise": "discrete_laplace", "dimension": 2},
    {"norm": Norm.COORDINATE, "grid": 1, "epsilon": 4.0},
    {"dimension": 1, "epsilon": 0.3, "delta": 1e-6},
    {"honest_fraction_ppm": 1_000_000, "dropout_ppm": 0},
    {"grid": 1 << 16, "dimension": 1},
]


@for_each("changes", DESIGNS, ids=str)
def test_designs_hold_together(changes: dict[str, Any]) -> None:
    """The task passes its own check, meets its target, and with one unit less noise it does not:
    nothing is wasted.

    Planted: noise for all survivors instead of the honest ones, or for cohort_min -> this fails.
    """
    asked = {**ASKED, **changes}
    made = designed(**changes)
    task = task_of(made, honest_fraction_ppm=asked["honest_fraction_ppm"], delta=asked["delta"])
    certificate = check_sum(task)
    assert certificate.epsilon_upper <= asked["epsilon"]
    assert (
        made.plan.survivors_min
        == asked["cohort_min"] - asked["cohort_min"] * asked["dropout_ppm"] // 1_000_000
    )
    assert (
        made.mechanism.get("shares")
        == made.plan.honest_survivors(asked["honest_fraction_ppm"])
        == certificate.honest
    )
    size = "variance" if asked["noise"] == "skellam" else "scale"
    less = MechanismSpec.of(
        made.mechanism.name,
        **{**dict(made.mechanism.parameters), size: made.mechanism.get(size) - 1},
    )
    weaker = certify_sum(
        less,
        bounds(made.domain),
        made.domain.dimension,
        survivors=made.plan.survivors_min,
        honest_fraction=made.plan.honest_share(asked["honest_fraction_ppm"]),
        delta=asked["delta"],
        mode=asked["mode"],
    )
    assert weaker.epsilon_upper > asked["epsilon"]


@for_each("changes", DESIGNS, ids=str)
def test_words_hold_every_sum_and_no_bit_more(changes: dict[str, Any]) -> None:
    """All of cohort_max at their bound, with their noise, fit with their sign; in the next narrower
    word they do not.

    Planted: words of 64 bits for every task -> this fails.
    """
    made = designed(**changes)
    most = made.plan.cohort_max * bounds(made.domain).linf + noise_tail(
        made.mechanism, made.domain.dimension, made.plan.cohort_max
    )
    assert next(bits for bits in WORD_BITS if most < 1 << bits - 1) == made.plan.word_bits


@pytest.mark.parametrize(("grid", "bits"), [(200, 16), (290, 32)])
def test_the_width_is_that_of_the_largest_round(grid: int, bits: int) -> None:
    """Near the edge of 16 bits: 120 devices at their bound fit and 240 would not; 120 do not fit
    and 80 would.

    Planted: survivors_min or twice cohort_max in the width of a design -> this fails.
    """
    assert (
        designed(norm=Norm.COORDINATE, dimension=1, epsilon=50.0, grid=grid).plan.word_bits == bits
    )


def test_a_cohort_is_four_fifths_at_least_unless_told() -> None:
    assert designed(cohort_min=None, cohort_max=1_000).plan.cohort_min == 800
    assert designed(cohort_min=None, cohort_max=121).plan.cohort_min == 97  # rounded up
    assert designed(phases=(1, 2, 3, 4)).plan.seconds == 12


@for_each(
    "changes, named",
    [
        ({"dropout_ppm": 999_999}, "dropout"),
        ({"cohort_min": 0}, "cohort_min"),
        ({"cohort_min": 1}, "cohort_min"),
        ({"cohort_min": -5}, "cohort_min"),
        ({"cohort_min": 121}, "cohort_max"),
        ({"cohort_min": None, "cohort_max": 1}, "cohort_max"),
        ({"cohort_min": None, "cohort_max": -7}, "cohort_max"),
        ({"cohort_max": LIMITS.cohort + 1}, f"{LIMITS.cohort} devices"),
        ({"honest_fraction_ppm": 1}, "honest_fraction"),
        ({"noise": "gaussian"}, "skellam or discrete_laplace"),
        ({"noise": "krr"}, "skellam or discrete_laplace"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": 1e-12}, "raise epsilon"),
        ({"clip": float("nan")}, "clip"),
        ({"clip": -1.0}, "clip"),
        ({"dimension": 0}, "coordinates"),
        ({"grid": 0}, "grid"),
        ({"names": ("a", "a", "b")}, "distinct"),
        ({"phases": (0, 1, 1, 1)}, "join_s"),
        ({"grid": (1 << 48) - 1, "norm": Norm.COORDINATE}, "coarser grid"),
    ],
    ids=str,
)
def test_what_cannot_be_had_is_said_in_one_line(changes: dict[str, Any], named: str) -> None:
    """The message names what to change. Planted: sizes looked at after the noise is made for them
    -> cohort_max = -7 fails.
    """
    with pytest.raises(ShoalError) as caught:
        designed(**changes)
    assert caught.value.kind is Kind.INVALID
    assert named in caught.value.message
    assert "\n" not in caught.value.message


# --- what somebody signed -------------------------------------------------------------------------


def test_the_certificate_is_that_of_the_smallest_sum() -> None:
    """survivors_min survivors and their honest share, whatever min_batch and cohort_max are.
    Planted: min_batch certified -> fails.
    """
    certificate = check_sum(PAIRWISE)
    assert (certificate.survivors, certificate.honest, certificate.delta) == (80, 70, 1e-8)
    assert check_sum(pairwise(min_batch=100_000)) == certificate
    assert 0.98 < certificate.epsilon_upper <= 1.0


@for_each("shares", [1, 69, 71, 72, 80, 120])
def test_noise_for_another_number_of_survivors_is_refused(shares: int) -> None:
    """More shares than are guaranteed is too little noise; fewer is more than anybody said.
    Planted: ``<`` for ``!=`` -> this fails.
    """
    assert f"made for {shares} honest survivors, 70 are guaranteed" in refusal(
        pairwise(mechanism=with_noise(shares=shares))
    )


def test_the_honest_fraction_decides_about_shares() -> None:
    """The same noise is right for 0.9 and wrong for 0.8."""
    assert "60 are guaranteed" in refusal(pairwise(honest_fraction_ppm=800_000))


def test_words_that_could_wrap_are_refused_at_the_edge() -> None:
    """The largest grid that 16 bits hold passes, the next does not, and the message says what would
    do. Planted: ``>=`` -> fails.
    """
    assert PAIRWISE.pairwise is not None
    plan = replace(PAIRWISE.pairwise, word_bits=16)

    def narrow(grid: int) -> Task:
        domain = Vector(1, Norm.COORDINATE, 1.0, grid)
        return pairwise(
            domain=domain,
            pairwise=plan,
            mechanism=with_noise(variance=10_000),
            report_size=plan.vector_bytes(1),
        )

    tail = noise_tail(with_noise(variance=10_000), 1, 120)
    edge = (2**15 - 1 - tail) // 120
    assert check_sum(narrow(edge)).honest == 70
    assert "word_bits must be 32" in refusal(narrow(edge + 1))


def test_a_wider_word_than_needed_is_taken() -> None:
    """It costs bytes and nothing else."""
    assert PAIRWISE.pairwise is not None
    plan = replace(PAIRWISE.pairwise, word_bits=64)
    assert check_sum(pairwise(pairwise=plan, report_size=plan.vector_bytes(3))) == check_sum(
        PAIRWISE
    )


@for_each(
    "spec, named",
    [
        (MechanismSpec.of("binary_rr", no_one=1, yes_one=2), "skellam"),
        (MechanismSpec.of("skellam", shares=70), '"variance"'),
        (MechanismSpec.of("skellam", variance=5), '"shares"'),
        (MechanismSpec.of("skellam", shares=70, variance=0), '"variance"'),
        (MechanismSpec.of("skellam", shares=0, variance=9), '"shares"'),
        (MechanismSpec.of("skellam", shares=70, variance=9, delta=1), '"delta"'),
        (MechanismSpec.of("discrete_laplace", shares=70, scale=1), '"scale"'),
        (MechanismSpec.of("discrete_laplace", shares=70, variance=9), '"variance"'),
    ],
    ids=str,
)
def test_noise_that_is_none_is_refused(spec: MechanismSpec, named: str) -> None:
    assert named in refusal(pairwise(mechanism=spec))


def test_a_sum_that_hides_nobody_is_refused() -> None:
    """One honest survivor: the others know what is left. Planted: ``< 1`` -> this fails."""
    assert PAIRWISE.pairwise is not None
    plan = replace(PAIRWISE.pairwise, survivors_min=2, cohort_min=2)
    alone = pairwise(pairwise=plan, honest_fraction_ppm=999_999, mechanism=with_noise(shares=1))
    assert "would hide nobody" in refusal(alone)


def test_a_shuffled_task_is_none_of_these() -> None:
    assert "not summed" in refusal(TASK)


def test_a_task_is_the_same_after_its_bytes() -> None:
    assert check_sum(codec.decode_task(codec.encode_task(PAIRWISE))) == check_sum(PAIRWISE)


# --- long vectors ---------------------------------------------------------------------------------


def long_sum(dimension: int, devices: int, **changes: Any) -> SumDesign:
    settings: dict[str, Any] = {
        "dimension": dimension,
        "norm": Norm.L2,
        "clip": 1.0,
        "noise": "skellam",
        "mode": Mode.DEFAULT,
        "cohort_max": devices,
        "cohort_min": devices,
        "dropout_ppm": 250_000,
        "honest_fraction_ppm": 900_000,
        "epsilon": 2.0,
        "delta": 1e-6,
    }
    return design_sum(**{**settings, **changes})


@for_each("devices", [8, 16, 100, 1_000])
@for_each("dimension", [1_000_000, LIMITS.vector_words])
def test_the_longest_vectors_can_be_summed_over_few_devices(dimension: int, devices: int) -> None:
    """Their grid is as fine as the noise allows, and never so coarse that rounding costs more than
    a quarter. Planted: the usual grid whatever the noise -> 8 devices are refused: fails.
    """
    made = long_sum(dimension, devices)
    assert made.plan.segment_words == LIMITS.segment_words
    assert made.plan.vector_bytes(dimension) <= LIMITS.vector_bytes
    usual = default_grid(Norm.L2, 1.0, dimension)
    assert 4 * math.isqrt(dimension) <= made.domain.grid <= usual
    assert (made.domain.grid == usual) == (devices == 1_000 or (devices, dimension) == (100, 10**6))
    task = pairwise(
        domain=made.domain,
        mechanism=made.mechanism,
        pairwise=made.plan,
        min_batch=made.plan.survivors_min,
        report_size=made.plan.vector_bytes(dimension),
        delta=1e-6,
    )
    assert check_sum(task).epsilon_upper <= 2.0
    if made.domain.grid < usual:  # twice as fine does not go
        with pytest.raises(ShoalError):
            long_sum(dimension, devices, grid=2 * made.domain.grid)


def test_what_nobody_can_sum_is_refused_with_the_first_reason() -> None:
    with pytest.raises(ShoalError) as caught:
        long_sum(LIMITS.vector_words, 8, epsilon=0.01)
    assert "coarser grid" in caught.value.message


def test_short_vectors_and_those_of_helper_mode_are_in_one_piece() -> None:
    """Planted: ``>=`` for ``>`` -> fails."""
    for dimension, mode, words in (
        (3, Mode.DEFAULT, 0),
        (LIMITS.dense_words, Mode.STRICT, 0),
        (LIMITS.dense_words + 1, Mode.DEFAULT, LIMITS.segment_words),
        (LIMITS.dense_words + 1, Mode.HELPER, 0),
    ):
        plan = long_sum(dimension, 200, mode=mode).plan
        assert (plan.segment_words, plan.segmented) == (words, words > 0)

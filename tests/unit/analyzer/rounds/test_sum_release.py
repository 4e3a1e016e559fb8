"""The release of a window of rounds: totals that are right with errors that are right, one round's
guarantee, and nothing too much.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal import codec
from shoal.accounting.sums.pairwise import certify_sum
from shoal.accounting.sums.sum_task import check_sum, design_sum
from shoal.analyzer import core
from shoal.analyzer.results.release import decode_release, to_json
from shoal.analyzer.rounds import sum_release
from shoal.analyzer.rounds.sum_release import (
    conclude_sums,
    reach95,
    standard_errors,
    sums_hash,
    total,
)
from shoal.analyzer.store import Outcome, Spending
from shoal.codec import Signed
from shoal.crypto.hpke import generate
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import ServedTask, serve_task
from shoal.domain import Norm, Vector
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.mechanisms.noise.registry import create_noise
from shoal.mechanisms.quantize import bounds, quantize
from shoal.protos import delivery_pb2, release_pb2
from shoal.secagg import Mode
from shoal.task import MechanismSpec, Task, WindowKeys
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.schedules import schedule_bytes
from tests.worlds.tasks import PAIRWISE, PLAN, TASK, pairwise, window_plan

AUTHORITY, ANALYZER, SHUFFLER = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()
HERE = window_plan(count=2)


def serve(task: Task) -> ServedTask:
    """The task signed, with keys for its windows."""
    keys: dict[str, Any] = {
        "key_authority": AUTHORITY.public,
        "shuffler_key": SHUFFLER.public,
        "analyzer_key": ANALYZER.public,
    }
    task = replace(task, windows=HERE, **keys)
    data = codec.encode_task(task)
    windows = tuple(
        WindowKeys(
            w,
            generate(SuiteId.X25519_AES128).config.raw,
            generate(SuiteId.X25519_AES128).config.raw,
        )
        for w in range(2)
    )
    schedule = schedule_bytes(TaskId.of(data).raw, windows, ANALYZER, SHUFFLER)
    signed = codec.encode_signed_task(
        Signed(data, AUTHORITY.public, AUTHORITY.sign(SigningContext.TASK, data))
    )
    keyed = codec.encode_signed_schedule(
        Signed(schedule, AUTHORITY.public, AUTHORITY.sign(SigningContext.KEY_SCHEDULE, schedule))
    )
    return serve_task(signed, keyed, {AUTHORITY.public})


@dataclass(frozen=True)
class Round:
    round_id: Digest
    survivors: int
    vector: NDArray[np.int64]


def rounds(*survivors: int, dimension: int = 3, value: int = 0) -> list[Round]:
    """One per number, distinct."""
    return [
        Round(Digest.of(bytes([i])), n, np.full(dimension, value + i, dtype=np.int64))
        for i, n in enumerate(survivors)
    ]


SERVED = serve(PAIRWISE)
GUARANTEED = check_sum(SERVED.task)


def outcome(
    sums: Sequence[Round],
    served: ServedTask = SERVED,
    aborted: Mapping[str, int] | None = None,
    earlier: Sequence[Spending] = (),
) -> Outcome:
    return conclude_sums(served, 1, sums, aborted or {}, earlier, ANALYZER)


def shown(*args: Any, **more: Any) -> dict[str, Any]:
    """As JSON that any parser reads: Infinity and NaN are none."""
    made = to_json(decode_release(outcome(*args, **more).release))
    again: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    assert again == made
    return made


# --- what it says ---------------------------------------------------------------------------------


def test_the_shape_is_the_published_one() -> None:
    """Other programs rely on exactly these keys; those of a shuffled release come first, and are
    the same.
    """
    release = shown(
        rounds(90, 110, 100), aborted={"too few joined": 2, "the sum does not check": 1}
    )
    assert list(release) == [
        *(
            "task_id",
            "name",
            "window",
            "n",
            "rejected",
            "estimates",
            "privacy",
            "damaged",
            "manifest_hash",
            "withheld",
            "rounds",
        ),
    ]
    assert list(release["rounds"]) == [
        *(
            "mode",
            "rounds",
            "aborted",
            "noise_stderr",
            "one_round_noise_stderr",
            "rounding_stderr",
            "epsilon_analyzer",
            "epsilon_together",
        ),
    ]
    assert release["rounds"]["aborted"] == {"the sum does not check": 1, "too few joined": 2}
    assert (release["rounds"]["mode"], release["rounds"]["rounds"]) == ("default", 3)
    assert (release["task_id"], release["name"], release["window"], release["n"]) == (
        SERVED.task_id.hex,
        "moments",
        1,
        300,
    )
    assert [row["label"] for row in release["estimates"]] == ["visits", "visits squared", "answers"]
    assert release["withheld"] is None


def test_release_and_acknowledgement_are_signed_for_what_they_are() -> None:
    """Planted: the release signed as an acknowledgement -> this fails."""
    made = outcome(rounds(100, 100))
    verify(ANALYZER.public, SigningContext.RELEASE, made.release, made.release_signature)
    verify(ANALYZER.public, SigningContext.ACK, made.ack, made.ack_signature)
    message = delivery_pb2.Ack.FromString(made.ack)
    assert message.manifest_hash == decode_release(made.release).manifest_hash
    assert made.tally is None


def test_the_hash_names_task_window_and_rounds_in_any_order() -> None:
    """Two windows without any round differ too. Planted: the window left out, or the rounds not
    sorted -> this fails.
    """
    sums = rounds(90, 100)
    expected = (
        b"shoal/v1/secagg/window\x00"
        + SERVED.task_id.raw
        + bytes([0, 0, 0, 1])
        + b"".join(sorted(s.round_id.raw for s in sums))
    )
    assert sums_hash(SERVED.task_id, 1, sums).raw == hashlib.sha256(expected).digest()
    assert sums_hash(SERVED.task_id, 1, sums[::-1]) == sums_hash(SERVED.task_id, 1, sums)
    others = {sums_hash(SERVED.task_id, w, sums[:n]) for w in (0, 1) for n in (0, 1, 2)} | {
        sums_hash(TaskId(bytes(32)), 1, sums)
    }
    assert len(others) == 7


# --- what it guarantees ---------------------------------------------------------------------------


def test_the_guarantee_is_that_of_the_smallest_sum_allowed() -> None:
    """However many survived, the stated epsilon is fixed before collection. Planted: the received
    figure in its place -> this fails.
    """
    for sums in (rounds(80, 120), rounds(120, 120, 120)):
        privacy = shown(sums)["privacy"]
        assert privacy["epsilon_upper"] == GUARANTEED.epsilon_upper
        assert (privacy["epsilon_lower"], privacy["epsilon0"]) == (
            GUARANTEED.epsilon_lower,
            GUARANTEED.epsilon0,
        )
        assert (privacy["n_certified"], privacy["honest_fraction"], privacy["delta"]) == (
            70,
            0.9,
            1e-8,
        )
        assert privacy["relation"] == "replace-one"
        assert privacy["unit"] == "one vector of one device in one window"
        assert privacy["assumptions"][:-1] == list(GUARANTEED.assumptions)


@for_each("sizes", [(80, 120), (120, 80, 100), (120, 111), (100, 120, 120)])
def test_the_received_figure_is_that_of_the_smallest_round(sizes: tuple[int, ...]) -> None:
    """A device may have been in any of the rounds, so the worst counts. Planted: the largest, or
    the sum of them -> this fails.
    """
    task = SERVED.task
    assert isinstance(task.domain, Vector)
    alone = certify_sum(
        task.mechanism,
        bounds(task.domain),
        3,
        survivors=min(sizes),
        honest_fraction=Fraction(7, 8),
        delta=1e-8,
        mode=Mode.DEFAULT,
    )
    received = shown(rounds(*sizes))["privacy"]["epsilon_at_received_n"]
    assert received == min(alone.epsilon_upper, GUARANTEED.epsilon_upper)
    assert (received < GUARANTEED.epsilon_upper) == (min(sizes) > 80)


def test_modes_promise_what_they_can() -> None:
    """Against both servers: the guarantee in strict mode, one share's in the others. Planted: the
    analyzer's for both -> fails.
    """
    for mode in Mode:
        release = shown(rounds(100, 100), serve(pairwise(pairwise=replace(PLAN, mode=mode))))
        told = release["rounds"]
        assert told["mode"] == mode.name.lower()
        assert told["epsilon_analyzer"] == release["privacy"]["epsilon_upper"]
        expected = release["privacy"]["epsilon_upper" if mode is Mode.STRICT else "epsilon0"]
        assert told["epsilon_together"] == expected


def test_a_window_is_charged_once_whatever_its_rounds() -> None:
    """A device is in one round of a window: rounds do not add up, windows do. Planted: a charge per
    round -> this fails.
    """
    for sums in (rounds(80), rounds(100, 100, 100, 100)):
        assert outcome(sums).spending == Spending(SERVED.task_id, GUARANTEED.epsilon_upper, 1e-8)
    earlier = [
        Spending(SERVED.task_id, GUARANTEED.epsilon_upper, 1e-8),
        Spending(TaskId(bytes(32)), 0.25, 1e-9),
    ]
    privacy = shown(rounds(100, 100), earlier=earlier)["privacy"]
    assert (privacy["windows_composed"], privacy["tasks_composed"]) == (3, 2)
    assert privacy["delta_cumulative"] == pytest.approx(2.1e-8, rel=1e-12)
    assert (
        GUARANTEED.epsilon_upper
        < privacy["epsilon_cumulative_upper"]
        <= 2 * GUARANTEED.epsilon_upper + 0.25
    )


# --- what is withheld -----------------------------------------------------------------------------


def assert_withheld(release: dict[str, Any], made: Outcome, reason: str) -> None:
    assert release["withheld"] == reason
    assert release["estimates"] == []
    assert made.tally is None
    assert made.spending.epsilon_upper >= GUARANTEED.epsilon_upper  # the analyzer has seen the sums


@for_each(
    "sizes, withheld",
    [
        ((100, 99), True),
        ((100, 100), False),
        ((119,), True),
        ((80,), True),
        ((80, 119), True),
        ((80, 120), False),
    ],
)
def test_fewer_survivors_than_min_batch_are_withheld(
    sizes: tuple[int, ...], withheld: bool
) -> None:
    """min_batch is 200, of all rounds together. Planted: ``<=``, or the largest round alone counted
    -> this fails.
    """
    made, release = outcome(rounds(*sizes)), shown(rounds(*sizes))
    if withheld:
        assert_withheld(release, made, core.WITHHELD_TOO_FEW)
    else:
        assert release["withheld"] is None
        assert len(release["estimates"]) == 3


def test_a_guarantee_above_the_target_is_withheld_however_many_came() -> None:
    """Received epsilon would be below the target: it does not count. Planted: withheld decided by
    what was received -> this fails.
    """
    served = serve(pairwise(target_epsilon=GUARANTEED.epsilon_upper * (1 - 1e-9)))
    assert_withheld(
        shown(rounds(120, 120), served), outcome(rounds(120, 120), served), core.WITHHELD_EPSILON
    )
    assert (
        shown(rounds(120, 120), served)["privacy"]["epsilon_at_received_n"]
        < served.task.target_epsilon
    )
    assert (
        shown(rounds(120, 120), serve(pairwise(target_epsilon=GUARANTEED.epsilon_upper)))[
            "withheld"
        ]
        is None
    )


def test_a_window_without_a_sum_is_withheld_and_says_why() -> None:
    release = shown([], aborted={"too few joined": 3})
    assert_withheld(release, outcome([]), sum_release.NO_SUMS)
    assert release["n"] == 0
    assert (
        release["rounds"]["rounds"]
        == release["rounds"]["noise_stderr"]
        == release["rounds"]["one_round_noise_stderr"]
        == 0
    )
    assert release["rounds"]["aborted"] == {"too few joined": 3}
    assert release["privacy"]["epsilon_at_received_n"] == GUARANTEED.epsilon_upper


@for_each("least", [79, 40, 2, 1])
def test_a_sum_of_too_few_is_never_published_and_charged_by_what_it_was(least: int) -> None:
    """No honest party makes one; were there one, the certificate would not be about it. A single
    device is charged at epsilon0.

    Planted: the survivors moved up to survivors_min before they are certified -> this fails.
    """
    sums = rounds(least, 120, 120)
    release = shown(sums)
    assert_withheld(release, outcome(sums), sum_release.TOO_FEW_SURVIVORS)
    charged = outcome(sums).spending.epsilon_upper
    assert charged == release["privacy"]["epsilon_at_received_n"] > GUARANTEED.epsilon_upper
    assert release["rounds"]["epsilon_analyzer"] == charged
    assert release["rounds"]["epsilon_together"] >= charged
    assert release["privacy"]["epsilon_cumulative_upper"] >= charged
    if least == 1:
        assert charged == GUARANTEED.epsilon0


def test_a_sum_of_too_many_for_its_words_is_never_published() -> None:
    """121 of at most 120: the total may have wrapped without anybody noticing. Planted: ``>=``, or
    no such check -> this fails.
    """
    assert shown(rounds(120, 120))["withheld"] is None
    assert_withheld(
        shown(rounds(120, 121)), outcome(rounds(120, 121)), sum_release.TOO_MANY_SURVIVORS
    )


def test_a_task_that_does_not_hold_is_not_released() -> None:
    """Noise for more than the guaranteed survivors: nothing is signed. So is a task without
    rounds.
    """
    wrong = serve(pairwise(mechanism=MechanismSpec.of("skellam", shares=80, variance=118_000_000)))
    for served in (wrong, serve(TASK)):
        with pytest.raises(ShoalError) as caught:
            outcome(rounds(100, 100), served)
        assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError, match="not summed"):
        standard_errors(TASK, 5)


def test_an_epsilon_that_is_none_is_null() -> None:
    """JSON has no infinity. Planted: ``_finite`` left out for any of these -> ``allow_nan=False``
    raises.
    """
    message = decode_release(outcome(rounds(100, 100)).release)
    for part, names in (
        (message.privacy, ("epsilon0", "epsilon_at_received_n", "epsilon_cumulative_upper")),
        (message.rounds, ("epsilon_analyzer", "epsilon_together")),
    ):
        for name in names:
            setattr(part, name, math.inf)
    made = to_json(release_pb2.Release.FromString(message.SerializeToString()))
    assert json.loads(json.dumps(made, allow_nan=False))["privacy"]["epsilon0"] is None
    assert made["rounds"]["epsilon_together"] is made["rounds"]["epsilon_analyzer"] is None
    assert (
        made["privacy"]["epsilon_at_received_n"]
        is made["privacy"]["epsilon_cumulative_upper"]
        is None
    )


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
    made = design_sum(
        dimension=100_000,
        norm=Norm.L2,
        clip=1.0,
        noise="skellam",
        mode=Mode.STRICT,
        cohort_max=120,
        cohort_min=100,
        dropout_ppm=200_000,
        honest_fraction_ppm=900_000,
        epsilon=1.0,
        delta=1e-8,
        grid=domain.grid,
    )
    served = serve(
        pairwise(
            domain=domain,
            mechanism=made.mechanism,
            pairwise=made.plan,
            report_size=made.plan.vector_bytes(100_000),
            min_batch=100,
        )
    )
    sums = [Round(Digest.of(b"r"), 100, np.arange(100_000, dtype=np.int64))]
    release = shown(sums, served)
    assert len(release["estimates"]) == 100_000
    assert release["estimates"][40_000]["label"] == "40000"
    assert release["estimates"][40_000]["value"] == 1.0


# --- errors ---------------------------------------------------------------------------------------

LAPLACE = design_sum(
    dimension=400,
    norm=Norm.L1,
    clip=4.0,
    noise="discrete_laplace",
    mode=Mode.DEFAULT,
    cohort_max=40,
    cohort_min=30,
    dropout_ppm=200_000,
    honest_fraction_ppm=900_000,
    epsilon=2.0,
    delta=1e-8,
    grid=50,
)
SKELLAM = design_sum(
    dimension=400,
    norm=Norm.COORDINATE,
    clip=4.0,
    noise="skellam",
    mode=Mode.DEFAULT,
    cohort_max=40,
    cohort_min=30,
    dropout_ppm=200_000,
    honest_fraction_ppm=900_000,
    epsilon=60.0,
    delta=1e-6,
    grid=4,
)


def task_of(design: Any, **changes: Any) -> Task:
    length = design.plan.vector_bytes(design.domain.dimension)
    fields = {
        "domain": design.domain,
        "mechanism": design.mechanism,
        "pairwise": design.plan,
        "report_size": length,
    }
    return pairwise(
        **{**fields, "min_batch": 24, "target_epsilon": 100.0, "delta": 1e-6, **changes}
    )


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
    task = task_of(design)
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
    task = task_of(design)
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

"""What a release says: estimates of the mechanism, the guarantee fixed before collection, and what
adds up over batches.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.accounting import certify, guaranteed
from shoal.accounting.accountant import upper_curve
from shoal.accounting.composition.basic import Composed
from shoal.accounting.composition.compose import compose, release_law
from shoal.analyzer import core
from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import Batch, BatchState
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.results import cumulative
from shoal.analyzer.results.release import OPEN_ADMISSION, Prepared, conclude, prepare
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.crypto.signing import SigningContext, verify
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally
from shoal.protos import delivery_pb2, release_pb2
from tests.worlds.services.analyzer import World, make_world

WORLD = make_world(min_batch=1_000, target_epsilon=2.0)


def batch_of(world: World, window: int = 0) -> Batch:
    made = world.batch([bytes(world.row_size())], window=window)
    return Batch(made.manifest, made.manifest_hash, BatchState.PROCESSING)


def prepared(
    n: int, world: World = WORLD, rejected: dict[str, int] | None = None, window: int = 0
) -> Prepared:
    counts = np.bincount(np.arange(n) % 7, minlength=7)
    return prepare(world.served, batch_of(world, window), Opened(Tally(counts, n), rejected or {}))


def outcome(
    n: int, world: World = WORLD, earlier: Sequence[Spending] = (), **more: Any
) -> WindowOutcome:
    return conclude(prepared(n, world, **more), earlier, world.analyzer)


def shown(made: WindowOutcome) -> dict[str, Any]:
    return to_json(decode_release(made.release))


def test_the_shape_is_the_published_one() -> None:
    """Other programs rely on exactly these keys."""
    release = shown(outcome(1_500, rejected={core.UNOPENABLE: 2, core.DUPLICATE: 1}))
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
        ),
        "processed",
    ]
    assert list(release["privacy"]) == [
        *(
            "epsilon0",
            "epsilon_upper",
            "epsilon_lower",
            "delta",
            "n_certified",
            "honest_fraction",
            "relation",
            "method",
            "assumptions",
        ),
        *(
            "epsilon_at_received_n",
            "unit",
            "epsilon_cumulative_upper",
            "delta_cumulative",
            "windows_composed",
            "tasks_composed",
        ),
    ]
    assert [list(row) for row in release["estimates"]] == [
        ["label", "value", "stderr", "ci_low", "ci_high"]
    ] * 7
    assert release["task_id"] == WORLD.task_id.hex
    assert release["rejected"] == {"duplicate": 1, "unopenable": 2}
    assert release["privacy"]["unit"] == "one report of one device in one window"
    assert release["withheld"] is None
    assert json.loads(json.dumps(release, allow_nan=False)) == release


def test_estimates_are_the_mechanisms_own() -> None:
    tally = Tally(np.bincount(np.arange(1_500) % 7, minlength=7), 1_500)
    expected = WORLD.mechanism.estimate(tally)
    rows = shown(outcome(1_500))["estimates"]
    assert [row["label"] for row in rows] == list(expected.labels)
    assert [row["value"] for row in rows] == expected.values.tolist()
    assert [row["ci_high"] for row in rows] == expected.ci_high.tolist()


def test_the_guarantee_is_the_one_of_the_smallest_batch_whatever_came() -> None:
    """Planted: certify at the received n -> a flood of strangers' reports would buy a smaller
    epsilon, and this fails.
    """
    task = WORLD.task
    expected = guaranteed(WORLD.mechanism.privacy(), 1_000, Fraction(9, 10), task.delta)
    for n in (1_000, 5_000):
        privacy = shown(outcome(n))["privacy"]
        assert (privacy["epsilon_upper"], privacy["epsilon_lower"]) == (
            expected.epsilon_upper,
            expected.epsilon_lower,
        )
        assert privacy["n_certified"] == 900
        received = certify(
            WORLD.mechanism.privacy(), n, task.delta, honest_fraction=Fraction(9, 10)
        ).epsilon_upper
        assert privacy["epsilon_at_received_n"] == received


def test_assumptions_are_said_in_plain_words() -> None:
    assumptions = shown(outcome(1_000))["privacy"]["assumptions"]
    assert OPEN_ADMISSION in assumptions
    assert any("do not collude" in line and "epsilon0" in line for line in assumptions)


@pytest.mark.parametrize(
    ("n", "reason"), [(999, core.WITHHELD_TOO_FEW), (1_000, None), (0, core.WITHHELD_TOO_FEW)]
)
def test_the_minimum_counts_valid_distinct_reports(n: int, reason: str | None) -> None:
    made = outcome(n, rejected={core.DUPLICATE: 5_000})
    release = shown(made)
    assert release["withheld"] == reason
    assert release["n"] == n
    assert bool(release["estimates"]) == (reason is None)
    assert (made.tally is None) == (reason is not None)


def test_a_guarantee_above_the_target_is_withheld_even_if_many_came() -> None:
    """Planted: decide by the epsilon at the received n -> released here, and this fails."""
    world = make_world(min_batch=1_000, target_epsilon=0.5)
    assert shown(outcome(1_000, world))["privacy"]["epsilon_upper"] > 0.5
    release = shown(outcome(100_000, world))
    assert release["privacy"]["epsilon_at_received_n"] < 0.5
    assert release["withheld"] == core.WITHHELD_EPSILON
    assert release["estimates"] == []


def test_costs_of_windows_and_tasks_are_composed() -> None:
    """At the sum of the deltas; never above the sum of the epsilons, nor below any of them; well
    below the sum for many windows.

    Planted: the largest delta instead of the sum -> the first fails; only this batch composed ->
    the third fails.
    """
    other = Spending(type(WORLD.task_id)(bytes(32)), 0.1, 1e-6)
    earlier = [other, other, Spending(WORLD.task_id, 0.2, 1e-6)]
    privacy = shown(outcome(1_000, earlier=earlier))["privacy"]
    assert privacy["delta_cumulative"] == pytest.approx(4e-6, rel=1e-12)
    assert (privacy["windows_composed"], privacy["tasks_composed"]) == (4, 2)
    exact = sum(Fraction(cost.epsilon_upper) for cost in earlier) + Fraction(
        privacy["epsilon_upper"]
    )
    assert (
        0.9 * exact
        < Fraction(privacy["epsilon_cumulative_upper"])
        <= exact * (1 + Fraction(1, 10**12))
    )
    charge = prepared(1_000).charge
    alike = shown(outcome(1_000, earlier=[charge] * 29))["privacy"]
    one = charge.epsilon_upper
    assert one < alike["epsilon_cumulative_upper"] < 0.5 * 30 * one
    task = WORLD.task
    law = release_law(upper_curve, WORLD.mechanism.privacy(), task.n_certified, task.delta)
    assert (
        alike["epsilon_cumulative_upper"]
        == compose([(law, 30)], alike["delta_cumulative"]).epsilon_upper
    )


def test_more_batches_than_can_be_composed_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release must never wait because there were too many before it. Planted: the refusal let
    through -> this fails.
    """

    def refuse(*_: object) -> Composed:
        raise ShoalError(Kind.CONFIG, "too many")

    monkeypatch.setattr(cumulative, "compose", refuse)
    other = Spending(WORLD.task_id, 0.1, 1e-9)
    privacy = shown(outcome(1_000, earlier=[other] * 5))["privacy"]
    assert privacy["epsilon_cumulative_upper"] == pytest.approx(
        0.5 + privacy["epsilon_upper"], rel=1e-12
    )


def test_a_withheld_batch_is_charged_and_a_short_one_by_what_came() -> None:
    """It was opened, so its reports were seen. Planted: charge 0 for withheld batches -> this
    fails.
    """
    full, short, nothing = prepared(1_000).charge, prepared(300).charge, prepared(0).charge
    at_300 = certify(
        WORLD.mechanism.privacy(), 300, WORLD.task.delta, honest_fraction=Fraction(9, 10)
    ).epsilon_upper
    assert full.epsilon_upper == shown(outcome(1_000))["privacy"]["epsilon_upper"]
    assert short.epsilon_upper == at_300 > full.epsilon_upper
    assert nothing.epsilon_upper == shown(outcome(0))["privacy"]["epsilon0"]
    assert shown(outcome(300))["privacy"]["epsilon_cumulative_upper"] == at_300


def test_deltas_that_add_up_to_one_promise_nothing_and_say_so() -> None:
    """Planted: the accountant's refusal let through -> the batch could never be finished, and this
    fails.
    """
    privacy = shown(outcome(1_000, earlier=[Spending(WORLD.task_id, 0.1, 0.5)] * 2))["privacy"]
    assert privacy["delta_cumulative"] == 1.0
    assert math.isfinite(privacy["epsilon_cumulative_upper"])


def test_bytes_are_a_function_of_the_batch_and_signed() -> None:
    first, second = (
        outcome(1_500, rejected={"duplicate": 1, "unopenable": 2}),
        outcome(1_500, rejected={"unopenable": 2, "duplicate": 1}),
    )
    assert first == second
    verify(WORLD.analyzer.public, SigningContext.RELEASE, first.release, first.release_signature)
    verify(WORLD.analyzer.public, SigningContext.ACK, first.ack, first.ack_signature)
    assert delivery_pb2.Ack.FromString(first.ack).manifest_hash == batch_of(WORLD).manifest_hash.raw
    with pytest.raises(ShoalError) as error:
        verify(WORLD.analyzer.public, SigningContext.ACK, first.release, first.release_signature)
    assert error.value.kind is Kind.BAD_SIGNATURE


def test_a_release_of_another_version_is_not_read() -> None:
    """Planted: the version not looked at -> its fields would be taken for ours, and this fails."""
    stored = release_pb2.Release.FromString(outcome(1_500).release)
    assert decode_release(stored.SerializeToString()) == stored
    for version in (0, 2):
        stored.version = version
        with pytest.raises(ShoalError, match=f"version {version} ") as error:
            decode_release(stored.SerializeToString())
        assert error.value.kind is Kind.INVALID

"""The demo's task of learning: all rounds within its promise, and time for every one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from shoal.accounting.sums.sum_task import check_sum
from shoal.accounting.sums.windows import epsilon_of_task
from shoal.cli.demo.federated import asked
from shoal.cli.demo.federated.asked import (
    DELTA,
    EPSILON,
    design_learning,
    make_learners,
    make_learning,
    plan_of,
)
from shoal.cli.demo.federated.patients import load_patients
from shoal.cli.demo.workspace import prepare
from shoal.errors import ShoalError


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> object:
    ports = iter(range(20_000, 20_010))
    return prepare(tmp_path_factory.mktemp("site"), lambda: next(ports))


@pytest.mark.parametrize(("devices", "rounds"), [(60, 2), (455, 6), (455, 50)])
def test_all_rounds_are_within_the_promise(
    site: object, devices: int, rounds: int, tmp_path: Path
) -> None:
    """Together, at the delta of all. Each window's own target is what the least noise gives it.
    Planted: noise for one window -> twice the epsilon, fails; the delta of all for each -> fails.
    """
    made = make_learning(site, plan_of(rounds, adaptive=False), devices)  # type: ignore[arg-type]
    task = made.task
    assert 0.99 * EPSILON < epsilon_of_task(task, rounds, DELTA) <= EPSILON
    assert task.delta * rounds == pytest.approx(DELTA)
    assert check_sum(task).epsilon_upper == task.target_epsilon
    assert task.windows.count == rounds
    assert task.pairwise is not None
    assert task.windows.length_s > task.pairwise.seconds + 3  # to follow, and to ask


def test_an_adapted_clip_is_charged() -> None:
    """Its coordinate is in the bound of a vector, and so in the noise. Planted: a bound of 1 for
    both -> equal noise, fails.
    """
    fixed, adapted = (design_learning(plan_of(6, adaptive=one), 200) for one in (False, True))
    per_clip = [
        made.mechanism.get("variance") * (made.domain.clip / made.domain.grid) ** 2
        for made in (fixed, adapted)
    ]
    assert 1.05 < per_clip[1] / per_clip[0] < 1.08  # 1 + 0.5^2 / 4
    assert adapted.domain.dimension == fixed.domain.dimension + 1


def test_too_few_devices_are_refused() -> None:
    """Planted: a cohort of none -> another error, or a task without noise."""
    with pytest.raises(ShoalError):
        design_learning(plan_of(6, adaptive=False), 2)


def test_every_patient_has_a_device_of_its_own(site: object) -> None:
    """At the first model, and only for a task that is asked by their plan. Planted: one identity
    for all, or no look at the plan -> fails.
    """
    patients, _ = load_patients()
    few = patients.first(5)
    made = make_learning(site, plan_of(3, adaptive=False), 60)  # type: ignore[arg-type]
    learners = make_learners(made, few)
    assert len({one.identity.key.public for one in learners}) == 5
    assert all((one.row == row).all() for one, row in zip(learners, few.rows, strict=True))
    assert [one.malignant for one in learners] == few.malignant.tolist()
    assert all(one.state.done == 0 for one in learners)
    with pytest.raises(ShoalError, match="is not asked by this plan"):
        make_learners(replace(made, plan=plan_of(4, adaptive=False)), few)


@pytest.mark.parametrize(("waited", "slower"), [(0.25, 1), (0.35, 1), (0.5, 2), (0.8, 3), (9.0, 3)])
def test_a_busy_machine_gets_longer_windows(
    waited: float, slower: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a quarter of a second on a core that takes so long. Planted: the time on a core for the
    time by the clock -> always 1, fails.
    """
    clocks = SimpleNamespace(
        monotonic=iter((100.0, 100.0 + waited)).__next__,
        process_time=iter((7.0, 7.1, 7.25)).__next__,
    )
    monkeypatch.setattr(asked, "time", clocks)
    assert asked.how_busy() == slower


def test_longer_windows_promise_the_same(site: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a phase, or the time between two rounds, that is not longer -> fails."""
    lengths = []
    for slower in (1, 3):
        monkeypatch.setattr(asked, "how_busy", lambda slower=slower: slower)
        task = make_learning(site, plan_of(2, adaptive=False), 60).task  # type: ignore[arg-type]
        lengths.append(task.windows.length_s)
    assert lengths[1] == 3 * lengths[0]
    plan = plan_of(6, adaptive=False)
    quiet, busy = (design_learning(plan, 200, slower) for slower in (1, 3))
    assert busy.plan.seconds == 3 * quiet.plan.seconds
    assert busy.mechanism == quiet.mechanism

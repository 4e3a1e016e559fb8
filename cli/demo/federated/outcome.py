"""What came of the demo's rounds: every sum held against the integers that were masked, the model
against the same one without privacy and against a curator's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shoal.accounting.sums.windows import epsilon_of_task
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.results.report_page import render_report
from shoal.analyzer.rounds.sums import AnySum, SumStore
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.arrays import np
from shoal.cli.demo.federated.asked import DELTA, EPSILON, Learner, LearningTask, model_of
from shoal.cli.demo.federated.beside import (
    OPEN_ROUNDS,
    CentralAccuracy,
    accuracy,
    learnt_centrally,
    learnt_openly,
)
from shoal.cli.demo.federated.patients import Patients
from shoal.cli.demo.made import Made
from shoal.cli.demo.options import Learnt
from shoal.cli.demo.workspace import Site
from shoal.crypto.trust import TASK_SUFFIX
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.questions.learning import LearningPlan

_RUNS = 200  # of the curator
_NETWORK_RUNS, _NETWORK_ROUNDS = 50, 400  # of a network: a gradient of it takes ten times as long


@dataclass(frozen=True, slots=True)
class LearningBeside:
    """What a round is held against. ``openly``: accuracy without privacy, in [0, 1]. ``logistic``:
    where another model is learnt, a curator's logistic regression at the same epsilon.
    """

    central: CentralAccuracy
    openly: float
    logistic: CentralAccuracy | None = None


@dataclass(frozen=True, slots=True)
class LearntRound:
    """``release``: as JSON. ``epsilon``: of this round by itself, ``so_far``: of all rounds until
    now, at the delta of all; upper bounds. ``clip``: of the gradients that were asked for.
    ``accuracy``: of the model after it, in [0, 1].
    """

    release: dict[str, Any]
    epsilon: float
    so_far: float
    clip: float
    accuracy: float


@dataclass(slots=True)
class Course:
    """The rounds so far, and what they are held against."""

    asked: LearningTask
    beside: LearningBeside
    rounds: list[LearntRound] = field(default_factory=list)
    clip: float = 0.0  # of the round under way

    def __post_init__(self) -> None:
        self.clip = self.asked.plan.clip

    def add(self, release: dict[str, Any], learner: Learner, right: float) -> None:
        """The next round has ended; ``learner``: any device, that has followed it."""
        so_far = epsilon_of_task(self.asked.task, len(self.rounds) + 1, DELTA)
        epsilon = float(release["privacy"]["epsilon_upper"])
        self.rounds.append(LearntRound(release, epsilon, so_far, self.clip, right))
        self.clip = learner.state.clip


def measure(
    plan: LearningPlan, patients: Patients, held_out: Patients, entropy: Entropy
) -> LearningBeside:
    """All comparisons, at (EPSILON, DELTA). Takes a second or two, of a network half a minute."""

    def centrally(plan: LearningPlan, runs: int) -> CentralAccuracy:
        return learnt_centrally(plan, patients, held_out, (EPSILON, DELTA), runs, entropy)

    plain = replace(plan, model=model_of(Learnt.LOGISTIC))
    if plan == plain:
        runs, rounds, logistic = _RUNS, OPEN_ROUNDS, None
    else:
        runs, rounds, logistic = _NETWORK_RUNS, _NETWORK_ROUNDS, centrally(plain, _RUNS)
    weights = learnt_openly(plan.model, patients, rounds)
    openly = accuracy(plan.model, weights, held_out)
    return LearningBeside(centrally(plan, runs), openly, logistic)


def finish_round(
    site: Site, asked: LearningTask, window: int, learners: Sequence[Learner]
) -> dict[str, Any]:
    """The release of a window as JSON, after its sums were held against what was masked.

    Raises INTERNAL if a sum is not exactly that of its devices: that must not happen.
    """
    task_id = asked.assignment.task_id
    store = AnalyzerStore(site.analyzer_data / FILE_NAME, read_only=True)
    try:
        sums = SumStore(store).of(task_id, window)
        (release,) = (one.release for one in store.releases() if one.window == window)
    finally:
        store.close()
    for stored in sums:
        check_exact(stored, window, learners)
    return to_json(decode_release(release))


def check_exact(stored: AnySum, window: int, learners: Sequence[Learner]) -> None:
    """Raises INTERNAL unless the sum is that of its devices' integers, to the last bit."""
    those = [one for one in learners if one.summed.get(window) == stored.round_id]
    total = np.zeros(stored.vector.size, dtype=np.int64)
    for one in those:
        total += one.masked[window]
    if len(those) != stored.survivors or not np.array_equal(total, stored.vector):
        raise ShoalError(
            Kind.INTERNAL,
            f"round {stored.round_id.short}: the sum is not that of its {stored.survivors} devices",
        )


def made_of(site: Site, course: Course, devices: int, held_out: int) -> Made:
    """Results, page and files. Raises ABORTED if no round gave a sum: the machine was too busy."""
    releases = [one.release for one in course.rounds]
    if all(release["withheld"] for release in releases):
        raise ShoalError(
            Kind.ABORTED,
            "no sum came about: this machine was too busy for the rounds' times; run it again, or "
            "with fewer --devices",
        )
    task, central, logistic = course.asked.task, course.beside.central, course.beside.logistic
    rounds = [
        {
            "window": at,
            "devices": one.release["n"],
            "withheld": one.release["withheld"],
            "clip": one.clip,
            "epsilon": one.epsilon,
            "epsilon_so_far": one.so_far,
            "accuracy": one.accuracy,
            "accuracy_central": central.by_round[at],
        }
        for at, one in enumerate(course.rounds)
    ]
    results = {
        "tasks": [
            {"name": task.name, "question": task.question, "truth": {}, "release": release}
            for release in releases
        ],
        "model": {"words": course.asked.plan.model.words, "weights": course.asked.plan.model.size},
        "rounds": rounds,
        "accuracy": {
            "federated": course.rounds[-1].accuracy,
            "central": central.mean,
            "central_low": central.low,
            "central_high": central.high,
            "central_runs": central.runs,
            "open": course.beside.openly,
            **({} if logistic is None else {"central_logistic": logistic.mean}),
        },
        "composed": {
            "epsilon_upper": course.rounds[-1].so_far,
            "delta": DELTA,
            "tasks": 1,
            "windows": len(rounds),
        },
        "devices": devices,
        "held_out": held_out,
    }
    name = f"{task.name}{TASK_SUFFIX}"
    # packages of the extra [server], which the help of the command does without
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.analyzer.results.checkable import checkable
    from shoal.services.settings import load_settings

    return Made(
        results,
        render_report(releases, {}),
        {name: (site.folder / "tasks" / name).read_bytes()},
        dict(checkable(load_settings(AnalyzerConfig, site.analyzer_config))),
    )

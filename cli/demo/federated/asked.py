"""The task of ``shoal demo --federated``: one window for each round of learning, and devices that
are enrolled for it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from shoal.accounting.lint.task import lint
from shoal.accounting.sums.sum_task import SumDesign, check_sum, design_sum
from shoal.arrays import NDArray, np
from shoal.cli.demo.federated.patients import FEATURES, Patients
from shoal.cli.demo.options import Learnt
from shoal.cli.demo.workspace import Site
from shoal.clients.core import Assignment, assign
from shoal.clients.memory.rounds_ledger import MemoryLedger
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Norm
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.questions.learning import ClipRule, LearningPlan, LearningState, begin_learning
from shoal.questions.models import Logistic, Model
from shoal.questions.network import Network
from shoal.questions.plan_words import check_learning
from shoal.secagg import Mode
from shoal.task import Admission, Aggregator, Task, WindowPlan

NAME = "malignant-masses"
EPSILON, DELTA = 2.0, 1e-5  # of all rounds together
ROUNDS = 6
HIDDEN = 16
MOST_ROUNDS = 50
# Chosen on this data set for the demo. A choice of one's own must be made on public data, or it is
# one more thing that is learnt of the devices.
_STEP, _CLIP = 8.0, 0.5
_WIDE_CLIP = 4.0  # where an adapted clip begins: far too wide, so that one sees it move
_SEED = 1  # of the network's first weights: the first that was tried
_HONEST_PPM, _DROPOUT_PPM = 900_000, 100_000
_LEAST_OF_COHORT = 95  # percent of the devices: with fewer no round begins
# seconds of join, share (and check), mask, unmask, for up to _QUICK devices; more take longer
_PHASES = 5, 3, 3, 3
_QUICK = 200
_START_S = 8  # until the first window begins: the services start meanwhile
# for the release of a window, for devices to follow it, and to ask for the next round
_SPARE_S = 5
# Of CPU, in which it is seen how busy the machine is; on one that is, all of these take longer.
_PROBE_S = 0.25
_MOST_SLOWER = 3


@dataclass(frozen=True, slots=True)
class LearningTask:
    """The demo's one task as devices receive it, the plan by which they answer, and who certifies
    them. ``slower``: how many times as long its windows are as on a quiet machine.
    """

    task: Task
    plan: LearningPlan
    assignment: Assignment
    enrolment: SigningKey
    slower: int


@dataclass(slots=True)
class Learner:
    """One device. ``row``: float64[30], its patient's; it leaves the device in no other form than
    masked. ``state``: the model as this device computed it. ``masked``: by window, the integers
    that it masked, for the demo to compare with. ``summed``: by window, the round that has them.
    """

    identity: DeviceIdentity
    row: NDArray[np.float64]
    malignant: bool
    state: LearningState
    masked: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    summed: dict[int, Digest] = field(default_factory=dict)
    ledger: MemoryLedger = field(default_factory=MemoryLedger)


def model_of(learnt: Learnt) -> Model:
    """Over a patient's measurements."""
    if learnt is Learnt.NETWORK:
        return Network(len(FEATURES), HIDDEN, _SEED)
    return Logistic(len(FEATURES))


def plan_of(rounds: int, *, adaptive: bool, learnt: Learnt = Learnt.LOGISTIC) -> LearningPlan:
    """Public, and the same numbers for both models. ``adaptive``: the clip begins too wide and
    follows the gradients.
    """
    rule = ClipRule() if adaptive else None
    return LearningPlan(model_of(learnt), rounds, _STEP, _WIDE_CLIP if adaptive else _CLIP, rule)


def design_learning(plan: LearningPlan, devices: int, slower: int = 1) -> SumDesign:
    """The least noise with which all rounds together are within (EPSILON, DELTA), in one cohort of
    all devices. ``slower``: how many times as long the steps of a round may take. Raises INVALID if
    so few can't be summed.
    """
    return design_sum(
        dimension=plan.dimension,
        norm=Norm.L2,
        clip=plan.bound,
        noise="skellam",
        mode=Mode.DEFAULT,
        cohort_max=devices,
        cohort_min=devices * _LEAST_OF_COHORT // 100,
        dropout_ppm=_DROPOUT_PPM,
        honest_fraction_ppm=_HONEST_PPM,
        epsilon=EPSILON,
        delta=DELTA,
        names=plan.names(FEATURES),
        phases=_phases(devices, slower),
        windows=plan.rounds,
    )


def make_learning(site: Site, plan: LearningPlan, devices: int) -> LearningTask:
    """Sign the task and hand it to the services. Raises CONFIG if its numbers don't hold."""
    slower = how_busy()
    design, enrolment = design_learning(plan, devices, slower), SigningKey.generate()
    draft = _task(site, plan, design, enrolment, EPSILON, slower)
    # what a window promises by itself follows from what all of them promise together
    task = _task(site, plan, design, enrolment, check_sum(draft).epsilon_upper, slower)
    result = lint(task)
    if result.errors:
        raise ShoalError(
            Kind.CONFIG, f"{devices} devices are too few for this demo: {result.errors[0]}"
        )
    _, signed_task, signed_schedule = site.add(task)
    trusted = trust_task(signed_task, {site.authority.public})
    return LearningTask(
        task, plan, assign(trusted, trust_schedule(signed_schedule, trusted)), enrolment, slower
    )


def _task(
    site: Site,
    plan: LearningPlan,
    design: SumDesign,
    enrolment: SigningKey,
    epsilon: float,
    slower: int,
) -> Task:
    rounds, seconds = plan.rounds, design.plan.seconds + slower * _SPARE_S
    return Task(
        salt=os.urandom(16),
        name=NAME,
        purpose="health statistics",
        question=f"How must a model change to tell malignant masses? {plan.words}",
        domain=design.domain,
        mechanism=design.mechanism,
        windows=WindowPlan(
            start_s=int(time.time()) + slower * _START_S,
            length_s=seconds,
            count=rounds,
            grace_s=0,
            skew_s=2,
        ),
        min_batch=design.plan.survivors_min,
        max_batch=0,
        honest_fraction_ppm=_HONEST_PPM,
        delta=DELTA / rounds,
        target_epsilon=epsilon,
        key_authority=site.authority.public,
        shuffler_key=site.shuffler,
        analyzer_key=site.analyzer,
        shuffler_address=site.shuffler_address,
        shuffler_ca=site.ca,
        retention_s=7_200,
        report_size=design.plan.vector_bytes(design.domain.dimension),
        admission=Admission.ENROLLED,
        enrolment_key=enrolment.public,
        aggregator=Aggregator.PAIRWISE,
        pairwise=design.plan,
    )


def _phases(devices: int, slower: int) -> tuple[int, ...]:
    """Seconds: this machine does the work of all devices."""
    return tuple(slower * -(-phase * max(_QUICK, devices) // _QUICK) for phase in _PHASES)


def how_busy() -> int:
    """How many times as long as on a quiet machine everything takes here, from 1 to
    ``_MOST_SLOWER``: a little work, its time by the clock over its time on a core.
    """
    began, core = time.monotonic(), time.process_time()
    while (used := time.process_time() - core) < _PROBE_S:
        pass
    return min(_MOST_SLOWER, max(1, round((time.monotonic() - began) / used)))


def make_learners(asked: LearningTask, patients: Patients) -> list[Learner]:
    """Enrolled devices, one for each patient, at the first model. Raises MISMATCH, as a device
    does, for a task that is not asked by its plan.
    """
    check_learning(asked.task, asked.plan)
    now = int(time.time())
    learners = []
    for row, malignant in zip(patients.rows, patients.malignant.tolist(), strict=True):
        key = SigningKey.generate()
        identity = DeviceIdentity(
            key, issue(asked.enrolment, key.public, now - 3_600, now + 86_400)
        )
        learners.append(Learner(identity, row, malignant, begin_learning(asked.plan)))
    return learners

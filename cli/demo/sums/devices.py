"""``shoal demo --secagg``: a vector per device, summed by secure aggregation while devices die at
every stage.

Real services, sockets, certificates and noise. Devices are tasks of this process; one that is
killed simply never speaks again. Because the demo made the devices' vectors, it can hold every
round's sum against the exact integers that were masked.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shoal.accounting.lint.task import lint
from shoal.accounting.sums.sum_task import SumDesign, design_sum
from shoal.analyzer.rounds.sums import AnySum, SumStore
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.arrays import NDArray, np
from shoal.cli.demo.workspace import Site
from shoal.clients.core import Assignment, assign
from shoal.clients.memory.rounds_ledger import MemoryLedger
from shoal.clients.rounds.exchange import RoundLine
from shoal.clients.rounds.participation import RoundState, take_part
from shoal.clients.transports.rounds_transport import GrpcRoundTransport
from shoal.clocks.clock import SystemClock
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.secagg.device.machine import DeviceRound, DeviceState
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Norm, Vector
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.mechanisms.noise.registry import create_noise
from shoal.mechanisms.parts.sampling import uniform_below
from shoal.mechanisms.quantize import dequantize, quantize
from shoal.secagg import Mode, PairwisePlan
from shoal.task import Admission, Aggregator, Task, WindowPlan

DEVICES = 200
_MOST = 2_000  # every device is a task of this process
NAME = "visit-sums"
_NAMES = (
    "visits / 20",
    "(visits / 20) squared",
    "any visit",
    "2 or more visits",
    "5 or more visits",
    "10 or more visits",
)
_CLIP = 2.4495  # a little above sqrt(6): each coordinate lies in [0, 1]
_COHORTS = 4  # rounds, at least
_LARGEST = 100  # devices of a round: with more, each has more neighbours than a demo has time for
_KILLED = 0.15  # of the devices that have come so far, at each stage
_HONEST_PPM, _DROPOUT_PPM = 900_000, 500_000
_EPSILON, _DELTA = 4.0, 1e-6
# seconds of join, share (and check), mask, unmask, for up to DEVICES; more take as much longer
_PHASES = 10, 8, 7, 7
_START_S = 5  # until the window begins: the services start meanwhile
_SPARE_S = 8  # between the window's start and the last moment at which a round may begin
# The stage after which a device that is to die is never heard of again.
_STAGES = {
    DeviceState.JOINED: "after joining",
    DeviceState.SHARED: "after sharing",
    DeviceState.MASKED: "after its masked vector",
    DeviceState.RELEASED: "after its shares",
}


@dataclass(frozen=True, slots=True)
class SumTask:
    """The demo's one task as devices receive it, and who certifies them."""

    task: Task
    domain: Vector
    plan: PairwisePlan
    assignment: Assignment
    enrolment: SigningKey

    @property
    def task_id(self) -> TaskId:
        """That of the task which the devices were assigned."""
        return self.assignment.task_id


class _KilledError(Exception):
    """This device is dead."""


@dataclass(slots=True)
class Device:
    """``integers``: what was masked, int64[d], noise included; ``clean`` without. ``dies``: after
    which stage, or None.
    """

    identity: DeviceIdentity
    clean: NDArray[np.int64]
    integers: NDArray[np.int64]
    dies: DeviceState | None
    round_id: Digest | None = None
    sent: bool = False  # its masked vector is complete at the shuffler
    outcome: str = ""
    ledger: MemoryLedger = field(default_factory=MemoryLedger)

    def watch(self, device_round: DeviceRound) -> None:
        """After every step. Raises _KilledError at the stage after which this device dies."""
        self.round_id = device_round.round_id
        self.sent = self.sent or device_round.state in {
            DeviceState.MASKED,
            DeviceState.ENDORSED,
            DeviceState.RELEASED,
        }
        if device_round.state is self.dies:
            raise _KilledError


def vectors(visits: NDArray[np.int64]) -> NDArray[np.float64]:
    """float64[n, 6]: what each device would say, every coordinate in [0, 1]."""
    share = np.minimum(visits, 20) / 20
    return np.stack(
        [share, share**2, visits >= 1, visits >= 2, visits >= 5, visits >= 10], axis=1
    ).astype(np.float64)


def make_task(site: Site, devices: int) -> SumTask:
    """A task of one window that begins now and leaves time for one round of every cohort.

    Raises CONFIG if so few, or so many, can't be summed.
    """
    if devices > _MOST:
        raise ShoalError(
            Kind.CONFIG,
            f"--secagg plays at most {_MOST:,} devices, because all live in one process: give "
            "fewer --devices",
        )
    phases, spare = _times(devices)
    design = _design(min(devices // _COHORTS, _LARGEST), phases)
    enrolment = SigningKey.generate()
    task = Task(
        salt=os.urandom(16),
        name=NAME,
        purpose="health statistics",
        question="How many outpatient visits did you have this year?",
        domain=design.domain,
        mechanism=design.mechanism,
        windows=WindowPlan(
            start_s=int(time.time()) + _START_S,
            length_s=design.plan.seconds + spare,
            count=1,
            grace_s=0,
            skew_s=5,
        ),
        min_batch=design.plan.survivors_min,
        max_batch=0,
        honest_fraction_ppm=_HONEST_PPM,
        delta=_DELTA,
        target_epsilon=_EPSILON,
        key_authority=site.authority.public,
        shuffler_key=site.shuffler,
        analyzer_key=site.analyzer,
        shuffler_address=site.shuffler_address,
        shuffler_ca=site.ca,
        retention_s=7_200,
        report_size=design.plan.vector_bytes(len(_NAMES)),
        admission=Admission.ENROLLED,
        enrolment_key=enrolment.public,
        aggregator=Aggregator.PAIRWISE,
        pairwise=design.plan,
    )
    result = lint(task)
    if result.errors:
        raise ShoalError(
            Kind.CONFIG, f"{devices} devices are too few for this demo: {result.errors[0]}"
        )
    _, signed_task, signed_schedule = site.add(task)
    trusted = trust_task(signed_task, {site.authority.public})
    return SumTask(
        task,
        design.domain,
        design.plan,
        assign(trusted, trust_schedule(signed_schedule, trusted)),
        enrolment,
    )


def _design(cohort: int, phases: tuple[int, ...]) -> SumDesign:
    """Domain, noise and rounds of at most ``cohort`` devices; ``phases`` in seconds."""
    return design_sum(
        dimension=len(_NAMES),
        norm=Norm.L2,
        clip=_CLIP,
        noise="skellam",
        mode=Mode.DEFAULT,
        cohort_max=cohort,
        dropout_ppm=_DROPOUT_PPM,
        honest_fraction_ppm=_HONEST_PPM,
        epsilon=_EPSILON,
        delta=_DELTA,
        names=_NAMES,
        phases=phases,
    )


def _times(devices: int) -> tuple[tuple[int, ...], int]:
    """Seconds of the phases, and between the window's start and its last round: this machine does
    the work of all devices.
    """
    slower = max(DEVICES, devices)
    return tuple(-(-phase * slower // DEVICES) for phase in _PHASES), -(
        -_SPARE_S * slower // DEVICES
    )


def make_devices(sum_task: SumTask, visits: NDArray[np.int64]) -> list[Device]:
    """Enrolled devices, each with its vector quantized and its share of the noise; 15 % of those
    left are to die at every stage.
    """
    noise = create_noise(sum_task.task.mechanism)
    fates = _fates(len(visits))
    now = int(time.time())
    devices = []
    for values, dies in zip(vectors(visits), fates, strict=True):
        key = SigningKey.generate()
        clean = quantize(values, sum_task.domain, SYSTEM).vector
        identity = DeviceIdentity(
            key, issue(sum_task.enrolment, key.public, now - 3_600, now + 86_400)
        )
        devices.append(Device(identity, clean, clean + noise.sample(len(clean), SYSTEM), dies))
    return devices


def _fates(devices: int) -> list[DeviceState | None]:
    """Who dies when: at every stage 15 % of those that came so far, drawn at random."""
    fates: list[DeviceState | None] = [None] * devices
    left = list(range(devices))
    for stage in _STAGES:
        for _ in range(round(_KILLED * len(left))):
            fates[left.pop(int(uniform_below(len(left), 1, SYSTEM)[0]))] = stage
    return fates


async def play(sum_task: SumTask, devices: list[Device], moved: Callable[[int], None]) -> None:
    """Every device takes part, or dies on the way. ``moved`` hears how many are through."""
    transport = GrpcRoundTransport(sum_task.task.shuffler_address, sum_task.task.shuffler_ca)
    terms = RoundTerms.of(sum_task.task, sum_task.task_id, sum_task.assignment.keys, 0)
    line = RoundLine(
        sum_task.assignment.keys.hop_keys[0],
        transport,
        SystemClock(),
        float(sum_task.task.windows.deadline_of(0)),
    )
    through = 0

    async def run(device: Device) -> None:
        nonlocal through
        try:
            outcome = await take_part(
                terms, device.identity, device.integers, device.ledger, line, device.watch
            )
            device.outcome = outcome.message or outcome.state.value
            device.round_id = outcome.round_id or device.round_id
            device.sent = device.sent and outcome.state in {RoundState.COUNTED, RoundState.LOST}
        except _KilledError:
            device.outcome = f"killed {_STAGES[device.dies]}" if device.dies else ""
        through += 1
        moved(through)

    try:
        await asyncio.gather(*(run(device) for device in devices))
    finally:
        await transport.close()


def read_sums(site: Site, sum_task: SumTask) -> list[AnySum]:
    """Every round's sum as the analyzer holds it."""
    store = AnalyzerStore(site.analyzer_data / FILE_NAME, read_only=True)
    try:
        return list(SumStore(store).of(sum_task.task_id, 0))
    finally:
        store.close()


def compare(
    sum_task: SumTask, devices: list[Device], sums: list[AnySum], release: dict[str, Any]
) -> dict[str, Any]:
    """Every round against the integers that its devices masked; the truth of the devices that were
    summed.

    Raises INTERNAL if a sum is not exactly theirs: that must not happen.
    """
    rounds, truth = [], np.zeros(sum_task.domain.dimension, np.int64)
    for stored in sums:
        those = [device for device in devices if device.sent and device.round_id == stored.round_id]
        exact = len(those) == stored.survivors and bool(
            np.array_equal(np.sum([device.integers for device in those], axis=0), stored.vector)
        )
        if not exact:
            raise ShoalError(
                Kind.INTERNAL,
                f"round {stored.round_id.short}: the sum is not that of its {stored.survivors} "
                "devices",
            )
        truth += np.sum([device.clean for device in those], axis=0)
        # who died before has not learned its round's id
        shared = sum(device.round_id == stored.round_id for device in devices)
        rounds.append(
            {
                "round": stored.round_id.hex,
                "shared": shared,
                "survivors": stored.survivors,
                "exact": exact,
            }
        )
    values = dequantize(truth, sum_task.domain).tolist()
    return {
        "tasks": [
            {
                "name": sum_task.task.name,
                "question": sum_task.task.question,
                "truth": dict(zip(sum_task.domain.labels, values, strict=True)),
                "release": release,
            }
        ],
        "rounds": rounds,
        "devices": len(devices),
        "outcomes": dict(Counter(device.outcome for device in devices)),
    }

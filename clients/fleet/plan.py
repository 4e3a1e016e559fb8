"""What a simulation is asked to do, and what it found."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from shoal.clients.fleet.arrivals import Arrivals, Pattern
from shoal.clients.fleet.misbehaviour import (
    REPORTING,
    Carrier,
    Conduct,
    Shares,
    mix,
    scattered,
)
from shoal.clients.fleet.parts import LoadPart
from shoal.clients.fleet.share import (
    ACKED,
    GARBAGE_ACKED,
    GARBAGE_UNKNOWN,
    NO_ANSWER,
    NOT_SENT,
    SURPRISE,
    UNKNOWN,
    SealingEffort,
    Share,
    ShareResult,
    SimulatedTask,
)
from shoal.crypto.trust import trust_task
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.task import Admission

if TYPE_CHECKING:
    from shoal.mqtt.settings import BrokerSettings


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """Who reports what, and how fast.

    ``tasks``: each with one value per device, all equally many. ``authorities``: Ed25519 public
    keys that the devices trust. ``processes``: 0 = one per core. ``channels``: connections per
    process. ``in_flight``: devices (of a relay: batches) under way per process. ``rate``: reports
    per second over all, or ``over_s``: seconds for all; neither = as fast as they go. ``arrival``:
    how they are spread over that time. ``address``: instead of the tasks' own. ``patience_s``: how
    long a report is tried again after a retryable failure. ``enrolment_roots``: private keys (PEM)
    of enrolment authorities, with which the processes enrol their devices: for tasks that admit
    enrolled devices alone. ``shares``: of clients that misbehave. ``broker``: for the way MQTT, and
    only for it. ``prepare``: make all HPKE encapsulations before the clock starts. ``alone``: of
    the way RELAY, so many devices, the first ones, stand behind no relay: each calls by itself.
    ``part``: which of a larger fleet's devices these are, whose ``shares`` are meant; None: all.
    Raises INVALID.
    """

    tasks: tuple[SimulatedTask, ...]
    authorities: frozenset[bytes]
    processes: int = 0
    channels: int = 2
    in_flight: int = 64
    way: Carrier = Carrier.GRPC
    rate: float | None = None
    arrival: Pattern = Pattern.STEADY
    over_s: float | None = None
    address: str | None = None
    insecure: bool = False
    patience_s: float = 60.0
    deadline_s: float = LIMITS.send_deadline_s
    enrolment_roots: tuple[bytes, ...] = field(default=(), repr=False)
    shares: Shares = field(default_factory=Shares)
    broker: BrokerSettings | None = None
    prepare: bool = False
    alone: int = 0
    part: LoadPart | None = None

    def __post_init__(self) -> None:
        def require(condition: bool, message: str) -> None:
            if not condition:
                raise ShoalError(Kind.INVALID, message)

        require(
            len(self.tasks) > 0 and len({len(task.values) for task in self.tasks}) == 1,
            "a simulation wants tasks with equally many values",
        )
        require(len(self.tasks[0].values) > 0, "a simulation wants at least one device")
        require(
            all(len(one.made) in {0, len(one.values)} for one in self.tasks),
            "reports that were made beforehand are one for each device",
        )
        require(0 <= self.processes <= 256, "processes: 0 (one per core) to 256")
        require(1 <= self.channels <= 64, "channels: 1 to 64 per process")
        require(1 <= self.in_flight <= 4_096, "in_flight: 1 to 4096 per process")
        require(self.rate is None or self.rate > 0, "rate: reports per second, above 0")
        require(
            self.rate is None or self.over_s is None,
            "give a rate or the seconds for all reports, not both",
        )
        require(
            self.over_s is None or (self.over_s > 0 and math.isfinite(self.over_s)),
            "over_s: seconds for all reports, above 0",
        )
        require(
            self.arrival is Pattern.STEADY or self.rate is not None or self.over_s is not None,
            f"reports that come in a {self.arrival.value} want a rate, or the seconds for all of "
            "them",
        )
        require(
            self.patience_s >= 0 and self.deadline_s > 0,
            "patience and deadline are seconds, not below 0",
        )
        require(
            (self.way is Carrier.MQTT) == (self.broker is not None),
            "a broker is given for the way mqtt, and only for it",
        )
        require(
            0 <= self.alone <= (self.devices if self.way is Carrier.RELAY else 0),
            "alone: at most as many devices as there are, and only for the way relay",
        )
        require(
            self.part is None or self.part.devices == self.devices,
            "a part of a fleet has one value for each of its own devices",
        )

    @property
    def devices(self) -> int:
        """How many devices are simulated: one per value of a task."""
        return len(self.tasks[0].values)

    @property
    def reports(self) -> int:
        """How many reports are due: one per task and device."""
        return len(self.tasks) * self.devices

    @property
    def arrivals(self) -> Arrivals | None:
        """When reports come; None: as fast as the services take them."""
        if self.over_s is not None:
            return Arrivals(self.arrival, self.reports, self.over_s)
        return (
            None
            if self.rate is None
            else Arrivals(self.arrival, self.reports, self.reports / self.rate)
        )

    @property
    def enrolled(self) -> bool:
        """Whether every task admits enrolled devices alone. A task that doesn't verify is the
        devices' to refuse.
        """
        try:
            tasks = [trust_task(task.signed_task, self.authorities).task for task in self.tasks]
        except ShoalError:
            return False
        return all(task.admission is Admission.ENROLLED for task in tasks)

    def share(self, conduct: bytes, number: int, count: int) -> Share:
        """Devices ``number``, ``number + count``, ... of the plan, for one of ``count`` processes.
        ``conduct``: of all devices.
        """
        return Share(
            tasks=tuple(
                replace(
                    one,
                    values=tuple(one.values[number::count]),
                    made=tuple(one.made[number::count]),
                )
                for one in self.tasks
            ),
            authorities=self.authorities,
            first=number,
            step=count,
            in_flight=max(1, min(self.in_flight, len(self.tasks[0].values[number::count]))),
            way=self.way,
            arrivals=self.arrivals,
            patience_s=self.patience_s,
            deadline_s=self.deadline_s,
            enrolment_roots=self.enrolment_roots,
            conduct=conduct[number::count],
            prepare=self.prepare,
            alone=len(range(number, self.alone, count)),
        )

    def over(self, broker: BrokerSettings) -> SimulationPlan:
        """The same through a broker."""
        return replace(self, way=Carrier.MQTT, broker=broker, address=None)

    def mix(self) -> Counter[Conduct]:
        """How many devices of each conduct. Raises INVALID."""
        if self.part is not None:
            return self.part.mix(mix(self.shares, self.part.fleet, self.enrolled))
        return mix(self.shares, self.devices, self.enrolled)

    def conduct(self) -> bytes:
        """One ``Conduct`` per device, drawn anew at every call; how many of each is always the
        same. Raises INVALID.
        """
        return scattered(self.mix())


@dataclass(frozen=True, slots=True)
class Progress:
    """Reports so far, over all processes. ``handled``: frames that break a rule and got the answer
    that they must get, or none.
    """

    COUNTS: ClassVar[int] = 5

    total: int
    acked: int
    refused: int
    unknown: int
    handled: int = 0
    surprises: int = 0
    trouble: str = ""  # why reports are tried again now

    @property
    def done(self) -> int:
        """Frames that nothing more will be heard of."""
        return self.acked + self.refused + self.unknown + self.handled + self.surprises

    @property
    def failed(self) -> int:
        """What a load tester should look at."""
        return self.refused + self.unknown + self.surprises


@dataclass(frozen=True, slots=True)
class Breaches:
    """Frames of one misbehaving conduct. ``refused``: by kind, as they must be; ``acked``: garbage
    that the analyzer must reject.
    """

    refused: dict[Kind, int]
    acked: int = 0
    unknown: int = 0
    unanswered: int = 0
    surprises: int = 0

    @property
    def sent(self) -> int:
        """How many frames that break a rule were sent."""
        return (
            sum(self.refused.values())
            + self.acked
            + self.unknown
            + self.unanswered
            + self.surprises
        )


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """``sent``: reports of honest devices (also duplicated ones and those before an enrolled
    device's second) that were tried. ``refused``: those that surely do not count, by kind.
    ``unknown``: those that count once or not at all.

    ``outcomes[t][i]``: what became of device i's report for task t: ``ACKED`` (0), the number of
    the refusing kind, or another code of ``shoal.clients.fleet.share``. ``latencies_ms``: per
    acknowledged report, from when it was due (or first sent) to its verified receipt. ``reasons``:
    one message per refusing kind. ``seconds``: wall time of the sending, without process start.
    ``conduct``: per device. ``copies``: (sent, acknowledged) of duplicates. ``surprises``: wrong
    answers to misbehaving clients, by what was wrong: more than none is a failure. ``began_at``:
    Unix seconds; ``prepare_s``: wall time before that, for encapsulations. ``efforts``: of each
    process. ``retried``: frames that were sent again after a failure.
    """

    sent: int
    acked: int
    refused: dict[Kind, int]
    unknown: int
    seconds: float
    latencies_ms: array[float] = field(repr=False)
    outcomes: tuple[bytes, ...] = field(repr=False)
    reasons: dict[Kind, str] = field(default_factory=dict)
    trouble: str = ""
    conduct: bytes = field(default=b"", repr=False)
    copies: tuple[int, int] = (0, 0)
    breaches: dict[Conduct, Breaches] = field(default_factory=dict)
    surprises: dict[str, int] = field(default_factory=dict)
    interrupted: bool = False
    began_at: float = 0.0
    prepare_s: float = 0.0
    efforts: tuple[SealingEffort, ...] = ()
    retried: int = 0

    def acked_of(self, task: int) -> int:
        """How many reports of the task at this place in the plan were acknowledged."""
        return self.outcomes[task].count(ACKED)

    def unknown_of(self, task: int) -> int:
        """How many reports of the task at this place in the plan ended with nobody knowing how."""
        return self.outcomes[task].count(UNKNOWN)

    def refused_of(self, task: int) -> int:
        """Honest reports that surely do not count."""
        codes, conduct = self.outcomes[task], self.conduct or bytes(len(self.outcomes[task]))
        return sum(
            1
            for code, value in zip(codes, conduct, strict=True)
            if ACKED < code < NOT_SENT and Conduct(value) in REPORTING
        )

    def garbage_of(self, task: int) -> tuple[int, int]:
        """(acknowledged, perhaps stored): reports that the analyzer must reject."""
        return self.outcomes[task].count(GARBAGE_ACKED), self.outcomes[task].count(GARBAGE_UNKNOWN)


def merge(
    plan: SimulationPlan,
    conduct: bytes,
    results: Sequence[ShareResult],
    seconds: float,
    interrupted: bool,
) -> SimulationResult:
    """The whole from the shares: process i has devices i, i + n, ... of the plan."""
    outcomes = [bytearray(plan.devices) for _ in plan.tasks]
    refused: Counter[int] = Counter()
    answers: Counter[tuple[int, int]] = Counter()
    surprises: Counter[str] = Counter()
    latencies = array("f")
    reasons: dict[Kind, str] = {}
    for number, result in enumerate(results):
        for merged, codes in zip(outcomes, result.codes, strict=True):
            merged[number :: len(results)] = codes
        refused.update(result.refused)
        answers.update(result.answers)
        surprises.update(result.surprises)
        latencies.extend(result.latencies_ms)
        reasons |= {Kind(code): text for code, text in result.reasons.items()}
    acked, unknown = (sum(codes.count(code) for codes in outcomes) for code in (ACKED, UNKNOWN))
    return SimulationResult(
        sent=acked + unknown + refused.total(),
        acked=acked,
        refused={Kind(code): count for code, count in sorted(refused.items()) if count},
        unknown=unknown,
        seconds=seconds,
        latencies_ms=latencies,
        outcomes=tuple(bytes(codes) for codes in outcomes),
        reasons=reasons,
        trouble=next((result.trouble for result in results if result.trouble), ""),
        conduct=conduct,
        copies=(
            sum(result.copies[0] for result in results),
            sum(result.copies[1] for result in results),
        ),
        breaches=_breaches(answers),
        surprises=dict(sorted(surprises.items())),
        interrupted=interrupted
        and any(NOT_SENT in codes or UNKNOWN in codes for codes in outcomes),
        efforts=tuple(result.effort for result in results),
        retried=sum(result.retried for result in results),
    )


def _breaches(answers: Counter[tuple[int, int]]) -> dict[Conduct, Breaches]:
    breaches: dict[Conduct, Breaches] = {}
    special = {GARBAGE_ACKED, GARBAGE_UNKNOWN, NO_ANSWER, SURPRISE}
    for conduct in sorted({conduct for conduct, _ in answers}):
        counts = {
            code: count for (behaviour, code), count in answers.items() if behaviour == conduct
        }
        breaches[Conduct(conduct)] = Breaches(
            refused={
                Kind(code): count for code, count in sorted(counts.items()) if code not in special
            },
            acked=counts.get(GARBAGE_ACKED, 0),
            unknown=counts.get(GARBAGE_UNKNOWN, 0),
            unanswered=counts.get(NO_ANSWER, 0),
            surprises=counts.get(SURPRISE, 0),
        )
    return breaches

"""What ``shoal load`` sends: tasks read and checked, random values, windows, and the plan made of
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from shoal import codec
from shoal.cli.figures import duration
from shoal.cli.load.options import MOST_OF_A_MACHINE, LoadOptions, part_of
from shoal.cli.load.service_counts import Counted, Counter
from shoal.cli.load.values import RowsOfTasks
from shoal.cli.output import public_key, read_bytes
from shoal.clients.core import window_at
from shoal.clients.fleet.arrivals import Pattern
from shoal.clients.fleet.misbehaviour import Carrier, Conduct, Shares
from shoal.clients.fleet.parts import LoadPart
from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import target_of
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.trust import SCHEDULE_SUFFIX, TASK_SUFFIX, ServedTask, serve_task
from shoal.domain import (
    AnswerRecord,
    Categories,
    Discovery,
    Domain,
    Numeric,
    Places,
    Value,
    Vector,
    Words,
    YesNo,
)
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.coordinates import degrees
from shoal.questions.place_paths import PlacePaths
from shoal.rpc.address import parse_address

if TYPE_CHECKING:
    from shoal.mqtt.settings import BrokerSettings

_NO_ROWS = RowsOfTasks({})
_LEAST_RUSH_S = 1.0
# A rush that lasts until its window's end ends a tenth of the time before, at least and at most so
# many seconds: for the last report to come in time.
_BEFORE_LEAST_S, _BEFORE_MOST_S = 2.0, 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """One task to load: verified, its signed bytes, and the window that is reported in."""

    served: ServedTask
    signed_task: bytes
    signed_schedule: bytes
    authority: bytes
    window: int

    @property
    def name(self) -> str:
        """The task's, for people."""
        return self.served.task.name

    @property
    def wanted(self) -> tuple[str, int]:
        """(task id in hex, window): how counts name it."""
        return self.served.task_id.hex, self.window


def targets(options: LoadOptions, now: float) -> list[Target]:
    """``now``: Unix seconds. Raises CONFIG, and what verification raises."""
    authorities = [public_key(key, "--authority") for key in options.authority or []]
    paths = options.task or []
    if bool(paths) == (options.tasks_dir is not None):
        raise ShoalError(
            Kind.CONFIG, "give either --task FILE (may be repeated) or --tasks-dir DIR"
        )
    if options.tasks_dir is not None:
        paths = sorted(options.tasks_dir.glob(f"*{TASK_SUFFIX}"))
        if not paths:
            raise ShoalError(
                Kind.CONFIG, f"--tasks-dir {options.tasks_dir}: no *{TASK_SUFFIX} there"
            )
    loaded = []
    for path in paths:
        signed_task, signed_schedule = (
            read_bytes(path),
            read_bytes(path.with_suffix(SCHEDULE_SUFFIX)),
        )
        try:
            signer = codec.decode_signed_task(signed_task).authority
            authorities = authorities or [signer]
            served = serve_task(signed_task, signed_schedule, authorities)
        except ShoalError as error:
            raise ShoalError(error.kind, f"{path.name}: {error.message}") from None
        window = (
            options.window
            if options.window is not None
            else window_at(served.task.name, served.task.windows, now)
        )
        if window >= served.task.windows.count:
            last = served.task.windows.count - 1
            raise ShoalError(
                Kind.CONFIG, f"--window {window}: task {served.task.name} has windows 0 to {last}"
            )
        if window and isinstance(served.task.domain, Discovery):
            raise ShoalError(
                Kind.CONFIG,
                f"task {served.task.name}: what window {window} of a discovery asks is said while "
                "it runs, and a load does not listen: load window 0 (--window 0) while it is open",
            )
        loaded.append(Target(served, signed_task, signed_schedule, signer, window))
    if len({target.served.task_id for target in loaded}) != len(loaded):
        raise ShoalError(Kind.CONFIG, "the same task is given twice: a device answers it once")
    if (
        options.address is None
        and len({target.served.task.shuffler_address for target in loaded}) > 1
    ):
        raise ShoalError(
            Kind.CONFIG,
            "the tasks name different shufflers: load one after the other, or say which with "
            "--address",
        )
    if len({target.served.task.shuffler_key for target in loaded}) > 1:
        raise ShoalError(
            Kind.CONFIG, "the tasks belong to different shufflers: load one after the other"
        )
    return loaded


def plan_of(
    options: LoadOptions, loaded: list[Target], now: float, rows: RowsOfTasks = _NO_ROWS
) -> SimulationPlan:
    """``now``: Unix seconds. ``rows``: what devices answer; tasks without any get random values.
    Raises CONFIG, INVALID, also for a shuffler that is not on this
    machine and not named.
    """
    fleet = rows.devices(options.devices)
    part = None if options.part is None else LoadPart(*part_of(options.part), fleet)
    own = range(fleet) if part is None else range(part.number, fleet, part.of)
    if len(own) > MOST_OF_A_MACHINE:
        raise ShoalError(
            Kind.CONFIG,
            f"one machine simulates {MOST_OF_A_MACHINE:,} devices at most, not {len(own):,}: share "
            f"them out, --part 1/{-(-fleet // MOST_OF_A_MACHINE)} and so on",
        )
    plan = SimulationPlan(
        tasks=tuple(
            _simulated(target, len(own), rows.of(number, own))
            for number, target in enumerate(loaded)
        ),
        authorities=frozenset(target.authority for target in loaded),
        processes=options.processes,
        channels=options.channels,
        in_flight=options.in_flight or (4 if options.carrier is Carrier.RELAY else 64),
        way=options.carrier,
        rate=None if options.rate is None else options.rate * len(own) / fleet,
        arrival=options.arrival,
        over_s=_over(options, loaded, now),
        address=options.address,
        patience_s=options.patience,
        enrolment_roots=_roots(options.enrolment or [], [target.served for target in loaded]),
        shares=Shares(options.duplicates, options.late, options.malformed, options.hostile),
        broker=_broker(options),
        prepare=options.prepare,
        part=part,
    )
    target_of(plan)
    for target in loaded:
        if plan.mix()[Conduct.LATE] and target.served.task.windows.deadline_of(0) > now:
            raise ShoalError(
                Kind.CONFIG,
                f"task {target.name} has no window that is over: --late wants one, so use an older "
                "task or --late 0",
            )
    return plan


def starting(
    options: LoadOptions,
    plan: SimulationPlan,
    loaded: list[Target],
    at: float,
    prepare_s: float | None = None,
) -> SimulationPlan:
    """The plan for a load whose first report leaves at ``at`` (Unix seconds), once all is prepared:
    a rush lasts until its window ends from there. ``prepare_s``: what preparing takes until then;
    None: it is done. Raises CONFIG if a window is over by then: nothing is sent.
    """
    for target in loaded if options.prepare else []:
        windows = target.served.task.windows
        if at < windows.deadline_of(target.window):
            continue
        what = (
            "is over"
            if prepare_s is None
            else (
                f"is over before the first report: --prepare takes about {duration(prepare_s)} here"
            )
        )
        then = windows.current(at)
        cure = (
            "choose another --window"
            if then is None
            else f"choose --window {then}, which is open then"
        )
        raise ShoalError(
            Kind.CONFIG,
            f"window {target.window} of task {target.name} {what}: {cure}, send fewer reports, or "
            "none "
            "prepared",
        )
    return replace(plan, over_s=_over(options, loaded, at))


def stored_by(plan: SimulationPlan) -> int:
    """Distinct reports that a shuffler has of every task when all went well."""
    mix = plan.mix()
    return sum(
        mix[conduct]
        for conduct in (Conduct.HONEST, Conduct.DUPLICATE, Conduct.SECOND, Conduct.GARBAGE)
    )


async def check_broker(broker: BrokerSettings) -> None:
    """Raises CONFIG where no patience helps: a certificate that does not verify, a login that is
    refused. Whatever else keeps a broker from being reached may pass, and the devices wait for it
    as devices do.
    """
    from shoal.mqtt.link import Link
    from shoal.mqtt.settings import LoginRefused, Untrusted

    try:
        async with Link(broker) as link:
            await link.connected(LIMITS.mqtt_connect_s + 1.0)
    except Untrusted as error:
        given = "--broker-ca names" if broker.ca is not None else "--broker-ca can name"
        raise ShoalError(
            Kind.CONFIG, f"TLS verification of the broker failed: {error.message} ({given} the CA)"
        ) from None
    except LoginRefused as error:
        raise ShoalError(
            Kind.CONFIG, f"{error.message} (--broker-user, --broker-password)"
        ) from None
    except ShoalError as error:
        if error.kind is Kind.CONFIG:  # no MQTT library, no usable CA
            raise


def check_open(counter: Counter, loaded: list[Target]) -> None:
    """Refuse a window that is over."""
    for target, service_count in zip(
        loaded, counter.read([target.wanted for target in loaded]), strict=True
    ):
        if service_count is not None:
            _over_already(target, service_count)


def _over_already(target: Target, service_count: Counted) -> None:
    reason = (
        f"window {target.window} of task {target.name} is over, with {service_count.n} reports "
        "counted"
    )
    raise ShoalError(
        Kind.CONFIG, f"{reason}: choose another --window, or make a task of its own for the load"
    )


_MOST_AXES = 6  # of a vector, that made-up values lie along


def check_closing(loaded: list[Target], stored: int, wait: float, ended: float) -> None:
    """Refuse at once to wait for a window that can't be decided in time. ``stored``: reports that
    it will hold. ``ended``: Unix seconds at which the last of them is due: the waiting begins
    there.
    """
    for target in loaded:
        task = target.served.task
        left = task.windows.deadline_of(target.window) - ended
        if left > wait and not 0 < task.max_batch <= stored:
            span = f"{left:.0f} s" if left < 7_200 else f"{left / 3_600:,.0f} hours"
            reason = (
                f"window {target.window} of task {target.name} closes {span} after the last "
                f"report, later than --wait {wait:.0f}"
            )
            raise ShoalError(
                Kind.CONFIG, f"{reason}: raise --wait, or use a task with max_batch = {stored}"
            )


def values_of(domain: Domain) -> list[Value]:
    """Every valid answer; of an open vocabulary the words that are looked for, and as many others,
    as devices have.
    """
    match domain:
        case YesNo():
            return [False, True]
        case Categories():
            return list(domain.lower_bounds or domain.names)
        case Numeric():
            return [domain.low + level * domain.step for level in range(domain.levels)]
        case Words():
            return [*domain.names, *(f"{name} and more" for name in domain.names)]
        case Discovery():
            if isinstance(domain.alphabet, PlacePaths):
                return _on_the_diagonal(domain.alphabet.box)
            return [f"{letter}{letter}" for letter in "etaoinshrdlu"]
        case AnswerRecord():
            return [dumps(one) for one in _records(domain)]
        case Places():
            return [domain.text_of(cell) for cell in range(domain.size - 1)]
        case Vector():
            return [dumps(one) for one in _vectors(domain)]


def _vectors(domain: Vector) -> list[list[float]]:
    """Zeros, and half a clip to both sides along some of the axes."""
    found = [[0.0] * domain.dimension]
    for axis in range(min(domain.dimension, _MOST_AXES)):
        for side in (-0.5, 0.5):
            found.append([0.0] * domain.dimension)
            found[-1][axis] = side * domain.clip
    return found


def _on_the_diagonal(box: Places) -> list[Value]:
    """Twelve places from the south-west to the north-east of a map."""
    return [
        f"{degrees(box.south + (box.north - box.south) * at // 12)}, "
        f"{degrees(box.west + (box.east - box.west) * at // 12)}"
        for at in range(12)
    ]


def _records(record: AnswerRecord) -> list[dict[str, Value]]:
    """As many records as the attribute with the most answers has: every answer of every attribute
    is in one of them.
    """
    answers = {one.name: values_of(one.answers) for one in record.attributes}
    longest = max(map(len, answers.values()))
    return [
        {name: values[at % len(values)] for name, values in answers.items()}
        for at in range(longest)
    ]


def _simulated(target: Target, devices: int, given: tuple[Value, ...] | None) -> SimulatedTask:
    if given is not None:
        return SimulatedTask(target.signed_task, target.signed_schedule, given, target.window)
    if target.served.task.pairwise is not None:
        raise ShoalError(
            Kind.CONFIG,
            "a vector is summed in rounds: shoal load sends reports of shuffled tasks alone",
        )
    choices = values_of(target.served.task.domain)
    # nobody's data: a bias of 2^-50 is fine
    values = tuple(choices[int(word) % len(choices)] for word in SYSTEM.words(devices))
    return SimulatedTask(target.signed_task, target.signed_schedule, values, target.window)


def _over(options: LoadOptions, loaded: list[Target], at: float) -> float | None:
    """Seconds for all reports, the first at ``at``, or None. A rush lasts until the first of its
    windows ends, if not told otherwise.
    """
    if options.over is not None or options.rate is not None or options.arrival is not Pattern.RUSH:
        return options.over
    left = min(target.served.task.windows.deadline_of(target.window) for target in loaded) - at
    left -= max(_BEFORE_LEAST_S, min(_BEFORE_MOST_S, left / 10))
    if left < _LEAST_RUSH_S:
        raise ShoalError(
            Kind.CONFIG,
            "--arrival rush: its window ends now or is over: choose another --window, or give "
            "--over",
        )
    return left


def _roots(paths: list[Path], served: list[ServedTask]) -> tuple[bytes, ...]:
    """Private keys (PEM) of the enrolment authorities that the tasks name. Raises CONFIG if one is
    missing.
    """
    roots = {key.public: key for key in map(load_signing_key, paths)}
    wanted = {
        served_task.task.enrolment_key: served_task.task.name
        for served_task in served
        if served_task.task.enrolment_key
    }
    for key, name in wanted.items():
        if key not in roots:
            raise ShoalError(
                Kind.CONFIG,
                f"task {name} admits enrolled devices alone: give its enrolment authority's "
                "signing key, --enrolment ROOT.key",
            )
    return tuple(roots[key].to_pem() for key in wanted)


def _broker(options: LoadOptions) -> BrokerSettings | None:
    if options.broker is None:
        return None
    from shoal.mqtt.settings import BrokerSettings

    host, port = parse_address(options.broker, "--broker")
    password = (
        ""
        if options.broker_password is None
        else read_bytes(options.broker_password, 64 << 10).decode("utf-8", "replace").strip("\r\n")
    )
    return BrokerSettings(
        host=host,
        port=port,
        ca=None if options.broker_ca is None else read_bytes(options.broker_ca),
        username=options.broker_user,
        password=password,
        protocol=cast(Literal["5", "3.1.1"], options.broker_protocol),
        insecure=options.broker_insecure,
    )

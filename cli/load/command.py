"""``shoal load``: many simulated devices against running services, and the proof that what was
acknowledged was counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from shoal.cli.load import merging
from shoal.cli.load import options as load_options
from shoal.cli.load import plan as load_plan
from shoal.cli.load import show as load_show
from shoal.cli.load.absent import Absence
from shoal.cli.load.counting import START_S, count_windows
from shoal.cli.load.parts import part_json
from shoal.cli.load.progress import Bars
from shoal.cli.load.service_counts import Counted, Counter, Watch
from shoal.cli.load.show import KnownTruth, LoadOutcome, TaskRow
from shoal.cli.load.tasks import (
    Target,
    check_broker,
    check_closing,
    check_open,
    plan_of,
    starting,
    stored_by,
    targets,
)
from shoal.cli.load.values import RowsOfTasks, missing_words, rows_of_tasks, truth_of
from shoal.cli.output import emit_json, stderr
from shoal.clients.fleet import plan as fleet
from shoal.clients.fleet.arrivals import Pattern
from shoal.clients.fleet.measure import Meter
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import SimulationPlan, SimulationResult
from shoal.clients.fleet.share import ACKED
from shoal.clients.fleet.simulator import simulate
from shoal.clocks.clock import Clock, SystemClock
from shoal.errors import Kind, ShoalError

_LOOK_S = 1.0  # between two looks at what the services take


def register(app: typer.Typer) -> None:
    """Add ``shoal load``."""
    app.command("load", help=load_options.HELP)(load)


def load(
    devices: load_options.DevicesOption = None,
    task: load_options.TaskOption = None,
    tasks_dir: load_options.TasksDirOption = None,
    window: load_options.WindowOption = None,
    authority: load_options.AuthorityOption = None,
    enrolment: load_options.RootsOption = None,
    rate: load_options.RateOption = None,
    over: load_options.OverOption = None,
    arrival: load_options.ArrivalOption = Pattern.STEADY,
    way: load_options.WayOption = Carrier.GRPC,
    relay: load_options.RelayOption = False,
    prepare: load_options.PrepareOption = False,
    in_flight: load_options.InFlightOption = None,
    processes: load_options.ProcessesOption = 0,
    channels: load_options.ChannelsOption = 2,
    patience: load_options.PatienceOption = 60.0,
    duplicates: load_options.DuplicatesOption = 0.0,
    late: load_options.LateOption = 0.0,
    malformed: load_options.MalformedOption = 0.0,
    hostile: load_options.HostileOption = 0.0,
    address: load_options.AddressOption = None,
    broker: load_options.BrokerOption = None,
    broker_ca: load_options.BrokerCaOption = None,
    broker_user: load_options.BrokerUserOption = "",
    broker_password: load_options.BrokerPasswordOption = None,
    broker_protocol: load_options.BrokerProtocolOption = "5",
    broker_insecure: load_options.BrokerInsecureOption = False,
    analyzer_status: load_options.AnalyzerStatusOption = None,
    shuffler_status: load_options.ShufflerStatusOption = None,
    wait: load_options.WaitOption = 600.0,
    plan: load_options.PlanOnlyOption = False,
    as_json: load_options.AsJsonOption = False,
    values: load_options.ValuesOption = None,
    part: load_options.PartOption = None,
    merge: load_options.MergeOption = None,
) -> None:
    """See ``load_options.HELP``."""
    run(load_options.LoadOptions(**locals()))


def run(options: load_options.LoadOptions, clock: Clock | None = None) -> None:
    """Raises MISMATCH when something was lost, doubled or wrongly answered; KeyboardInterrupt after
    the figures of an interrupted load, UNAVAILABLE after those of one that had nobody to send to.
    """
    if options.merge:
        return merging.run(options, options.merge)
    clock = clock or SystemClock()
    loaded = targets(options, clock.now())
    rows_given = rows_of_tasks(
        options.values or [], [(target.name, target.served.task.domain) for target in loaded]
    )
    plan = plan_of(options, loaded, clock.now(), rows_given)
    for note in rows_given.said(plan.part.fleet if plan.part else plan.devices):
        _say(note)
    prepare_s = load_plan.preparing_s(plan) if plan.prepare else 0.0
    start = clock.now() + prepare_s  # minutes, perhaps: windows go on meanwhile
    plan = starting(options, plan, loaded, start, prepare_s)
    if options.plan:
        return _foretell(load_plan.forecast(plan, loaded), as_json=options.as_json)
    if plan.broker is not None:
        asyncio.run(check_broker(plan.broker))
    counter = _counter(options)
    if counter is not None:
        counter.check(START_S, stderr.print)
        check_open(counter, loaded)
        check_closing(
            loaded,
            stored_by(plan),
            options.wait,
            start + (plan.arrivals.over_s if plan.arrivals else 0.0),
        )
    watch = Watch({"analyzer": options.analyzer_status, "shuffler": options.shuffler_status})
    result = asyncio.run(
        _send(plan, watch, lambda prepared: starting(options, prepared, loaded, clock.now()))
    )
    counts: list[Counted | None] = [None] * len(loaded)
    interrupted, ended, decided_s = result.interrupted, time.monotonic(), None
    if counter is not None and not interrupted:
        try:
            counts = count_windows(counter, watch, [one.wanted for one in loaded], options.wait)
        except KeyboardInterrupt:
            interrupted = True
        decided_s = None if None in counts else time.monotonic() - ended
    rows = [
        _row(
            target, index, result, counts[index], _answered(plan, rows_given, index, target, result)
        )
        for index, target in enumerate(loaded)
    ]
    outcome = LoadOutcome(
        result,
        rows,
        options.rate,
        watch.figures(),
        counter is not None,
        interrupted,
        decided_s,
        part_json(options, plan, loaded, rows_given, result),
    )
    if options.as_json:
        emit_json(load_show.to_json(outcome))
    else:
        load_show.show(outcome)
    if watch.nobody:
        raise ShoalError(Kind.UNAVAILABLE, watch.nobody)
    if interrupted:
        raise KeyboardInterrupt
    return outcome.check()


def _counter(options: load_options.LoadOptions) -> Counter | None:
    if options.analyzer_status or options.shuffler_status:
        return Counter(options.analyzer_status, options.shuffler_status)
    return None


def _foretell(forecast: load_plan.Forecast, *, as_json: bool) -> None:
    if as_json:
        emit_json(load_plan.to_json(forecast))
    else:
        load_plan.show(forecast)


def _row(
    target: Target,
    index: int,
    result: SimulationResult,
    service_count: Counted | None,
    answered: KnownTruth | None,
) -> TaskRow:
    acked, unknown, refused = (
        result.acked_of(index),
        result.unknown_of(index),
        result.refused_of(index),
    )
    return TaskRow(
        target,
        acked + unknown + refused,
        acked,
        unknown,
        *result.garbage_of(index),
        service_count,
        answered,
    )


def _answered(
    plan: SimulationPlan, rows: RowsOfTasks, index: int, target: Target, result: SimulationResult
) -> KnownTruth | None:
    """What is true of the acknowledged answers, where they are from a table."""
    if index not in rows.values:
        return None
    outcomes = result.outcomes[index]
    values = [
        value
        for value, outcome in zip(plan.tasks[index].values, outcomes, strict=True)
        if outcome == ACKED
    ]
    domain = target.served.task.domain
    return KnownTruth(truth_of(domain, values), missing_words(domain, values))


async def _send(
    plan: SimulationPlan, watch: Watch, ready: Callable[[SimulationPlan], SimulationPlan]
) -> SimulationResult:
    """The first Ctrl-C ends the sending and keeps what was measured; a second one ends
    everything.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def interrupted() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, interrupted)
    columns = (
        TextColumn("reports"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[bad]}"),
    )
    absence = Absence(plan.patience_s, stop.set, _say)
    try:
        async with _looking(watch, absence):
            with Bars(*columns, screen=stderr) as progress:
                bar, meter = (
                    progress.add_task("reports", total=plan.reports, rate="", bad=""),
                    Meter(),
                )
                announced: set[str] = set()

                def tell(now: fleet.Progress) -> None:
                    absence.heard(time.monotonic(), now)
                    # a line of its own, at once: the next one that counts may be far
                    if now.trouble and now.trouble not in announced and not stderr.is_terminal:
                        _say(f"trying again: {now.trouble}")
                        announced.add(now.trouble)
                    rate = f"{meter.rate(time.monotonic(), now.done):,.0f}/s"
                    progress.tell(bar, now.done, rate=rate, bad=failures(now))

                def preparing(part: float) -> None:
                    progress.tell(bar, 0, rate=f"encapsulations: {part:.0%}")

                return await simulate(plan, tell, stop, preparing, ready)
    finally:
        watch.nobody = absence.verdict
        loop.remove_signal_handler(signal.SIGINT)


def _say(line: str) -> None:
    stderr.print(line, markup=False, soft_wrap=True)


def failures(now: fleet.Progress) -> str:
    """What went wrong so far and what is wrong now, in words; empty if nothing is."""
    parts = (
        (now.refused, "refused"),
        (now.unknown, "unknown"),
        (now.surprises, "answered wrongly"),
    )
    sentences = [f"{count:,} {what}" for count, what in parts if count]
    return ", ".join([*sentences, *([f"trying again: {now.trouble}"] if now.trouble else [])])


@contextlib.asynccontextmanager
async def _looking(watch: Watch, absence: Absence) -> AsyncIterator[None]:
    """Watch the services' CPU and memory meanwhile, and whether they are there."""

    async def look() -> None:
        while True:
            absence.looked(await asyncio.to_thread(watch.look))
            await asyncio.sleep(_LOOK_S)

    await asyncio.to_thread(watch.look)
    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)

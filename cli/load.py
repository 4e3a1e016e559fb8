"""``shoal load``: many simulated devices against running services, and the proof that what was acknowledged was counted."""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from shoal import codec
from shoal.cli.counted import Counted, Counter
from shoal.cli.output import console, emit_json, public_key, read_bytes, say, stderr
from shoal.clients.core import window_at
from shoal.clients.fleet.misbehaviour import Way
from shoal.clients.fleet.plan import SimulationPlan, SimulationResult
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.crypto.keyfiles import load_signing_key
from shoal.crypto.trust import SCHEDULE_SUFFIX, TASK_SUFFIX, ServedTask, serve_task
from shoal.domain import Categories, Domain, Numeric, Value, Vector, YesNo
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError

Roots = Annotated[
    list[Path] | None,
    typer.Option(metavar="ROOT.key", help="Signing key of a task's enrolment authority: enrols the simulated devices. For tests alone."),
]
AnalyzerStatus = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The analyzer's admin address, for example http://127.0.0.1:7446: counts after the window."),
]
_MOST_DEVICES = 50_000_000
_START_S = 30.0  # a service that was started just now may take this long to answer


def register(app: typer.Typer) -> None:
    app.command("load")(load)


def load(
    devices: Annotated[int, typer.Option(min=1, max=_MOST_DEVICES, help="Simulated devices; each answers every task once.")],
    task: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="NAME.task, with NAME.keys beside it; may be repeated.")] = None,
    tasks_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="All tasks of a folder, instead of --task.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.01, help="Reports per second over all devices; default: as fast as they go.")] = None,
    window: Annotated[int | None, typer.Option(min=0, help="Window to report in; default: the one that is open now.")] = None,
    relay: Annotated[bool, typer.Option("--relay", help="Submit in batches of up to 500 frames, as a relay does.")] = False,
    in_flight: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Devices (with --relay: batches) under way per process; default 64 (4).")
    ] = None,
    processes: Annotated[int, typer.Option(min=0, max=256, help="Processes; default: one per CPU.")] = 0,
    channels: Annotated[int, typer.Option(min=1, max=64, help="TLS connections per process.")] = 2,
    address: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Shuffler to submit to; default: the tasks' own.")] = None,
    authority: Annotated[
        list[str] | None, typer.Option(metavar="HEX", help="Public key that devices trust; default: whoever signed the first task.")
    ] = None,
    enrolment: Roots = None,
    patience: Annotated[float, typer.Option(min=0, help="Seconds for which a report is tried again after a retryable failure.")] = 60.0,
    analyzer_status: AnalyzerStatus = None,
    shuffler_status: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The shuffler's admin address, for example http://127.0.0.1:7444: also counts withheld windows."),
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the counts after sending.")] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Send the reports of many simulated devices, then compare what was acknowledged with what was counted.

    Every device verifies the signed task and key schedule, randomizes a random value, seals and submits it. Under --rate a
    report's latency counts from the moment it was due, so waiting that a stalled server causes is in the figures. Use a task of
    its own: other reports in the same window are counted too. Exit status 1 unless acknowledged = counted.

    Example: shoal load --task load.task --devices 100000 --rate 1000 --analyzer-status http://127.0.0.1:7446
    """
    served = _tasks(task or [], tasks_dir, [public_key(key, "--authority") for key in authority or []])
    windows = [window if window is not None else window_at(one.task.name, one.task.windows, time.time()) for one, _ in served]
    counter = Counter(analyzer_status, shuffler_status) if analyzer_status or shuffler_status else None
    if counter is not None:
        counter.check(_START_S)
        _check_open(counter, [one for one, _ in served], windows)
        _check_closing([one for one, _ in served], windows, devices, wait)
    plan = SimulationPlan(
        tasks=tuple(_simulated(one, files, number, devices) for (one, files), number in zip(served, windows, strict=True)),
        authorities=frozenset(files.authority for _, files in served),
        processes=processes,
        channels=channels,
        in_flight=in_flight or (4 if relay else 64),
        way=Way.RELAY if relay else Way.GRPC,
        rate=rate,
        address=address,
        patience_s=patience,
        enrolment_roots=_roots(enrolment or [], [one for one, _ in served]),
    )
    result = asyncio.run(_run(plan))
    counts = [None] * len(served) if counter is None else _count(counter, [one for one, _ in served], windows, wait)
    rows = [
        Row(one, number, devices, result.acked_of(index), result.unknown_of(index), counts[index])
        for index, ((one, _), number) in enumerate(zip(served, windows, strict=True))
    ]
    if as_json:
        emit_json(_json(result, rows, rate))
    else:
        _show(result, rows, counter is not None)
    if counter is not None and not all(row.agrees for row in rows):
        raise ShoalError(
            Kind.MISMATCH, "acknowledged and counted reports differ: see the table; other devices in the window, or a lost report"
        )


@dataclass(frozen=True, slots=True)
class Files:
    """The signed bytes as they were read."""

    signed_task: bytes
    signed_schedule: bytes
    authority: bytes


@dataclass(frozen=True, slots=True)
class Row:
    """One task: ``counted`` None = not asked for, or not decided in time."""

    served: ServedTask
    window: int
    sent: int
    acked: int
    unknown: int
    counted: Counted | None

    @property
    def agrees(self) -> bool:
        """Every acknowledged report counted once; one whose fate was never learnt may count or not."""
        return self.counted is not None and self.acked <= self.counted.n <= self.acked + self.unknown


def _tasks(paths: list[Path], folder: Path | None, authorities: list[bytes]) -> list[tuple[ServedTask, Files]]:
    if bool(paths) == (folder is not None):
        raise ShoalError(Kind.CONFIG, "give either --task FILE (may be repeated) or --tasks-dir DIR")
    if folder is not None:
        paths = sorted(folder.glob(f"*{TASK_SUFFIX}"))
        if not paths:
            raise ShoalError(Kind.CONFIG, f"--tasks-dir {folder}: no *{TASK_SUFFIX} there")
    found = []
    for path in paths:
        signed_task, signed_schedule = read_bytes(path), read_bytes(path.with_suffix(SCHEDULE_SUFFIX))
        signer = codec.decode_signed_task(signed_task).authority
        authorities = authorities or [signer]
        found.append((serve_task(signed_task, signed_schedule, authorities), Files(signed_task, signed_schedule, signer)))
    if len({one.task_id for one, _ in found}) != len(found):
        raise ShoalError(Kind.CONFIG, "the same task is given twice: a device answers it once")
    return found


def _roots(paths: list[Path], served: list[ServedTask]) -> tuple[bytes, ...]:
    """Private keys (PEM) of the enrolment authorities that the tasks name. Raises CONFIG if one is missing."""
    found = {key.public: key for key in map(load_signing_key, paths)}
    wanted = {one.task.enrolment_key: one.task.name for one in served if one.task.enrolment_key}
    for key, name in wanted.items():
        if key not in found:
            raise ShoalError(
                Kind.CONFIG, f"task {name} admits enrolled devices alone: give its enrolment authority's signing key, --enrolment ROOT.key"
            )
    return tuple(found[key].to_pem() for key in wanted)


def _check_open(counter: Counter, served: list[ServedTask], windows: list[int]) -> None:
    for one, window, counted in zip(served, windows, counter.read(_wanted(served, windows)), strict=True):
        if counted is not None:
            reason = f"window {window} of task {one.task.name} is over, with {counted.n} reports counted"
            raise ShoalError(Kind.CONFIG, f"{reason}: choose another --window, or make a task of its own for the load")


def _wanted(served: list[ServedTask], windows: list[int]) -> list[tuple[str, int]]:
    return [(one.task_id.hex, window) for one, window in zip(served, windows, strict=True)]


def _check_closing(served: list[ServedTask], windows: list[int], devices: int, wait: float) -> None:
    """Refuse at once to wait for a window that can't be decided in time."""
    for one, window in zip(served, windows, strict=True):
        left = one.task.windows.deadline_of(window) - time.time()
        if left > wait and not 0 < one.task.max_batch <= devices:
            reason = f"window {window} of task {one.task.name} closes in {left:.0f} s, later than --wait {wait:.0f}"
            raise ShoalError(Kind.CONFIG, f"{reason}: raise --wait, or use a task with max_batch = {devices}")


def _simulated(one: ServedTask, files: Files, window: int, devices: int) -> SimulatedTask:
    choices = _values(one.task.domain)
    values = tuple(choices[int(word) % len(choices)] for word in SYSTEM.words(devices))  # nobody's data: a bias of 2^-50 is fine
    return SimulatedTask(files.signed_task, files.signed_schedule, values, window)


def _values(domain: Domain) -> list[Value]:
    """Every valid answer."""
    match domain:
        case YesNo():
            return [False, True]
        case Categories():
            return list(domain.lower_bounds or domain.names)
        case Numeric():
            return [domain.low + level * domain.step for level in range(domain.levels)]
        case Vector():
            raise ShoalError(Kind.CONFIG, "a vector is summed in rounds: shoal load sends reports of shuffled tasks alone")


async def _run(plan: SimulationPlan) -> SimulationResult:
    columns = (
        TextColumn("reports"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[bad]}"),
    )
    with Progress(*columns, console=stderr) as progress:
        bar = progress.add_task("reports", total=plan.reports, bad="")
        return await simulate(
            plan,
            lambda now: progress.update(
                bar, completed=now.done, bad=f"{now.done - now.acked} not acknowledged" if now.done > now.acked else ""
            ),
        )


def _count(counter: Counter, served: list[ServedTask], windows: list[int], wait: float) -> list[Counted | None]:
    """What the services counted, as soon as every window is decided, or what is known after ``wait`` seconds."""
    wanted = _wanted(served, windows)
    end = time.monotonic() + wait
    with Progress(TextColumn("windows decided"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=stderr) as progress:
        bar = progress.add_task("windows", total=len(wanted))
        while True:
            counts = counter.read(wanted)
            decided = sum(count is not None for count in counts)
            progress.update(bar, completed=decided)
            if decided == len(wanted) or time.monotonic() > end:
                return counts
            time.sleep(0.3)


def percentiles(latencies_ms: array[float]) -> dict[str, float]:
    """Milliseconds by nearest rank: the smallest value that at least that share of the values doesn't exceed."""
    ordered = sorted(latencies_ms)
    if not ordered:
        return {}
    ranks = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: ordered[max(0, math.ceil(share * len(ordered)) - 1)] for name, share in ranks.items()}


def _json(result: SimulationResult, rows: list[Row], rate: float | None) -> dict[str, Any]:
    return {
        "sent": result.sent,
        "acked": result.acked,
        "refused": {kind.name: count for kind, count in result.refused.items()},
        "unknown": result.unknown,
        "seconds": result.seconds,
        "rate": result.acked / result.seconds if result.seconds else 0.0,
        "rate_asked": rate,
        "latency_ms": percentiles(result.latencies_ms),
        "tasks": [
            {
                "task": row.served.task.name,
                "task_id": row.served.task_id.hex,
                "window": row.window,
                "sent": row.sent,
                "acked": row.acked,
                "unknown": row.unknown,
                "counted": None if row.counted is None else row.counted.n,
                "rejected": None if row.counted is None else row.counted.rejected,
                "agrees": row.agrees if row.counted is not None else None,
            }
            for row in rows
        ],
    }


def _show(result: SimulationResult, rows: list[Row], counting: bool) -> None:
    table = Table("task", "window", *("sent", "acknowledged", "refused", "unknown"), *(("counted", "agrees") if counting else ()))
    for row in rows:
        cells = [row.served.task.name, row.window, row.sent, row.acked, row.sent - row.acked - row.unknown, row.unknown]
        if counting:
            cells += ["not decided" if row.counted is None else row.counted.n, "yes" if row.agrees else "NO"]
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells))
    console.print(table)
    for kind, count in result.refused.items():
        say(f"{count:,} refused, {kind.name}: {result.reasons.get(kind, '')}")
    say(f"{result.acked:,} reports in {result.seconds:.1f} s: {result.acked / max(result.seconds, 1e-9):,.0f} per second")
    if len(result.latencies_ms):
        say("latency: " + ", ".join(f"{name} {value:,.1f} ms" for name, value in percentiles(result.latencies_ms).items()))

"""``shoal load --merge``: all parts of a load as one, compared once with what was counted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.table import Table

from shoal.cli.figures import duration, figure
from shoal.cli.load.counting import START_S, count_windows
from shoal.cli.load.options import LoadOptions
from shoal.cli.load.parts import merged, read_parts, unknown_garbage
from shoal.cli.load.service_counts import Counter, Watch
from shoal.cli.load.show import agreeing
from shoal.cli.output import emit_json, say, say_table, stderr
from shoal.errors import Kind, ShoalError


def run(options: LoadOptions, paths: list[Path]) -> None:
    """Raises CONFIG for files that are not all parts of one load, MISMATCH as a load does."""
    parts = read_parts(paths)
    whole = merged(parts)
    counting = bool(options.analyzer_status or options.shuffler_status)
    if counting:
        counter = Counter(options.analyzer_status, options.shuffler_status)
        counter.check(START_S, stderr.print)
        _compare(whole, parts, counter, options)
    if options.as_json:
        emit_json(whole)
    else:
        _show(whole, counting=counting)
    _check(whole, counting=counting)


def _compare(
    whole: dict[str, Any], parts: list[dict[str, Any]], counter: Counter, options: LoadOptions
) -> None:
    began, tasks = time.monotonic(), whole["tasks"]
    watch = Watch({"analyzer": options.analyzer_status, "shuffler": options.shuffler_status})
    wanted = [(task["task_id"], task["window"]) for task in tasks]
    counts = count_windows(counter, watch, wanted, options.wait)
    for at, (task, counted) in enumerate(zip(tasks, counts, strict=True)):
        if counted is not None:
            task["counted"], task["rejected"] = counted.n, counted.rejected
            task["agrees"] = agreeing(
                counted,
                (task["acked"], task["unknown"]),
                (task["garbage"], unknown_garbage(parts, at)),
                parts[0]["part"]["plan"]["tasks"][at]["messages"],
            )
    if None not in counts:
        whole["decided_seconds"] = time.monotonic() - began


def _show(whole: dict[str, Any], *, counting: bool) -> None:
    heads = ("task", "window", "sent", "acknowledged", "unknown")
    table = Table(*heads, *(("counted", "agrees") if counting else ()))
    for task in whole["tasks"]:
        cells = [str(task["task"]), str(task["window"])]
        cells += [f"{task[name]:,}" for name in ("sent", "acked", "unknown")]
        if counting:
            counted = task["counted"]
            cells += ["not decided" if counted is None else f"{counted:,}"]
            cells += ["yes" if task["agrees"] else "NO"]
        table.add_row(*cells)
    say_table(table)
    for kind, count in whole["refused"].items():
        say(f"{count:,} refused, {kind}")
    for what, count in whole["surprises"].items():
        say(f"SURPRISE: {what}: {count:,} times")
    say(
        f"{whole['acked']:,} reports in {duration(whole['seconds'])} from {whole['parts']} parts: "
        f"{figure(whole['rate'])} per second"
    )
    if whole["latency_ms"]:
        told = (f"{name} {value:,.1f} ms" for name, value in whole["latency_ms"].items())
        say(f"latency, to 1 %: {', '.join(told)}")
    if not counting:
        say(
            "not compared with what is counted: --analyzer-status does that, once the window is "
            "decided"
        )
    if whole["interrupted"]:
        say("a part was interrupted: these figures are of what had been sent until then")


def _check(whole: dict[str, Any], *, counting: bool) -> None:
    if whole["surprises"]:
        what, count = max(whole["surprises"].items(), key=lambda item: item[1])
        raise ShoalError(
            Kind.MISMATCH,
            f"{sum(whole['surprises'].values()):,} wrong answers to misbehaving clients, "
            f"{count:,} times {what}: see the table",
        )
    if whole["sent"] and not whole["acked"]:
        raise ShoalError(
            Kind.MISMATCH, f"none of {whole['sent']:,} reports was acknowledged: see each part"
        )
    if counting and not all(task["agrees"] for task in whole["tasks"]):
        raise ShoalError(
            Kind.MISMATCH,
            "acknowledged and counted reports differ: see the table; other devices in the window, "
            "or a lost report",
        )

"""What ``shoal load`` tells in the end: a table for people, JSON for programs, and whether it
failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from shoal.cli.figures import duration, figure, volume
from shoal.cli.load.service_counts import Counted, ServiceUsage
from shoal.cli.load.tasks import Target
from shoal.cli.output import say, say_table
from shoal.clients.fleet.measure import percentiles
from shoal.clients.fleet.plan import Breaches, SimulationResult
from shoal.clients.fleet.share import SealingEffort
from shoal.domain import NO_ANSWER
from shoal.errors import Kind, ShoalError
from shoal.limits import MIB
from shoal.mechanisms.parts.tables import MEAN_OF_ALL

_MOST_VALUES = 20  # of a task, in the table; --json has all


@dataclass(frozen=True, slots=True)
class KnownTruth:
    """What is true of the acknowledged answers from a table, by label of the estimates. ``note``:
    what to say of it, or "".
    """

    truth: dict[str, float]
    note: str = ""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task: reports that were ``sent`` by devices whose report must count, and what came of
    them. ``service_count`` None = not asked for, or not decided in time. ``garbage``,
    ``garbage_unknown``: reports that the analyzer must reject, (perhaps) stored.
    """

    target: Target
    sent: int
    acked: int
    unknown: int
    garbage: int
    garbage_unknown: int
    service_count: Counted | None
    answered: KnownTruth | None = None

    @property
    def agrees(self) -> bool:
        """Every acknowledged report counted once, every acknowledged piece of garbage
        rejected; what has an unknown fate may be either.
        """
        return agreeing(
            self.service_count,
            (self.acked, self.unknown),
            (self.garbage, self.garbage_unknown),
            self.target.served.task.messages,
        )


def agreeing(
    counted: Counted | None, acked: tuple[int, int], garbage: tuple[int, int], messages: int
) -> bool:
    """``acked``, ``garbage``: (surely, perhaps besides) stored; see ``TaskRow.agrees``.

    A report of garbage has as many ``messages`` as it may. Where that is more than one, the
    analyzer can't tell which came together and counts each as a report that is lost.
    """
    if counted is None:
        return False
    # withheld by the shuffler, who can't tell garbage from reports
    if counted.rejected is None:
        least = acked[0] + garbage[0]
        return least <= counted.n <= least + acked[1] + garbage[1]
    rejected = garbage[0] * messages <= counted.rejected <= sum(garbage) * messages
    beside = counted.rejected - counted.rejected // messages
    least, most = (max(0, stored - beside) for stored in (acked[0], sum(acked)))
    return rejected and least <= counted.n <= most


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """Everything that was measured. ``counting``: whether counts were asked for. ``decided_s``:
    from the end of the sending until every window was decided; None if counts were not asked for,
    or did not come. ``part``: what else the JSON of a part has.
    """

    result: SimulationResult
    rows: list[TaskRow]
    rate_asked: float | None
    services: dict[str, ServiceUsage]
    counting: bool
    interrupted: bool
    decided_s: float | None = None
    part: dict[str, Any] | None = None

    def check(self) -> None:
        """Raises MISMATCH when something was lost, doubled, or answered as it must not be."""
        if self.result.surprises:
            what, count = max(self.result.surprises.items(), key=lambda item: item[1])
            raise ShoalError(
                Kind.MISMATCH,
                f"{sum(self.result.surprises.values()):,} wrong answers to misbehaving clients, "
                f"{count:,} times {what}: see the table",
            )
        sent = sum(row.sent for row in self.rows)
        if sent and not any(row.acked for row in self.rows):
            raise ShoalError(
                Kind.MISMATCH,
                f"none of {sent:,} reports was acknowledged: "
                + (
                    "all were refused, as told above"
                    if sum(self.result.refused.values()) >= sent
                    else "check that the shuffler (or the broker) runs, its address and its "
                    "certificate"
                ),
            )
        if self.counting and not all(row.agrees for row in self.rows):
            raise ShoalError(
                Kind.MISMATCH,
                "acknowledged and counted reports differ: see the table; other devices in the "
                "window, or a lost report",
            )


def to_json(outcome: LoadOutcome) -> dict[str, Any]:
    """The load for programs: what ``shoal load --json`` prints."""
    result = outcome.result
    return {
        "sent": result.sent,
        "acked": result.acked,
        "refused": {kind.name: count for kind, count in result.refused.items()},
        "unknown": result.unknown,
        "duplicates": {"sent": result.copies[0], "acked": result.copies[1]},
        "misbehaving": {
            conduct.name.lower(): _breaches_json(breaches)
            for conduct, breaches in result.breaches.items()
        },
        "surprises": result.surprises,
        "began_at": result.began_at,
        "seconds": result.seconds,
        "prepare_seconds": result.prepare_s,
        "decided_seconds": outcome.decided_s,
        "rate": result.acked / result.seconds if result.seconds else 0.0,
        "rate_asked": outcome.rate_asked,
        "latency_ms": percentiles(result.latencies_ms),
        "services": {
            name: {
                "cpu_s": usage.cpu_s,
                "memory_bytes": usage.memory_bytes,
                "restarts": usage.restarts,
            }
            for name, usage in outcome.services.items()
        },
        "generator": _generator_json(result.efforts),
        "interrupted": outcome.interrupted,
        "tasks": [
            {
                "task": row.target.name,
                "task_id": row.target.served.task_id.hex,
                "window": row.target.window,
                "sent": row.sent,
                "acked": row.acked,
                "unknown": row.unknown,
                "garbage": row.garbage,
                "counted": None if row.service_count is None else row.service_count.n,
                "rejected": None if row.service_count is None else row.service_count.rejected,
                "agrees": row.agrees if row.service_count is not None else None,
                **({} if row.answered is None else {"truth": row.answered.truth}),
            }
            for row in outcome.rows
        ],
        **(outcome.part or {}),
    }


def _generator_json(efforts: tuple[SealingEffort, ...]) -> dict[str, Any]:
    """``memory_bytes``: of the largest process."""
    return {
        "processes": len(efforts),
        "prepare_cpu_s": sum(effort.prepare_cpu_s for effort in efforts),
        "cpu_s": sum(effort.cpu_s for effort in efforts),
        "memory_bytes": max((effort.memory_bytes for effort in efforts), default=0),
    }


def _breaches_json(breaches: Breaches) -> dict[str, Any]:
    return {
        "sent": breaches.sent,
        "refused": {kind.name: count for kind, count in breaches.refused.items()},
        "acked": breaches.acked,
        "unknown": breaches.unknown,
        "unanswered": breaches.unanswered,
        "surprises": breaches.surprises,
    }


def show(outcome: LoadOutcome) -> None:
    """The load for people, on stdout: a table of the tasks, then what stands out."""
    result, counting = outcome.result, outcome.counting
    table = Table(
        "task",
        "window",
        *("sent", "acknowledged", "refused", "unknown"),
        *(("counted", "agrees") if counting else ()),
    )
    for row in outcome.rows:
        cells: list[int | str] = [
            row.target.name,
            row.target.window,
            row.sent,
            row.acked,
            row.sent - row.acked - row.unknown,
            row.unknown,
        ]
        if counting:
            agrees = (
                ""
                if outcome.interrupted and row.service_count is None
                else "yes"
                if row.agrees
                else "NO"
            )
            cells += ["not decided" if row.service_count is None else row.service_count.n, agrees]
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells))
    say_table(table)
    for kind, count in result.refused.items():
        say(f"{count:,} refused, {kind.name}: {result.reasons.get(kind, '')}")
    if result.unknown and result.trouble:
        say(f"{result.unknown:,} unknown, the last because: {result.trouble}")
    _show_misbehaviour(outcome)
    _show_truths(outcome.rows)
    per_s = result.acked / max(result.seconds, 1e-9)
    say(f"{result.acked:,} reports in {duration(result.seconds)}: {figure(per_s)} per second")
    if len(result.latencies_ms):
        say(
            "latency: "
            + ", ".join(
                f"{name} {value:,.1f} ms"
                for name, value in percentiles(result.latencies_ms).items()
            )
        )
    if outcome.decided_s is not None:
        say(f"last report to decision: {duration(outcome.decided_s)}")
    _show_effort(outcome)
    if not counting and result.acked and not outcome.interrupted:
        say(
            "not compared with what is counted: --analyzer-status does that, once the window is "
            "decided"
        )
    if outcome.interrupted:
        say("interrupted: these figures are of what had been sent until then")


def _show_effort(outcome: LoadOutcome) -> None:
    result = outcome.result
    if result.efforts:
        spent = _generator_json(result.efforts)
        prepared = (
            f", and {duration(spent['prepare_cpu_s'])} before for encapsulations"
            if spent["prepare_cpu_s"]
            else ""
        )
        share = (
            f"{duration(spent['cpu_s'])} of CPU{prepared}, at most {volume(spent['memory_bytes'])} "
            "of memory each"
        )
        say(f"this generator's {spent['processes']} processes: {share}")
    for name, usage in outcome.services.items():
        # they tell whole seconds, and whole MiB
        spent_s = duration(usage.cpu_s) if usage.cpu_s < 1 else f"{usage.cpu_s:,.0f} s"
        restarts = f", started again {usage.restarts} times" if usage.restarts else ""
        say(
            f"{name}: {spent_s} of CPU, at most {usage.memory_bytes / MIB:,.0f} MiB of "
            f"memory{restarts}"
        )


def _show_truths(rows: list[TaskRow]) -> None:
    for row in rows:
        if row.answered is not None:
            _show_answers(row, row.answered)


def _show_answers(row: TaskRow, answered: KnownTruth) -> None:
    """The truth that ``shoal results show`` estimates: devices per value, or a number's figures."""
    table = Table(f"{row.target.name}: of {row.acked:,} answers", "truth")
    shown = [
        (label, value)
        for label, value in answered.truth.items()
        if label != MEAN_OF_ALL or answered.truth[NO_ANSWER] > 0
    ]
    if len(shown) > _MOST_VALUES:  # those that most devices have, in the order of the question
        least = sorted(answered.truth.values())[-_MOST_VALUES]
        shown = [(label, value) for label, value in shown if value >= least][:_MOST_VALUES]
    for label, value in shown:
        table.add_row(escape(label), f"{value:,.0f}" if value.is_integer() else f"{value:,.6g}")
    say_table(table)
    if len(shown) == _MOST_VALUES < len(answered.truth):
        say(f"and {len(answered.truth) - len(shown):,} more values: --json has all of them")
    if answered.note:
        say(answered.note)
    if row.unknown:
        say(f"{row.unknown:,} more answers, whose fate is unknown, may be counted too")


def _show_misbehaviour(outcome: LoadOutcome) -> None:
    result = outcome.result
    if result.copies[0]:
        say(
            f"duplicates: {result.copies[0]:,} sent, {result.copies[1]:,} acknowledged with the "
            "same bytes"
        )
    if result.breaches:
        table = Table("misbehaving", "frames", "refused", "acknowledged", "no answer", "surprises")
        for conduct, breaches in result.breaches.items():
            refused = ", ".join(
                f"{count:,} {kind.name}"
                for kind, count in breaches.refused.items()
                if kind is not Kind.DEADLINE
            )
            silent = breaches.unanswered + breaches.unknown + breaches.refused.get(Kind.DEADLINE, 0)
            table.add_row(
                conduct.name.lower().replace("_", " "),
                *(
                    f"{breaches.sent:,}",
                    refused,
                    f"{breaches.acked:,}",
                    f"{silent:,}",
                    f"{breaches.surprises:,}",
                ),
            )
        say_table(table)
    rejected = [
        row.service_count.rejected
        for row in outcome.rows
        if row.service_count is not None and row.service_count.rejected is not None
    ]
    if any(row.garbage for row in outcome.rows) and rejected:
        say(
            f"garbage: {sum(row.garbage for row in outcome.rows):,} acknowledged, "
            f"{sum(rejected):,} messages rejected by the analyzer"
        )
    for what, count in result.surprises.items():
        say(f"SURPRISE: {what}: {count:,} times")

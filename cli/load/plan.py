"""``shoal load --plan``: what a load would do and cost, measured by a short trial on this machine.
Nothing is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from shoal.cli.demo.processes import cpu_count
from shoal.cli.figures import duration, figure, volume
from shoal.cli.load.tasks import Target, stored_by
from shoal.cli.output import say, say_table
from shoal.clients.fleet.measure import LoadCost, cost_of
from shoal.clients.fleet.misbehaviour import MALFORMED, Carrier, Conduct, expected, mute
from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.simulated import BATCH
from shoal.clients.fleet.simulator import target_of
from shoal.errors import Kind
from shoal.limits import LIMITS


@dataclass(frozen=True, slots=True)
class Forecast:
    """``frames``: sent, copies included; ``make_s``, ``open_s``: CPU seconds of the generator's and
    of the services' cryptography, on one core of this machine; ``stored_bytes``: sealed reports on
    the shuffler's disk; ``least_s``: the shortest time it can take here.
    """

    plan: SimulationPlan
    targets: list[Target]
    frames: int
    calls: int
    sent_bytes: int
    stored: int
    stored_bytes: int
    prepare_s: float
    make_s: float
    open_s: float
    least_s: float


def preparing_s(plan: SimulationPlan) -> float:
    """About how long --prepare takes here before the first report, in seconds of wall time: a short
    trial on one core, shared out over the processes. Services that work meanwhile make it longer.
    Raises what verifying the tasks raises.
    """
    processes = min(plan.processes or cpu_count(), cpu_count(), plan.devices)
    return _encapsulating(plan, *_trials(plan)) / processes


def _trials(plan: SimulationPlan) -> tuple[list[LoadCost], list[LoadCost]]:
    """What a report of each task costs, and what it costs with its encapsulations made before."""
    costs = [cost_of(task, plan.authorities, plan.enrolment_roots) for task in plan.tasks]
    return costs, [
        cost_of(task, plan.authorities, plan.enrolment_roots, prepare=True) for task in plan.tasks
    ] if plan.prepare else costs


def _own(plan: SimulationPlan) -> int:
    """Devices with a report of their own: for these alone there are encapsulations to prepare."""
    mix = plan.mix()
    return mix[Conduct.HONEST] + mix[Conduct.DUPLICATE] + mix[Conduct.SECOND]


def _encapsulating(plan: SimulationPlan, costs: list[LoadCost], ready: list[LoadCost]) -> float:
    """CPU seconds of all encapsulations."""
    return sum(
        _own(plan) * max(0.0, slow.make_s - fast.make_s)
        for slow, fast in zip(costs, ready, strict=True)
    )


def forecast(plan: SimulationPlan, loaded: list[Target]) -> Forecast:
    """Make and open a few reports of every task. Raises what verifying them raises."""
    mix = plan.mix()
    costs, ready = _trials(plan)
    own = _own(plan)
    breaches = plan.devices - own + mix[Conduct.SECOND]
    frames = len(costs) * (own + 2 * mix[Conduct.DUPLICATE] + breaches)
    stored = stored_by(plan)
    prepare_s = _encapsulating(plan, costs, ready)
    make_s = sum(
        own * fast.make_s + breaches * slow.make_s for slow, fast in zip(costs, ready, strict=True)
    )
    open_s = len(costs) * (own + breaches) * sum(cost.open_s for cost in costs) / len(costs)
    span = plan.arrivals.over_s if plan.arrivals is not None else 0.0
    cores = cpu_count()
    return Forecast(
        plan=plan,
        targets=loaded,
        frames=frames,
        calls=frames if plan.way is not Carrier.RELAY else -(-frames // BATCH),
        sent_bytes=_bytes(plan, costs),
        stored=len(costs) * stored,
        stored_bytes=sum(stored * cost.sealed_bytes for cost in costs),
        prepare_s=prepare_s,
        make_s=make_s,
        open_s=open_s,
        least_s=max(span, (make_s + open_s) / cores),
    )


def _bytes(plan: SimulationPlan, costs: list[LoadCost]) -> int:
    """Of frames; what TLS and gRPC add is not in it. Frames that are cut, or noise, count as whole
    ones of their size.
    """
    mix, total = plan.mix(), 0
    for cost in costs:
        for conduct, count in mix.items():
            times = {Conduct.DUPLICATE: 3, Conduct.SECOND: 2}.get(conduct, 1)
            total += (
                count
                * times
                * (LIMITS.submit_bytes + 1 if conduct is Conduct.OVERSIZED else cost.frame_bytes)
            )
    return total


def to_json(predicted: Forecast) -> dict[str, Any]:
    """The forecast for programs: what ``shoal load --plan --json`` prints."""
    plan, arrivals = predicted.plan, predicted.plan.arrivals
    return {
        "plan": True,
        "devices": plan.devices,
        "tasks": [
            {"task": target.name, "task_id": target.served.task_id.hex, "window": target.window}
            for target in predicted.targets
        ],
        "target": target_of(plan),
        "way": plan.way.value,
        "arrival": None
        if arrivals is None
        else {
            "pattern": arrivals.pattern.value,
            "over_s": arrivals.over_s,
            "peak_rate": arrivals.peak,
        },
        "reports": plan.reports,
        "conduct": {conduct.name.lower(): count for conduct, count in sorted(plan.mix().items())},
        "frames": predicted.frames,
        "calls": predicted.calls,
        "bytes": predicted.sent_bytes,
        "stored_reports": predicted.stored,
        "stored_bytes": predicted.stored_bytes,
        "cpu_s": {
            "prepare": predicted.prepare_s,
            "make": predicted.make_s,
            "open": predicted.open_s,
        },
        "least_s": predicted.least_s,
    }


def show(predicted: Forecast) -> None:
    """The forecast for people, on stdout."""
    plan, arrivals = predicted.plan, predicted.plan.arrivals
    names = ", ".join(f"{target.name} (window {target.window})" for target in predicted.targets)
    say(
        f"{plan.devices:,} devices answer {names}: {plan.reports:,} reports in "
        f"{predicted.frames:,} "
        "frames"
    )
    if arrivals is None:
        say(f"over {plan.way.value} to {target_of(plan)}, as fast as they go")
    else:
        pace = (
            f"{arrivals.pattern.value}, within {figure(arrivals.over_s)} s, at most "
            f"{figure(arrivals.peak)} per second"
        )
        say(f"over {plan.way.value} to {target_of(plan)}: {pace}")
    table = Table("devices", "number", "what must come of each")
    for conduct, count in sorted(plan.mix().items()):
        table.add_row(
            conduct.name.lower().replace("_", " "), f"{count:,}", _fate(conduct, plan.way)
        )
    say_table(table)
    say(
        f"sends {volume(predicted.sent_bytes)} of frames in {predicted.calls:,} calls; the "
        "shuffler stores "
        f"{volume(predicted.stored_bytes)}"
    )
    if plan.prepare:
        say(f"before the clock starts: {duration(predicted.prepare_s)} of CPU for encapsulations")
    say(
        f"CPU, measured here just now: {duration(predicted.make_s)} to make the reports; "
        f"{duration(predicted.open_s)} for the services to open them, "
        "their other work not counted"
    )
    say(
        f"it takes {duration(predicted.least_s)} at the least, if all of it runs on this machine's "
        f"{cpu_count()} CPUs; nothing was sent"
    )


def _fate(conduct: Conduct, way: Carrier) -> str:
    match conduct:
        case Conduct.HONEST:
            return "acknowledged, counted once"
        case Conduct.DUPLICATE:
            return "every copy acknowledged with the same bytes, counted once"
        case Conduct.GARBAGE:
            return "acknowledged, rejected by the analyzer"
        case Conduct.SECOND:
            return "the first counted once, the second refused: CONFLICT"
    if way is Carrier.MQTT and (conduct in MALFORMED or conduct is Conduct.OVERSIZED):
        return "no answer that says anything"
    silence = ", or no answer" if mute(conduct, way) else ""
    return (
        "refused: "
        + " or ".join(sorted(kind.name for kind in expected(conduct, way) - {Kind.DEADLINE}))
        + silence
    )

"""What every device sends in a window, made by itself and carried by the simulator's processes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

from rich.progress import TaskID

from shoal.cli.demo.recipes.asked import AskedWay
from shoal.cli.demo.reports_run import alone
from shoal.cli.load.progress import Bars
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import SimulationPlan, SimulationResult
from shoal.clients.fleet.remembering import RememberingDevices
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.domain import Value

_RELAYS = 2  # per process: one makes its batch while the other waits for an answer


class _StoppedError(Exception):
    """Nobody waits for the reports any more."""


async def made_reports(
    one: AskedWay,
    window: int,
    people: RememberingDevices,
    values: Sequence[Value],
    told: Callable[[int], None],
) -> SimulatedTask:
    """One report of every device that the window asks, made beside the loop. ``told`` hears how
    many are made. Who is cancelled here leaves no thread behind that goes on.
    """
    stopped = threading.Event()

    def tell(done: int) -> None:
        if stopped.is_set():
            raise _StoppedError
        told(done)

    try:
        made = await asyncio.to_thread(
            people.answers,
            one.assignment,
            window,
            values,
            time.time(),
            central=one.way.epsilon,
            told=tell,
        )
    except asyncio.CancelledError:
        stopped.set()
        raise
    steps = one.assignment.steps
    step = steps[window].data if window in steps else b""
    who = people.asked(one.assignment, window, time.time())
    own = values if len(who) == len(values) else [values[device] for device in who]
    return SimulatedTask(one.signed_task, one.signed_schedule, own, window, step, made)


async def send(tasks: Sequence[SimulatedTask], authority: bytes, workers: int) -> SimulationResult:
    """All of them, to where their tasks say."""
    plan = SimulationPlan(
        tuple(tasks),
        authorities=frozenset({authority}),
        processes=workers,
        in_flight=_RELAYS,
        channels=1,
        way=Carrier.RELAY,
        alone=alone(len(tasks[0].values)),
    )
    return await simulate(plan)


def after(progress: Bars, bar: TaskID, before: int) -> Callable[[int], None]:
    """Tells the bar how much more than ``before`` is done."""
    return lambda now: progress.tell(bar, before + now)

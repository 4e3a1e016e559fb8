"""The course of ``shoal demo --federated``: services up, then round after round: devices compute
the model from signed releases, answer with masked gradients, and the window's sum is released.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.demo.federated import show
from shoal.cli.demo.federated.asked import (
    Learner,
    LearningTask,
    make_learners,
    make_learning,
    plan_of,
)
from shoal.cli.demo.federated.beside import accuracy
from shoal.cli.demo.federated.outcome import Course, finish_round, made_of, measure
from shoal.cli.demo.federated.patients import load_patients
from shoal.cli.demo.made import Made
from shoal.cli.demo.options import Learnt
from shoal.cli.demo.processes import Process, progress_bars, running, until
from shoal.cli.demo.workspace import Site, prepare
from shoal.clients.rounds.agent import noisy
from shoal.clients.rounds.exchange import RoundLine
from shoal.clients.rounds.learning import answer, follow
from shoal.clients.rounds.participation import RoundState, take_part
from shoal.clients.transports.rounds_transport import GrpcRoundTransport, RoundTransport
from shoal.clocks.clock import SystemClock
from shoal.crypto.secagg.terms import RoundTerms
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.protos.release_pb2 import SignedRelease

_LOOK_S = 0.2  # between two looks for a release
_PATIENCE_S = 60.0  # for it, from the end of its window


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Where the rounds happen, and who takes part."""

    site: Site
    asked: LearningTask
    learners: list[Learner]
    transport: RoundTransport


async def run_federated(
    folder: Path,
    devices: int | None,
    rounds: int,
    screen: Console,
    *,
    adaptive: bool,
    learnt: Learnt = Learnt.LOGISTIC,
) -> Made:
    """Everything that is shown of it. Raises INTERNAL if a sum is not exactly that of its devices,
    CONFIG for too few devices or too many, UNAVAILABLE without a release.
    """
    everybody, held_out = await asyncio.to_thread(load_patients)
    patients = everybody.first(devices or len(everybody))
    plan = plan_of(rounds, adaptive=adaptive, learnt=learnt)
    if learnt is Learnt.NETWORK:
        screen.print("The network is trained by a curator and without privacy first ...")
        await asyncio.to_thread(_alone)
    site = await asyncio.to_thread(prepare, folder)
    central = await asyncio.to_thread(measure, plan, patients, held_out, SYSTEM)
    asked = await asyncio.to_thread(make_learning, site, plan, len(patients))
    services = [
        Process("analyzer", site.analyzer_config, site.analyzer_admin),
        Process("shuffler", site.shuffler_config, site.shuffler_admin),
    ]
    screen.print(
        f"{len(patients)} patients, a device each; {len(held_out)} more are held out. "
        f"{rounds} rounds in windows of {asked.task.windows.length_s} s; shuffler and analyzer are "
        "starting ...",
        soft_wrap=True,
    )
    if asked.slower > 1:
        screen.print(
            f"Other programs use this machine: windows are {asked.slower} times as long as usual.",
            soft_wrap=True,
        )
    task = asked.task
    transport = GrpcRoundTransport(task.shuffler_address, task.shuffler_ca)
    fleet = _Fleet(site, asked, await asyncio.to_thread(make_learners, asked, patients), transport)
    course = Course(asked, central)
    try:
        async with running(services, screen.print) as guard:
            with progress_bars(screen) as progress:
                bar = progress.add_task("devices answer", total=len(patients) * rounds)

                def moved(answers: int) -> None:
                    progress.tell(bar, answers)

                show.head(screen)
                for window in range(rounds):
                    await until(guard, _play(fleet, window, moved))
                    signed = await until(guard, _released(fleet, window))
                    await asyncio.to_thread(_follow, fleet, signed)
                    release = await asyncio.to_thread(
                        finish_round, site, asked, window, fleet.learners
                    )
                    learner = fleet.learners[0]
                    right = accuracy(plan.model, learner.state.weights, held_out)
                    course.add(release, learner, right)
                    show.row(screen, course)
    finally:
        await transport.close()
    return await asyncio.to_thread(made_of, site, course, len(patients), len(held_out))


def _alone() -> None:
    """PyTorch keeps to one thread: on a machine whose cores are taken, threads that wait for one
    another are slower than one.
    """
    import torch

    torch.set_num_threads(1)


async def _play(fleet: _Fleet, window: int, moved: Callable[[int], None]) -> None:
    """Every device answers in the window, or fails to. ``moved`` hears how many answers there are
    by now, of all windows.
    """
    task, keys = fleet.asked.task, fleet.asked.assignment.keys
    await asyncio.sleep(max(0.0, task.windows.start_of(window) - time.time()))
    await asyncio.to_thread(_mask, fleet, window)
    terms = RoundTerms.of(task, fleet.asked.assignment.task_id, keys, window)
    deadline = float(task.windows.deadline_of(window))
    line = RoundLine(keys.hop_keys[window], fleet.transport, SystemClock(), deadline)
    answers = window * len(fleet.learners)

    async def run(learner: Learner) -> None:
        nonlocal answers
        outcome = await take_part(
            terms, learner.identity, learner.masked[window], learner.ledger, line
        )
        if outcome.round_id is not None and outcome.state in {RoundState.COUNTED, RoundState.LOST}:
            learner.summed[window] = outcome.round_id
        answers += 1
        moved(answers)

    await asyncio.gather(*(run(learner) for learner in fleet.learners))


def _mask(fleet: _Fleet, window: int) -> None:
    """What each device will mask: the gradient at the model that it computed, clipped, rounded, and
    with its share of the noise.
    """
    for learner in fleet.learners:
        value = answer(fleet.asked.plan, learner.state, learner.row, learner.malignant)
        learner.masked[window] = noisy(fleet.asked.task, value, SYSTEM)


def _follow(fleet: _Fleet, signed: bytes) -> None:
    """Each device verifies the release, and computes the next model from it."""
    task, task_id = fleet.asked.task, fleet.asked.assignment.task_id
    for learner in fleet.learners:
        learner.state = follow(fleet.asked.plan, task, task_id, learner.state, signed)


async def _released(fleet: _Fleet, window: int) -> bytes:
    """The SignedRelease of a window, read from the analyzer's store: the demo hands it to the
    devices itself. Raises UNAVAILABLE if it takes too long.
    """
    until_s = fleet.asked.task.windows.deadline_of(window) + _PATIENCE_S
    while time.time() < until_s:
        signed = await asyncio.to_thread(_read, fleet, window)
        if signed is not None:
            return signed
        await asyncio.sleep(_LOOK_S)
    raise ShoalError(
        Kind.UNAVAILABLE,
        f"no release of window {window}, {_PATIENCE_S:.0f} s after its end: see shuffler.log and "
        "analyzer.log with --keep DIR",
    )


def _read(fleet: _Fleet, window: int) -> bytes | None:
    with contextlib.suppress(ShoalError, FileNotFoundError):
        store = AnalyzerStore(fleet.site.analyzer_data / FILE_NAME, read_only=True)
        try:
            for stored in store.releases():
                if stored.window == window:
                    return SignedRelease(
                        release=stored.release, signature=stored.signature
                    ).SerializeToString()
        finally:
            store.close()
    return None

"""The course of ``shoal demo``: services up, devices report, windows close and are released, all of
it held against the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from shoal.analyzer.results.report_page import render_report
from shoal.cli.demo.collect import released, shredded
from shoal.cli.demo.made import Made
from shoal.cli.demo.processes import Process, progress_bars, running, until
from shoal.cli.demo.survey import Question, load_visits
from shoal.cli.demo.workspace import DEMO, TaskTerms, Workspace, build
from shoal.cli.figures import counted
from shoal.cli.load.progress import Bars
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import SimulationPlan, SimulationResult
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.crypto.trust import TASK_SUFFIX
from shoal.errors import Kind, ShoalError
from shoal.questions.answers import Value

_RELAYS = 2  # per process: one makes its batch while the other waits for an answer
_ALONE_PART, _ALONE_MOST = 20, 1_000  # one device in twenty reports alone, at most so many


def alone(devices: int) -> int:
    """How many of so many devices report alone; the others stand behind relays."""
    return min(devices // _ALONE_PART, _ALONE_MOST)


@dataclass(frozen=True, slots=True)
class SimulatedAnswers:
    """A question, what each device would answer, in its order, and the truth by label."""

    question: Question
    values: Sequence[Value]
    truth: dict[str, float]


async def run_reports(
    folder: Path,
    asked: tuple[Question, ...],
    devices: int | None,
    workers: int,
    screen: Console,
    terms: TaskTerms = DEMO,
) -> Made:
    """The demo, on its own survey. Raises as ``run_answers`` does, CONFIG for too few devices."""
    visits = await asyncio.to_thread(load_visits, devices)
    answers = [
        SimulatedAnswers(question, question.values(visits), question.truth(visits))
        for question in asked
    ]
    return await run_answers(folder, answers, terms, workers, screen)


async def run_answers(
    folder: Path,
    answers: Sequence[SimulatedAnswers],
    terms: TaskTerms,
    workers: int,
    screen: Console,
) -> Made:
    """Everything that is shown of it. Raises INTERNAL if a report was lost or doubled, UNAVAILABLE
    if a service can't be kept alive, CONFIG for a task that its terms don't allow.
    """
    devices = len(answers[0].values)
    questions = [one.question for one in answers]
    workspace = await asyncio.to_thread(build, folder, questions, devices, terms)
    services = [
        Process("analyzer", workspace.analyzer_config, workspace.analyzer_admin),
        Process("shuffler", workspace.shuffler_config, workspace.shuffler_admin),
    ]
    screen.print(
        f"{devices:,} devices, {counted(len(answers), 'question')}; {alone(devices):,} devices "
        "report alone, the others behind relays",
        soft_wrap=True,
    )
    async with running(services, screen.print) as guard:
        with progress_bars(screen) as progress:
            outcome = await until(guard, _simulate(workspace, answers, workers, progress))
            releases = await until(
                guard, released(workspace.analyzer_data, workspace.campaigns(), progress)
            )
        # the page is made while the shuffler hears of the releases and destroys its copies
        made, _ = await asyncio.gather(
            asyncio.to_thread(_results, workspace, answers, releases, outcome),
            until(guard, shredded(services[1], len(workspace.pairs))),
        )
    results: Made = made
    return results


async def _simulate(
    workspace: Workspace, answers: Sequence[SimulatedAnswers], workers: int, progress: Bars
) -> SimulationResult:
    """Every device reports to every task; returns when each report has an outcome."""
    devices = len(answers[0].values)
    bar = progress.add_task("devices report", total=devices * len(answers))
    plan = SimulationPlan(
        authorities=frozenset({workspace.authority}),
        tasks=tuple(
            SimulatedTask(pair.signed_task, pair.signed_schedule, one.values)
            for pair, one in zip(workspace.pairs, answers, strict=True)
        ),
        processes=workers,
        in_flight=_RELAYS,
        channels=1,
        way=Carrier.RELAY,
        alone=alone(devices),
    )
    return await simulate(plan, lambda now: progress.tell(bar, now.done))


def _results(
    workspace: Workspace,
    answers: Sequence[SimulatedAnswers],
    releases: list[dict[str, Any]],
    outcome: SimulationResult,
) -> Made:
    """Everything that is shown. Raises INTERNAL if a report was lost or doubled."""
    reports = sum(release["n"] for release in releases)
    if not outcome.acked <= reports <= outcome.acked + outcome.unknown:
        raise ShoalError(
            Kind.INTERNAL,
            f"{outcome.acked} reports were acknowledged, {reports} were counted: a report was lost "
            "or doubled",
        )
    tasks = []
    for pair, one, release in zip(workspace.pairs, answers, releases, strict=True):
        question = pair.question
        spec = {
            "name": question.mechanism.name,
            "parameters": dict(question.mechanism.parameters),
            "report_bytes": pair.task.report_size,
            "messages": pair.task.messages,
        }
        tasks.append(
            {
                "name": question.name,
                "question": question.question,
                "mechanism": spec,
                "truth": one.truth,
                "release": release,
            }
        )
    last = max(releases, key=lambda release: release["privacy"]["tasks_composed"])["privacy"]
    composed = {
        "epsilon_upper": last["epsilon_cumulative_upper"],
        "delta": last["delta_cumulative"],
        "tasks": last["tasks_composed"],
    }
    truths = {
        pair.task_id.hex: one.truth for pair, one in zip(workspace.pairs, answers, strict=True)
    }
    page = render_report(releases, truths)
    refused = {kind.name: count for kind, count in outcome.refused.items()}
    results = {
        "tasks": tasks,
        "composed": composed,
        "devices": len(answers[0].values),
        "reports": {
            "acknowledged": outcome.acked,
            "counted": reports,
            "unknown": outcome.unknown,
            "refused": refused,
        },
    }
    tasks_by_name = {f"{pair.task.name}{TASK_SUFFIX}": pair.signed_task for pair in workspace.pairs}
    # packages of the extra [server], which the help of the command does without
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.analyzer.results.checkable import checkable
    from shoal.services.settings import load_settings

    files = dict(checkable(load_settings(AnalyzerConfig, workspace.analyzer_config)))
    return Made(results, page, tasks_by_name, files)

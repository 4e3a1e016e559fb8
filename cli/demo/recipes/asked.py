"""A recipe's question as signed tasks, one for each way to ask it.

All windows of a task have begun when the run does, and each closes when every device has answered:
so that a week takes a minute, and still is a week to devices, services and accountant.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from shoal.analyzer.discovery.plan import DiscoveryRequest
from shoal.analyzer.planner.deployments.ways import Way
from shoal.cli.demo.recipes.deployments import Deployment
from shoal.cli.demo.survey import Question
from shoal.cli.demo.workspace import Site, TaskTerms, task_of
from shoal.clients.core import Assignment, assign
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Discovery
from shoal.task import PPM, Task, WindowPlan

_LENGTH_S, _GRACE_S = 60, 10_800
_WORDS_GRACE_S = 600
_FRESH_GRACE_S = 1  # nobody is waited for who is not asked
_WINDOWS = 4  # for each level
_START_S = 6  # until the services are up
_PURPOSE = "a made-up deployment"


@dataclass(frozen=True, slots=True)
class AskedWay:
    """A way, and its task as devices received and verified it."""

    way: Way
    assignment: Assignment
    signed_task: bytes
    signed_schedule: bytes

    @property
    def task(self) -> Task:
        """What is asked."""
        return self.assignment.task


def ask(site: Site, deployment: Deployment, way: Way, devices: int, windows: int) -> AskedWay:
    """Sign and hand to the services. Raises CONFIG for what no task may be."""
    name = f"{deployment.name}-{way.name}"
    question = Question(name, deployment.asked, way.domain, way.spec)
    terms = TaskTerms(_PURPOSE, PPM, deployment.recipe.delta, way.epsilon, lenient=True)
    plan = WindowPlan(
        start_s=int(time.time()) - windows * _LENGTH_S - 1,
        length_s=_LENGTH_S,
        count=windows,
        grace_s=_GRACE_S,
        skew_s=_LENGTH_S,
    )
    return _signed(site, way, task_of(question, devices, site, terms, plan, memoized=way.memoized))


def ask_words(
    site: Site, deployment: Deployment, way: Way, request: DiscoveryRequest, length_s: int
) -> AskedWay:
    """As ``ask``, of words that nobody listed: level after level is asked, in windows of
    ``length_s`` seconds from soon on, some of which may pass while a release is made. Devices that
    answer once draw among as many windows as they were planned for.
    """
    if not isinstance(way.domain, Discovery):
        raise TypeError("words are looked for by a discovery")
    windows = _WINDOWS * way.domain.levels if request.same else request.asked_windows
    least = None if request.same else request.n
    question = Question(f"{deployment.name}-{way.name}", deployment.asked, way.domain, way.spec)
    terms = TaskTerms(_PURPOSE, PPM, deployment.recipe.delta, way.epsilon)
    plan = WindowPlan(
        start_s=int(time.time()) + _START_S,
        length_s=length_s,
        count=windows,
        grace_s=_WORDS_GRACE_S if request.same else _FRESH_GRACE_S,
        skew_s=0,
    )
    return _signed(site, way, task_of(question, request.fleet, site, terms, plan, least=least))


def _signed(site: Site, way: Way, task: Task) -> AskedWay:
    _, signed_task, signed_schedule = site.add(task)
    trusted = trust_task(signed_task, {site.authority.public})
    assignment = assign(trusted, trust_schedule(signed_schedule, trusted))
    return AskedWay(way, assignment, signed_task, signed_schedule)

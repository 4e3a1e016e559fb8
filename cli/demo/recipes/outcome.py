"""What a recipe's run found: estimates beside the truth, and what each way cost, out of the run's
own releases and ledgers and of the accountant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.accounting.composition.basic import Composed
from shoal.analyzer.discovery.plan import DiscoveryPlan
from shoal.analyzer.planner.deployments.accounts import account
from shoal.analyzer.planner.deployments.claims import DAYS
from shoal.analyzer.planner.deployments.ways import Ways
from shoal.analyzer.results.cumulative import compose_spendings
from shoal.analyzer.results.release_json import to_json
from shoal.analyzer.results.report_page import render_report
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.demo.made import Made
from shoal.cli.demo.recipes.asked import AskedWay
from shoal.cli.demo.recipes.deployments import MADE_UP, Deployment
from shoal.cli.demo.recipes.words_found import true_beginnings, words_of_run
from shoal.cli.demo.workspace import Site
from shoal.cli.load.values import truth_of
from shoal.clients.fleet.plan import SimulationResult
from shoal.crypto.trust import TASK_SUFFIX
from shoal.domain import Domain, Numeric, Value
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.registry import create_of_cells
from shoal.protos.release_pb2 import Release

_NO_ANSWER = "no answer"


@dataclass
class RecipeCourse:
    """How far a run has come. ``asked``: the ways that are run. ``values``: of each window that was
    answered, of the devices that answered it. ``releases``: of each window, those of all ways in
    their order; ``ledgers``: of each way, what every device was charged. ``discovery``: where words
    are looked for, its plan, and then ``fleet``: devices in all; ``words``: what they have.
    """

    deployment: Deployment
    ways: Ways
    asked: tuple[AskedWay, ...]
    values: list[list[Value]]
    releases: list[list[Release]] = field(default_factory=list)
    ledgers: list[list[float]] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    discovery: DiscoveryPlan | None = None
    fleet: int = 0
    words: Sequence[Value] = ()

    @property
    def devices(self) -> int:
        """How many there are."""
        return self.fleet or len(self.values[0])

    @property
    def fresh(self) -> bool:
        """Whether every device answers in one window alone."""
        return self.discovery is not None and not self.discovery.request.same

    @property
    def answered(self) -> int:
        """Windows that one device answered, at most."""
        return 1 if self.fresh else len(self.values)

    @property
    def per_day(self) -> int:
        """Windows in which a device answers in a day: of a discovery all its levels, or one."""
        if self.fresh:
            return 1
        if self.discovery is not None:
            return self.discovery.discovery.levels
        return self.deployment.recipe.reports_per_day

    def truth(self, one: AskedWay, at: int, release: Release) -> dict[str, float]:
        """By label of the release, of the window at this place among those that were answered."""
        level = one.assignment.level(release.window)
        if level is None:
            return truth_of(one.way.domain, self.values[at])
        return true_beginnings(level, self.values[at], tuple(release.discovered.beginnings))

    def took(self, result: SimulationResult) -> None:
        """What became of a window's reports. Raises INTERNAL where one was refused."""
        if result.refused or result.surprises:
            raise ShoalError(Kind.INTERNAL, f"reports were refused: {result.reasons}")
        self.acknowledged += result.acked
        self.unknown += result.unknown


def made_of(site: Site, course: RecipeCourse) -> Made:
    """Everything that is shown and left. Raises INTERNAL if a report was lost or doubled."""
    counted = sum(release.n for window in course.releases for release in window)
    if not course.acknowledged <= counted <= course.acknowledged + course.unknown:
        raise ShoalError(
            Kind.INTERNAL,
            f"{course.acknowledged} reports were acknowledged, {counted} were counted: a report "
            "was lost or doubled",
        )
    results = results_of(course, _composed(site, course)) | {
        "reports": {"acknowledged": course.acknowledged, "counted": counted}
    }
    last = results["tasks"][-len(course.asked) :]
    page = render_report(
        [one["release"] for one in last], {one["release"]["task_id"]: one["truth"] for one in last}
    )
    tasks = {f"{one.task.name}{TASK_SUFFIX}": one.signed_task for one in course.asked}
    # packages of the extra [server], which the help of the command does without
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.analyzer.results.checkable import checkable
    from shoal.services.settings import load_settings

    files = dict(checkable(load_settings(AnalyzerConfig, site.analyzer_config)))
    return Made(results, page, tasks, files)


def _composed(site: Site, course: RecipeCourse) -> list[Composed]:
    """Of each way, what the analyzer's own book says that all its windows cost together."""
    store = AnalyzerStore(site.analyzer_data / FILE_NAME, read_only=True)
    try:
        spendings = store.spendings()
    finally:
        store.close()
    return [
        compose_spendings([one for one in spendings if one.task_id == asked.assignment.task_id])
        for asked in course.asked
    ]


def results_of(course: RecipeCourse, composed: Sequence[Composed]) -> dict[str, Any]:
    """The JSON of a run (docs/RECIPES.md). ``composed``: of each way, by the analyzer's book."""
    deployment, recipe = course.deployment, course.deployment.recipe
    tasks = [
        {
            "name": one.task.name,
            "question": one.task.question,
            "mechanism": _mechanism(one),
            "truth": course.truth(one, window, release),
            "release": to_json(release),
        }
        for window, releases in enumerate(course.releases)
        for one, release in zip(course.asked, releases, strict=True)
    ]
    ways = [
        _way(course, place, tasks[place :: len(course.asked)], composed[place])
        for place in range(len(course.asked))
    ]
    if course.discovery is not None:
        ways = [not_run(course), *ways]
    return {
        "recipe": recipe.name,
        "title": recipe.title,
        "made_up": MADE_UP,
        "devices": course.devices,
        "windows": len(course.values),
        "fresh": course.fresh,
        "window": deployment.window,
        "reports_per_day": course.per_day,
        "claimed": claimed_json(deployment),
        "matched": {
            "epsilon": course.ways.matched.epsilon,
            "windows": course.ways.matched.windows,
            "what": course.ways.matched.what,
        },
        "ways": ways,
        "trusted_server": trusted_server(course) if recipe.central else None,
        "found": None if course.discovery is None else _found(course, course.discovery, tasks),
        "tasks": tasks,
        "composed": _both(ways, tasks),
    }


def _both(ways: Sequence[dict[str, Any]], tasks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All windows of all ways, which the same devices answered: an upper bound for a device whose
    value changes in every window.

    The analyzer composes what is drawn anew. Answers that are kept it counts for a device whose
    value never changes: where there are any, the ways' own figures are added up instead.
    """
    last = max((one["release"]["privacy"] for one in tasks), key=_composed_windows)
    epsilon, delta = last["epsilon_cumulative_upper"], last["delta_cumulative"]
    if any(way["memoized"] for way in ways):
        each = [way["honest"]["apart"]["run"] for way in ways]
        epsilon = None if None in each else math.fsum(each)
        delta = math.fsum(way["honest"]["delta"] for way in ways)
    return {"epsilon_upper": epsilon, "delta": delta, "tasks": last["tasks_composed"]}


def _composed_windows(privacy: dict[str, Any]) -> int:
    windows: int = privacy["windows_composed"]
    return windows


def _found(
    course: RecipeCourse, plan: DiscoveryPlan, tasks: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    return words_of_run(
        plan.discovery,
        course.words,
        tasks,
        least=plan.threshold,
        found_from=plan.found_in_all,
        drawn=plan.request.asked_windows if course.fresh else None,
    )


def claimed_json(deployment: Deployment) -> dict[str, Any]:
    """What is said of the deployment, and by whom."""
    recipe = deployment.recipe
    return {
        "epsilon": recipe.epsilon,
        "unit": deployment.unit,
        "central": recipe.central,
        "claim": recipe.claim,
        "sources": [
            {"text": each.text, "where": each.where, "checked": each.checked}
            for each in recipe.sources
        ],
    }


def _mechanism(one: AskedWay) -> dict[str, Any]:
    spec, task = one.way.spec, one.task
    return {
        "name": spec.name,
        "parameters": dict(spec.parameters),
        "report_bytes": task.report_size,
        "messages": task.messages,
    }


def _way(
    course: RecipeCourse, place: int, tasks: Sequence[dict[str, Any]], composed: Composed
) -> dict[str, Any]:
    one, recipe = course.asked[place], course.deployment.recipe
    found = account(
        create_of_cells(one.way.spec, one.way.domain),
        one.way.domain.size,
        one.task.n_certified,
        recipe.delta,
        windows=course.answered,
        per_day=course.per_day,
        memoized=one.way.memoized,
    )
    ledger = course.ledgers[place]
    return {
        "way": one.way.name,
        "task": one.task.name,
        "run": True,
        "title": one.way.title,
        "mechanism": _mechanism(one),
        "memoized": one.way.memoized,
        "honest": found.to_json(),
        "released": {
            "epsilon_upper": max(each["release"]["privacy"]["epsilon_upper"] for each in tasks),
            "epsilon_run": _finite(composed.epsilon_upper),
            "delta_run": composed.delta,
            "unchanged": one.way.memoized,
        },
        "ledgers": {"most": max(ledger), "mean": math.fsum(ledger) / len(ledger)},
        "error": errors_of(one.way.domain, one.way.error, tasks),
    }


def not_run(course: RecipeCourse) -> dict[str, Any]:
    """The claimed way, where there is nothing here that could run it: what stands in for it is
    accounted for, and its error predicted.
    """
    way, recipe = course.ways.claimed, course.deployment.recipe
    made = create_of_cells(way.spec, way.domain)
    turns = {"windows": recipe.reports_per_day, "per_day": recipe.reports_per_day}
    found = account(
        made, way.domain.size, course.devices, recipe.delta, memoized=way.memoized, **turns
    )
    mechanism = {
        "name": way.spec.name,
        "parameters": dict(way.spec.parameters),
        "report_bytes": made.report_size,
        "messages": made.messages,
    }
    unseen = {"stderr": None, "observed": None, "intervals": 0, "inside": 0}
    return {
        "way": way.name,
        "task": None,
        "run": False,
        "title": way.title,
        "mechanism": mechanism,
        "memoized": way.memoized,
        "honest": found.to_json(),
        "released": None,
        "ledgers": None,
        "error": {"unit": "devices", "predicted": _finite(way.error), **unseen},
    }


def errors_of(domain: Domain, predicted: float, tasks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How far the estimates of all windows are from the truth: root mean squares, over labels and
    windows. ``stderr``: what the releases say of themselves.
    """
    pairs = [
        (estimate, task["truth"][estimate["label"]])
        for task in tasks
        if not task["release"]["withheld"]
        for estimate in shown_estimates(domain, task["release"]["estimates"])
    ]
    inside = sum(one["ci_low"] <= truth <= one["ci_high"] for one, truth in pairs)
    return {
        "unit": domain.unit if isinstance(domain, Numeric) else "devices",
        "predicted": _finite(predicted),
        "stderr": _rms([one["stderr"] for one, _ in pairs]),
        "observed": _rms([one["value"] - truth for one, truth in pairs]),
        "intervals": len(pairs),
        "inside": inside,
    }


def shown_estimates(domain: Domain, estimates: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a number its mean alone; of categories all of them, "no answer" among them."""
    if not isinstance(domain, Numeric):
        return list(estimates)
    return [one for one in estimates if one["label"] != _NO_ANSWER][:1]


def trusted_server(course: RecipeCourse) -> dict[str, Any]:
    """What is claimed as it is claimed: a server that everybody trusts with raw values adds noise
    to counts. Nothing of it is run, as no service here takes raw values.

    One device's other answer moves two counts by one each: two-sided geometric noise with q =
    exp(-epsilon / 2) keeps the epsilon (Ghosh, Roughgarden, Sundararajan, STOC 2009).
    """
    recipe = course.deployment.recipe
    epsilon, windows = recipe.epsilon, len(course.values)
    q = math.exp(-epsilon / 2.0)
    return {
        "epsilon_window": epsilon,
        "epsilon_day": recipe.reports_per_day * epsilon,
        "epsilon_run": windows * epsilon,
        "epsilon_year": DAYS * recipe.reports_per_day * epsilon,
        "epsilon_against_the_server": None,
        "stderr": math.sqrt(2.0 * q) / (1.0 - q),
    }


def _rms(figures: Sequence[float]) -> float | None:
    if not figures:
        return None
    return math.sqrt(math.fsum(each * each for each in figures) / len(figures))


def _finite(figure: float) -> float | None:
    return figure if math.isfinite(figure) else None

"""``shoal plan --recipe``: what a deployment's claim means, what shuffling changes, and what would
be chosen instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

from rich.table import Table

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner import Option, Plan
from shoal.analyzer.planner.deployments.claims import Weighed, weigh
from shoal.analyzer.planner.deployments.recipes import RECIPES, Sought, recipe
from shoal.analyzer.planner.order import TellProgress
from shoal.analyzer.planner.reasons import ALIKE
from shoal.cli.figures import figure
from shoal.cli.output import emit_json, say, say_table
from shoal.cli.plan.task import task_text, write_task
from shoal.cli.plan.told import Settings
from shoal.errors import Kind, ShoalError

LIST = "list"


def show_recipe(
    name: str,
    n: int | None,
    emit: Path | None,
    told: Settings,
    tell: TellProgress,
    *,
    as_json: bool,
) -> None:
    """Print one recipe, or the list of them; write the task of the deployment's mechanism. Raises
    CONFIG for an unknown name.
    """
    if name == LIST:
        if emit is not None:
            raise ShoalError(
                Kind.CONFIG, "--emit writes the task of one recipe: give its name instead of list"
            )
        _list(as_json=as_json)
        return
    asked = recipe(name)
    if emit is not None and isinstance(asked.question, Sought):
        raise ShoalError(
            Kind.CONFIG,
            f"recipe {name} has no task of its deployment's mechanism: shoal discover plan --emit "
            "writes one that looks for words",
        )
    weighed = weigh(asked, n, tell)
    written = ""
    if emit is not None:
        length = 86_400 // weighed.recipe.reports_per_day
        written = write_task(emit, task_text(weighed.deployed, length, told))
    if as_json:
        emit_json(weighed.to_json())
        return
    for line in sentences(weighed):
        say(line)
    if written:
        say(written)


def _list(*, as_json: bool) -> None:
    if as_json:
        emit_json(
            {
                "recipes": [
                    {"name": each.name, "title": each.title, "claimed_epsilon": each.epsilon}
                    for each in RECIPES
                ]
            }
        )
        return
    table = Table("recipe", "deployment", "claimed epsilon", "mechanism here")
    for each in RECIPES:
        table.add_row(
            each.name,
            each.title,
            f"{each.epsilon:g}{', central' if each.central else ''}",
            each.mechanism,
        )
    say_table(table)


def sentences(weighed: Weighed) -> Iterator[str]:
    """The recipe for people, a sentence or two per line."""
    recipe, deployed = weighed.recipe, weighed.deployed.choice
    n, certificate = weighed.shuffled.n, weighed.shuffled
    yield f"{recipe.title}: epsilon = {recipe.epsilon:g} is claimed."
    yield fill(recipe.claim, 10_000)
    yield from _claimed(weighed)
    shuffled = (
        f"one batch of {n:,} reports, all honest, is epsilon <= "
        f"{bound_text(certificate.epsilon_upper)} at delta = {certificate.delta:g}"
    )
    year = (
        f"no figure below {bound_text(weighed.year)} is claimed of many windows of a memoized task "
        "together"
        if weighed.year_shuffled is None
        else f"a year of them together epsilon <= {bound_text(weighed.year_shuffled)}"
    )
    yield (
        f"Shuffled ({deployed.candidate.title}, {certificate.method}): {shuffled}; {year}. The "
        "reports and their errors are the same."
    )
    yield _instead(weighed)
    yield "Sources:"
    for source in recipe.sources:
        yield (
            f"  {'read' if source.checked else 'RECALLED, not checked'}: {source.where}: "
            f"{source.text}"
        )


def _instead(weighed: Weighed) -> str:
    """What Shoal would do, and what that costs."""
    deployed, plan = weighed.deployed.choice, weighed.instead
    if not isinstance(plan, Plan):
        return (
            f"Shoal would look for words letter by letter, a level in each of "
            f"{plan.discovery.levels} windows: epsilon <= {bound_text(plan.epsilon)} for all of "
            f"them together, a word of {plan.found_from:,} devices is found with 95 %, and a count "
            f"errs by {figure(plan.stderr)} devices, against {_error(deployed)} of a sketch. What "
            "it costs: shuffler and analyzer together see the word. `shoal demo --recipe "
            f"{weighed.recipe.name}` runs it."
        )
    chosen = plan.choice
    against = f"against {_error(deployed)}{_unit(weighed)} of the deployment's"
    first = (
        f"At the same central epsilon Shoal would choose {chosen.candidate.title}, epsilon0 = "
        f"{bound_text(chosen.epsilon0)}: error {_error(chosen)}{_unit(weighed)}, {against}."
    )
    if chosen.epsilon0 > weighed.report * 1.001:
        return (
            f"{first} What it costs: against shuffler and analyzer together, a report is epsilon0 "
            f"= {bound_text(chosen.epsilon0)} instead of {bound_text(weighed.report)}."
        )
    return (
        f"At the same central epsilon Shoal would choose {chosen.candidate.title}: error "
        f"{_error(chosen)}{_unit(weighed)}, {against}{_alike(chosen, deployed)}."
    )


def _claimed(weighed: Weighed) -> Iterator[str]:
    recipe = weighed.recipe
    if recipe.central:
        yield (
            f"Of the published figures: per day {bound_text(weighed.day)}, over a year "
            f"{bound_text(weighed.year)}. Per report as made here: "
            f"epsilon0 = {bound_text(weighed.report)} against shuffler and analyzer together."
        )
        return
    often = (
        "one report a day"
        if recipe.reports_per_day == 1
        else f"{recipe.reports_per_day} reports a day"
    )
    worst = (
        ""
        if weighed.year_at_worst == weighed.year
        else f" ({bound_text(weighed.year_at_worst)} if it changes with every report)"
    )
    value = " for a value that never changes" if recipe.memoized else ""
    yield (
        f"Without shuffling: per report {bound_text(weighed.report)}; with {often}, per day "
        f"{bound_text(weighed.day)}, and over a year "
        f"{bound_text(weighed.year)}{value}{worst}."
    )


def _alike(chosen: Option, deployed: Option) -> str:
    """Said where there is nothing to gain: the choice may even be the other's, with fewer
    levels.
    """
    if (
        chosen.errors is None
        or deployed.errors is None
        or abs(chosen.errors.ranked / deployed.errors.ranked - 1.0) > ALIKE
    ):
        return ""
    return ", which is as accurate"


def _error(option: Option) -> str:
    return "nan" if option.errors is None else figure(option.errors.ranked)


def _unit(weighed: Weighed) -> str:
    unit = weighed.recipe.question.unit
    return f" {unit}" if unit else ""

"""``shoal plan words``: the plan of ``shoal discover plan``, with the words of the task."""

from __future__ import annotations

from pathlib import Path

from shoal.analyzer.discovery.task_file import task_file
from shoal.cli.discover.asked import DiscoveryOptions
from shoal.cli.discover.show import plan_json, say_plan
from shoal.cli.output import emit_json, say
from shoal.cli.plan.task import write_task
from shoal.cli.plan.told import Settings
from shoal.cli.plan.word_options import WordsTyped
from shoal.errors import Kind, ShoalError

_SPARE = 2


def show_words(
    words: WordsTyped,
    n: int,
    epsilon: float | None,
    delta: float,
    honest_fraction: str,
    emit: Path | None,
    told: Settings,
    *,
    as_json: bool,
) -> None:
    """Plan it, write the task file if it is wanted, and say what would be found. Raises CONFIG."""
    if epsilon is None and words.found_from is None:
        raise ShoalError(
            Kind.CONFIG,
            "give --epsilon, for what is found with it; or --found-from, for what that costs",
        )
    asked = DiscoveryOptions(
        epsilon,
        delta,
        fresh=words.fresh,
        honest_fraction=honest_fraction,
        first=None,
        longest=words.longest,
        most=words.most,
        leave_out=words.leave_out,
        places=None,
        cell=None,
        across=None,
        found_from=words.found_from,
    )
    made = asked.planned(n, _SPARE if words.spare is None else words.spare)
    written = None
    if emit is not None:
        written = write_task(emit, task_file(made, told=told, command="shoal plan words"))
    if as_json:
        emit_json(plan_json(made))
        return
    say_plan(made)
    if written is not None:
        say(written)

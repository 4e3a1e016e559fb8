"""``shoal plan words``: the plan of ``shoal discover plan``, with the words of the task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shoal.analyzer.discovery.task_file import task_file
from shoal.cli.discover.command import asked_of, made_of
from shoal.cli.discover.show import plan_json, say_plan
from shoal.cli.output import emit_json, say
from shoal.cli.plan.task import write_task
from shoal.cli.plan.told import Settings
from shoal.cli.plan.word_options import WordsTyped
from shoal.errors import Kind, ShoalError

_LONGEST, _SPARE = 11, 2


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
    longest = _LONGEST if words.longest is None else words.longest
    request = asked_of(
        n, 1.0 if epsilon is None else epsilon, delta, False, honest_fraction, 2, longest,
        words.most, words.leave_out,
    )  # fmt: skip
    spare = _SPARE if words.spare is None else words.spare
    made = made_of(replace(request, spare=spare), epsilon, words.found_from)
    written = None
    if emit is not None:
        written = write_task(emit, task_file(made, told=told, command="shoal plan words"))
    if as_json:
        emit_json(plan_json(made))
        return
    say_plan(made)
    if written is not None:
        say(written)

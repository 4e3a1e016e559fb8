"""``shoal results model``: the model that a task learns, round after round, from its releases."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli.figures import figure
from shoal.cli.output import check_new, emit_json, plain_table, say, say_table, write_new
from shoal.cli.results.terminal import up
from shoal.errors import Kind, ShoalError

_LOOK_S = 2.0  # between two looks at the store
_MOST_SHOWN = 40  # weights in a terminal
_MOST_NAMED = 8  # tasks in a refusal


def model_command(
    task: Annotated[str, typer.Argument(help="The task's name, or the beginning of its id.")],
    config: Annotated[Path, typer.Option(help="The analyzer's configuration file.")],
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until all rounds are over; Ctrl-C ends it.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the model as JSON, which must not exist yet.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """The model that a task learns, as it follows from the releases so far; and what each round
    cost. A round whose release was withheld leaves the model as it was.

    Example: shoal results model masses --config analyzer.toml --watch --out masses.json
    """
    from shoal.cli.results.learnt import Learning

    if watch and as_json:
        raise ShoalError(Kind.CONFIG, "--watch is for people: leave it or --json out")
    if out is not None:
        check_new(out)
    served, look = _followed(task, config)
    model, shown = look(), 0
    if not as_json:
        _tell_cost(served, model)
    while watch and model.stand is Learning.GOING_ON:
        shown = _tell_rounds(model.rounds, shown)
        time.sleep(_LOOK_S)
        model = look()
    told = _json(served, model)
    if as_json:
        emit_json(told)
    else:
        _tell_rounds(model.rounds, shown)
        _tell_model(told)
    if out is not None:
        write_new(out, (json.dumps(told, indent=2) + "\n").encode())
        if not as_json:
            say(f"wrote {out}")


def _followed(task: str, config: Path) -> tuple[Any, Callable[[], Any]]:
    """(the served task, what looks into the store and says what is learnt of it by then)."""
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.analyzer.results.totals import FOLDER
    from shoal.cli.results.learnt import FollowedModel
    from shoal.crypto.task_folder import load_task_folder
    from shoal.services.settings import load_settings

    settings = load_settings(AnalyzerConfig, config)
    known = load_task_folder(settings.tasks_dir, settings.authority_keys).served
    chosen = [
        one
        for task_id, one in known.items()
        if one.task.name == task or (len(task) >= 4 and task_id.hex.startswith(task.lower()))
    ]
    if not chosen:
        names = sorted({one.task.name for one in known.values()})
        there = f"there are {', '.join(names[:_MOST_NAMED])}" if names else "there is none at all"
        raise ShoalError(
            Kind.NOT_FOUND,
            f"no task in {settings.tasks_dir.resolve()} is called '{task}': {there}",
        )
    if len(chosen) > 1:
        raise ShoalError(
            Kind.CONFIG, f"{len(chosen)} tasks are called '{task}': give the beginning of an id"
        )
    (served,) = chosen
    model = FollowedModel(served, settings.data_dir / FOLDER)
    return served, lambda: model.look(_signed(served, settings.data_dir), time.time())


def _signed(served: Any, data: Path) -> dict[int, bytes]:
    """The task's releases as the analyzer signed them, by window."""
    from shoal.analyzer.store import FILE_NAME, AnalyzerStore
    from shoal.protos.release_pb2 import SignedRelease

    if not (data / FILE_NAME).exists():
        return {}
    store = AnalyzerStore(data / FILE_NAME, read_only=True)
    try:
        return {
            one.window: SignedRelease(
                release=one.release, signature=one.signature
            ).SerializeToString()
            for one in store.releases()
            if one.task_id == served.task_id
        }
    finally:
        store.close()


def _tell_cost(served: Any, model: Any) -> None:
    from shoal.cli.results.learnt import epsilon_of_rounds

    rounds, delta = model.plan.rounds, served.task.delta
    say(
        f"{served.task.name}: {model.plan.words}\nAll {rounds} rounds of a device that answers in "
        f"each cost epsilon \u2264 {up(epsilon_of_rounds(served.task, rounds))} at delta = "
        f"{delta:g}, one of them {up(epsilon_of_rounds(served.task, 1))}."
    )


def _tell_rounds(rounds: Any, shown: int) -> int:
    """A line for each that is new."""
    for one in rounds[shown:]:
        what = f"withheld: {one.withheld}" if one.withheld else f"{one.n:,} devices"
        say(
            f"round {one.window + 1}: {what}; clip {figure(one.clip)}; epsilon so far \u2264 "
            f"{up(one.so_far)}"
        )
    return len(rounds)


def _tell_model(told: dict[str, Any]) -> None:
    if told["rounds_used"]:
        table = plain_table("number", "weight")
        for name, weight in list(told["weights"].items())[:_MOST_SHOWN]:
            table.add_row(name, figure(weight) if weight >= 0 else f"-{figure(-weight)}")
        say_table(table)
        if len(told["weights"]) > _MOST_SHOWN:
            say(f"and {len(told['weights']) - _MOST_SHOWN:,} more: --json or --out has all of them")
    say(f"{told['why']}.")


def _json(served: Any, model: Any) -> dict[str, Any]:
    task = served.task
    last = model.rounds[-1].so_far if model.rounds else 0.0
    return {
        "task": task.name,
        "task_id": served.task_id.hex,
        "plan": model.plan.words,
        "state": model.stand.value,
        "why": model.why,
        "rounds": model.plan.rounds,
        "rounds_over": model.state.done,
        "rounds_used": model.used,
        "delta": task.delta,
        "epsilon_so_far": last if math.isfinite(last) else None,
        "clip": model.state.clip,
        "weights": dict(
            zip(
                task.domain.labels[: model.state.weights.size],
                model.state.weights.tolist(),
                strict=True,
            )
        ),
        "by_round": [
            {
                "window": one.window,
                "devices": one.n,
                "withheld": one.withheld or None,
                "clip": one.clip,
                "epsilon": one.epsilon,
                "epsilon_so_far": one.so_far,
            }
            for one in model.rounds
        ],
    }

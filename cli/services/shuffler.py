"""``shoal shuffler serve`` and ``shoal shuffler status``: thin; the work is in
``shoal.shuffler``, which is imported where it runs: ``shoal --help`` loads this file too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from shoal.cli.output import say, say_table
from shoal.cli.services.status import add_status
from shoal.cli.services.windows import shuffler_windows

if TYPE_CHECKING:
    from shoal.shuffler.config import ShufflerConfig

ShufflerConfigOption = Annotated[
    Path,
    typer.Option("--config", help="shuffler.toml; deploy/shuffler.toml is a commented sample."),
]


def _load(config: Path) -> ShufflerConfig:
    from shoal.services.settings import load_settings
    from shoal.shuffler.config import ShufflerConfig

    return load_settings(ShufflerConfig, config)


def register(app: typer.Typer) -> None:
    """Add ``shoal shuffler``."""
    part = typer.Typer(
        help="The shuffler: takes sealed reports, forgets who sent them, delivers whole batches.",
        no_args_is_help=True,
    )
    part.command("serve")(serve)
    add_status(
        part,
        "shuffler",
        "Tasks, their windows by state, and counts of the windows that are decided.",
        _load,
        _show,
    )
    part.command("clock")(clock)
    part.add_typer(shuffler_windows(), name="window")
    app.add_typer(part, name="shuffler")


def serve(config: ShufflerConfigOption) -> None:
    """Run the shuffler until SIGTERM or Ctrl-C. Looks at the tasks folder every reload_s seconds;
    SIGHUP does it at once.

    Example: shoal shuffler serve --config shuffler.toml
    """
    from shoal import log
    from shoal.cli.services.noise import DrawnNoise
    from shoal.services.process import run_service
    from shoal.shuffler.service import serve as run

    settings = _load(config)
    log.configure(settings.log_level)
    run_service(lambda stop: run(settings, stop, DrawnNoise()))


def clock(
    config: ShufflerConfigOption,
    confirming: Annotated[
        bool, typer.Option("--confirm", help="The wall clock shown is right: go on by it.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs. Times are Unix seconds.")
    ] = False,
) -> None:
    """Whether the shuffler believes this machine's clock, and by which witnesses. Run it on that
    machine, as the service's user.

    While the clock is disputed no window closes, nothing is deleted, and devices are told to try
    again later. --confirm is for the difference that is shown now: a later jump wants another look.

    Example: shoal shuffler clock --config shuffler.toml --confirm
    """
    from shoal.cli.services.clock_shown import clock_command

    clock_command(_load(config).data_dir, "shuffler", confirming, as_json)


def _show(answer: dict[str, Any]) -> None:
    table = Table("task", "name", "windows", "states", "last decided", "reports")
    for task in answer["tasks"]:
        # A window of sums has no reports here: that none were delivered says nothing, the rounds
        # below do.
        decided = [
            window for window in task["shown"] if "outcome" in window and not task["pairwise"]
        ]
        last = decided[-1] if decided else None
        states = ", ".join(f"{count} {name.lower()}" for name, count in task["states"].items())
        table.add_row(
            task["task_id"][:8],
            task["name"],
            str(task["windows"]),
            states or "-",
            f"window {last['window']}: {last['outcome'].lower()}" if last else "-",
            str(last["reports"]) if last else "-",
        )
    say_table(table)
    for task in answer["tasks"]:
        if task["pairwise"]:
            rounds = answer["rounds"].get(task["task_id"][:8], {"open": {}, "ended": {}})
            under_way, ended = _counts(rounds["open"]), _counts(rounds["ended"])
            say(
                f"task {task['task_id'][:8]}: rounds under way: {under_way}; ended since the "
                f"start: {ended}"
            )
        for window in task["shown"]:
            if "failing" in window:
                failing = window["failing"]
                say(
                    f"task {task['task_id'][:8]} window {window['window']}: {failing['attempts']} "
                    f"failures ({failing['kind']}): see the log"
                )


def _counts(counts: dict[str, int]) -> str:
    """ "3 (2 done, 1 too few devices joined)", or "none"."""
    if not counts:
        return "none"
    return (
        f"{sum(counts.values())} ({', '.join(f'{count} {name}' for name, count in counts.items())})"
    )

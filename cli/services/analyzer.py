"""``shoal analyzer``: run the analyzer, or ask a running one how it does.

The service is imported where it runs: ``shoal --help`` loads this file too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli.output import plain_table, say, say_table
from shoal.cli.services.machines import add_machines
from shoal.cli.services.status import add_status
from shoal.cli.services.windows import analyzer_windows

if TYPE_CHECKING:
    from shoal.analyzer.config import AnalyzerConfig

analyzer = typer.Typer(
    no_args_is_help=True, help="Run the analyzer, or ask a running one how it does."
)

AnalyzerConfigOption = Annotated[
    Path,
    typer.Option(
        help="The analyzer's configuration file (deploy/analyzer.toml is a commented sample)."
    ),
]


def _load(config: Path) -> AnalyzerConfig:
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.services.settings import load_settings

    return load_settings(AnalyzerConfig, config)


def register(app: typer.Typer) -> None:
    """Add ``shoal analyzer``."""
    app.add_typer(analyzer, name="analyzer")


@analyzer.command("serve")
def serve_command(config: AnalyzerConfigOption) -> None:
    """Take batches from the shuffler, open them, publish releases. Stops cleanly on SIGTERM.

    Looks at the tasks folder every reload_s seconds; SIGHUP does it at once.

    Example: shoal analyzer serve --config analyzer.toml
    """
    from shoal.analyzer.service import serve
    from shoal.log import configure

    settings = _load(config)
    configure(settings.log_level)
    serve(settings)


def _show(status: dict[str, Any]) -> None:
    if not status["tasks"]:
        say(
            "no tasks: put signed tasks (*.task, *.keys) into the tasks folder; it is looked at "
            "every reload_s seconds, and on SIGHUP"
        )
        return
    table = plain_table("task", "id", "windows", "receiving", "processing", "released", "withheld")
    for row in status["tasks"]:
        table.add_row(
            row["name"],
            row["task_id"][:8],
            *(
                f"{row[key]:,}"
                for key in ("windows", "receiving", "processing", "released", "withheld")
            ),
        )
    say_table(table)
    for row in status["tasks"]:
        for last in row["ended"][-1:]:
            say(
                f"{row['name']}, window {last['window']}: {last['n']:,} reports, "
                f"{last['rejected']:,} rows rejected"
            )


@analyzer.command("clock")
def clock(
    config: AnalyzerConfigOption,
    confirming: Annotated[
        bool, typer.Option("--confirm", help="The wall clock shown is right: go on by it.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs. Times are Unix seconds.")
    ] = False,
) -> None:
    """Whether the analyzer believes this machine's clock, and by which witnesses. Run it on that
    machine, as the service's user.

    While the clock is disputed no key is deleted and no window is given up; batches are still taken
    and released. --confirm is for the difference that is shown now: a later jump wants another
    look.

    Example: shoal analyzer clock --config analyzer.toml --confirm
    """
    from shoal.cli.services.clock_shown import clock_command

    clock_command(_load(config).data_dir, "analyzer", confirming, as_json)


add_status(
    analyzer,
    "analyzer",
    "What a running analyzer holds, asked over its admin port.",
    _load,
    _show,
)
analyzer.add_typer(analyzer_windows(), name="window")
add_machines(analyzer)

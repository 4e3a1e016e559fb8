"""``shoal analyzer``: run the analyzer, or ask a running one how it does.

The service is imported where it runs: ``shoal --help`` loads this file too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli.output import emit_json, plain_table, say, say_table
from shoal.cli.services.status import exit_unless_ready, say_conditions
from shoal.cli.services.windows import analyzer_windows
from shoal.errors import Kind, ShoalError
from shoal.rpc.admin_pages import fetch_status, readiness

analyzer = typer.Typer(
    no_args_is_help=True, help="Run the analyzer, or ask a running one how it does."
)

AnalyzerConfigOption = Annotated[
    Path,
    typer.Option(
        help="The analyzer's configuration file (deploy/analyzer.toml is a commented sample)."
    ),
]


def register(app: typer.Typer) -> None:
    """Add ``shoal analyzer``."""
    app.add_typer(analyzer, name="analyzer")


@analyzer.command("serve")
def serve_command(config: AnalyzerConfigOption) -> None:
    """Take batches from the shuffler, open them, publish releases. Stops cleanly on SIGTERM.

    Looks at the tasks folder every reload_s seconds; SIGHUP does it at once.

    Example: shoal analyzer serve --config analyzer.toml
    """
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.analyzer.service import serve
    from shoal.log import configure
    from shoal.services.settings import load_settings

    settings = load_settings(AnalyzerConfig, config)
    configure(settings.log_level)
    serve(settings)


@analyzer.command()
def status(
    config: Annotated[
        Path | None, typer.Option(help="analyzer.toml, for its admin_listen.")
    ] = None,
    admin: Annotated[
        str | None, typer.Option(help="HOST:PORT of the analyzer's admin_listen.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """What a running analyzer holds, asked over its admin port. In the JSON `ready` is true or
    false, and then `not_ready` says why.

    `conditions` lists all that is wrong. Exit status 1 while the analyzer is not ready.

    Example: shoal analyzer status --config analyzer.toml --json
    """
    if (config is None) == (admin is None):
        raise ShoalError(Kind.CONFIG, "give either --config analyzer.toml or --admin HOST:PORT")
    if config is not None:
        from shoal.analyzer.config import AnalyzerConfig
        from shoal.services.settings import load_settings

        admin = load_settings(AnalyzerConfig, config).admin_listen
    service_status = fetch_status("analyzer", str(admin))
    if as_json:
        emit_json(readiness(service_status))
    else:
        _show(service_status)
    exit_unless_ready(service_status)


def _show(status: dict[str, Any]) -> None:
    say_conditions(status)
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
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.cli.services.clock_shown import clock_command
    from shoal.services.settings import load_settings

    clock_command(load_settings(AnalyzerConfig, config).data_dir, "analyzer", confirming, as_json)


analyzer.add_typer(analyzer_windows(), name="window")

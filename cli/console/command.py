"""``shoal console``: releases, what they promise, services and budgets, in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.console.audit import audit
from shoal.cli.extras import need
from shoal.cli.output import emit_json, say

if TYPE_CHECKING:
    from shoal.cli.console.access import ConsoleAccess
    from shoal.console.operator.app import Sources

_LISTEN = "127.0.0.1:7450"
group = typer.Typer(no_args_is_help=False)


def register(app: typer.Typer) -> None:
    """Add ``shoal console``."""
    group.command("audit")(audit)
    app.add_typer(group, name="console")


@group.callback(invoke_without_command=True)
def console(
    context: typer.Context,
    analyzer: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|HOST:PORT",
            help="analyzer.toml: its releases, its tasks and its admin port; or that port alone.",
        ),
    ] = None,
    shuffler: Annotated[
        str | None,
        typer.Option(metavar="FILE|HOST:PORT", help="shuffler.toml, or the shuffler's admin port."),
    ] = None,
    releases: Annotated[
        Path | None,
        typer.Option(
            help="Releases from a file, or all *.json of a folder: what `shoal results export "
            "--format json` or `shoal demo` wrote."
        ),
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="A folder of signed tasks, for the words of questions.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            help=f"HOST:PORT; port 0 takes any that is free. Beyond this machine with a --config "
            f"that lets people sign in. Default: {_LISTEN}.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="console.toml: TLS, who may sign in and how, and where the audit is kept."
        ),
    ] = None,
    opening: Annotated[bool, typer.Option("--open", help="Open the browser.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help='For programs: {"url": ...} once pages are served.')
    ] = False,
) -> None:
    """Pages for operator and analyst, in the browser of this machine, until Ctrl-C.

    Nothing is changed by looking: releases are read, never reports.

    Example: shoal console --analyzer analyzer.toml --shuffler shuffler.toml --open
    """
    if context.invoked_subcommand is not None:
        return
    need("console")
    from shoal.cli.console.access import access
    from shoal.cli.console.places import places

    with access(config, listen or _LISTEN if config is None else listen) as known:
        _serve(known, places(analyzer, shuffler, releases, tasks), opening, as_json)


def _serve(known: ConsoleAccess, shown: Sources, opening: bool, as_json: bool) -> None:
    from shoal.console import serving
    from shoal.console.operator.app import operator_app

    app = operator_app(shown, known.listen, known.hosts, known.gate, known.kept)
    bound, address = serving.listen(known.listen, known=known.signs_in)
    url = f"{known.address or f'http{known.secure}://{address}'}/"

    def ready() -> None:
        if as_json:
            emit_json({"url": url})
        else:
            say(f"open {url} (Ctrl-C ends it)")
        if opening:
            webbrowser.open(url)

    serving.serve(app, bound, ready, known.tls)

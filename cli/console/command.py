"""``shoal console``: releases, what they promise, services and budgets, in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.extras import need
from shoal.cli.output import emit_json, say

if TYPE_CHECKING:
    pass


def register(app: typer.Typer) -> None:
    """Add ``shoal console``."""
    app.command("console")(console)


def console(
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
        str, typer.Option(help="HOST:PORT of this machine; port 0 takes any that is free.")
    ] = "127.0.0.1:7450",
    opening: Annotated[bool, typer.Option("--open", help="Open the browser.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help='For programs: {"url": ...} once pages are served.')
    ] = False,
) -> None:
    """Pages for operator and analyst, in the browser of this machine, until Ctrl-C.

    Nothing is changed by looking: releases are read, never reports.

    Example: shoal console --analyzer analyzer.toml --shuffler shuffler.toml --open
    """
    need("console")
    from shoal.cli.console.places import places
    from shoal.console import serving
    from shoal.console.operator.app import operator_app

    serving.check_address(listen)
    app = operator_app(places(analyzer, shuffler, releases, tasks), listen)
    bound, address = serving.listen(listen)
    url = f"http://{address}/"

    def ready() -> None:
        if as_json:
            emit_json({"url": url})
        else:
            say(f"open {url} (Ctrl-C ends it)")
        if opening:
            webbrowser.open(url)

    serving.serve(app, bound, ready)

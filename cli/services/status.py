"""``shoal analyzer status`` and ``shoal shuffler status``: one command, for two services."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli.output import emit_json, say
from shoal.errors import Kind, ShoalError
from shoal.rpc.admin_pages import fetch_status, readiness

if TYPE_CHECKING:
    from shoal.services.settings import RoleSettings

_Config = Annotated[
    Path | None, typer.Option("--config", help="The service's file, for its admin_listen.")
]
_Admin = Annotated[
    str | None, typer.Option("--admin", help="HOST:PORT of the service's admin_listen.")
]
_Json = Annotated[bool, typer.Option("--json", help="For programs.")]


def add_status(
    part: typer.Typer,
    service: str,
    told: str,
    load: Callable[[Path], RoleSettings],
    show: Callable[[dict[str, Any]], None],
) -> None:
    """``told``: the first line of its help. ``show``: what a service says, for people."""

    @part.command(
        "status",
        help=f"{told}\n\n{_HELP}\n\nExample: shoal {service} status --config {service}.toml",
    )
    def status(config: _Config = None, admin: _Admin = None, as_json: _Json = False) -> None:
        if (config is None) == (admin is None):
            raise ShoalError(
                Kind.CONFIG, f"give either --config {service}.toml or --admin HOST:PORT"
            )
        where = admin if config is None else load(config).admin_listen
        answer = fetch_status(service, str(where))
        if as_json:
            emit_json(readiness(answer))
        else:
            say_conditions(answer)
            show(answer)
        if answer["ready"] is not None:
            raise typer.Exit(1)


_HELP = (
    "In the JSON `ready` is true or false; where it is false, `not_ready` says why. `conditions` "
    "lists all that is wrong. Exit status 1 while the service is not ready."
)


def say_conditions(status: dict[str, Any]) -> None:
    """For people: whether a service is ready, and everything that is wrong with it, a line each."""
    wrong = status.get("conditions", [])
    say("ready" if status["ready"] is None else f"not ready: {status['ready']}")
    but = "ready, but " if status["ready"] is None else "also: "
    for condition in wrong:
        if condition["message"] != status["ready"]:
            say(f"{'' if condition['stops'] else but}{condition['code']}: {condition['message']}")

"""What ``shoal analyzer status`` and ``shoal shuffler status`` share: readiness for people."""

from __future__ import annotations

from typing import Any

import typer

from shoal.cli.output import say


def say_conditions(status: dict[str, Any]) -> None:
    """For people: whether a service is ready, and everything that is wrong with it, a line each."""
    wrong = status.get("conditions", [])
    say("ready" if status["ready"] is None else f"not ready: {status['ready']}")
    for condition in wrong:
        if condition["message"] != status["ready"]:
            say(
                f"{'' if condition['stops'] else 'ready, but '}{condition['code']}: "
                f"{condition['message']}"
            )


def exit_unless_ready(status: dict[str, Any]) -> None:
    """Exit status 1 for a service that is not ready, so that scripts need not read."""
    if status["ready"] is not None:
        raise typer.Exit(1)

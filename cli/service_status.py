"""What a running service says of itself, asked over its admin port by ``shoal analyzer status`` and
``shoal shuffler status``.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

import typer

from shoal.cli.output import say
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS, MIB
from shoal.task import split_address

_MOST_BYTES = 16 * MIB


def fetch_status(service: str, address: str, port: int) -> dict[str, Any]:
    """The JSON object behind /status of an admin port. service: "analyzer" or "shuffler"; address:
    HOST:PORT; port: the one of the example, where the address is none.

    Raises CONFIG for what is no address, and for another service that answers there; UNAVAILABLE.
    """
    if split_address(address) is None:
        raise ShoalError(
            Kind.CONFIG, f'--admin: "{address}" is not HOST:PORT, for example 127.0.0.1:{port}'
        )
    try:
        with urllib.request.urlopen(f"http://{address}/status", timeout=LIMITS.status_s) as reply:
            status = json.loads(reply.read(_MOST_BYTES))
    except (OSError, urllib.error.URLError, http.client.HTTPException, ValueError):
        raise ShoalError(
            Kind.UNAVAILABLE,
            f"no {service} answers at {address}: check admin_listen, and that it runs",
        ) from None
    if not isinstance(status, dict) or status.get("service") != service:
        raise ShoalError(
            Kind.CONFIG, f"what answers at {address} is no {service}: check admin_listen"
        )
    return status


def readiness(status: dict[str, Any]) -> dict[str, Any]:
    """What a service's /status says, for programs: its ``ready``, null or why not, as true or
    false, and the reason as ``not_ready``.
    """
    trouble = status["ready"]
    return {
        **status,
        "ready": trouble is None,
        **({} if trouble is None else {"not_ready": trouble}),
    }


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

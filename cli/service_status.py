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


def json_object(data: bytes) -> dict[str, Any]:
    """What a service said of itself. Raises ValueError for what is no JSON object."""
    try:
        said = json.loads(data)
    except RecursionError:
        said = None
    if not isinstance(said, dict):
        raise ValueError("no JSON object")
    return said


def read_page(url: str, who: str) -> bytes:
    """A page of an admin port. url: http:// and one that was looked at. Raises UNAVAILABLE if
    nobody answers, in the words of ``who`` ("no analyzer answers at ..."); OVERSIZE.
    """
    try:
        with urllib.request.urlopen(url, timeout=LIMITS.status_s) as reply:  # noqa: S310 - see url
            data: bytes = reply.read(LIMITS.status_bytes + 1)
    except (OSError, urllib.error.URLError, http.client.HTTPException, ValueError):
        raise ShoalError(Kind.UNAVAILABLE, who) from None
    if len(data) > LIMITS.status_bytes:
        raise ShoalError(
            Kind.OVERSIZE, f"what {url} says of itself is over {LIMITS.status_bytes // MIB} MiB"
        )
    return data


def fetch_status(service: str, address: str, port: int) -> dict[str, Any]:
    """The JSON object behind /status of an admin port. service: "analyzer" or "shuffler"; address:
    HOST:PORT; port: the one of the example, where the address is none.

    Raises CONFIG for what is no address, and for anybody else who answers there; UNAVAILABLE;
    OVERSIZE.
    """
    if split_address(address) is None:
        raise ShoalError(
            Kind.CONFIG, f'--admin: "{address}" is not HOST:PORT, for example 127.0.0.1:{port}'
        )
    page = read_page(
        f"http://{address}/status",
        f"no {service} answers at {address}: check admin_listen, and that it runs",
    )
    try:
        status = json_object(page)
    except ValueError:
        status = {}
    if status.get("service") != service or "ready" not in status:
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

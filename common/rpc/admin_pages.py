"""What a running service says of itself, read from its admin port: the other side of
``shoal.rpc.admin``.

For operators: ``shoal analyzer status``, ``shoal shuffler status``, ``shoal load`` and the console.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS, MIB
from shoal.task import split_address

_PORTS = {"shuffler": 7444, "analyzer": 7446}  # of the examples


def json_object(data: bytes) -> dict[str, Any]:
    """What a service said of itself. Raises ValueError for what is no JSON object."""
    try:
        said = json.loads(data)
    except RecursionError:
        said = None
    if not isinstance(said, dict):
        raise ValueError("no JSON object")
    return said


def read_page(
    url: str, who: str, token: bytes | None = None, tls: ssl.SSLContext | None = None
) -> bytes:
    """A page of an admin port. url: one that was looked at. Raises UNAVAILABLE if nobody answers,
    in the words of ``who`` ("no analyzer answers at ..."); UNAUTHENTICATED; OVERSIZE.

    ``token``: shown to nobody but that port, so no answer leads elsewhere, and no proxy is asked.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token.decode()}"}
    asked = urllib.request.Request(url, headers=headers)  # noqa: S310 - see url
    ways: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _Here()]
    if tls is not None:
        ways.append(urllib.request.HTTPSHandler(context=tls))
    try:
        with urllib.request.build_opener(*ways).open(asked, timeout=LIMITS.status_s) as reply:
            data: bytes = reply.read(LIMITS.status_bytes + 1)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == HTTPStatus.UNAUTHORIZED:
            raise ShoalError(
                Kind.UNAUTHENTICATED, f"{who.partition(':')[0]}: it wants another token"
            ) from None
        raise ShoalError(Kind.UNAVAILABLE, who) from None
    except (OSError, http.client.HTTPException, ValueError):
        raise ShoalError(Kind.UNAVAILABLE, who) from None
    if len(data) > LIMITS.status_bytes:
        raise ShoalError(
            Kind.OVERSIZE, f"what {url} says of itself is over {LIMITS.status_bytes // MIB} MiB"
        )
    return data


class _Here(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """An answer that leads elsewhere is none."""


@dataclass(frozen=True, slots=True)
class AdminPort:
    """Where a service says how it is. ``service``: "analyzer" or "shuffler"; ``address``:
    HOST:PORT; ``token``: what it wants to be shown; ``tls``: whom to trust, None for plain HTTP.
    """

    service: str
    address: str
    token: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None

    def status(self) -> dict[str, Any]:
        """The JSON object behind /status.

        Raises CONFIG for what is no address, and for anybody else who answers there; UNAVAILABLE;
        UNAUTHENTICATED; OVERSIZE.
        """
        service, address = self.service, self.address
        if split_address(address) is None:
            raise ShoalError(
                Kind.CONFIG,
                f'--admin: "{address}" is not HOST:PORT, for example 127.0.0.1:{_PORTS[service]}',
            )
        page = read_page(
            f"http{'' if self.tls is None else 's'}://{address}/status",
            f"no {service} answers at {address}: check admin_listen, and that it runs",
            self.token,
            self.tls,
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


def fetch_status(service: str, address: str) -> dict[str, Any]:
    """See ``AdminPort.status``: of a port on this machine that wants nothing."""
    return AdminPort(service, address).status()


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

"""A value that a service on this very machine tells over HTTP: no proxy, no redirect, no other
machine.
"""

from __future__ import annotations

import http.client
import time
from contextlib import closing

from shoal.clients.sources.problem import SourceError
from shoal.clients.sources.spec import loopback_parts
from shoal.limits import LIMITS

# A name is never looked up: whoever answers name queries would choose where the device asks.
_LOCALHOST = ("127.0.0.1", "::1")


def fetch(url: str, timeout_s: float) -> bytes:
    """The body of a 200 reply. Raises SourceError: also for a redirect, which might lead off this
    machine.
    """
    host, port, target = loopback_parts(url)
    end = time.monotonic() + timeout_s
    for address in _LOCALHOST if host == "localhost" else (host,):
        try:
            return _get(address, host, port, target, end)
        except ConnectionRefusedError:
            continue
        except TimeoutError:
            raise SourceError("took too long") from None
        except (OSError, http.client.HTTPException):
            raise SourceError("no proper reply") from None
    raise SourceError("nobody listens there")


def _get(address: str, host: str, port: int, target: str, end: float) -> bytes:
    name = f"[{host}]" if ":" in host else host
    with closing(http.client.HTTPConnection(address, port, timeout=_left(end))) as connection:
        connection.request("GET", target, headers={"Host": f"{name}:{port}", "Connection": "close"})
        with closing(connection.getresponse()) as reply:
            if reply.status != 200:
                raise SourceError(f"answered with status {reply.status}")
            body = bytearray()
            while part := reply.read1(64 * 1024):
                body += part
                if len(body) > LIMITS.source_bytes:
                    raise SourceError(f"more than {LIMITS.source_bytes} bytes")
                _left(end)  # a service that drips must end as well
            if reply.length:
                raise SourceError("no proper reply")  # cut off: half a number is another number
    return bytes(body)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left

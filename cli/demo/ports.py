"""Ports for services that are started in a moment, on this machine."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from shoal.errors import Kind, ShoalError

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _USUAL = 10_240, 32_768  # well-known services listen below the first


def quiet_ports() -> range:
    """Ports that the kernel gives to no outgoing connection: one of those could have the port
    before the service that it was chosen for.
    """
    try:
        first = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # another system
        first = _USUAL
    return range(_LOWEST, first)


def free_port(among: range | None = None) -> int:
    """A port of the loopback address that nobody has now, ``among`` these: by default any that
    stays free but for another service. Raises UNAVAILABLE.
    """
    ports = quiet_ports() if among is None else among
    start = secrets.randbelow(len(ports)) if ports else 0
    for place in range(len(ports)):
        port = ports[(start + place) % len(ports)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    if among is not None:
        raise ShoalError(Kind.UNAVAILABLE, "no port of the loopback address is free")
    with socket.socket() as probe:  # the kernel may want all of them for its connections
        probe.bind(("127.0.0.1", 0))
        given: int = probe.getsockname()[1]
        return given

"""Addresses: HOST:PORT, and which of them stay on this machine."""

from __future__ import annotations

from ipaddress import ip_address

from shoal.errors import Kind, ShoalError
from shoal.task import split_address


def parse_address(address: str, what: str) -> tuple[str, int]:
    """("host", port). Raises CONFIG naming ``what``."""
    parts = split_address(address)
    if parts is None:
        raise ShoalError(
            Kind.CONFIG, f'{what}: "{address}" is not HOST:PORT, for example 127.0.0.1:7443'
        )
    return parts


def is_loopback(host: str) -> bool:
    """Whether the host is this machine by name or number; nothing is resolved."""
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False

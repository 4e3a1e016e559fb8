"""Ports for services of a test: no other worker of this run is given the same."""

from __future__ import annotations

import os

from shoal.cli.demo import ports

_WORKERS = 16
_given = set[int]()


def free_port() -> int:
    """A port of the loopback address. It is given once in this process, and stays free also while
    the service that has it is stopped.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    mine = ports.quiet_ports()[worker::_WORKERS]
    while (port := ports.free_port(mine or None)) in _given and len(_given) < len(mine) // 2:
        pass
    _given.add(port)
    return port

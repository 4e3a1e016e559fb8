"""A PostgreSQL server of a benchmark's own, as durable as one that is used: what it does is flushed
to the disk, and it checkpoints while it is measured.
"""

from __future__ import annotations

from benchmarks import machine
from tests.worlds.postgres import Server

SETTINGS = (
    "fsync = on",
    "shared_buffers = 128MB",
    "max_wal_size = 1GB",
    "checkpoint_timeout = 5min",
    "autovacuum_naptime = 1min",
)


def server() -> Server:
    """To be entered. AssertionError says where PostgreSQL comes from if it is not installed."""
    return Server(SETTINGS)


def cpu_s(pid: int) -> float:
    """Core-seconds of a server so far, all its processes, also those that ended. ``pid``: of the
    first of them. Connections' own, the log of writes and checkpoints are among them.
    """
    return machine.cpu_s(pid)

"""The machine under the figures: what it is, how busy others keep it, and what a process has used.
Linux, from /proc.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import sqlite3
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.backends.openssl import backend

from benchmarks.figures import quantile

_TICK = os.sysconf("SC_CLK_TCK")
RESOLUTION_S = 1 / _TICK  # of ``cpu_s`` and ``own_cpu_s``
_PACKAGES = ("cryptography", "grpcio", "numpy", "protobuf", "uvloop")


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def describe(folder: Path) -> dict[str, Any]:
    """Everything that a reader needs to compare runs. ``folder``: where files are written."""
    return {
        "cpu": _cpu_name(),
        "cores": cores(),
        "memory_mb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1_000_000,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "openssl": backend.openssl_version_text(),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "file_system": file_system(folder),
        "fdatasync_ms": fdatasync_ms(folder),
        "load_at_start": list(os.getloadavg()),
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def file_system(folder: Path) -> str:
    """The type of the file system that holds ``folder``. On tmpfs nothing is durable and no bytes
    are counted as written.
    """
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if str(folder.resolve()).startswith(point) and len(point) > len(best[0]):
            best = (point, kind)
    return best[1]


def fdatasync_ms(folder: Path, count: int = 50) -> dict[str, float]:
    """How long the disk takes to make 4 KiB durable: a virtual disk may hardly do it, and then
    commits look free.
    """
    path, took = folder / "fdatasync.probe", []
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for _ in range(count):
            os.write(handle, bytes(4096))
            begin = time.perf_counter()
            os.fdatasync(handle)
            took.append((time.perf_counter() - begin) * 1000)
    finally:
        os.close(handle)
        path.unlink()
    return {"p50": round(quantile(took, 0.5), 3), "p99": round(quantile(took, 0.99), 3)}


# --- processes ------------------------------------------------------------------------------------


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (fields := _stat(int(entry))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry))
    pids, todo = [], [pid]
    while todo:
        parent = todo.pop()
        pids.append(parent)
        todo.extend(children.get(parent, ()))
    return pids


def cpu_s(pid: int) -> float:
    """Core-seconds that a process, its descendants, and those of them that have ended have used."""
    return sum(_cpu_s(member, 4) for member in tree(pid))


def own_cpu_s(pid: int) -> float:
    """Core-seconds of the process alone, all its threads."""
    return _cpu_s(pid, 2)


def _cpu_s(pid: int, fields: int) -> float:
    """The first ``fields`` of utime, stime, cutime (children that have ended), cstime."""
    stat_fields = _stat(pid)
    return (
        0.0
        if stat_fields is None
        else sum(int(field) for field in stat_fields[11 : 11 + fields]) / _TICK
    )


def peak_mb(pid: int) -> float:
    """Peak resident set of one process, in MB (1e6 bytes)."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def resident_mb() -> float:
    """Resident set of this process now, in MB (1e6 bytes)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def written_bytes() -> int:
    """Bytes that this process has caused to be written to the disk: dirtied pages, whoever flushed
    them.
    """
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


class Others:
    """How many cores other programs use meanwhile: the machine's busy time less that of this
    process and its descendants.
    """

    def __init__(self) -> None:
        self._begin = (time.monotonic(), _busy_s(), cpu_s(os.getpid()))

    def cores(self) -> float:
        """Mean since the construction; a ratio measured beside a busy neighbour is worth less."""
        began, busy, own = self._begin
        elapsed = max(time.monotonic() - began, 1e-9)
        return max(0.0, (_busy_s() - busy) - (cpu_s(os.getpid()) - own)) / elapsed


def _busy_s() -> float:
    """user + nice + system + irq + softirq + steal of the whole machine, core-seconds."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:3]) + sum(fields[5:8])) / _TICK

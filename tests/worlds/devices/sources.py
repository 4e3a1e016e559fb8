"""What sources of values are read from, in tests: a service on this machine that says what it is
told to, and whether threads and processes of a reading are gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def saying(
    reply: bytes, *, close: Callable[[], object] | None = None
) -> Iterator[tuple[str, list[bytes]]]:
    """A service that answers every connection with these bytes; the requests it saw. ``close``:
    waited for before it closes.
    """
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    requests.append(connection.recv(65_536))
                    try:
                        connection.sendall(reply)
                    except OSError:
                        continue
                    if close is not None:
                        close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", requests
        server.shutdown(socket.SHUT_RDWR)


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def reading_threads() -> int:
    return sum(thread.name == "source" for thread in threading.enumerate())


async def gone(name: str) -> None:
    """Until no such thread is left (the test's own time limit is the bound)."""
    while any(thread.name == name for thread in threading.enumerate()):
        await asyncio.to_thread(lambda: None)


async def dead(pid: int) -> None:
    """Until a process is gone, or waits to be collected by whoever adopted it (the test's own time
    limit is the bound).
    """
    while await asyncio.to_thread(lives, pid):
        pass


def lives(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def children() -> set[int]:
    """Processes that this one started, and that live."""
    started = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return {pid for pid in started if _stat(pid)[1:2] == [str(os.getpid())] and lives(pid)}


def _stat(pid: int) -> list[str]:
    """State and parent of a process; nothing if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return []

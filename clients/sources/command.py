"""A value that a program prints: no shell, no input, few variables, an end in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from shoal.clients.sources.problem import SourceError
from shoal.limits import LIMITS

# Nothing of this process's environment but what finds programs and reads text: it may hold secrets.
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
# for a killed process to be gone: it is at once, unless the kernel itself waits for something
_COLLECT_S = 2.0
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


async def run_command(argv: Sequence[str], timeout_s: float) -> bytes:
    """Standard output of a program that ended with status 0. Raises SourceError.

    It runs in a process group of its own, which is killed as a whole when the time is over, when it
    prints too much, and when the caller is cancelled. Its standard input is empty, and its errors
    go nowhere: they may hold values.
    """
    environment = {
        "PATH": _DEFAULT_PATH,
        **{name: os.environ[name] for name in _PASSED if name in os.environ},
    }
    loop = asyncio.get_running_loop()
    try:
        transport, output = await loop.subprocess_exec(
            lambda: _Output(loop.create_future()),
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise SourceError(f"cannot be started: {error.strerror or 'no such program'}") from None
    try:
        async with asyncio.timeout(timeout_s):
            await output.ended
    except TimeoutError:
        raise SourceError("took too long") from None
    finally:
        if not output.closed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
        transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COLLECT_S):
                await output.gone.wait()
    if transport.get_returncode() != 0:
        # reasons are logged, and the number may be what the program has to say
        raise SourceError("ended with an error")
    return bytes(output.data)


class _Output(asyncio.SubprocessProtocol):
    """What a program prints. ``ended``: done when it has ended and nobody holds its output any
    more, or it printed too much.
    """

    def __init__(self, ended: asyncio.Future[None]) -> None:
        self.data, self.ended, self.gone, self.closed = bytearray(), ended, asyncio.Event(), False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.data += data
        if len(self.data) > LIMITS.source_bytes and not self.ended.done():
            self.ended.set_exception(SourceError(f"more than {LIMITS.source_bytes} bytes"))

    def process_exited(self) -> None:
        self.gone.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if not self.ended.done():
            self.ended.set_result(None)

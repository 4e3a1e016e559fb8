"""A worker on another machine: one process, one thread that opens rows, for one analyzer.

It meets its analyzer through a Dask scheduler and does nothing for anybody but that analyzer, whose
Ed25519 public key it is given: Dask's own ways to have a worker run something are taken out of it.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed.worker import Worker

from shoal import __version__
from shoal.analyzer.batches.chunk_source import FileSource, read_chunk
from shoal.analyzer.machines import messages
from shoal.analyzer.machines.comms import CONNECT_S, OPERATION, MachineTls, PeerLine
from shoal.analyzer.machines.messages import AnswerKind, Ask, ChunkPart, SharedRows
from shoal.analyzer.machines.partials import Partials
from shoal.analyzer.machines.redeeming import CONNECTIONS
from shoal.analyzer.machines.sealing import CHALLENGE_SIZE, Channel, Lent, WorkerHello
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from shoal.log import get_log

log = get_log("worker")
_STOPS = "the worker stops"
_AHEAD = 4  # requests that are read while another is worked on


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """``analyzer``: the Ed25519 public key of the one it works for. ``folder``: where both can read
    batches, or None. ``listen``: HOST or HOST:PORT, as others reach it. ``scratch``: an empty
    folder of Dask's.
    """

    scheduler: str
    listen: str
    tls: MachineTls
    identity: SigningKey
    analyzer: bytes
    folder: Path | None
    scratch: Path


class OpeningWorker(Worker):
    """Raises CONFIG if TLS files can't be used."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._sessions, self._unused = 0, asyncio.Event()
        self._unused.set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="opening")
        super().__init__(
            settings.scheduler,
            nthreads=1,
            name=settings.identity.public.hex()[:16] + f"-{os.getpid()}",
            security=settings.tls.security(),
            host=settings.listen,
            protocol="tls://",
            local_directory=str(settings.scratch),
            memory_limit=0,
            dashboard=False,
            metrics={},
            startup_information={},
        )
        self.handlers = {OPERATION: self._session}
        kept = ("close", "worker-status-change", "remove-worker")
        self.stream_handlers = {name: self.stream_handlers[name] for name in kept}

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """None: nothing but the one port is open."""

    async def end_now(self) -> None:
        """End at once, sessions and all."""
        await self.close(reason=_STOPS)

    async def close(  # type: ignore[override] # Dask's Worker differs from its Server as well
        self,
        timeout: float = 30,  # noqa: ASYNC109 - Dask's signature
        executor_wait: bool = True,
        nanny: bool = True,
        reason: str = "",
    ) -> Any:
        """Dask's, which a scheduler that goes or forgets this worker brings about: a batch that is
        under way ends first.
        """
        if reason != _STOPS:
            await self._unused.wait()
        return await super().close(timeout, executor_wait, nanny, reason)

    async def _session(self, comm: Any, challenge: bytes) -> None:
        """One analyzer's connection, from its greeting to its end."""
        line = PeerLine(comm)
        try:
            channel, lent = await self._greet(line, challenge)
        except (TimeoutError, OSError, ShoalError, KeyError, TypeError) as error:
            log.warning("a connection was refused", error=error)
            line.abort()
            return
        CONNECTIONS.append(lent)
        self._sessions += 1
        self._unused.clear()
        try:
            await self._serve(line, channel, lent)
        except ShoalError as error:
            log.error("a connection to the analyzer was ended", error=error)
        except OSError:
            log.info("the analyzer's connection ended")
        finally:
            CONNECTIONS.remove(lent)
            lent.close()
            line.abort()
            self._sessions -= 1
            if not self._sessions:
                self._unused.set()

    async def _greet(self, line: PeerLine, challenge: bytes) -> tuple[Channel, Lent]:
        if not isinstance(challenge, bytes) or len(challenge) != CHALLENGE_SIZE:
            raise ShoalError(Kind.INVALID, "the greeting has no challenge")
        identity = self._settings.identity
        hello = WorkerHello(identity, challenge)
        await line.write(
            {
                "version": __version__,
                "worker": identity.public,
                "config": hello.config,
                "signature": hello.signature,
            }
        )
        answer = await asyncio.wait_for(line.read(), CONNECT_S)
        return hello.accept(self._settings.analyzer, answer["sealed"], answer["signature"])

    async def _serve(self, line: PeerLine, channel: Channel, lent: Lent) -> None:
        """Requests in their order, each with its answer; some are read ahead."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)

        async def read() -> None:
            try:
                while True:
                    await queue.put((await line.read())["sealed"])
            except (OSError, TypeError, KeyError):
                line.abort()  # now, so that a key is forgotten at once
                lent.close()
                await queue.put(None)

        partials = Partials()
        loop, reading = asyncio.get_running_loop(), asyncio.create_task(read())
        try:
            while (sealed := await queue.get()) is not None:
                done = await loop.run_in_executor(
                    self._thread, self._do, channel, lent, partials, sealed
                )
                del sealed
                await line.write({"sealed": done})
        finally:
            reading.cancel()

    def _do(self, channel: Channel, lent: Lent, partials: Partials, sealed: bytes) -> bytes:
        """One request, in the one thread."""
        what, parts = messages.asked(channel.open(sealed))
        if what is Ask.LEND:
            return channel.seal(_done_or_refused(lent.take, *parts))
        if what is Ask.TAKE_BACK:
            answer = _done_or_refused(lent.give_back, *parts)
            if not lent.any:
                partials.forget()
            return channel.seal(answer)
        if what is Ask.SIMULATE:
            from shoal.analyzer.machines.rehearsing import rehearse  # a worker that opens has none

            return channel.seal(rehearse(parts))
        part, order, rows = parts
        if what is Ask.OPEN_SHARED:
            try:
                rows = self._shared(SharedRows.from_bytes(rows))
            except OSError:
                return channel.seal(bytes((AnswerKind.UNREADABLE,)))
        return channel.seal(messages.run(order, rows, partials.of(ChunkPart.from_bytes(part))))

    def _shared(self, wanted: SharedRows) -> bytes:
        folder = self._settings.folder
        if folder is None or Path(wanted.name).name != wanted.name:
            raise FileNotFoundError("no shared folder")
        with FileSource(folder / wanted.name, wanted.row_size) as source:
            return read_chunk(source, wanted.chunk)


def _done_or_refused(step: Any, *parts: bytes) -> bytes:
    try:
        step(*parts)
    except ShoalError as error:
        return messages.refused(error)
    return bytes((AnswerKind.DONE,))

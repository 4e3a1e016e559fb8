"""The analyzer's connection to one worker elsewhere: greeted, sealed, answers in order."""

from __future__ import annotations

import asyncio
from collections import deque

from distributed.security import Security

from shoal import __version__
from shoal.analyzer.machines import messages
from shoal.analyzer.machines.comms import CONNECT_S, OPERATION, PeerLine, connect
from shoal.analyzer.machines.messages import Ask
from shoal.analyzer.machines.sealing import AnalyzerHello, Channel
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError


class WorkerConnection:
    """A greeted worker. ``identity``: its Ed25519 public key. Made by ``open_connection``."""

    def __init__(
        self, line: PeerLine, channel: Channel, hello: AnalyzerHello, identity: bytes
    ) -> None:
        self.identity = identity
        self._line, self._channel, self._hello = line, channel, hello
        self._answers: deque[asyncio.Future[bytes]] = deque()
        self._reading = asyncio.create_task(self._read())
        self._writing = asyncio.Lock()

    @property
    def name(self) -> str:
        """For people: how its key, of those in opening.workers, begins."""
        return self.identity.hex()[:16]

    @property
    def lost(self) -> bool:
        """It can't be asked any more."""
        return self._reading.done()

    async def ask(self, what: Ask, *parts: bytes) -> object:
        """The worker's answer, read by ``messages.answered``. Raises what that raises, and
        UNAVAILABLE if the worker is lost.
        """
        answer = asyncio.get_running_loop().create_future()
        # the order of sealing is that of answers; a request that is sealed must be sent
        async with self._writing:
            if self.lost:
                raise self._gone()
            self._answers.append(answer)
            await asyncio.shield(self._write(messages.ask(what, *parts)))
        try:
            return messages.answered(await answer)
        except OSError as error:
            raise OSError(f"worker {self.name}: {error}") from None
        except ShoalError as error:
            if error.kind is Kind.MISMATCH:
                raise self.refuted(error) from None
            raise

    async def lend(self, loan: bytes, key: HpkePrivateKey) -> None:
        """Give it a window's key for a loan. Raises as ``ask``."""
        sealed = self._hello.lend(loan, key)
        await self.ask(Ask.LEND, loan, key.config.key_id.raw, sealed)

    def refuted(self, error: Exception) -> ShoalError:
        """That this worker gave what can't be, and what to do about it."""
        return ShoalError(
            Kind.MISMATCH,
            f"worker {self.name}: {error}: nothing of it counts; look into that machine, or take "
            "its key off opening.workers",
        )

    async def close(self) -> None:
        """At once; the worker forgets what it had on loan."""
        self._line.abort()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _write(self, message: bytes) -> None:
        try:
            await self._line.write({"sealed": self._channel.seal(message)})
        except OSError:
            self._line.abort()  # the reader tells who waits

    async def _read(self) -> None:
        try:
            while True:
                message = await self._line.read()
                sealed = message["sealed"] if isinstance(message, dict) else None
                answer = self._channel.open(bytes(sealed or b""))
                waits = self._answers.popleft()
                if not waits.done():
                    waits.set_result(answer)
        except (OSError, KeyError, TypeError, ValueError, IndexError, ShoalError):
            return  # whoever waits is told that it is lost
        finally:
            self._line.abort()
            for waits in self._answers:
                if not waits.done():
                    waits.set_exception(self._gone())
                    waits.exception()  # may be nobody's any more
            self._answers.clear()

    def _gone(self) -> ShoalError:
        return ShoalError(Kind.UNAVAILABLE, f"worker {self.name} was lost")


async def open_connection(
    address: str, security: Security, signing_key: SigningKey, trusted: frozenset[bytes]
) -> WorkerConnection:
    """Greet whoever is at an address. Raises UNAVAILABLE, UNAUTHENTICATED if it has none of the
    trusted keys, BAD_SIGNATURE, MISMATCH if it runs another version.
    """
    line = await connect(address, security)
    try:
        hello = AnalyzerHello(signing_key)
        await line.write({"op": OPERATION, "reply": False, "challenge": hello.challenge})
        said = await asyncio.wait_for(line.read(), CONNECT_S)
        worker, config, signature, version = (
            said[name] for name in ("worker", "config", "signature", "version")
        )
        if worker not in trusted:
            raise ShoalError(
                Kind.UNAUTHENTICATED,
                f"a worker has the key {bytes(worker).hex()[:64]}, which opening.workers does not "
                "list: it gets nothing; list it, or see who started it",
            )
        channel, sealed, signed = hello.accept(worker, config, signature)
        if version != __version__:
            raise ShoalError(
                Kind.MISMATCH,
                f"worker {worker.hex()[:16]} runs another version than {__version__}: install the "
                "analyzer's there",
            )
        await line.write({"sealed": sealed, "signature": signed})
    except (TimeoutError, OSError, KeyError, TypeError, ValueError) as error:
        line.abort()
        raise ShoalError(
            Kind.UNAVAILABLE, f"it does not answer as a worker ({type(error).__name__})"
        ) from None
    except BaseException:
        line.abort()
        raise
    return WorkerConnection(line, channel, hello, worker)

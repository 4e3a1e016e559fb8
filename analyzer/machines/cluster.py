"""The workers of one analyzer on other machines, as long as there is work for them.

The scheduler is asked who is there, at the first need and while work lasts, and is believed
nothing: a worker is one that has a key of the operator's list. When nothing is under way all
connections end, and with them whatever the workers held.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from shoal.analyzer.machines.comms import MachineTls, disarm, workers_of
from shoal.analyzer.machines.connection import WorkerConnection, open_connection
from shoal.analyzer.machines.messages import Ask
from shoal.analyzer.machines.sealing import LOAN_SIZE
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from shoal.log import get_log
from shoal.services.conditions import Condition

log = get_log("analyzer")
A = TypeVar("A")
R = TypeVar("R")
IN_FLIGHT = 2  # requests of a worker: one that it works on, one that is there already
_SENDS = 3  # of one request whose workers are lost: it may be what ends them
_LOOK_S = 2.0  # between two looks at who is there, while work lasts
_SOON_S = 0.2  # ... while nobody is


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """``workers``: Ed25519 public keys, 32 bytes each. ``wait_s``: how long work waits for a first
    worker.
    """

    scheduler: str
    tls: MachineTls
    workers: frozenset[bytes]
    wait_s: float


class Cluster:
    """Raises CONFIG if the TLS files can't be used."""

    def __init__(self, settings: ClusterSettings, signing_key: SigningKey) -> None:
        disarm()
        self._settings, self._signing_key = settings, signing_key
        self._security = settings.tls.security()
        self._connections: dict[str, WorkerConnection] = {}
        self._loans: dict[bytes, HpkePrivateKey] = {}
        self._busy = Counter[WorkerConnection]()
        self._users = 0
        self._looking: asyncio.Task[None] | None = None
        self._one_look = asyncio.Lock()
        self._changed = asyncio.Event()
        self._looked = asyncio.Event()  # since work began
        self._trouble: dict[str, str] = {}
        self._refuted: set[str] = set()

    def conditions(self) -> Iterator[Condition]:
        """What was wrong at the last look, and who lied since the start, for
        ``Conditions.watch``.
        """
        for where, message in sorted(self._trouble.items()):
            yield Condition("worker", where, message, stops=False)
        for name in sorted(self._refuted):
            message = (
                f"worker {name} gave an answer that can't be true, and nothing of it counts: look "
                "into that machine; take its key off opening.workers and restart the analyzer"
            )
            yield Condition("worker", name, message, stops=False)

    def refuted(self, worker: WorkerConnection) -> None:
        """It gave what can't be: a condition names it for as long as this process runs."""
        self._refuted.add(worker.name)

    @property
    def size(self) -> int:
        """Workers that are connected."""
        return sum(not one.lost for one in self._connections.values())

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Workers are looked for and kept inside; afterwards they hold nothing."""
        self._users += 1
        try:
            if self._looking is None:
                self._looked.clear()
                self._looking = asyncio.create_task(self._look_on())
            yield
        finally:
            self._users -= 1
            if not self._users:
                await self._end()

    @asynccontextmanager
    async def looked(self) -> AsyncIterator[None]:
        """After one look at who is there; afterwards all connections are closed."""
        self._users += 1
        try:
            await self.look()
            yield
        finally:
            self._users -= 1
            await self._end()

    @asynccontextmanager
    async def lent(self, key: HpkePrivateKey) -> AsyncIterator[bytes]:
        """A window's key is with every worker inside; gives the number of the loan."""
        loan = os.urandom(LOAN_SIZE)
        async with self.used():
            await self._looked.wait()
            self._loans[loan] = key
            try:
                await asyncio.gather(*(self._lend(one, loan, key) for one in self._there()))
                yield loan
            finally:
                del self._loans[loan]
                await asyncio.gather(
                    *(one.ask(Ask.TAKE_BACK, loan) for one in self._there()),
                    return_exceptions=True,
                )

    async def ask_one(
        self, ask: Callable[[WorkerConnection], Awaitable[A]], read: Callable[[A], R]
    ) -> R:
        """What ``read`` makes of one worker's answer; where a worker is lost, another is asked.
        Inside ``used``. Raises UNAVAILABLE if there is none, MISMATCH if it lies, and what it
        refuses; what ``read`` raises refutes the worker, which is named.
        """
        for left in reversed(range(_SENDS)):
            worker = await self.reserve()
            try:
                answer = await ask(worker)
            except ShoalError as error:
                if error.kind is Kind.MISMATCH:
                    self.refuted(worker)
                if error.kind is not Kind.UNAVAILABLE or not left:
                    raise
                continue
            finally:
                self.release(worker)
            try:
                return read(answer)
            except ShoalError as error:
                self.refuted(worker)
                raise worker.refuted(error) from None
        raise AssertionError("unreachable")

    async def reserve(self) -> WorkerConnection:
        """The worker with the least to do, once one has room: ``release`` it. Inside ``used``.
        Raises UNAVAILABLE if there is none, and none comes in time.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._settings.wait_s
        while True:
            there = self._there()
            best = min(there, key=lambda one: self._busy[one], default=None)
            if best is not None and self._busy[best] < IN_FLIGHT:
                self._busy[best] += 1
                return best
            if there:
                until = loop.time() + self._settings.wait_s
            elif self._looked.is_set() and loop.time() >= until:
                raise self._nobody()
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_SOON_S):
                    await self._changed.wait()

    def release(self, worker: WorkerConnection) -> None:
        """It answered, or was lost."""
        self._busy[worker] -= 1
        if worker.lost or not self._busy[worker]:
            del self._busy[worker]
        self._changed.set()

    async def look(self) -> None:
        """Ask the scheduler who is there, and greet whom we don't know. What is wrong becomes a
        condition. One look at a time: of two connections to a worker one would be nobody's.
        """
        async with self._one_look:
            await self._look()

    async def _look(self) -> None:
        trouble: dict[str, str] = {}
        try:
            found = await workers_of(self._settings.scheduler, self._security)
        except ShoalError as error:
            found = {}
            trouble["scheduler"] = f"opening.scheduler: {error}: start it, or mend the address"
        self._connections = {
            address: one for address, one in self._connections.items() if not one.lost
        }
        new = [address for address in found if address not in self._connections]
        greeted = await asyncio.gather(*map(self._greet, new))
        for address, refusal in zip(new, greeted, strict=True):
            if refusal is not None:
                trouble[found[address]] = f"worker {found[address]}: {refusal}"
        for where, message in trouble.items():
            if self._trouble.get(where) != message:
                log.warning("workers can't be used", reason=message)
        self._trouble = trouble

    async def _greet(self, address: str) -> ShoalError | None:
        settings = self._settings
        try:
            one = await open_connection(
                address, self._security, self._signing_key, settings.workers
            )
        except ShoalError as error:
            return error
        given = set[bytes]()
        try:
            while missing := self._loans.keys() - given:  # loans may begin while others are given
                for loan in missing & self._loans.keys():
                    await self._lend(one, loan, self._loans[loan])
                given |= missing
        except BaseException:  # work ended meanwhile: nobody else knows of it
            await one.close()
            raise
        self._connections[address] = one
        self._changed.set()
        return None

    @staticmethod
    async def _lend(one: WorkerConnection, loan: bytes, key: HpkePrivateKey) -> None:
        try:
            await one.lend(loan, key)
        except ShoalError as error:
            log.warning("a worker could not be lent a key", reason=one.name, error=error)
            await one.close()

    def _there(self) -> list[WorkerConnection]:
        return [one for one in self._connections.values() if not one.lost]

    async def _look_on(self) -> None:
        try:
            while True:
                await self.look()
                self._looked.set()
                await asyncio.sleep(_LOOK_S if self._there() else _SOON_S)
        finally:
            self._looked.set()  # whatever ended it: nobody waits for it any more

    async def _end(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        if self._users:  # somebody came meanwhile
            return
        there, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(one.close() for one in there))

    def _nobody(self) -> ShoalError:
        why = "; ".join(sorted(self._trouble.values())[:3]) or "the scheduler names none"
        return ShoalError(Kind.UNAVAILABLE, f"no worker on another machine can be used: {why}")

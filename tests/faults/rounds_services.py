"""Shuffler and analyzer as processes that a test arms, kills and starts again, devices in the test,
and what must hold in the end.

Device number i has 2^i as its first coordinate and random others, so a sum says by itself whose
vectors are in it, and all of it must then be theirs. Windows follow one another: a scenario has one
of its own and leaves the services to the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.results.totals import FOLDER
from shoal.analyzer.rounds.sums import AnySum, StoredSum, SumStore
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.clients.rounds.exchange import RoundLine
from shoal.clients.rounds.participation import RoundOutcome, RoundState, take_part
from shoal.clients.rounds.single import send_single
from shoal.clients.transports.rounds_transport import GrpcRoundTransport
from shoal.crypto import keyfiles
from shoal.crypto.secagg.device.machine import DeviceRound, DeviceState
from shoal.crypto.secagg.terms import RoundTerms
from shoal.domain import Vector
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.protos import release_pb2
from shoal.secagg import Mode
from shoal.shuffler.core import WindowState
from shoal.storage.released_arrays import array_name
from tests.faults.conftest import Forge
from tests.faults.rounds_child import SEND_S, SharedClock, brief
from tests.worlds.ports import free_port
from tests.worlds.rounds.services import Device, World
from tests.worlds.services.shuffler import CA, LENGTH, SHUFFLER_NAME, START

PATIENCE_S = 120.0  # real seconds that only a failing test waits
SIGKILL = -9
LEFT = {
    ".lock",
    "acknowledged",
    "state.db",
    "rounds.db",
    "singles.db",
    "counts-rounds.db",
    "counts-singles.db",
}  # what a shuffler keeps, but for logs of databases


class Smithy(Forge):
    """A ``Forge`` whose children live side by side."""

    def __init__(self) -> None:
        super().__init__("tests.faults.rounds_child")

    def wait(self, pid: int = 0) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"wait": pid}) + "\n")
        self._process.stdin.flush()
        return int(self._answer()["status"])

    async def gone(self, pid: int) -> int:
        """Exit status of a child, once it has ended."""
        handle, loop, ended = os.pidfd_open(pid), asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        return self.wait(pid)


@dataclass(eq=False)
class Part:
    """A device of a window, and what became of it; ``outcomes``: one per attempt. ``steps``:
    answered, by the state of its machine. ``pieces``: uploads that its vector takes.
    """

    number: int
    device: Device
    outcomes: list[RoundOutcome] = field(default_factory=list)
    steps: dict[DeviceState, int] = field(default_factory=dict)
    changes: int = 0  # of that state
    pieces: int = 1
    _last: DeviceState = DeviceState.NEW

    @property
    def charged(self) -> bool:
        return bool(self.device.ledger.answers())

    @property
    def uploaded(self) -> bool:
        """Whether the shuffler said that it has this device's vector, whole. (The last piece may
        have been refused; a step after it was not.)
        """
        return self.passed(DeviceState.MASKED) or DeviceState.RELEASED in self.steps

    def passed(self, state: DeviceState) -> bool:
        """Whether this device waits, its part of that phase done."""
        pieces = self.pieces if state is DeviceState.MASKED else 1
        return self.steps.get(state, 0) > pieces

    def saw(self, machine: DeviceRound) -> None:
        self.changes += machine.state is not self._last
        self._last = machine.state
        self.steps[machine.state] = self.steps.get(machine.state, 0) + 1


class Services:
    """Both processes over one world, and their one clock."""

    def __init__(self, smithy: Smithy, folder: Path, *, windows: int, **changes: Any) -> None:
        self.smithy, self.folder = smithy, folder
        self.world = World(
            folder, count=windows, grace_s=0, skew_s=10, **{"target_epsilon": 1e9, **changes}
        )
        self.clock = SharedClock.make(folder / "clock", START + 1.0)
        self.pids: dict[str, int] = {}
        self.ports = {"shuffler": free_port(), "analyzer": free_port()}
        self.secrets: set[bytes] = set()  # what must not be anywhere on a disk after its window
        self.deaths: list[str] = []
        self.back: list[str] = []  # of the dead, who was started again
        self.kills = 0
        world = self.world.shuffler
        world.write_config(
            f"localhost:{self.ports['analyzer']}", listen=f"127.0.0.1:{self.ports['shuffler']}"
        )
        values = {
            "listen": f"127.0.0.1:{self.ports['analyzer']}",
            "admin_listen": "127.0.0.1:0",
            "data_dir": "data",
            "tasks_dir": str(world.tasks_dir),
            "keys_dir": "keys",
            "signing_key": "signing.key",
            "authorities": [world.authority.public.hex()],
            "allowed_shufflers": [SHUFFLER_NAME],
            "open_workers": 1,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        lines += ["[tls]", 'certificate = "tls.pem"', 'key = "tls.key"', 'client_ca = "ca.pem"', ""]
        (folder / "analyzer" / "analyzer.toml").write_text("\n".join(lines))
        self.transport: GrpcRoundTransport

    # --- processes --------------------------------------------------------------------------------

    async def start(self, role: str, failpoints: str = "") -> None:
        up = self.folder / f"{role}.up"
        up.unlink(missing_ok=True)
        self.pids[role] = self.smithy.start(role, self.folder, failpoints)
        await self.until(up.exists)

    async def arm(self, role: str, failpoints: str = "") -> dict[str, int]:
        """What this process passed since it was asked last; from now on these points are armed."""
        order = self.folder / f"{role}.order"
        order.write_text(failpoints)
        os.kill(self.pids[role], signal.SIGUSR1)
        await self.until(lambda: not order.exists())
        passed: dict[str, int] = json.loads((self.folder / f"{role}.passed").read_text())
        return passed

    async def guard(self) -> None:
        """Start again whatever dies by SIGKILL; for as long as it is not cancelled."""

        async def one(role: str) -> None:
            while True:
                assert await self.smithy.gone(self.pids[role]) == SIGKILL, role
                self.deaths.append(role)
                await self.start(role)
                self.back.append(role)

        async with asyncio.TaskGroup() as group:
            for role in self.pids:
                group.create_task(one(role))

    async def forget_database(self, role: str, name: str) -> None:
        """As if this service had never had anything to keep there."""
        await self.kill(role)
        for path in (self.folder / role / "data").glob(f"*{name}*"):  # its counts too
            path.unlink()
        await self.start(role)

    async def kill(self, role: str) -> None:
        os.kill(self.pids[role], signal.SIGKILL)
        assert await self.smithy.gone(self.pids[role]) == SIGKILL

    async def end(self) -> None:
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)
            await self.smithy.gone(pid)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for what is going to happen."""
        async with asyncio.timeout(PATIENCE_S):
            while not happened():  # noqa: ASYNC110 - other processes tell nobody how far they are
                await asyncio.sleep(0.004)

    # --- devices ----------------------------------------------------------------------------------

    def parts(self, numbers: Sequence[int]) -> list[Part]:
        found, size = [], self.world.terms.sealed_vector_bytes
        for number in numbers:
            rest = np.frombuffer(
                secrets.token_bytes(2 * (self.world.terms.dimension - 1)), dtype="<i2"
            )
            device = self.world.device([1 << number, *rest.tolist()])
            found.append(Part(number, device, pieces=-(-size // LIMITS.upload_bytes)))
            self.secrets.add(found[-1].device.identity.key.public)
        return found

    async def take_part(self, part: Part, window: int) -> RoundOutcome:
        served, device = self.world.published.served, part.device
        terms = RoundTerms.served(served, window)
        deadline = float(served.task.windows.deadline_of(window)) + LENGTH
        line = RoundLine(
            served.keys.hop_keys[window],
            self.transport,
            self.clock,
            deadline,
            sleep=brief,
            send_deadline_s=SEND_S,
        )
        async with asyncio.timeout(PATIENCE_S):
            if terms.plan.mode is Mode.HELPER:
                outcome = await send_single(
                    terms, device.identity, device.vector, device.ledger, line
                )
            else:
                outcome = await take_part(
                    terms, device.identity, device.vector, device.ledger, line, part.saw
                )
        part.outcomes.append(outcome)
        return outcome

    async def together(self, parts: Sequence[Part], window: int) -> None:
        await asyncio.gather(*(self.take_part(part, window) for part in parts))

    async def refused(self, part: Part, window: int) -> None:
        """A device that has answered: by its own ledger nothing is sent; and one that forgot gets
        no seat.
        """
        with pytest.raises(ShoalError) as refused:
            await self.take_part(part, window)
        assert refused.value.kind is Kind.CONFLICT

    def folder_of(self, part: Part, window: int) -> Path:
        """What a device's own process wants."""
        folder, published = self.folder / f"device-{window}-{part.number}", self.world.published
        folder.mkdir()
        keyfiles.save_signing_key(folder / "device.key", part.device.identity.key)
        (folder / "device.cert").write_bytes(part.device.identity.certificate)
        plan = {
            "tasks": str(self.world.shuffler.tasks_dir),
            "authority": self.world.shuffler.authority.public.hex(),
            "clock": str(self.folder / "clock"),
            "address": f"localhost:{self.ports['shuffler']}",
            "ca": str(self.world.shuffler.folder / "ca.pem"),
            "window": window,
            "vector": part.device.vector.tolist(),
            "deadline": float(published.task.windows.deadline_of(window)),
        }
        (folder / "plan.json").write_text(json.dumps(plan))
        return folder

    # --- the end of a window ----------------------------------------------------------------------

    def begin(self, window: int) -> None:
        self.clock.set(
            max(self.clock.now(), self.world.published.task.windows.start_of(window) + 1.0)
        )

    async def finish(self, window: int) -> None:
        """The window's time is over; until both services are done with it."""
        self.remember(window)
        self.clock.set(self.world.published.task.windows.deadline_of(window) + 1.0)
        await self.until(lambda: self.shredded(window))

    def remember(self, window: int) -> None:
        """What the shuffler knows of this window's devices, to be looked for when it is over."""
        for name, tables in (
            ("rounds", ("secret", "admitted")),
            ("singles", ("single_window", "single")),
        ):
            path = self.world.shuffler.data_dir / f"{name}.db"
            if path.exists():
                for table in tables:
                    with (
                        contextlib.suppress(sqlite3.OperationalError),
                        _reading(path) as db,
                    ):  # a table that is not made yet
                        rows = db.execute(
                            f"SELECT * FROM {table} WHERE window = ?",  # noqa: S608
                            (window,),
                        ).fetchall()
                        found = {
                            value
                            for row in rows
                            for value in row
                            if isinstance(value, bytes) and len(value) == 32
                        }
                        self.secrets |= found - {self.world.published.task_id.raw}
        for path in self.world.shuffler.data_dir.glob("*.vectors"):
            data = path.read_bytes()
            self.secrets |= {data[at : at + 32] for at in range(0, len(data) - 32, 64)}

    def shredded(self, window: int) -> bool:
        with _reading(self.world.shuffler.data_dir / "state.db") as db:
            found = db.execute("SELECT state FROM window WHERE window = ?", (window,)).fetchone()
        return found is not None and found[0] == WindowState.SHREDDED

    def sums(self, window: int) -> list[AnySum]:
        """Of long vectors, whose sums go with the release: what was released, as one."""
        if self.world.terms.plan.segmented:
            release = self.release(window)
            if release.withheld:
                return []
            path = self.folder / "analyzer" / "data" / FOLDER
            vector = np.load(path / array_name(self.world.published.task_id, window))
            return [StoredSum(Digest(bytes(32)), release.n, vector)]
        with contextlib.closing(
            AnalyzerStore(self.folder / "analyzer" / "data" / FILE_NAME, read_only=True)
        ) as store:
            return list(SumStore(store).of(self.world.published.task_id, window))

    def check(self, window: int, parts: Sequence[Part]) -> list[set[int]]:
        """The law, of a window that is over. Returns who is in each sum."""
        sums, by_number = self.sums(window), {part.number: part for part in parts}
        sets = [members(one) for one in sums]
        for one, inside in zip(sums, sets, strict=True):
            assert inside <= by_number.keys()
            assert one.survivors == len(inside)
            vectors = [by_number[number].device.vector for number in inside]
            assert one.vector.tolist() == np.sum(vectors, axis=0).tolist(), "a wrong sum"
        counted = [number for inside in sets for number in inside]
        assert len(counted) == len(set(counted)), "a device is in two sums"
        for part in parts:
            states = [outcome.state for outcome in part.outcomes]
            assert (part.number in counted) or RoundState.COUNTED not in states, (
                "counted, and in no sum"
            )
            assert (
                (part.number not in counted)
                or RoundState.COUNTED in states
                or RoundState.LOST in states
                or not states
            ), f"told {states}, and in a sum"
            assert sum(outcome.charged for outcome in part.outcomes) <= 1
        self.check_release(window, sums)
        self.check_nothing_left(window)
        return sets

    def release(self, window: int) -> release_pb2.Release:
        """The one of this window."""
        with contextlib.closing(
            AnalyzerStore(self.folder / "analyzer" / "data" / FILE_NAME, read_only=True)
        ) as store:
            (stored,) = [stored for stored in store.releases() if stored.window == window]
        return decode_release(stored.release)

    def check_release(self, window: int, sums: Sequence[AnySum]) -> None:
        release, long = self.release(window), self.world.terms.plan.segmented
        assert release.n == sum(one.survivors for one in sums)
        assert release.rounds.rounds == len(sums) or (long and sums)
        assert bool(release.withheld) == (not sums), release.withheld
        domain = self.world.published.task.domain
        assert isinstance(domain, Vector)
        if long:
            left = [*(self.folder / "analyzer" / "data" / "sums").glob("*")]
            assert not left, f"sums of a window that is over: {left}"
        elif sums:
            total = np.sum([one.vector for one in sums], axis=0)
            levels = [row.value * domain.grid / domain.clip for row in release.estimates]
            assert [round(level) for level in levels] == total.tolist()

    def check_nothing_left(self, window: int) -> None:
        """No secret of this window in any file of either service; no file and no key that belongs
        to it.
        """
        data = self.world.shuffler.data_dir
        names = {path.name.removesuffix("-wal").removesuffix("-shm") for path in data.iterdir()}
        assert names <= LEFT, names
        for path in [
            *data.iterdir(),
            *(path for path in (self.folder / "analyzer" / "data").rglob("*") if path.is_file()),
        ]:
            content = path.read_bytes()
            found = [secret for secret in self.secrets if secret in content]
            assert not found, f"{len(found)} secrets of a window that is over are in {path.name}"
        key_id = self.world.published.analyzer_keys[window].config.key_id
        assert not (self.folder / "analyzer" / "keys" / f"{key_id.hex}.key").exists()
        self.secrets.clear()


def members(one: AnySum) -> set[int]:
    """The numbers of the devices whose vectors are in a sum."""
    mask = int(one.vector[0])
    assert mask > 0
    return {number for number in range(mask.bit_length()) if mask >> number & 1}


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
    try:
        yield db
    finally:
        db.close()


@asynccontextmanager
async def serving(smithy: Smithy, folder: Path, **changes: Any) -> AsyncIterator[Services]:
    """Both services, unarmed; killed at the end."""
    services = Services(smithy, folder, **changes)
    services.transport = GrpcRoundTransport(
        f"localhost:{services.ports['shuffler']}", CA.cert_pem, private_pool=True
    )
    try:
        await services.start("analyzer")
        await services.start("shuffler")
        yield services
    finally:
        await services.transport.close()
        await services.end()

"""Three real shufflers on one database, killed -9 while they take reports and at every step of the
window's owner, or stopped there and resumed when all is over; and a database that is killed while
the window fills: what was acknowledged is in the release once, and the window is released once.

Real services, TLS and sockets from the devices' call to the analyzer's release. Each device answers
with a category of its own, and so hardly ever lies (with probability 1e-9) that the release says of
each whether it was counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shoal.crypto.envelope import seal_report
from shoal.domain import Categories
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create, design
from shoal.protos import release_pb2
from shoal.protos.submit_pb2 import SubmitBatchReply
from shoal.rpc.channel import build_channel, call
from tests.faults.conftest import Forge
from tests.faults.test_postgresql_owners import stopped
from tests.sizes import FULL, size
from tests.worlds import postgres
from tests.worlds.operations import Site
from tests.worlds.services.replicas import analyzing, no_keys, released, write_replica
from tests.worlds.services.shuffler import CA, Published, submit_batch

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
SIGKILL = -9
DEVICES, HELD = 90, 60  # more than the window holds
EPSILON0 = 26.0  # of DEVICES categories another one comes out with probability 5e-10
PATIENCE_S = 240.0  # only a failing test waits that long
CALL_S = 20.0
INTAKE = {  # and how often each is passed in a life, about
    "postgresql.open": 1,
    "postgresql.opened": 1,
    "postgresql.append": 8,
    "postgresql.appended": 8,
    "postgresql.alone": 3,
    "postgresql.alone-commit": 3,
    "postgresql.alone-committed": 3,
}
OWNER = (
    "postgresql.close",
    "postgresql.closed",
    "postgresql.seal-read",
    "postgresql.seal-write",
    "postgresql.sealed",
    "postgresql.sealed.done",
    "postgresql.drop-inbox",
    "window-keys.delete",
    "window-keys.deleted",
    "postgresql.delivering",
    "egress.offer",
    "egress.chunk",
    "postgresql.acknowledged",
    "postgresql.acknowledged.done",
    "postgresql.shred",
    "postgresql.shredded",
)
POINTS = OWNER if FULL else ("egress.chunk",)
ROUNDS = size(1, 2)  # of each point
_FOR_GOOD = {0, Kind.WINDOW_FULL.value, Kind.WINDOW_CLOSED.value}
_STATE = "SELECT state FROM shoal.win"
_LEFT = (
    "SELECT relname FROM pg_stat_user_tables WHERE relname ~ '^(inbox|tag|batch)_'"
    " UNION ALL SELECT purpose FROM shoal.holder"
)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if reached():
                return
            await asyncio.sleep(0.01)


class Life:
    """One replica, once it ``begins``: its process ends by each of its orders (failpoints) in turn,
    and is there again at once, at the end without any.
    """

    def __init__(self, forge: Forge, folder: Path, listen: str) -> None:
        self.folder, self.listen, self.killed = folder, listen, 0
        self._forge, self._orders = forge, list[str]()
        self._lock, self._ending, self._pid = threading.Lock(), False, 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self, *orders: str) -> None:
        self._orders = list(orders)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._ending:
                    return
                order = self._orders[0] if self._orders else ""
                self._pid = self._forge.start("serve", self.folder, order)
            if self._forge.wait() == SIGKILL:
                self.killed += 1
                self._orders = self._orders[1:]

    def stands_still(self) -> bool:
        """By its order."""
        return self._pid != 0 and stopped(self._pid)

    def go_on(self) -> None:
        """If it stands still."""
        os.kill(self._pid, signal.SIGCONT)

    def end(self) -> None:
        """SIGTERM; kill -9 if that does not end it."""
        if not self._thread.is_alive():
            return
        with self._lock:
            self._ending = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)
            self._thread.join(PATIENCE_S / 4)
        assert not self._thread.is_alive()


@dataclass
class Fleet:
    """Devices that send the same bytes until they are answered for good, each time to any replica;
    some to another one, too.
    """

    frames: list[bytes]
    addresses: list[str]
    choices: random.Random
    answers: dict[int, set[int]] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)  # had no answer at least once
    repeats: float = 0.3  # of what was answered: the same bytes once more, to any replica

    @property
    def took(self) -> set[int]:
        return {one for one, kinds in self.answers.items() if 0 in kinds}

    async def run(self, wide: int = 6) -> None:
        """All devices, so many at a time."""
        async with AsyncExitStack() as stack:
            channels = []
            for address in self.addresses:
                channels.append(build_channel(address, CA.cert_pem, private_pool=True))
                stack.push_async_callback(channels[-1].close)
            waiting = list(range(len(self.frames)))
            self.choices.shuffle(waiting)

            async def some() -> None:
                while waiting:
                    group = [waiting.pop() for _ in range(min(len(waiting), self._few()))]
                    await self._deliver(channels, group)
                    if self.choices.random() < self.repeats:
                        await self._deliver(channels, group)

            await asyncio.gather(*(some() for _ in range(wide)))

    def _few(self) -> int:
        return self.choices.randint(1, 4)

    async def _deliver(self, channels: Sequence[Any], group: Sequence[int]) -> None:
        left = list(group)
        while left:
            request = submit_batch([self.frames[one] for one in left])
            channel = self.choices.choice(channels)
            try:
                reply = await call(channel, "/shoal.v1.Ingress/SubmitBatch", request, CALL_S)
            except ShoalError:
                self.unsure.update(left)
                await asyncio.sleep(0.05)
                continue
            receipts = SubmitBatchReply.FromString(reply).receipts
            kinds = [receipt.status for receipt in receipts]
            for one, kind in zip(left, kinds, strict=True):
                self.answers.setdefault(one, set()).add(kind)
                if kind not in _FOR_GOOD:
                    self.unsure.add(one)
            left = [one for one, kind in zip(left, kinds, strict=True) if kind not in _FOR_GOOD]


def ask(site: Site) -> Published:
    domain = Categories(tuple(f"device {number}" for number in range(DEVICES)))
    return site.ask(
        domain=domain,
        mechanism=design("krr", domain, EPSILON0),
        min_batch=30,
        max_batch=HELD,
        target_epsilon=30.0,
        count=1,
    )


def frames_of(published: Published) -> list[bytes]:
    """Of each device the frame that it sends, again and again."""
    mechanism = create(published.task.mechanism, published.task.domain)
    config = published.analyzer_keys[0].config
    return [
        published.frame(
            seal_report(
                config,
                published.task_id,
                0,
                secrets.token_bytes(16),
                mechanism.randomize_one(number, SYSTEM)[0],
            )
        )
        for number in range(DEVICES)
    ]


@dataclass
class Scene:
    """A site with three replicas, and what its devices were told."""

    published: Published
    lives: list[Life]
    fleet: Fleet
    store: Any  # the analyzer's
    server: postgres.Server
    database: str

    async def check(self) -> None:
        """The law: exactly the reports that the window holds, once, those that were acknowledged
        among them; a refusal only of what is not there, unless an answer was lost; and nothing left
        anywhere.
        """
        for life in self.lives:
            await no_keys(life.folder, self.published)
        await until(lambda: self.server.sql(_STATE, self.database) == ["8"])
        for life in self.lives:
            await asyncio.to_thread(life.end)
        (release,) = self.store.releases()
        message = release_pb2.Release.FromString(release.release)
        assert (message.n, sum(one.count for one in message.rejected)) == (HELD, 0)
        counts = [round(one.value) for one in message.estimates]
        assert sorted(set(counts)) == [0, 1]
        counted = {number for number, count in enumerate(counts[:DEVICES]) if count}
        assert len(counted) == HELD
        refused = set(range(DEVICES)) - self.fleet.took
        assert self.fleet.took <= counted
        assert refused & counted <= self.fleet.unsure
        assert self.server.sql("SELECT reports, damaged FROM shoal.win", self.database) == [
            f"{HELD}|0"
        ]
        assert self.server.sql(_LEFT, self.database) == []


@pytest.fixture(scope="module")
def forges() -> Iterator[list[Forge]]:
    postgres.shared()  # here: it ends with the thread that starts it
    made = [Forge("tests.faults.postgresql_service_child") for _ in range(3)]
    yield made
    for forge in made:
        forge.close()


@asynccontextmanager
async def staged(
    folder: Path,
    forges: list[Forge],
    choices: random.Random,
    server: postgres.Server,
) -> AsyncIterator[Scene]:
    """The analyzer runs; the lives of replicas have to begin, and devices to send."""
    site = Site(folder)
    published = ask(site)
    dsn, analyzer_at = server.database(), f"127.0.0.1:{site.ports[2]}"
    places = [
        write_replica(site, name, dsn, analyzer_at, 3, commit_ms=1.0)
        for name in ("one", "two", "three")
    ]
    async with analyzing(site) as store:
        lives = [Life(forge, *place) for forge, place in zip(forges, places, strict=True)]
        try:
            fleet = Fleet(frames_of(published), [one.listen for one in lives], choices)
            yield Scene(published, lives, fleet, store, server, dsn.rpartition("/")[2])
        finally:
            for life in lives:
                await asyncio.to_thread(life.end)


def chosen(choices: random.Random) -> str:
    point = choices.choice(list(INTAKE))
    return f"{point}=exit@{choices.randint(1, INTAKE[point])}"


@pytest.mark.timeout(3_600)
async def test_what_is_acknowledged_is_released_once(forges: list[Forge], tmp_path: Path) -> None:
    """Every replica is killed while it takes reports, and whoever is the owner at a step, one after
    the other where it is passed again. Planted: more than its seats given
    to a replica -> more are counted, fails. Planted: the key of the batch deleted with the inbox
    -> nobody can deliver, fails.
    """
    killed = 0
    for place, point in enumerate(POINTS * ROUNDS):
        choices = random.Random(place)  # noqa: S311 - a test's choices
        folder = tmp_path / str(place)
        async with staged(folder, forges, choices, postgres.shared()) as scene:
            for life in scene.lives:
                life.begin(f"{chosen(choices)},{point}=exit@1", f"{point}=exit@1")
            await asyncio.wait_for(scene.fleet.run(), PATIENCE_S)
            await released(scene.store, PATIENCE_S)
            await scene.check()
            died = sum(life.killed for life in scene.lives)
            assert died, point
            killed += died
    assert killed >= size(1, 100)


@pytest.mark.timeout(3_600)
async def test_owners_that_stood_still_release_nothing_twice(
    forges: list[Forge], tmp_path: Path
) -> None:
    """Two of three stand still where they come to a step as the owner, and go on when the third,
    which came later, has brought the release. Who stands still within a transaction keeps the
    others out until the server ends it, after a minute: two in turn, two minutes.
    """
    for place, point in enumerate(POINTS):
        if point.startswith(("postgresql.shred", "window-keys", "postgresql.ackn")):
            continue  # nothing is to be released any more: test_postgresql_owners.py
        choices = random.Random(place)  # noqa: S311 - a test's choices
        folder = tmp_path / str(place)
        async with staged(folder, forges, choices, postgres.shared()) as scene:
            zombies, heir = scene.lives[:2], scene.lives[2]
            for life in zombies:
                life.begin(f"{point}=stop@1")
            sending = asyncio.create_task(scene.fleet.run())
            await until(lambda: any(life.stands_still() for life in zombies))  # noqa: B023 - now
            heir.begin()
            await asyncio.wait_for(sending, PATIENCE_S)
            await released(scene.store, PATIENCE_S)
            for life in zombies:
                life.go_on()
            await scene.check()


@pytest.mark.timeout(3_600)
async def test_a_window_that_fills_while_the_database_dies_is_released_once(
    forges: list[Forge], tmp_path: Path
) -> None:
    """The server is killed -9 and started anew around the commit that fills the window; no other
    device sends anything. Planted: no count after a look -> it stays open, fails.
    """
    with postgres.Server() as server:
        for place in range(size(1, 20)):
            choices = random.Random(place)  # noqa: S311 - a test's choices
            async with staged(tmp_path / str(place), forges, choices, server) as scene:
                for life in scene.lives:
                    life.begin()
                fleet, near = scene.fleet, HELD - choices.randint(0, 6)
                fleet.repeats = 0.0
                del fleet.frames[HELD:]
                sending = asyncio.create_task(fleet.run())
                await until(lambda: len(fleet.took) >= near)  # noqa: B023 - now
                await asyncio.to_thread(server.kill)
                server.start()
                await asyncio.wait_for(sending, PATIENCE_S)
                await released(scene.store, PATIENCE_S)
                await scene.check()

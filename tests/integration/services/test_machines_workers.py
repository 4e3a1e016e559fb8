"""Workers on other machines one by one: their versions, their hardening, what is told of them, and
that nobody is missed before somebody looked.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from distributed.security import Security

from shoal import __version__
from shoal.analyzer.batches.opening import _Batch
from shoal.analyzer.config import OpeningSection
from shoal.analyzer.machines import connection
from shoal.analyzer.machines.connection import open_connection
from shoal.analyzer.machines.sealing import WorkerHello
from shoal.cli.operations import worker_checks
from shoal.cli.operations.findings import Findings, Level
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from tests.worlds.machines import Machines, machines
from tests.worlds.services.analyzer_service import tries


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("machines")) as made:
        yield made


async def all_there(world: Machines) -> None:
    cluster = world.cluster()
    for _ in tries():
        async with cluster.looked():
            if cluster.size == len(world.workers):
                return
        await asyncio.sleep(0.05)
    raise AssertionError("the workers did not come")


class Greeting:
    """The line to a worker of some version, that keeps what is written to it."""

    def __init__(self, version: str, identity: SigningKey) -> None:
        self.version, self.identity = version, identity
        self.written: list[dict[str, object]] = []
        self.ended = asyncio.Event()

    async def write(self, message: dict[str, object]) -> None:
        self.written.append(message)

    async def read(self) -> dict[str, object]:
        if len(self.written) > 1:
            await self.ended.wait()
            raise OSError
        hello = WorkerHello(self.identity, cast(bytes, self.written[0]["challenge"]))
        return {
            "version": self.version,
            "worker": self.identity.public,
            "config": hello.config,
            "signature": hello.signature,
        }

    def abort(self) -> None:
        self.ended.set()


async def test_a_worker_of_another_version_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the version not compared -> this fails."""
    identity, signing = SigningKey.generate(), SigningKey.generate()
    for version, lines in ((__version__, 2), (__version__ + ".1", 1)):
        line = Greeting(version, identity)

        async def connect(*_: Any, line: Greeting = line) -> Greeting:
            return line

        monkeypatch.setattr(connection, "connect", connect)
        trusted = frozenset({identity.public})
        if lines == 2:
            one = await open_connection("tls://a:1", Security(), signing, trusted)
            await one.close()
        else:
            with pytest.raises(ShoalError) as caught:
                await open_connection("tls://a:1", Security(), signing, trusted)
            assert caught.value.kind is Kind.MISMATCH
            assert identity.public.hex()[:16] in str(caught.value)
        assert len(line.written) == lines
        assert line.ended.is_set()


async def test_nobody_is_missed_before_the_first_look(
    world: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the wait counted from when work began -> this fails."""
    cluster, looking = world.cluster(wait_s=0.0), asyncio.Event()
    monkeypatch.setattr(cluster, "look", looking.wait)  # it finds nobody
    async with cluster.used():
        reserving = asyncio.create_task(cluster.reserve())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not reserving.done()
        looking.set()
        with pytest.raises(ShoalError) as caught:
            await reserving
        assert caught.value.kind is Kind.UNAVAILABLE


def test_a_batch_is_cut_into_parts_for_all_workers() -> None:
    """Planted: as many parts for any number of workers -> this fails."""
    for workers, parts in ((2, 32), (100, 1_600)):
        executor = SimpleNamespace(chunk_rows=65_536, workers=workers)
        source: Any = SimpleNamespace(rows=1_600_000)
        unused: Any = None
        made = _Batch(source, unused, unused, cast(Any, executor), unused)
        assert len(list(made._blocks())) == parts


async def test_the_doctor_tells_of_workers_as_they_are(world: Machines) -> None:
    """Planted: a worker whose key is not listed counted as usable; no finding where there is no
    scheduler -> each fails.
    """
    await all_there(world)
    listed = tuple(identity.hex() for identity in world.identities)

    async def levels(scheduler: str, workers: tuple[str, ...]) -> list[Level]:
        opening = OpeningSection(
            engine="dask",
            scheduler=scheduler,
            ca=world.tls.ca,
            certificate=world.tls.certificate,
            key=world.tls.key,
            workers=workers,
        )
        findings = Findings()
        await worker_checks.workers(findings, opening, world.analyzer_key)
        return sorted((one.level for one in findings.all), key=lambda level: level.value)

    assert await levels(world.address, listed) == [Level.OK]
    assert await levels(world.address, listed[:1]) == [Level.OK, Level.WARN]
    stranger = (SigningKey.generate().public.hex(),)
    assert await levels(world.address, stranger) == [Level.FAIL] * 3
    assert await levels("127.0.0.1:1", listed) == [Level.FAIL] * 2


DUMPABLE = """
import ctypes, resource
from shoal.analyzer.machines.processes import harden
told = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)  # PR_GET_DUMPABLE
before = told()
harden(256)
print(before, told(), resource.getrlimit(resource.RLIMIT_CORE))
print(resource.getrlimit(resource.RLIMIT_DATA))
"""


def test_hardened_processes_show_their_memory_to_nobody() -> None:
    """Planted: prctl, or a limit, left out of ``harden`` -> this fails."""
    said = subprocess.run(
        [sys.executable, "-c", DUMPABLE], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert said.splitlines() == ["1 0 (0, 0)", f"{(256 << 20,) * 2}"]


async def test_scheduler_and_workers_leave_no_core(world: Machines) -> None:
    """As they run. Planted: ``harden`` not called by either -> this fails, where the tests may
    leave cores themselves.
    """
    await all_there(world)
    for process in (world.scheduler, *world.workers):
        assert resource.prlimit(process.process.pid, resource.RLIMIT_CORE) == (0, 0)

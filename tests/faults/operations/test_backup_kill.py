"""A machine is lost while it takes reports, and comes back from its last backup, by commands that
are killed too: what was acknowledged and can still be counted is counted, and what is lost is told.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import Kind, ShoalError
from shoal.rpc.channel import build_channel, call
from shoal.services.process import HALF_RESTORED
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.sqlite.records import stored
from tests.faults.operations.deployment import Deployment
from tests.faults.operations.fleet import FULL, PATIENCE_S, SUBMIT, Fleet, frame
from tests.sizes import size
from tests.worlds.operations import agreed
from tests.worlds.services.shuffler import CA, submit

LIVES, KILLS = size(2, 9), size(2, 6)
LOST = [["analyzer"], ["shuffler"], ["shuffler", "analyzer"]]
# where a restore dies; "": at a random moment
_POINTS = ["restore.begin.rename", "restore.begin.renamed", "restore.filled", ""]


class Machines(Deployment):
    """With backups beside the machines."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder)
        self.rng, self.away, self.copies = rng, folder / "away", 0
        self.away.mkdir()
        (self.away / "pass").touch(0o600)
        (self.away / "pass").write_text("a passphrase of five words\n")

    @property
    def sealing(self) -> tuple[str | Path, ...]:
        return "--passphrase-file", self.away / "pass"

    async def back_up(self, service: str) -> Path:
        """The newest copy: of commands that are killed and run again."""
        named = (f"--{service}", self.configs[service], "--with-window-keys", *self.sealing)
        data = self.configs[service].parent / "data"
        while True:
            self.copies += 1
            file = self.away / f"{service}-{self.copies}"
            killed = self.rng.uniform(0.05, 0.8) if self.rng.random() < 0.4 else 0.0
            told = await self.shoal("backup", *named, "--out", file, after_s=killed)
            assert told is None or isinstance(told, dict), told
            # a file is whole or not there
            assert told is None or file.exists()
            if told is not None:  # and it took away what those before it left
                assert not list(data.glob(".backup-*"))
            if file.exists():
                return file

    async def put_back(self, service: str, file: Path) -> dict[str, Any]:
        """Killed on the way, twice at least; what it says at its end. Between, nothing starts."""
        config = self.configs[service]
        restore = ("restore", file, "--config", config, *self.sealing, *agreed())
        for dies in ["restore.begin.renamed", *self.rng.sample(_POINTS, 2)]:
            done = await self.shoal(
                *restore, dies=dies, after_s=0.0 if dies else self.rng.uniform(0.2, 0.9)
            )
            assert done is None or isinstance(done, dict), done
            if done is not None:  # it was over before the kill
                return done
            if not (config.parent / "data" / HALF_RESTORED).exists():  # over, but for its last line
                break
            status, said = await asyncio.to_thread(self._try_start, service)
            assert (status, "Traceback" in said) == (2, False), said
        done = await self.shoal(*restore)
        if isinstance(done, str):  # killed after its last step: it was whole
            assert "start the service with it" in done
            return {}
        assert isinstance(done, dict)
        return done

    def _try_start(self, service: str) -> tuple[int, str]:
        before = (self.root_dir / "log").stat().st_size
        self.start(service)
        status = self.processes.pop(service).wait(PATIENCE_S)
        return status, (self.root_dir / "log").read_text()[before:]


@pytest.mark.parametrize("life", range(LIVES))
@pytest.mark.timeout(900)
async def test_a_lost_machine_comes_back_and_what_is_lost_is_told(
    tmp_path: Path, life: int
) -> None:
    """Planted: the number of releases restored as the copy's -> a release that is lost is not told,
    fails. Planted: no word of a restore that has begun -> a service starts half restored, fails.
    Planted: windows that have begun not closed -> they are filled anew, fails.
    """
    rng, lost = random.Random(100 + life), LOST[life % 3]  # noqa: S311 - when to kill
    site = Machines(tmp_path, rng)
    async with site.serving() as fleet:
        trouble = asyncio.create_task(site.trouble(fleet, rng, KILLS))
        await site.released({0})
        copies = {service: await site.back_up(service) for service in lost}
        async with asyncio.timeout(PATIENCE_S):
            await trouble
        await site.released({1})
        await fleet.reach(fleet.acks + rng.randrange(1, FULL))
        for service in list(site.processes):
            site.kill(service)
        before, done = site.releases(), dict[str, Any]()
        fleet.check(before)
        whole = life % 2 == 1  # all of the machine, or its data_dir
        for service in lost:
            folder = site.configs[service].parent
            shutil.rmtree(folder if whole else folder / "data")
        closed = site.now()
        for service in lost:
            done[service] = await site.put_back(service, copies[service])
        # those that begin while it is done are closed, or have no key
        kept, fresh = site.releases(), site.now() + 1
        if "shuffler" in lost:
            _all_closed(site, closed)
        for service in site.configs:
            site.start(service)
        await fleet.reach(fleet.acks + 1)
        if "shuffler" in lost:
            await _refuses(site, closed)
        trouble = asyncio.create_task(site.trouble(fleet, rng, KILLS))
        async with asyncio.timeout(PATIENCE_S):
            await trouble
        await _fill(fleet, fresh)
        # what the shuffler still has is counted wherever its key is
        wait = lost == ["analyzer"] and not whole
        gone = before.keys() - kept.keys()
        full = fleet.full() - gone  # by now: one that fills later may still be open at the end
        await site.released({window for window in full if wait or window > fresh})
    found = site.releases()
    fleet.check(found)
    assert kept.keys() <= before.keys()
    for window in before.keys() & found.keys():  # never twice: it is as it was, or made again of it
        one, was = found[window], before[window]
        assert (one.n, one.manifest_hash) == (was.n, was.manifest_hash)
    if told := done.get("analyzer"):
        assert told["lost"] >= len(gone)
        composed = found[max(found)].privacy.epsilon_cumulative_upper
        assert (composed == float("inf")) == bool(told["lost"])
    if told := done.get("shuffler"):
        assert told["closed"] > closed
    if lost == ["analyzer"]:  # the shuffler has them: they wait, or are delivered
        states = stored(site.data_dir)
        for window in full - found.keys():
            record = states[WindowId(site.published.task_id, window)]
            assert record.state in (WindowState.SEALED, WindowState.DELIVERING), record


async def _fill(fleet: Fleet, after: int) -> None:
    """Until two later windows are full."""
    while len({window for window in fleet.full() if window > after}) < 2:
        await fleet.reach(fleet.acks + 1)


def _all_closed(site: Machines, newest: int) -> None:
    records = stored(site.data_dir)
    for window in range(newest + 1):
        record = records[WindowId(site.published.task_id, window)]
        assert record.state is WindowState.SHREDDED


async def _refuses(site: Machines, newest: int) -> None:
    """Nothing that was closed is open."""
    channel = build_channel(f"127.0.0.1:{site.ports[0]}", CA.cert_pem, private_pool=True)
    for window in (0, newest):
        sent = submit(frame(site.published.served, window))
        while True:
            with pytest.raises(ShoalError) as refused:
                await call(channel, SUBMIT, sent, 10)
            if refused.value.kind is not Kind.UNAVAILABLE:
                break
            await asyncio.sleep(0.1)
        assert refused.value.kind in (Kind.WINDOW_CLOSED, Kind.WINDOW_FULL)
    await channel.close()

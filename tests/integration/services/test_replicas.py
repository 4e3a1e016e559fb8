"""Two real shufflers on one database serve one task: clients send to both, retries go to the other
one, and the analyzer releases every report once.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.crypto.envelope import seal_report
from shoal.domain import YesNo
from shoal.entropy import SYSTEM
from shoal.errors import Kind
from shoal.ids import TaskId
from shoal.mechanisms.several.registry import create_any
from shoal.mechanisms.vectors.protocol import VectorRandomizer
from shoal.protos import release_pb2
from shoal.protos.submit_pb2 import SubmitBatchReply
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.stores.postgresql import schema
from shoal.shuffler.stores.postgresql.database import Database
from tests.sizes import size
from tests.worlds import postgres
from tests.worlds.operations import Site
from tests.worlds.services.replicas import (
    Replica,
    analyzing,
    no_keys,
    released,
    serving,
    write_replica,
)
from tests.worlds.services.shuffler import CA, Published, submit_batch

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
FULL = 40
REACH = 14  # of the noise in a task that its shuffler adds some to


def ask(site: Site, **changes: Any) -> Published:
    defaults: dict[str, Any] = {
        "min_batch": 30,
        "max_batch": FULL,
        "target_epsilon": 20.0,
        "count": 1,
    }
    return site.ask(**{**defaults, **changes})


def frames_of(published: Published, count: int) -> list[bytes]:
    """Frames of real reports to window 0."""
    mechanism = create_any(published.task.mechanism, published.task.domain)
    assert not isinstance(mechanism, VectorRandomizer)
    config = published.analyzer_keys[0].config
    reports = [mechanism.randomize_one(number % 2, SYSTEM)[0] for number in range(count)]
    return [
        published.frame(seal_report(config, published.task_id, 0, secrets.token_bytes(16), report))
        for report in reports
    ]


async def send(address: str, frames: list[bytes]) -> list[int]:
    channel = build_channel(address, CA.cert_pem, private_pool=True)
    try:
        reply = await call(channel, "/shoal.v1.Ingress/SubmitBatch", submit_batch(frames), 30)
    finally:
        await channel.close()
    return [receipt.status for receipt in SubmitBatchReply.FromString(reply).receipts]


async def fill(published: Published, one: Replica, two: Replica) -> None:
    """Everything that devices do: to both, twice, one after the other and at a time, and more than
    the window takes.
    """
    frames = frames_of(published, FULL)
    assert await send(one.listen, frames[:20]) == [0] * 20
    assert await send(two.listen, frames[:10]) == [0] * 10  # the same bytes, to the other one
    at_once = send(one.listen, frames[10:39]), send(two.listen, frames[15:39][::-1])
    assert list(await asyncio.gather(*at_once)) == [[0] * 29, [0] * 24]
    assert await send(two.listen, frames[39:]) == [0]
    late = [await send(replica.listen, frames_of(published, 5)) for replica in (one, two)]
    assert late == [[Kind.WINDOW_FULL.value] * 5] * 2


def counts(release: Any) -> tuple[TaskId, int, int, int]:
    """Of a release: what it is of, how many reports are in it, and how many were thrown away."""
    message = release_pb2.Release.FromString(release.release)
    return release.task_id, release.window, message.n, sum(one.count for one in message.rejected)


async def test_two_shufflers_bring_one_release(tmp_path: Path) -> None:
    """Whoever claims the window closes and delivers it; the other follows, and neither has a key of
    it left. Planted: the window's secret drawn by each store -> more than 40 rows, fails. Planted:
    ``_follow`` left out of a tick -> the other's hop key stays, fails. Planted: the clock of the
    database not heard, or no word that it serves -> fails.
    """
    site = Site(tmp_path)
    published = ask(site)
    dsn, analyzer_at = postgres.shared().database(), f"127.0.0.1:{site.ports[2]}"
    places = [
        write_replica(site, name, dsn, analyzer_at, 2, commit_ms=1.0) for name in ("one", "two")
    ]
    async with analyzing(site) as store:
        with serving(*places) as (one, two):
            await fill(published, one, two)
            (release,) = await released(store)
            assert counts(release) == (published.task_id, 0, FULL, 0)
            for replica in (one, two):
                await no_keys(replica.folder, published)
                assert '"database"' in (replica.folder / "data" / "clock.json").read_text()
            there = postgres.shared().sql("SELECT count(*) FROM shoal.replica", dsn.split("/")[-1])
            assert there == ["2"]
            assert [one.end(), two.end()] == [0, 0]
    events = [one.count(event) + two.count(event) for event in ("window closed", "window shredded")]
    assert events == [1, 1]


async def outlived(folder: Path, point: str, **changes: Any) -> Any:
    """The release of a window whose owner is killed at ``point``; the other replica takes it
    over, and keeps no key of it.
    """
    site = Site(folder)
    published = ask(site, **changes)
    dsn, analyzer_at = postgres.shared().database(), f"127.0.0.1:{site.ports[2]}"
    places = [
        write_replica(site, name, dsn, analyzer_at, 2, commit_ms=1.0) for name in ("one", "two")
    ]
    async with analyzing(site) as store:
        # whoever gets there first dies; the other must not
        with serving(*places, failpoints={0: f"{point}=exit@1"}) as (one, two):
            two.process.send_signal(signal.SIGSTOP)
            frames = frames_of(published, FULL)
            assert await send(one.listen, frames) == [0] * FULL
            assert await asyncio.to_thread(one.ended) == -9
            two.process.send_signal(signal.SIGCONT)
            (release,) = await released(store)
            assert counts(release) == (published.task_id, 0, FULL, 0)
            await no_keys(two.folder, published)
            assert two.end() == 0
    return release


@pytest.mark.parametrize(
    "point", ["postgresql.closed", "postgresql.seal-write", "postgresql.sealed.done"]
)
async def test_a_window_outlives_the_shuffler_that_works_on_it(tmp_path: Path, point: str) -> None:
    """Its owner is killed while it closes, seals, or has sealed. Planted: the key files written
    when a window is sealed -> nobody can, fails.
    """
    await outlived(tmp_path, point)


@pytest.mark.parametrize("point", ["postgresql.seal-write", "postgresql.sealed.done"][: size(1, 2)])
async def test_noise_is_in_a_batch_once_whoever_dies(tmp_path: Path, point: str) -> None:
    """Its owner is killed while it writes the batch with its noise, or has written it; the other
    one's is released. A count is off by a number of at most 10, but with a probability of 3e-5; of
    two draws it would be off by 14 more.

    Planted: every message of noise twice, or none -> fails.
    """
    spec = design_several("shuffler_noise", YesNo(), FULL, 2.0, 1e-6, windows=1)
    assert dict(spec.parameters)["reach"] == REACH
    release = await outlived(tmp_path, point, mechanism=spec, delta=1e-6)
    estimates = to_json(decode_release(release.release))["estimates"]
    assert len(estimates) == 2
    assert all(abs(one["value"] - FULL / 2) <= 10 for one in estimates)


def ready(folder: Path) -> str:
    """What its page says of whether devices should be sent there."""
    admin = tomllib.loads((folder / "shuffler.toml").read_text())["admin_listen"]
    try:
        with urllib.request.urlopen(f"http://{admin}/readyz", timeout=30) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return str(refusal.read().decode())


async def test_a_service_that_is_too_old_refuses_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the moment on that a newer program changed the tables: each call gets a typed refusal
    that may be repeated, and its page says what to do. Planted: ``least`` looked at once a second
    alone -> what comes before that is acknowledged, fails; a program that is too old goes on to ask
    -> nothing is told, fails.
    """
    site = Site(tmp_path)
    published = ask(site)
    dsn = postgres.shared().database()
    place = write_replica(site, "one", dsn, f"127.0.0.1:{site.ports[2]}", 2, commit_ms=1.0)
    with serving(place) as (one,):
        frames = frames_of(published, 6)
        assert await send(one.listen, frames[:3]) == [0] * 3
        now = schema.scripts()
        monkeypatch.setattr(schema, "scripts", lambda: [*now, "ALTER TABLE win ADD more int"])
        await (await Database.open(dsn, site.shuffler.public)).close()
        assert await send(one.listen, frames[3:]) == [Kind.UNAVAILABLE.value] * 3
        assert "upgrade this replica" in await asyncio.to_thread(ready, one.folder)
        stored = "SELECT sum(count) FROM shoal.inbox_1"
        assert postgres.shared().sql(stored, dsn.rpartition("/")[2]) == ["3"]
        assert one.end() == 0

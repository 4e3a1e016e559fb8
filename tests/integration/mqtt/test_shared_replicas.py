"""Two real shufflers on one database and one broker: frames come over the shared subscription, to
either of them, and the analyzer releases each report once.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest

from shoal.crypto.envelope import seal_frame, seal_report
from shoal.entropy import SYSTEM
from shoal.mechanisms import create
from shoal.protos import release_pb2
from tests.worlds import postgres
from tests.worlds.mqtt import broker as brokers
from tests.worlds.mqtt.broker import Broker
from tests.worlds.mqtt.devices import Devices, table
from tests.worlds.operations import Site
from tests.worlds.services.replicas import analyzing, released, serving, write_replica
from tests.worlds.services.shuffler import Published

pytestmark = [
    pytest.mark.skipif(brokers.mosquitto() is None, reason=brokers.LACKING),
    pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING),
]
FULL = 40
Sent = tuple[bytes, bytes]  # a frame, and the key of its reply


def frames(published: Published) -> list[Sent]:
    """Of real reports to window 0."""
    mechanism = create(published.task.mechanism, published.task.domain)
    config = published.analyzer_keys[0].config
    contents = [
        published.content(
            seal_report(
                *(config, published.task_id, 0, secrets.token_bytes(16)),
                mechanism.randomize_one(number % 2, SYSTEM)[0],
            )
        )
        for number in range(FULL)
    ]
    return [(seal_frame(published.hop.config, one), one.ack_key) for one in contents]


async def send(devices: Devices, some: list[Sent]) -> set[int]:
    return set(await asyncio.gather(*(devices.submit(*one) for one in some)))


async def test_each_report_over_a_shared_broker_is_counted_once(tmp_path: Path) -> None:
    """Also one that is published twice: its second copy may come to the other replica. Planted: a
    subscription of each replica's own -> both store what comes, more than 39 rows, fails.
    """
    site = Site(tmp_path)
    published = site.ask(min_batch=30, max_batch=FULL, target_epsilon=20.0, count=1)
    dsn, analyzer_at = postgres.shared().database(), f"127.0.0.1:{site.ports[2]}"
    async with Broker("mosquitto", tls=False) as broker, analyzing(site) as store:
        mqtt = table(broker.settings)
        places = [
            write_replica(site, name, dsn, analyzer_at, 2, commit_ms=1.0, mqtt=mqtt)
            for name in ("one", "two")
        ]
        with serving(*places) as replicas:
            for one in replicas:
                await asyncio.to_thread(one.until, "broker reached")
            async with Devices(broker.settings, site.shuffler.public) as devices:
                sent = frames(published)
                assert await send(devices, sent[:-1]) == {0}
                stored = (
                    "SELECT sum(count), count(DISTINCT writer) FROM shoal.inbox_1 WHERE number > 0"
                )
                name = dsn.rpartition("/")[2]
                assert postgres.shared().sql(stored, name) == [f"{FULL - 1}|2"]
                assert await send(devices, sent[:10]) == {0}
                assert await send(devices, sent[-1:]) == {0}
            (release,) = await released(store)
            message = release_pb2.Release.FromString(release.release)
            assert (message.n, sum(one.count for one in message.rejected)) == (FULL, 0)

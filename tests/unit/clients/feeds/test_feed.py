"""Which feeds a configuration asks for, what they load, and when they look."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.clients.feeds.configured import open_feeds
from shoal.clients.feeds.feed import jittered, waited
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig
from shoal.clients.settings.mqtt import FeedsConfig, ShufflerFeed
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mqtt.settings import BrokerSettings
from tests.worlds.devices.clients import CA

BROKER = BrokerSettings("127.0.0.1", 1, insecure=True)


def config(
    folder: Path, feeds: FeedsConfig, *, mqtt: BrokerSettings | None = None, insecure: bool = False
) -> AgentConfig:
    policy = Policy(frozenset({bytes(32)}), 4.0, 2)
    return AgentConfig(
        tasks=folder,
        outbox=folder / "outbox.db",
        policy=policy,
        feeds=feeds,
        mqtt=mqtt,
        insecure=insecure,
    )


def nothing(_: bytes, __: str) -> None:
    """An offer that is not listened to."""


def test_no_feeds_unless_asked_for(tmp_path: Path) -> None:
    """A broker for reports alone is no feed."""
    assert open_feeds(config(tmp_path, FeedsConfig(), mqtt=BROKER), nothing) == []


def test_one_per_shuffler_and_one_for_the_broker(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(CA)
    shufflers = tuple(
        ShufflerFeed(f"shuffler{i}.example:7443", tmp_path / "ca.pem") for i in range(2)
    )
    feeds = open_feeds(
        config(tmp_path, FeedsConfig(mqtt=True, shufflers=shufflers), mqtt=BROKER), nothing
    )
    assert [feed.origin for feed in feeds] == ["shuffler", "shuffler", "mqtt"]
    assert [feed.trouble for feed in feeds] == [None, None, None]


def test_a_missing_authority_is_one_line_that_names_the_key(tmp_path: Path) -> None:
    feeds = FeedsConfig(shufflers=(ShufflerFeed("shuffler.example:7443", tmp_path / "none.pem"),))
    with pytest.raises(ShoalError, match=r"feeds\.shuffler\.ca: cannot read none\.pem") as error:
        open_feeds(config(tmp_path, feeds), nothing)
    assert error.value.kind is Kind.CONFIG
    # loopback without TLS: none is needed
    assert len(open_feeds(config(tmp_path, feeds, insecure=True), nothing)) == 1


PROGRAM = """
import sys
from pathlib import Path
from shoal.clients.settings.config import AgentConfig
from shoal.clients.settings.mqtt import FeedsConfig, ShufflerFeed
from shoal.clients.feeds.configured import open_feeds
from shoal.clients.owner.policy import Policy
from shoal.mqtt.settings import BrokerSettings

mqtt = sys.argv[1] == "mqtt"
feeds = FeedsConfig(mqtt=True) if mqtt else FeedsConfig(shufflers=(ShufflerFeed("localhost:1"),))
config = AgentConfig(
    tasks=Path(),
    outbox=Path("x"),
    policy=Policy(frozenset({bytes(32)}), 4.0, 2),
    feeds=feeds,
    insecure=True,
    mqtt=BrokerSettings("127.0.0.1", 1, insecure=True) if mqtt else None,
)
assert len(open_feeds(config, print)) == 1
print(*sorted(name for name in sys.modules if "." not in name))
"""


@pytest.mark.parametrize(
    ("kind", "wanted", "unwanted"), [("mqtt", "shoal", "grpc"), ("grpc", "grpc", "paho")]
)
def test_only_the_library_of_the_feed_is_loaded(kind: str, wanted: str, unwanted: str) -> None:
    """Planted: both feeds imported at the top of ``feed`` -> gRPC in a device that only speaks
    MQTT, and this fails.
    """
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], check=True, capture_output=True, text=True
    ).stdout.split()
    assert wanted in found
    assert not {unwanted, "typer", "rich", "pydantic", "structlog"} & set(found)


def test_looks_are_spread_over_half_to_one_and_a_half_times_the_mean() -> None:
    """4,000 draws; a uniform law leaves no tenth of the range empty but with probability 1e-180."""
    entropy = SeededEntropy("jitter")
    draws = [jittered(100.0, entropy) for _ in range(4_000)]
    assert min(draws) >= 50.0
    assert max(draws) < 150.0
    assert {int((draw - 50.0) / 10.0) for draw in draws} == set(range(10))


async def test_waiting_ends_at_once_when_told() -> None:
    stop = asyncio.Event()
    assert not await waited(stop, 0.001)
    asyncio.get_running_loop().call_later(0.001, stop.set)
    assert await waited(stop, 3_600.0)

"""What keeps a shuffler from starting, and what keeps it only from serving a task."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from shoal.clocks.clock import FakeClock
from shoal.crypto.hpke import generate
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.core import WindowId
from shoal.shuffler.service import Shuffler
from tests.worlds.services.shuffler import (
    CA,
    START,
    World,
    submit,
)


async def fails_to_start(world: World, **changes: object) -> ShoalError:
    with pytest.raises(ShoalError) as refused:
        async with Shuffler(world.config(**changes), clock=FakeClock(START)):  # type: ignore[arg-type]  # any key
            pass
    assert "\n" not in refused.value.message
    return refused.value


async def test_start_refusals(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = f"127.0.0.1:{busy.getsockname()[1]}"
        for key in ("listen", "admin_listen"):
            error = await fails_to_start(world, **{key: taken})
            assert (error.kind, error.status) == (Kind.PORT_IN_USE, "UNAVAILABLE")
    for key, value in (
        ("signing_key", "none.key"),
        ("signing_key", "ca.pem"),
        ("tls", {"certificate": "front.pem", "key": "none"}),
        (
            "analyzer",
            {
                "address": "127.0.0.1:1",
                "ca": "none",
                "certificate": "caller.pem",
                "key": "caller.key",
            },
        ),
    ):
        assert (await fails_to_start(world, **{key: value})).kind is Kind.KEY_FILE
    (tmp_path / "front.key").chmod(0o644)
    error = await fails_to_start(world)
    assert error.kind is Kind.KEY_FILE
    assert "chmod 600" in error.message
    (tmp_path / "front.key").chmod(0o600)


async def bad_tasks(world: World, **changes: object) -> list[tuple[str, str]]:
    """(code, message) of what is wrong with the one task of a shuffler that starts all the same,
    and serves nothing.
    """
    async with Shuffler(world.config(**changes), clock=FakeClock(START)) as shuffler:  # type: ignore[arg-type]  # any key
        assert not shuffler.tasks.served
        assert shuffler.conditions.ready() is not None
        return [(one.code, one.message) for one in shuffler.conditions.current()]


async def test_a_task_that_cannot_be_served_stops_no_start(tmp_path: Path) -> None:
    """It is named, and the shuffler is not ready. Planted: what loading a task raises passed on ->
    no other task is served either.
    """
    world = World(tmp_path)
    published = world.publish()
    found = await bad_tasks(world, authorities=[SigningKey.generate().public.hex()])
    assert any(code == "task" and "authority" in message for code, message in found)
    (world.keys_dir / f"{published.hop.config.key_id.hex}.key").unlink()
    found = await bad_tasks(world)
    assert any(code in {"task", "key"} and "key" in message for code, message in found)


async def test_two_processes_cannot_share_a_folder(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish()
    async with Shuffler(world.config(), clock=FakeClock(START)):
        error = await fails_to_start(world)
        assert error.kind is Kind.CONFIG
        assert "another process uses it" in error.message
    async with Shuffler(world.config(), clock=FakeClock(START)):
        pass


async def test_a_second_schedule_is_not_served_and_what_was_stored_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    published = world.publish()
    async with Shuffler(world.config(), clock=FakeClock(START + 1)) as shuffler:
        channel = build_channel(f"127.0.0.1:{shuffler.port}", CA.cert_pem)
        await call(channel, "/shoal.v1.Ingress/Submit", submit(published.frame()), 10)
        await channel.close()
    path = world.tasks_dir / f"{published.task_id.short}.keys"
    first = path.read_bytes()
    keys = tuple(generate(SuiteId.X25519_AES128) for _ in range(2))
    path.write_bytes(world.schedule(published.task_id, keys, published.hop))
    found = await bad_tasks(world)
    assert any(code == "task" and "another key schedule" in message for code, message in found)
    path.write_bytes(first)
    async with Shuffler(world.config(), clock=FakeClock(START + 1)) as shuffler:
        assert shuffler.store.record(WindowId(published.task_id, 0)) is not None
        assert shuffler.store.distinct(WindowId(published.task_id, 0)) == 1

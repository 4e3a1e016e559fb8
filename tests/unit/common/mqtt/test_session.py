"""A connection and its library: a socket that is ours or none, no private member but one, and
nothing that complains afterwards.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import socket
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client

from shoal.errors import Kind, ShoalError
from shoal.mqtt import session as session_module
from shoal.mqtt.session import Message, Session, library
from shoal.mqtt.settings import BrokerSettings
from tests.worlds.mqtt.wire import CONNACK, CONNECT, Puppet, message, packet, packets

ROOT = Path(__file__).parents[4]
PATIENCE_S = 30.0  # only a failing test waits that long
NOT_AUTHORIZED = 5  # MQTT 3.1.1, table 3.1
LOOKED_AT = "2.2"
SETTINGS = BrokerSettings(
    "127.0.0.1", 1, username="user", password="pass-word", protocol="3.1.1", insecure=True
)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    yield near, far
    near.close()
    far.close()


def new_session(raw: socket.socket, settings: BrokerSettings = SETTINGS) -> Session:
    return Session(raw, settings, "id", lambda _message: None, 100)


def test_the_library_is_the_version_that_was_looked_at() -> None:
    """Another one fails here, on purpose. Read ``Client.reconnect`` in it: it must take its socket
    from ``_create_socket`` and nowhere else, and set ``_sock`` to it. Then let the rest of this
    folder run, and move ``LOOKED_AT`` and the pins.
    """
    assert version("paho-mqtt").startswith(f"{LOOKED_AT}.")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = {
        pin
        for extra in ("mqtt", "server")
        for pin in project["optional-dependencies"][extra]
        if "mqtt" in pin
    }
    major, minor = LOOKED_AT.split(".")
    assert pins == {f"paho-mqtt>={LOOKED_AT},<{major}.{int(minor) + 1}"}


def test_one_private_member_of_the_library_is_used() -> None:
    """Planted: `self._paho._sock_close()` in ``Session.stop`` -> the first line fails; another
    override -> the second.
    """
    tree = ast.parse(Path(session_module.__file__).read_text())
    private = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and "paho" in ast.unparse(node.value)
    }
    assert private == set()
    overridden = {
        name for name in vars(library()) if name.startswith("_") and hasattr(Client, name)
    }
    assert {name for name in overridden if not name.startswith("__")} == {"_create_socket"}


async def test_a_library_that_connects_by_itself_is_refused_before_it_speaks(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write the password without TLS. Planted: no look at the socket that it opens -> its
    CONNECT arrives, and this fails.
    """
    monkeypatch.delattr(library(), "_create_socket")
    async with Puppet() as puppet:
        session = new_session(pair[0], puppet.settings)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ShoalError) as caught:
                await session.start()
        assert caught.value.kind is Kind.INTERNAL
        await session.stop()
        await puppet.ended.wait()
        assert puppet.seen == []
    assert pair[0].fileno() == -1


async def test_the_packet_that_opens_is_written_by_the_loop(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """Not while ``connect`` runs, which must not block. Planted: no callback for writing -> the
    library writes at once, and this fails.
    """
    session = new_session(pair[0])
    starting = asyncio.create_task(session.start())
    await asyncio.sleep(0)
    with pytest.raises(BlockingIOError):
        pair[1].recv(1)
    data = await asyncio.get_running_loop().sock_recv(pair[1], 1000)
    assert [one.kind for one in packets(data)] == [CONNECT]
    await session.stop()
    with pytest.raises(ShoalError):
        await starting


async def test_what_is_here_already_is_read_in_turns(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """Everything lies in our buffer after one read, and nothing announces it.

    Planted: no further turn where a turn ends -> the last messages are missing, this hangs; another
    turn at once instead of in the next round of the loop -> all arrive in one round.
    """
    count, came, most = 100, 0, 0

    def received(_message: Message) -> None:
        nonlocal came
        came += 1

    session = Session(pair[0], SETTINGS, "id", received, 1_000)
    starting = asyncio.create_task(session.start())
    await asyncio.get_running_loop().sock_recv(pair[1], 1_000)
    sent = packet(CONNACK, b"\0\0") + count * message(b"a", bytes(500))
    assert pair[1].send(sent) == len(sent)
    async with asyncio.timeout(PATIENCE_S):
        while came < count:
            before = came
            await asyncio.sleep(0)
            most = max(most, came - before)
    assert 0 < most <= 10
    await session.stop()
    await starting


async def test_a_refusal_that_nobody_waits_for_makes_no_noise(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """A broker that refuses and hangs up in the moment in which whoever waits is cancelled.

    Planted: a refusal set as an exception of ``_let_in`` -> asyncio says "Future exception was
    never retrieved", with a traceback.
    """
    noise: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: noise.append(context))
    await refused_and_cancelled(*pair)
    gc.collect()
    await asyncio.sleep(0)
    assert noise == []


async def refused_and_cancelled(near: socket.socket, far: socket.socket) -> None:
    session = new_session(near)
    starting = asyncio.create_task(session.start())
    await asyncio.get_running_loop().sock_recv(far, 1_000)
    sending = asyncio.create_task(session.publish("a", b"", 1, False, recall=True))

    def too_late(_lost: asyncio.Future[None]) -> None:
        starting.cancel()
        sending.cancel()

    await asyncio.sleep(0)
    session.lost.add_done_callback(too_late)
    far.send(packet(CONNACK, bytes([0, NOT_AUTHORIZED])))
    far.close()
    await asyncio.wait({starting, sending})
    assert starting.cancelled()
    assert sending.cancelled()


async def test_nothing_is_watched_after_the_end(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """Whatever the library still asks for. Planted: no look at ``lost`` where the library asks to
    write -> a file is watched that is closed, or somebody else's by now.
    """
    session = new_session(pair[0])
    starting = asyncio.create_task(session.start())
    await asyncio.get_running_loop().sock_recv(pair[1], 1_000)
    await session.stop()
    with pytest.raises(ShoalError):
        await starting
    other, peer = socket.socketpair()  # one of the two has the number now
    with other, peer:
        session._paho.publish("a", b"late", 1)
        session._beat()
        session._read()
        loop = asyncio.get_running_loop()
        for one in (other, peer):
            assert not loop.remove_writer(one.fileno())
            assert not loop.remove_reader(one.fileno())

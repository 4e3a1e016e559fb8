"""A private MQTT broker on a loopback port, and a tap on the wire in front of it.

    async with Broker() as broker:
    # mosquitto if it is there, else amqtt; SHOAL_BROKER=amqtt forces the latter
        Link(broker.settings)
    # TLS with a test authority; Broker(tls=False): insecure
        await broker.kill(); await broker.start()   # the same port

``with Broker() as broker`` does the same where there is no event loop. amqtt runs in an interpreter
of its own: its warnings are not ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from shoal.crypto.tlscerts import Identity, issue, make_authority
from shoal.mqtt.settings import BrokerSettings
from tests.worlds.ports import free_port

LACKING = "install mosquitto, for example: apt-get install mosquitto"
PATIENCE_S = 60.0  # for a broker to start or to end; only a failing test waits that long
_CHILD = Path(__file__).with_name("broker_amqtt.py")


@functools.cache
def mosquitto() -> str | None:
    """Where the program is; None if it is not installed: then the tests that only it can run are
    skipped and say so. SHOAL_MOSQUITTO=1 (as in ``.ci/run``) makes that a failure.
    """
    program = shutil.which("mosquitto") or shutil.which(
        "mosquitto", path="/usr/sbin:/usr/local/sbin"
    )
    assert program is not None or os.environ.get("SHOAL_MOSQUITTO") != "1", LACKING
    return program


def kinds() -> list[str]:
    """The brokers that this machine can run, for tests that run over all of them."""
    return [*(["mosquitto"] if mosquitto() else []), "amqtt"]


def default_kind() -> str:
    wanted = os.environ.get("SHOAL_BROKER") or kinds()[0]
    assert wanted in kinds(), f"SHOAL_BROKER={wanted}: this machine runs {kinds()}"
    return wanted


@functools.cache
def authority() -> Identity:
    """Who signs the brokers' certificates."""
    return make_authority("test brokers")


class Broker:
    """kind: "mosquitto" or "amqtt". username, password: what a client must show; anybody may
    connect without. lines: more of mosquitto's configuration (an acl_file, for example). Nothing is
    kept on disk: a broker that restarts has forgotten what was retained.
    """

    def __init__(
        self,
        kind: str | None = None,
        *,
        tls: bool = True,
        username: str = "",
        password: str = "",
        lines: Sequence[str] = (),
    ) -> None:
        self.kind, self.tls, self.username, self.password, self.lines = (
            kind or default_kind(),
            tls,
            username,
            password,
            lines,
        )
        self.port = free_port()
        self.said: list[str] = []  # its log
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # while it may run
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._running = threading.Event()

    @property
    def settings(self) -> BrokerSettings:
        """How to reach it: MQTT 5 for mosquitto, 3.1.1 for amqtt, which knows no other."""
        return BrokerSettings(
            host="127.0.0.1",
            port=self.port,
            ca=authority().cert_pem if self.tls else None,
            username=self.username,
            password=self.password,
            protocol="5" if self.kind == "mosquitto" else "3.1.1",
            insecure=not self.tls,
        )

    async def start(self) -> None:
        """Returns when it takes connections, on the port it always had."""
        self._spawn()
        await asyncio.to_thread(self._until_running)

    async def stop(self) -> None:
        """As an operator stops it: it may say goodbye to its clients."""
        await asyncio.to_thread(self._end, signal.SIGTERM)

    async def kill(self) -> None:
        """SIGKILL: connections break, nobody is told."""
        await asyncio.to_thread(self._end, signal.SIGKILL)

    async def __aenter__(self) -> Broker:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def __enter__(self) -> Broker:
        self._folder = tempfile.TemporaryDirectory(prefix="broker-")
        try:
            self._spawn()
            self._until_running()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(signal.SIGKILL)
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    @property
    def _home(self) -> str:
        assert self._folder is not None, "a broker is used inside `with`"
        return self._folder.name

    def _spawn(self) -> None:
        assert self._process is None, "it runs already"
        command = self._mosquitto() if self.kind == "mosquitto" else self._amqtt()
        self._running.clear()
        # In the caller's thread: the broker dies with the thread that made it.
        self._process = subprocess.Popen(
            # not between fork and exec, where the threads of gRPC are in the way
            [sys.executable, "-m", "shoal.services.parent", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.said.append(line.rstrip())
            if line.rstrip().endswith("running"):
                self._running.set()
        self._running.set()  # or it ended

    def _until_running(self) -> None:
        assert self._running.wait(PATIENCE_S), self.said
        assert self.said, "the broker said nothing"
        assert self._process is not None
        assert self.said[-1].endswith("running"), self.said

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for _ in range(int(PATIENCE_S)):
            # again: mosquitto forgets a signal that comes just as it begins to run
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
                break
        else:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join()
        if process.stderr is not None:
            process.stderr.close()

    def _write(self, name: str, data: bytes) -> str:
        path = Path(self._home) / name
        path.write_bytes(data)
        path.chmod(0o600)
        return str(path)

    def _certificate(self) -> tuple[str, str, str]:
        """Paths of the authority, the certificate and its key."""
        server = issue(
            authority(), "broker", ["localhost", "127.0.0.1"], server=True, client=False, days=30
        )
        return (
            self._write("ca.pem", authority().cert_pem),
            self._write("cert.pem", server.cert_pem),
            self._write("key.pem", server.key_pem),
        )

    def _mosquitto(self) -> list[str]:
        program = mosquitto()
        assert program is not None
        lines = [
            f"listener {self.port} 127.0.0.1",
            "persistence false",
            "connection_messages false",
            "log_dest stderr",
        ]
        lines += ["max_queued_messages 100000", "set_tcp_nodelay true"]
        if os.getuid() == 0:
            lines.append("user root")  # as somebody else it could not read its own files
        if self.tls:
            _, certificate, key = self._certificate()
            lines += [f"certfile {certificate}", f"keyfile {key}"]
        lines.append(f"allow_anonymous {'false' if self.username else 'true'}")
        if self.username:
            passwords = self._write("passwords", f"{self.username}:{self.password}\n".encode())
            maker = shutil.which("mosquitto_passwd") or shutil.which(
                "mosquitto_passwd", path="/usr/sbin:/usr/local/sbin"
            )
            assert maker is not None
            subprocess.run([maker, "-U", passwords], check=True)
            lines.append(f"password_file {passwords}")
        config = self._write("mosquitto.conf", "\n".join([*lines, *self.lines, ""]).encode())
        return [program, "-c", config]

    def _amqtt(self) -> list[str]:
        command = [sys.executable, "-W", "ignore", str(_CHILD), str(self.port)]
        command += list(self._certificate()) if self.tls else ["", "", ""]
        return [*command, self.username, self.password, self._home]


@dataclass
class Wire:
    """One connection's bytes. up: from the client."""

    up: bytearray = field(default_factory=bytearray)
    down: bytearray = field(default_factory=bytearray)


class Tap:
    """A TCP proxy in front of a port that keeps all bytes, both ways. With TLS it sees what a
    network sees, without what a broker sees.

    async with Broker(tls=False) as broker, Tap(broker.port) as tap:
        Link(tap.before(broker.settings))
        tap.wires, tap.up, tap.down
    """

    def __init__(self, target: int) -> None:
        self.target, self.port = target, 0
        self.wires: list[Wire] = []
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def up(self) -> bytes:
        return b"".join(bytes(wire.up) for wire in self.wires)

    @property
    def down(self) -> bytes:
        return b"".join(bytes(wire.down) for wire in self.wires)

    def before(self, settings: BrokerSettings) -> BrokerSettings:
        """The same broker, through the tap."""
        return replace(settings, port=self.port)

    def cut(self) -> None:
        """Break every connection that is open now."""
        for writer in self._open:
            writer.transport.abort()

    async def __aenter__(self) -> Tap:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        wire = Wire()
        self.wires.append(wire)
        with contextlib.ExitStack() as stack:
            stack.callback(self._forget, writer)
            self._open.add(writer)
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            except OSError:
                return
            stack.callback(self._forget, far_writer)
            self._open.add(far_writer)
            await asyncio.gather(
                _pump(reader, far_writer, wire.up), _pump(far_reader, writer, wire.down)
            )

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.transport.abort()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            kept += data
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof() if writer.can_write_eof() else writer.close()

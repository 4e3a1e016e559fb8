"""The whole shuffler over real sockets and TLS: submit, seal, deliver to an analyzer's end,
shred.
"""

from __future__ import annotations

import asyncio
import base64
import json
import multiprocessing
import re
import secrets
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from prometheus_client import generate_latest

from shoal import failpoints
from shoal.clocks.clock import FakeClock
from shoal.crypto.envelope import seal_frame, verify_receipt
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.protos import submit_pb2
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.reports.noise import NoiseSource
from shoal.shuffler.service import Shuffler
from tests.flipped import last_bit_flipped
from tests.worlds.inbox_file import stored
from tests.worlds.ports import free_port
from tests.worlds.services.shuffler import (
    CA,
    GRACE,
    LENGTH,
    START,
    AnalyzerEnd,
    World,
    submit,
    submit_batch,
)


class Running:
    """A world, an analyzer's end, a shuffler and a channel to it; the clock is moved by hand and so
    are the ticks.
    """

    def __init__(self, world: World, clock: FakeClock) -> None:
        self.world, self.clock = world, clock
        self.analyzer = AnalyzerEnd(world)
        self.shuffler: Shuffler
        self.channel: grpc.aio.Channel

    async def start(self, *, noise: NoiseSource | None = None, **changes: object) -> None:
        address = await self.analyzer.start()
        config = self.world.config(address, **changes)
        self.shuffler = Shuffler(config, clock=self.clock, noise=noise)
        await self.shuffler.__aenter__()
        self.channel = build_channel(f"127.0.0.1:{self.shuffler.port}", CA.cert_pem)

    async def stop(self) -> None:
        await self.channel.close()
        await self.shuffler.stop()
        await self.analyzer.stop()

    async def submit(self, frame: bytes) -> bytes:
        reply = await call(self.channel, "/shoal.v1.Ingress/Submit", submit(frame), 10)
        return bytes(submit_pb2.SubmitReply.FromString(reply).mac)

    async def tick(self, times: int = 1) -> None:
        for _ in range(times):
            await self.shuffler.lifecycle.tick()
            await self.shuffler.lifecycle.settle()
            self.clock.advance(1)


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    # after its first tick the service waits for ours
    monkeypatch.setattr("shoal.shuffler.reports.lifecycle.TICK_S", 3_600.0)
    one = Running(World(tmp_path), FakeClock(START + 10))
    yield one
    await one.stop()


async def test_reports_travel_from_ingress_to_the_analyzer_and_leave_nothing(
    running: Running,
) -> None:
    published = running.world.publish(max_batch=5)
    await running.start()
    sealed = [published.sealed() for _ in range(5)]
    for one in sealed[:3]:
        content = published.content(one)
        frame = seal_frame(published.hop.config, content)
        mac = await running.submit(frame)
        verify_receipt(content.ack_key, 0, frame, mac)
        assert await running.submit(frame) == mac  # a retry gets the same bytes
    reply = await call(
        running.channel,
        "/shoal.v1.Ingress/SubmitBatch",
        submit_batch([published.frame(one) for one in sealed[2:]]),
        10,
    )
    assert [
        receipt.status for receipt in submit_pb2.SubmitBatchReply.FromString(reply).receipts
    ] == [0, 0, 0]
    await running.tick(4)
    (rows,) = running.analyzer.delivered.values()
    assert sorted(rows) == sorted(sealed)
    record = running.shuffler.store.record(WindowId(published.task_id, 0))
    assert record is not None
    assert (record.state, record.outcome, record.reports) == (
        WindowState.SHREDDED,
        WindowState.ACKNOWLEDGED,
        5,
    )
    left = {path.name for path in running.world.data_dir.iterdir()}
    assert left <= {".lock", "acknowledged", "state.db", "state.db-wal", "state.db-shm"}
    with pytest.raises(ShoalError) as refused:
        await running.submit(published.frame())
    assert refused.value.kind is Kind.WINDOW_FULL


async def test_worker_processes_open_batches_and_forget_deleted_keys(running: Running) -> None:
    """Planted: the opener keeping its pool after a key was deleted -> the workers' pids stay,
    fails.
    """
    strangers = children()  # of other tests in this process
    published = running.world.publish(count=1)
    kept = running.world.publish(count=2)
    await running.start(open_workers=1)
    sealed = [published.sealed() for _ in range(40)]
    frames = [
        *(published.frame(one) for one in sealed),
        kept.frame(),
        last_bit_flipped(published.frame()),
    ]
    reply = await call(running.channel, "/shoal.v1.Ingress/SubmitBatch", submit_batch(frames), 20)
    receipts = submit_pb2.SubmitBatchReply.FromString(reply).receipts
    assert [receipt.status for receipt in receipts] == [0] * 41 + [Kind.INVALID.value]
    before = children() - strangers
    assert before
    running.clock.time = START + LENGTH + GRACE
    await running.tick(4)
    ((_, rows),) = [
        (window, rows)
        for window, rows in running.analyzer.delivered.items()
        if window[0] == published.task_id
    ]
    assert sorted(rows) == sorted(sealed)
    assert published.hop.config.key_id not in running.shuffler.tasks.keys
    again = await call(
        running.channel,
        "/shoal.v1.Ingress/SubmitBatch",
        submit_batch([kept.frame(window=1), kept.frame(window=1)]),
        20,
    )
    assert [
        receipt.status for receipt in submit_pb2.SubmitBatchReply.FromString(again).receipts
    ] == [0, 0]
    assert (children() - strangers).isdisjoint(before)


def children() -> set[int]:
    """Spawned worker processes of this process."""
    return {child.pid for child in multiprocessing.active_children() if child.pid is not None}


async def test_a_worker_that_dies_is_unavailable_once(running: Running) -> None:
    strangers = children()
    published = running.world.publish()
    await running.start(open_workers=1)
    request = submit_batch([published.frame(), published.frame()])
    await call(running.channel, "/shoal.v1.Ingress/SubmitBatch", request, 20)
    for child in multiprocessing.active_children():
        if child.pid not in strangers:
            child.kill()
            child.join()
    with pytest.raises(ShoalError) as refused:
        await call(running.channel, "/shoal.v1.Ingress/SubmitBatch", request, 20)
    assert refused.value.kind is Kind.UNAVAILABLE
    reply = await call(running.channel, "/shoal.v1.Ingress/SubmitBatch", request, 20)
    assert [
        receipt.status for receipt in submit_pb2.SubmitBatchReply.FromString(reply).receipts
    ] == [0, 0]


async def test_status_shows_decided_counts_and_nothing_of_open_windows(running: Running) -> None:
    """Planted: ``reports`` shown for OPEN -> fails."""
    published = running.world.publish()
    await running.start()
    for _ in range(4):
        await running.submit(published.frame())
    with pytest.raises(ShoalError):
        await running.submit(published.frame(window=1))

    async def get(path: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.shuffler.admin_port)
        writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        body = await reader.read()
        writer.close()
        await writer.wait_closed()
        return body.decode().partition("\r\n\r\n")[2]

    (task,) = json.loads(await get("/status"))["tasks"]
    assert task["shown"] == [{"window": 0, "state": "OPEN"}]
    counts = re.findall(r"shoal_shuffler_reports_total\{.*\} (.*)", await get("/metrics"))
    assert set(counts) == {"0.0"}
    running.analyzer.script = ["fail"]
    running.clock.time = START + LENGTH + GRACE
    await running.tick()
    (task,) = json.loads(await get("/status"))["tasks"]
    assert task["shown"] == [
        {
            "window": 0,
            "state": "DELIVERING",
            "reports": 4,
            "failing": {"kind": "UNAVAILABLE", "attempts": 1},
        }
    ]
    await running.tick(5)
    status = json.loads(await get("/status"))
    assert status["ready"] is None
    assert status["refused"] == {"TOO_EARLY": 1}
    assert status["tasks"][0]["shown"] == [
        {"window": 0, "state": "SHREDDED", "outcome": "ACKNOWLEDGED", "reports": 4}
    ]
    metrics = await get("/metrics")
    assert (
        f'shoal_shuffler_reports_total{{outcome="ACKNOWLEDGED",task="{published.task_id.short}"}} '
        "4.0" in metrics
    )
    assert 'shoal_shuffler_refused_total{kind="TOO_EARLY"} 1.0' in metrics
    assert await get("/readyz") == "ready\n"


def encodings(secret: bytes) -> list[bytes]:
    """Shapes in which a canary could have been written down."""
    text = secret.hex()
    plain = [secret, secret[::-1], text.encode(), text.upper().encode()]
    return [*plain, base64.b64encode(secret)[:-2], text.encode("utf-16-le"), repr(secret).encode()]


async def test_no_address_time_or_content_is_written_down(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Canaries in every field that a sender controls, in names and headers, with failures forced:
    nowhere on disk, in logs, in metrics or in another caller's reply. Planted: logging the peer,
    quoting a field in an error, storing the time -> fails.
    """
    caplog.set_level("DEBUG", "shoal")  # whatever a command that ran here before has set
    published = running.world.publish()
    await running.start(log_level="debug")
    running.clock.time = START + 1_234
    canary = secrets.token_bytes(32)
    agent = ("grpc.primary_user_agent", canary.hex())
    credentials = grpc.ssl_channel_credentials(CA.cert_pem)
    replies = b""
    async with grpc.aio.secure_channel(
        f"localhost:{running.shuffler.port}", credentials, options=[agent]
    ) as channel:
        one: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/shoal.v1.Ingress/Submit"
        )
        content = published.content()
        requests = [
            submit(published.frame(ack_key=canary)),
            submit(published.frame(ack_key=canary, admission=canary)),
            submit(published.frame(task_id=TaskId(canary))),
            submit(published.frame(analyzer_key_id=KeyId(canary[:8]))),
            submit(published.frame(canary)),
            submit(canary),
            submit(b"\x01\x01\x00" + canary * 16)[:514],
            canary,
            submit(seal_frame(published.hop.config, content)),
        ]
        for number, request in enumerate(requests):
            if number == len(requests) - 1:
                failpoints.arm("writer.append=eio@1")
            try:
                replies += await one(
                    request,
                    timeout=10,
                    metadata=(("x-canary", canary.hex()), ("x-forwarded-for", "203.0.113.77")),
                )
            except grpc.aio.AioRpcError as error:
                replies += (error.details() or "").encode()
        failpoints.arm("")
    for _ in range(3):
        await running.submit(published.frame())
    disk = b"".join(path.read_bytes() for path in sorted(running.world.data_dir.iterdir()))
    logs = caplog.text.encode()
    assert b"task served" in logs  # the scan sees what it scans
    assert b"writer failed" in logs
    assert published.task_id.raw in disk
    metrics = generate_latest(running.shuffler.registry)
    for where in (disk, logs, metrics, replies):
        assert not [shape for shape in encodings(canary) if shape in where]
        assert not [shape for shape in encodings(canary[:8]) if len(shape) >= 8 and shape in where]
        for address in (b"127.0.0.1:", b"ipv4:", b"203.0.113.77", b"localhost", b"user-agent"):
            assert address not in where
    for seconds in range(START + 1_200, START + 1_260):
        shapes = [struct.pack(f"{order}{kind}", seconds) for order in "<>" for kind in "Qd"] + [
            str(seconds).encode()
        ]
        assert not [shape for shape in shapes if shape in disk]
        assert str(seconds).encode() not in metrics


async def test_nothing_of_a_delivered_window_is_left_on_disk(running: Running) -> None:
    """The raw bytes of every file, after SEALED (no key, no secret, no inbox) and after SHREDDED
    (no ciphertext).
    """
    published = running.world.publish()
    await running.start(delivery_delay_max_s=1_000.0)
    sealed = [published.sealed() for _ in range(30)]
    for one in sealed:
        await running.submit(published.frame(one))
    (inbox,) = running.world.data_dir.glob("inbox-*.db")
    with closing(sqlite3.connect(inbox)) as connection:
        keys = [key for key, _ in stored(inbox, len(sealed[0]))]
        keys += [secret for (secret,) in connection.execute("SELECT secret FROM secret")]
    running.clock.time = START + LENGTH + GRACE
    await running.tick(2)
    remains = b"".join(path.read_bytes() for path in running.world.data_dir.iterdir())
    assert all(one in remains for one in sealed)
    assert not [key for key in keys if key in remains]
    assert not list(running.world.data_dir.glob("inbox-*"))
    running.clock.advance(1_000)
    await running.tick(3)
    remains = b"".join(path.read_bytes() for path in running.world.data_dir.iterdir())
    assert not [one for one in sealed if one[:16] in remains]
    assert len(running.analyzer.delivered[published.task_id, 0]) == 30


# --- the process ----------------------------------------------------------------------------------


def shoal(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shoal.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_serve_status_and_a_clean_stop(tmp_path: Path) -> None:
    """The command line: ready, a report acknowledged, status as JSON and as a table, SIGTERM, exit
    0; then nobody answers.
    """
    world = World(tmp_path)
    published = world.publish(start_s=int(time.time()) - 60)
    listen, admin = (f"127.0.0.1:{free_port()}" for _ in range(2))
    config = str(world.write_config(listen=listen, admin_listen=admin, reload_s=86_400))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal.cli.main", "shuffler", "serve", "--config", config),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    lines = [json.loads(await asyncio.wait_for(process.stderr.readline(), 60)) for _ in range(2)]
    assert [line["event"] for line in lines] == ["task served", "serving"]
    channel = build_channel(listen, CA.cert_pem)
    await call(channel, "/shoal.v1.Ingress/Submit", submit(published.frame()), 10)
    await channel.close()
    later = world.publish(name="later")
    process.send_signal(signal.SIGHUP)
    taken = json.loads(await asyncio.wait_for(process.stderr.readline(), 60))
    assert (taken["event"], taken["task"]) == ("task served", later.task_id.short)
    status = await asyncio.to_thread(shoal, "shuffler", "status", "--config", config, "--json")
    assert status.returncode == 0
    assert len(json.loads(status.stdout)["tasks"]) == 2
    assert published.task_id.hex in [task["task_id"] for task in json.loads(status.stdout)["tasks"]]
    table = await asyncio.to_thread(shoal, "shuffler", "status", "--admin", admin)
    assert published.task_id.short in table.stdout
    second = await asyncio.to_thread(shoal, "shuffler", "serve", "--config", config)
    assert (second.returncode, second.stderr.count("\n")) == (2, 1)
    process.terminate()
    rest = (await process.stderr.read()).decode()
    assert await process.wait() == 0
    assert [json.loads(line)["event"] for line in rest.splitlines()][-1] == "stopped"
    nobody = await asyncio.to_thread(shoal, "shuffler", "status", "--admin", admin)
    assert (nobody.returncode, nobody.stderr.count("\n")) == (1, 1)
    assert "no shuffler answers" in nobody.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("status",), "give either"),
        (("status", "--admin", "nowhere"), "is not HOST:PORT"),
        (("status", "--config", "none.toml"), "cannot read"),
        (("serve", "--config", "none.toml"), "cannot read"),
    ],
)
def test_wrong_requests_are_one_line_and_exit_2(arguments: tuple[str, ...], words: str) -> None:
    done = shoal("shuffler", *arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert words in done.stderr

"""Every bad input that concerns the shuffler, over the wire: kind, gRPC status, one line of text,
and nothing has changed.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from shoal import failpoints
from shoal.clocks.clock import FakeClock
from shoal.crypto.envelope import HEADER_SIZE, seal_frame, verify_receipt
from shoal.crypto.hpke import seal
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.protos import submit_pb2
from shoal.rpc.channel import build_channel, call
from shoal.rpc.status import KIND_KEY
from shoal.shuffler.service import Shuffler
from tests.worlds.services.shuffler import (
    CA,
    GRACE,
    LENGTH,
    START,
    Published,
    World,
    digest_of,
    submit,
    submit_batch,
)


class Bench:
    """A shuffler with an open-ended task, a full one, and a channel to it."""

    def __init__(self, folder: Path) -> None:
        self.world, self.clock = World(folder), FakeClock(START + 10)
        self.published = self.world.publish(name="plain")
        self.limited = self.world.publish(name="limited", min_batch=2, max_batch=2)
        self.unserved = World(folder / "elsewhere").publish()

    async def start(self) -> None:
        self.shuffler = Shuffler(self.world.config(), clock=self.clock)
        await self.shuffler.__aenter__()
        self.channel = build_channel(f"127.0.0.1:{self.shuffler.port}", CA.cert_pem)
        await self.accept(self.published.frame())
        for _ in range(2):
            await self.accept(self.limited.frame())

    async def stop(self) -> None:
        await self.channel.close()
        await self.shuffler.stop()

    async def accept(self, frame: bytes) -> None:
        await call(self.channel, "/shoal.v1.Ingress/Submit", submit(frame), 10)

    async def refuse(
        self, request: bytes, method: str = "Submit", *, bytes_stay: bool = True
    ) -> tuple[Kind, str, str]:
        """Kind, status and text of a call that must fail; no byte on disk may change."""
        before = digest_of(self.world.data_dir) if bytes_stay else {}
        one: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(
            f"/shoal.v1.Ingress/{method}"
        )
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await one(request, timeout=10)
        kinds = [
            int(value) for key, value in error.value.trailing_metadata() or () if key == KIND_KEY
        ]
        assert not bytes_stay or digest_of(self.world.data_dir) == before
        return Kind(kinds[0]), error.value.code().name, error.value.details() or ""


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    # after its first tick the service waits for ours
    monkeypatch.setattr("shoal.shuffler.reports.lifecycle.TICK_S", 3_600.0)
    one = Bench(tmp_path)
    await one.start()
    yield one
    failpoints.arm("")
    await one.stop()


def rows_in(path: Path) -> int:
    """Of reports that came one by one, each in a commit of its own."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM block").fetchone()[0])


def flipped(frame: bytes, at: int) -> bytes:
    return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


def hop_of(published: Published, plaintext: bytes, size: int = LIMITS.frame_sizes[0]) -> bytes:
    """A frame of ours, of so many bytes, that opens to these."""
    config = published.hop.config
    info = b"shoal/v1/hop\x00\x00" + config.key_id.raw
    room = size - HEADER_SIZE - config.suite.overhead
    return (
        bytes([1, config.suite.value, 0])
        + config.key_id.raw
        + seal(config, plaintext.ljust(room, b"\x00"), info)
    )


def payload(published: Published, **changes: object) -> bytes:
    fields: dict[str, object] = {
        "task_id": published.task_id.raw,
        "window": 0,
        "ack_key": bytes(32),
        "analyzer_key_id": published.served.keys.analyzer_keys[0].key_id.raw,
        "sealed": [published.sealed()],
    }
    data = submit_pb2.HopPayload(**{**fields, **changes}).SerializeToString()  # type: ignore[arg-type]  # any field
    return len(data).to_bytes(4, "big") + data


Case = tuple[str, Kind, str, Callable[[Bench], bytes]]
CASES: list[Case] = [
    ("empty", Kind.INVALID, "INVALID_ARGUMENT", lambda _: b""),
    ("malformed protobuf", Kind.INVALID, "INVALID_ARGUMENT", lambda _: b"\xff\xff\xff\xff"),
    (
        "truncated protobuf",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(b.published.frame())[:-5],
    ),
    (
        "no global frame size",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(b.published.frame() + b"\x00"),
    ),
    (
        "the size of other tasks' frames",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(hop_of(b.published, payload(b.published), 4096)),
    ),
    ("empty frame", Kind.INVALID, "INVALID_ARGUMENT", lambda _: submit(b"")),
    (
        "random bytes",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda _: submit(b"\x09" + secrets.token_bytes(511)),
    ),
    (
        "another version",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(flipped(b.published.frame(), 0)),
    ),
    (
        "unknown suite",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(b"\x01\x00" + b.published.frame()[2:]),
    ),
    (
        "another hop",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(flipped(b.published.frame(), 2)),
    ),
    (
        "unknown key id",
        Kind.UNKNOWN_KEY,
        "FAILED_PRECONDITION",
        lambda b: submit(flipped(b.published.frame(), 3)),
    ),
    (
        "damaged ciphertext",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(flipped(b.published.frame(), 300)),
    ),
    (
        "no payload",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(hop_of(b.published, b"\xff\xff\xff\xff")),
    ),
    (
        "padding not zero",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(hop_of(b.published, payload(b.published) + b"\x01")),
    ),
    (
        "payload no protobuf",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(hop_of(b.published, b"\x00\x00\x00\x02\xff\xff")),
    ),
    (
        "short task id",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(hop_of(b.published, payload(b.published, task_id=b"x"))),
    ),
    (
        "short ack key",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(hop_of(b.published, payload(b.published, ack_key=b"x"))),
    ),
    (
        "no message",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(hop_of(b.published, payload(b.published, sealed=[]))),
    ),
    ("two messages", Kind.INVALID, "INVALID_ARGUMENT", lambda b: submit(_two(b))),
    (
        "message too short",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(b.published.frame(b.published.sealed()[:-1])),
    ),
    (
        "message too long",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(b.published.frame(b.published.sealed() + b"x")),
    ),
    (
        "an admission proof",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(b.published.frame(admission=b"proof")),
    ),
    (
        "window out of range",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(b.published.frame(window=2)),
    ),
    (
        "window far out of range",
        Kind.INVALID,
        "INVALID_ARGUMENT",
        lambda b: submit(b.published.frame(window=2**32 - 1)),
    ),
    (
        "unknown task",
        Kind.UNKNOWN_TASK,
        "NOT_FOUND",
        lambda b: submit(b.published.frame(task_id=TaskId(bytes(32)))),
    ),
    (
        "a task of another shuffler",
        Kind.UNKNOWN_KEY,
        "FAILED_PRECONDITION",
        lambda b: submit(b.unserved.frame()),
    ),
    (
        "another window's key",
        Kind.UNKNOWN_KEY,
        "FAILED_PRECONDITION",
        lambda b: submit(b.published.frame(analyzer_key_id=_key(b, 1))),
    ),
    (
        "another task's hop key",
        Kind.UNKNOWN_KEY,
        "FAILED_PRECONDITION",
        lambda b: submit(_crossed(b)),
    ),
    ("early", Kind.TOO_EARLY, "FAILED_PRECONDITION", lambda b: submit(b.published.frame(window=1))),
    ("full", Kind.WINDOW_FULL, "FAILED_PRECONDITION", lambda b: submit(b.limited.frame())),
    ("oversize", Kind.OVERSIZE, "RESOURCE_EXHAUSTED", lambda _: submit(bytes(LIMITS.submit_bytes))),
]


def _two(bench: Bench) -> bytes:
    content = replace(
        bench.published.content(), sealed=(bench.published.sealed(), bench.published.sealed())
    )
    return seal_frame(bench.published.hop.config, content)


def _key(bench: Bench, window: int) -> object:
    return bench.published.served.keys.analyzer_keys[window].key_id


def _crossed(bench: Bench) -> bytes:
    return seal_frame(bench.limited.hop.config, bench.published.content())


async def test_unary(bench: Bench) -> None:
    """All cases against one running service. Planted: removing any check of header, payload or
    admission -> its case is listed.
    """
    wrong: list[str] = []
    for name, kind, status, make in CASES:
        found, code, text = await bench.refuse(make(bench))
        if (found, code) != (kind, status) or "\n" in text or not 10 < len(text) < 200:
            wrong.append(f"{name}: {found} {code} {text}")
        await bench.accept(bench.published.frame())  # and the service goes on
    assert wrong == []


async def test_late_and_decided(bench: Bench) -> None:
    """It was over, never full, and stays so when the clock goes back. Planted: every decided window
    is called full -> the last fails.
    """
    bench.clock.time = START + LENGTH + GRACE
    found = await bench.refuse(submit(bench.published.frame()))
    assert found[:2] == (Kind.WINDOW_CLOSED, "FAILED_PRECONDITION")
    await bench.shuffler.lifecycle.tick()
    await bench.shuffler.lifecycle.settle()
    bench.clock.time = START + 10
    assert (await bench.refuse(submit(bench.published.frame())))[0] is Kind.WINDOW_CLOSED


async def test_a_frame_for_a_key_whose_windows_are_over(bench: Bench) -> None:
    """Not UNKNOWN_KEY: fetching the schedule again would not help. Planted: forgetting retired ids
    -> fails.
    """
    frame = bench.published.frame()
    bench.clock.time = START + 2 * LENGTH + GRACE
    for _ in range(3):
        await bench.shuffler.lifecycle.tick()
        await bench.shuffler.lifecycle.settle()
    assert not list(bench.world.keys_dir.iterdir())
    assert (await bench.refuse(submit(frame)))[0] is Kind.WINDOW_CLOSED


@pytest.mark.parametrize(
    ("point", "kind", "status"),
    [
        ("inbox.commit=enospc@1", Kind.OVERLOADED, "RESOURCE_EXHAUSTED"),
        ("inbox.commit=eio@1", Kind.INTERNAL, "INTERNAL"),
    ],
)
async def test_a_failing_disk(bench: Bench, point: str, kind: Kind, status: str) -> None:
    frame = bench.published.frame()
    failpoints.arm(point)
    path = next(bench.world.data_dir.glob(f"inbox-{bench.published.task_id.hex}-0.db"))
    assert rows_in(path) == 1
    # its log is closed and opened anew
    found, code, text = await bench.refuse(submit(frame), bytes_stay=False)
    assert (found, code, rows_in(path)) == (kind, status, 1)
    assert "failpoint" not in text
    await bench.accept(frame)  # recovers by itself
    assert rows_in(path) == 2


async def test_a_batch_gives_each_frame_its_own_receipt(bench: Bench) -> None:
    """One bad frame does not fail the others; frames that could be opened get a receipt that only
    their sender can read.
    """
    kinds: list[Kind | None] = []
    frames: list[bytes] = []
    for _, kind, _, make in CASES:
        try:
            frames.append(submit_pb2.SubmitRequest.FromString(make(bench)).frame)
        except Exception:  # noqa: BLE001, S112 - malformed requests have no frame
            continue
        kinds.append(kind)
    # An oversize frame is simply no frame; a second report for the full window is full as the
    # first.
    kinds[-1], frames[-1] = Kind.INVALID, bytes(LIMITS.frame_sizes[-1] + 1)
    good = bench.published.content()
    frame = seal_frame(bench.published.hop.config, good)
    frames += [frame, bench.published.frame(), frame]
    kinds += [None, None, None]
    reply = await call(bench.channel, "/shoal.v1.Ingress/SubmitBatch", submit_batch(frames), 10)
    receipts = submit_pb2.SubmitBatchReply.FromString(reply).receipts
    assert [receipt.status for receipt in receipts] == [kind.value if kind else 0 for kind in kinds]
    verify_receipt(good.ack_key, 0, frame, receipts[-1].mac)
    assert receipts[-1].mac == receipts[-3].mac
    assert all(len(receipt.mac) in (0, 32) for receipt in receipts)


async def test_a_refused_frame_that_opened_has_an_authentic_receipt(bench: Bench) -> None:
    content = bench.published.content(window=1)
    frame = seal_frame(bench.published.hop.config, content)
    reply = await call(bench.channel, "/shoal.v1.Ingress/SubmitBatch", submit_batch([frame]), 10)
    (receipt,) = submit_pb2.SubmitBatchReply.FromString(reply).receipts
    assert receipt.status == Kind.TOO_EARLY.value
    verify_receipt(content.ack_key, receipt.status, frame, receipt.mac)


async def test_batches_as_a_whole(bench: Bench) -> None:
    assert (await bench.refuse(b"\xff\xff\xff", "SubmitBatch"))[:2] == (
        Kind.INVALID,
        "INVALID_ARGUMENT",
    )
    many = submit_batch([b""] * (LIMITS.batch_frames + 1))
    assert (await bench.refuse(many, "SubmitBatch"))[:2] == (Kind.OVERSIZE, "RESOURCE_EXHAUSTED")
    assert (
        submit_pb2.SubmitBatchReply.FromString(
            await call(bench.channel, "/shoal.v1.Ingress/SubmitBatch", submit_batch([]), 10)
        ).receipts
        == []
    )


async def test_the_other_channel_protections(bench: Bench) -> None:
    with pytest.raises(ShoalError) as refused:
        await call(bench.channel, "/shoal.v1.Ingress/Nothing", b"", 10)
    assert refused.value.kind is Kind.INVALID
    with pytest.raises(ShoalError) as refused:
        await call(bench.channel, "/shoal.v1.Ingress/Submit", submit(bench.published.frame()), 0.01)
    assert refused.value.kind is Kind.DEADLINE

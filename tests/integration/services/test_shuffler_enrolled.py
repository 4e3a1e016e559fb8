"""A task for enrolled devices alone, over the wire: who is refused, in which words, with nothing
stored; retries, doubles, batches, worker processes, a restart in between.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.crypto.admission.enrolled import prove
from shoal.crypto.admission.enrolment import DeviceIdentity
from shoal.crypto.envelope import receipt_mac, seal_frame, verify_receipt
from shoal.crypto.signing import SigningKey
from shoal.errors import Kind, ShoalError
from shoal.protos import submit_pb2
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.core import WindowId, row_size
from shoal.shuffler.reports.opening import AdmissionChecks
from shoal.shuffler.service import Shuffler
from tests.flipped import last_bit_flipped
from tests.integration.services.test_shuffler_refusals import Bench
from tests.worlds.inbox_file import stored
from tests.worlds.services.shuffler import (
    CA,
    GRACE,
    LENGTH,
    START,
    AnalyzerEnd,
    submit,
    submit_batch,
)


class Enrolled(Bench):
    """``Bench`` with a task for enrolled devices, and two of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.enrolled = self.world.publish(self.world.enrolled(name="enrolled"), name="enrolled")
        self.full = self.world.publish(
            self.world.enrolled(name="small", min_batch=2, max_batch=2), name="small"
        )
        self.one, self.other = self.world.device(), self.world.device()

    async def restart(self, **changes: object) -> None:
        """As after a crash, but for the lock: the store is closed, nothing else is told."""
        await self.stop()
        self.shuffler = Shuffler(self.world.config(**changes), clock=self.clock)  # type: ignore[arg-type]  # any key
        await self.shuffler.__aenter__()
        self.channel = build_channel(f"127.0.0.1:{self.shuffler.port}", CA.cert_pem)

    async def send(self, frame: bytes) -> Kind | None:
        try:
            await self.accept(frame)
        except ShoalError as error:
            return error.kind
        return None

    async def send_all(self, frames: list[bytes]) -> list[submit_pb2.Receipt]:
        reply = await call(self.channel, "/shoal.v1.Ingress/SubmitBatch", submit_batch(frames), 20)
        return list(submit_pb2.SubmitBatchReply.FromString(reply).receipts)

    def held(self, table: str) -> int:
        path = self.world.data_dir / f"inbox-{self.enrolled.task_id.hex}-0.db"
        if not path.exists():
            return 0
        if table == "inbox":
            return len(stored(path, row_size(self.enrolled.task)))
        with closing(sqlite3.connect(path)) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - a name of ours


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Enrolled]:
    # after its first tick the service waits for ours
    monkeypatch.setattr("shoal.shuffler.reports.lifecycle.TICK_S", 3_600.0)
    one = Enrolled(tmp_path)
    await one.start()
    yield one
    failpoints.arm("")
    await one.stop()


def _moved(bench: Enrolled) -> bytes:
    """Somebody else's proof around a report of one's own."""
    theirs = bench.enrolled.proven(bench.one)
    return seal_frame(bench.enrolled.hop.config, replace(theirs, sealed=(bench.enrolled.sealed(),)))


def _other_window(bench: Enrolled) -> bytes:
    content = bench.enrolled.content()
    return seal_frame(
        bench.enrolled.hop.config,
        replace(content, admission=prove(bench.one, content.task_id, 1, content.sealed)),
    )


def _other_task(bench: Enrolled) -> bytes:
    content = bench.enrolled.content()
    return seal_frame(
        bench.enrolled.hop.config,
        replace(content, admission=prove(bench.one, bench.full.task_id, 0, content.sealed)),
    )


def _stranger(bench: Enrolled) -> DeviceIdentity:
    return bench.world.device(root=SigningKey.generate())


REFUSED: list[tuple[str, Callable[[Enrolled], bytes]]] = [
    ("no proof", lambda b: b.enrolled.frame()),
    ("no proof at all", lambda b: b.enrolled.frame(admission=b"please")),
    ("a proof of zeros", lambda b: b.enrolled.frame(admission=bytes(184))),
    ("another authority's device", lambda b: b.enrolled.proven_frame(_stranger(b))),
    (
        "an expired certificate",
        lambda b: b.enrolled.proven_frame(b.world.device(not_after_s=START + 9)),
    ),
    (
        "a certificate of tomorrow",
        lambda b: b.enrolled.proven_frame(b.world.device(not_before_s=START + 11)),
    ),
    ("a proof of another report", _moved),
    ("a proof for another window", _other_window),
    ("a proof for another task", _other_task),
]


async def test_strangers_are_refused_and_nothing_is_stored(bench: Enrolled) -> None:
    """Alone and in a batch, where an authentic receipt says the same. Planted: each check of
    ``verify_proof`` removed -> its case is listed. Planted: the verifier left out of Submit, or of
    the opening of batches -> all are.
    """
    frames, wrong = list[bytes](), list[str]()
    for name, make in REFUSED:
        frames.append(make(bench))
        found, code, text = await bench.refuse(submit(frames[-1]))
        if (
            (found, code) != (Kind.UNAUTHENTICATED, "UNAUTHENTICATED")
            or "\n" in text
            or not 10 < len(text) < 200
        ):
            wrong.append(f"{name}: {found} {code} {text}")
    assert wrong == []
    contents = [bench.enrolled.content(), bench.enrolled.proven(bench.one)]
    last = [seal_frame(bench.enrolled.hop.config, content) for content in contents]
    receipts = await bench.send_all([*frames, *last])
    assert [receipt.status for receipt in receipts] == [Kind.UNAUTHENTICATED.value] * (
        len(frames) + 1
    ) + [0]
    for content, frame, receipt in zip(contents, last, receipts[-2:], strict=True):
        verify_receipt(content.ack_key, receipt.status, frame, receipt.mac)
    assert (bench.held("inbox"), bench.held("admitted")) == (1, 1)


@pytest.mark.parametrize("workers", [0, 1])
async def test_many_single_calls_are_answered_like_each_alone(
    bench: Enrolled, workers: int
) -> None:
    """Taken together, opened here or in a worker: the same kinds and words, and whoever is admitted
    gets his own receipt. Planted: groups' refusals given to the wrong calls, or the receipt of the
    next one -> fails.
    """
    wrong = [make(bench) for _, make in REFUSED] + [
        bench.published.proven_frame(bench.one),
        bench.enrolled.frame(window=1),
        bytes(100),
        bytes(512),
        last_bit_flipped(bench.enrolled.frame()),
        bench.enrolled.frame() + bytes(1),
    ]
    alone = [await bench.refuse(submit(frame)) for frame in wrong]
    await bench.restart(open_workers=workers)
    contents = [bench.enrolled.proven(bench.world.device()) for _ in range(4)]
    frames = [seal_frame(bench.enrolled.hop.config, content) for content in contents]
    replies, refusals = await asyncio.gather(
        asyncio.gather(
            *(
                call(bench.channel, "/shoal.v1.Ingress/Submit", submit(frame), 20)
                for frame in frames
            )
        ),
        asyncio.gather(*(bench.refuse(submit(frame), bytes_stay=False) for frame in wrong)),
    )
    assert refusals == alone
    for content, frame, reply in zip(contents, frames, replies, strict=True):
        mac = submit_pb2.SubmitReply.FromString(reply).mac
        verify_receipt(content.ack_key, 0, frame, mac)
    assert bench.held("inbox") == 4


async def test_a_task_for_anybody_wants_no_proof(bench: Enrolled) -> None:
    frame = bench.published.proven_frame(bench.one)
    assert (await bench.refuse(submit(frame)))[0] is Kind.INVALID
    assert [receipt.status for receipt in await bench.send_all([frame])] == [Kind.INVALID.value]


async def test_what_is_wrong_with_a_frame_is_said_before_who_sent_it(bench: Enrolled) -> None:
    """The same in both calls: a device that is early, or has the wrong schedule, keeps its report
    whatever its proof.
    """
    early, crossed = (
        bench.enrolled.frame(window=1),
        bench.enrolled.frame(analyzer_key_id=bench.enrolled.served.keys.analyzer_keys[1].key_id),
    )
    assert [await bench.send(early), await bench.send(crossed)] == [
        Kind.TOO_EARLY,
        Kind.UNKNOWN_KEY,
    ]
    assert [receipt.status for receipt in await bench.send_all([early, crossed])] == [
        Kind.TOO_EARLY.value,
        Kind.UNKNOWN_KEY.value,
    ]


async def test_one_report_of_a_device_whatever_way_it_comes(bench: Enrolled) -> None:
    """A retry gets the first reply byte for byte, also sealed anew for the shuffler; another report
    is a conflict, also after a restart.

    Planted: tags not loaded at the start -> the last conflict is accepted, fails.
    """
    content = bench.enrolled.proven(bench.one)
    frame, again = (seal_frame(bench.enrolled.hop.config, content) for _ in range(2))
    double, theirs = (
        bench.enrolled.proven_frame(bench.one),
        bench.enrolled.proven_frame(bench.other),
    )
    for _ in range(2):
        reply = await call(bench.channel, "/shoal.v1.Ingress/Submit", submit(frame), 10)
        assert submit_pb2.SubmitReply.FromString(reply).mac == receipt_mac(
            content.ack_key, 0, frame
        )
    assert await bench.send(again) is None
    found, code, text = await bench.refuse(submit(double))
    assert (found, code) == (Kind.CONFLICT, "ALREADY_EXISTS")
    assert "this device has been admitted in this window" in text
    assert [receipt.status for receipt in await bench.send_all([double, again, theirs])] == [
        Kind.CONFLICT.value,
        0,
        0,
    ]
    await bench.restart()
    assert [await bench.send(one) for one in (frame, theirs, double)] == [None, None, Kind.CONFLICT]
    assert (bench.held("inbox"), bench.held("admitted")) == (2, 2)


@pytest.mark.parametrize("workers", [0, 1])
async def test_of_two_reports_in_a_batch_the_first_is_taken(bench: Enrolled, workers: int) -> None:
    """Opened and verified on the event loop, and in a worker process. Planted: the worker not
    handed the enrolment keys -> fails.
    """
    await bench.restart(open_workers=workers)
    devices = [bench.world.device() for _ in range(5)]
    frames = [bench.enrolled.proven_frame(device) for device in devices for _ in range(2)]
    frames += [
        bench.enrolled.frame(),
        bench.published.frame(),
        bench.enrolled.proven_frame(_stranger(bench)),
        frames[0],
        frames[1],
    ]
    statuses = [receipt.status for receipt in await bench.send_all(frames)]
    conflict, stranger = Kind.CONFLICT.value, Kind.UNAUTHENTICATED.value
    assert statuses == [0, conflict] * 5 + [stranger, 0, stranger, 0, conflict]
    assert [receipt.status for receipt in await bench.send_all(frames)] == statuses
    assert (bench.held("inbox"), bench.held("admitted")) == (5, 5)


async def test_who_finds_no_room_is_not_admitted(bench: Enrolled) -> None:
    for device in (bench.one, bench.other):
        assert await bench.send(bench.full.proven_frame(device)) is None
    third = bench.world.device()
    assert [await bench.send(bench.full.proven_frame(device)) for device in (third, bench.one)] == [
        Kind.WINDOW_FULL,
        Kind.CONFLICT,
    ]
    failpoints.arm("inbox.commit=enospc@1")
    frame = bench.enrolled.proven_frame(third)
    assert await bench.send(frame) is Kind.OVERLOADED
    # another report: the first left nothing behind
    assert await bench.send(bench.enrolled.proven_frame(third)) is None
    assert await bench.send(frame) is Kind.CONFLICT


async def test_a_task_that_is_served_while_a_batch_is_opened(
    bench: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frames were opened without its verifier: nobody is admitted unproven, and nobody is
    refused for good.

    Planted: no second look at the verifiers -> the bare frame is stored, fails.
    """
    monkeypatch.setattr(
        "shoal.shuffler.reports.ingress.AdmissionChecks", lambda _, now: AdmissionChecks({}, now)
    )
    frames = [bench.enrolled.frame(), bench.enrolled.proven_frame(bench.one)]
    assert [receipt.status for receipt in await bench.send_all(frames)] == [
        Kind.UNAVAILABLE.value
    ] * 2
    assert bench.held("inbox") == 0


async def test_a_window_of_enrolled_devices_is_delivered_and_forgotten(bench: Enrolled) -> None:
    """The batch shows rows and no device; its files are gone; a device is admitted in the next
    window anew.
    """
    analyzer = AnalyzerEnd(bench.world)
    await bench.restart(analyzer_at=await analyzer.start())
    devices, sealed = (
        [bench.world.device() for _ in range(4)],
        [bench.enrolled.sealed() for _ in range(4)],
    )
    for device, one in zip(devices, sealed, strict=True):
        assert await bench.send(bench.enrolled.proven_frame(device, one)) is None
        assert await bench.send(bench.enrolled.proven_frame(device)) is Kind.CONFLICT
    bench.clock.time = START + LENGTH + GRACE
    for _ in range(4):
        await bench.shuffler.lifecycle.tick()
        await bench.shuffler.lifecycle.settle()
        bench.clock.advance(1)
    assert sorted(analyzer.delivered[bench.enrolled.task_id, 0]) == sorted(sealed)
    assert not list(bench.world.data_dir.glob(f"*{bench.enrolled.task_id.hex}*"))
    assert await bench.send(bench.enrolled.proven_frame(devices[0], window=1)) is None
    assert bench.shuffler.store.distinct(WindowId(bench.enrolled.task_id, 1)) == 1
    await analyzer.stop()

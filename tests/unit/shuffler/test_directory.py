"""The catalogue of tasks: complete, in pages, verified by nobody but the reader, and the same for
everybody.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, cast

import pytest

from shoal.clocks.clock import FakeClock
from shoal.crypto.trust import ServedTask, serve_task
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.protos import directory_pb2
from shoal.rpc.call import Call
from shoal.shuffler import directory
from shoal.shuffler.directory import PAGE_BYTES, Directory
from shoal.shuffler.tasks import ShufflerTasks
from tests.cases import for_each
from tests.worlds.services.shuffler import GRACE, LENGTH, START, World

CALL = cast(Call, None)


class Book:
    """What a directory wants of a task book."""

    def __init__(self, *served: ServedTask) -> None:
        self.served: dict[TaskId, ServedTask] = {}
        for one in served:
            self.add(one)

    def add(self, one: ServedTask) -> None:
        self.served[one.task_id] = one


@pytest.fixture
def world(tmp_path: Any) -> World:
    return World(tmp_path)


def over(book: Book, clock: FakeClock | None = None) -> Directory:
    return Directory(cast(ShufflerTasks, book), clock or FakeClock(START))


async def page(one: Directory, digest: bytes = b"", offset: int = 0) -> directory_pb2.PageReply:
    request = directory_pb2.PageRequest(digest=digest, offset=offset).SerializeToString()
    return directory_pb2.PageReply.FromString(await one.page(request, CALL))


async def read(one: Directory) -> list[directory_pb2.TaskBundle]:
    """As a device reads it: page after page, until it has all."""
    data, digest = b"", b""
    while True:
        reply = await page(one, digest, len(data))
        if reply.offset == 0:
            data, digest = b"", reply.digest
        assert reply.offset == len(data)
        data += reply.data
        if len(data) == reply.total:
            assert hashlib.sha256(data).digest() == digest
            return list(directory_pb2.Catalogue.FromString(data).bundles)


async def ids(one: Directory, world: World) -> list[TaskId]:
    return [
        serve_task(b.signed_task, b.signed_schedule, {world.authority.public}).task_id
        for b in await read(one)
    ]


async def test_everybody_reads_every_task_by_id_and_verifies_it(world: World) -> None:
    """The bytes are those that were signed. Planted: the order of loading instead of the ids' ->
    this fails.
    """
    served = [world.publish(name=str(number)).served for number in range(5)]
    assert await ids(over(Book(*served)), world) == sorted(one.task_id for one in served)


async def test_an_empty_catalogue(world: World) -> None:
    reply = await page(over(Book()))
    assert (reply.total, reply.data, reply.digest) == (0, b"", hashlib.sha256(b"").digest())


async def test_pages_are_bounded_and_join_to_the_whole(world: World) -> None:
    """Planted: a page of the reply's limit, with no room for the rest of the message -> this
    fails.
    """
    served = [world.publish(name=str(number), count=2_500).served for number in range(3)]
    one = over(Book(*served))
    first = await page(one)
    assert first.total > 2 * PAGE_BYTES
    assert len(first.data) == PAGE_BYTES
    assert len(first.SerializeToString()) <= LIMITS.reply_bytes
    assert len(await read(one)) == 3
    last = await page(one, first.digest, first.total)
    assert (last.offset, last.data, last.total, last.digest) == (
        first.total,
        b"",
        first.total,
        first.digest,
    )


async def test_a_catalogue_that_changed_is_read_from_its_beginning(world: World) -> None:
    """Planted: answering the old offset into the new bytes -> this fails."""
    book = Book(world.publish(name="a").served)
    one = over(book)
    before = await page(one)
    book.add(world.publish(name="b").served)
    reply = await page(one, before.digest, before.total)
    assert reply.offset == 0
    assert reply.digest != before.digest
    assert len(reply.data) == reply.total > before.total
    assert (await page(one, bytes(32), 5)).offset == 0
    assert (await page(one, b"", 5)).offset == 0


async def test_a_task_that_is_over_leaves_the_catalogue_when_its_last_report_may_not_come(
    world: World,
) -> None:
    """At the last window's end and grace, not before. Planted: the first window's deadline, or
    never -> this fails.
    """
    clock = FakeClock(START)
    short, long = world.publish(name="a", count=1).served, world.publish(name="b", count=2).served
    one = over(Book(short, long), clock)
    assert set(await ids(one, world)) == {short.task_id, long.task_id}
    clock.time = START + LENGTH + GRACE - 1
    assert set(await ids(one, world)) == {short.task_id, long.task_id}
    clock.time = START + LENGTH + GRACE
    assert await ids(one, world) == [long.task_id]
    clock.time = START + 2 * LENGTH + GRACE
    assert await ids(one, world) == []


async def test_the_catalogue_is_made_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for every page: that would be work for whoever asks. Planted: making it in every call ->
    this fails.
    """
    made: list[float] = []
    make = Directory._make

    def counted(self: Directory, now: float) -> None:
        made.append(now)
        make(self, now)

    monkeypatch.setattr(Directory, "_make", counted)
    clock = FakeClock(START)
    one = over(Book(world.publish().served), clock)
    for _ in range(5):
        await page(one)
    clock.advance(10)
    await page(one)
    assert made == [START]


async def test_a_catalogue_has_a_limit_and_says_when_it_is_full(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted: no limit -> devices would refuse the whole catalogue; this fails."""
    served = sorted(
        (world.publish(name=str(number)).served for number in range(3)), key=lambda one: one.task_id
    )
    whole = (await page(over(Book(*served)))).total
    limits = dataclasses.replace(LIMITS, catalogue_bytes=whole - 10)
    monkeypatch.setattr(directory, "LIMITS", limits)
    one = over(Book(*served))
    assert await ids(one, world) == [task.task_id for task in served[:2]]
    assert (await page(one)).total <= limits.catalogue_bytes
    assert caplog.text.count("the catalogue is full") == 1


@for_each(
    "request_bytes",
    [
        b"\xff",
        directory_pb2.PageRequest(digest=b"short").SerializeToString(),
        directory_pb2.PageRequest(digest=bytes(33)).SerializeToString(),
        directory_pb2.PageRequest(
            digest=hashlib.sha256(b"").digest(), offset=1
        ).SerializeToString(),
        directory_pb2.PageRequest(
            digest=hashlib.sha256(b"").digest(), offset=(1 << 64) - 1
        ).SerializeToString(),
    ],
)
async def test_a_wrong_request_is_invalid(request_bytes: bytes) -> None:
    with pytest.raises(ShoalError) as refused:
        await over(Book()).page(request_bytes, CALL)
    assert refused.value.kind is Kind.INVALID

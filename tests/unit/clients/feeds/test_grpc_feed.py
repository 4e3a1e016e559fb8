"""A shuffler's catalogue over real sockets: the shuffler's own directory, and one that lies."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from shoal import codec
from shoal.clients.feeds import grpc_feed
from shoal.clients.feeds.grpc_feed import GrpcFeed
from shoal.clocks.clock import FakeClock
from shoal.codec import TaskBundle
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import serve_task
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.protos import directory_pb2
from shoal.rpc.call import Call
from shoal.rpc.server import Method, RpcServer, Service
from shoal.shuffler.directory import Directory
from tests.cases import for_each
from tests.worlds.devices.clients import CA, START, TLS, World, make_world
from tests.worlds.words import step_of, words_world

AUTHORITY = SigningKey.generate()
WORLDS = [make_world(authority=AUTHORITY, name=f"task-{i}") for i in range(3)]
Page = Callable[[directory_pb2.PageRequest], directory_pb2.PageReply]


def bundles(worlds: list[World]) -> list[bytes]:
    return [
        codec.encode_bundle(TaskBundle(world.signed_task, world.signed_schedule))
        for world in worlds
    ]


def catalogue(worlds: list[World]) -> bytes:
    return directory_pb2.Catalogue(
        bundles=[directory_pb2.TaskBundle.FromString(data) for data in bundles(worlds)]
    ).SerializeToString()


@dataclass
class Book:
    """What a directory asks of a shuffler's tasks."""

    served: dict[Any, Any] = field(default_factory=dict)

    def add(self, world: World) -> None:
        served = serve_task(world.signed_task, world.signed_schedule, world.authorities)
        self.served[served.task_id] = served


@asynccontextmanager
async def serving(service: Service) -> AsyncIterator[str]:
    server = RpcServer("127.0.0.1:0", [service], TLS)
    port = await server.start()
    try:
        yield f"localhost:{port}"
    finally:
        await server.stop(0.0)


def scripted(page: Page, asked: list[directory_pb2.PageRequest] | None = None) -> Service:
    async def handler(request: bytes, _: Call) -> bytes:
        parsed = directory_pb2.PageRequest.FromString(request)
        if asked is not None:
            asked.append(parsed)
        return page(parsed).SerializeToString()

    return Service("shoal.v1.Directory", {"Page": Method(1024, handler=handler)})


def pages(data: bytes, size: int, digest: bytes | None = None) -> Page:
    """An honest directory with small pages, but for ``digest``."""
    told = digest or hashlib.sha256(data).digest()

    def page(asked: directory_pb2.PageRequest) -> directory_pb2.PageReply:
        offset = asked.offset if asked.digest == told else 0
        return directory_pb2.PageReply(
            digest=told, total=len(data), offset=offset, data=data[offset : offset + size]
        )

    return page


class Taken:
    """An ``Offer`` that keeps what it got; ``refuse``: raise that instead."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.refuse: Kind | None = None

    def __call__(self, data: bytes, origin: str) -> None:
        assert origin == "shuffler"
        if self.refuse is not None:
            raise ShoalError(self.refuse, "no")
        self.got.append(data)


def feed(address: str, taken: Taken, every_s: float = 3_600.0) -> GrpcFeed:
    return GrpcFeed(address, CA, taken, every_s=every_s, entropy=SeededEntropy("feed"))


async def test_the_shufflers_own_directory_is_read_and_only_read_again_when_it_changes() -> None:
    """Planted: the digest forgotten -> everything offered again at each look, and this fails."""
    known_tasks, taken = Book(), Taken()
    for world in WORLDS[:2]:
        known_tasks.add(world)
    directory = Directory(known_tasks, FakeClock(START + 1.0))  # type: ignore[arg-type]
    async with serving(directory.service()) as address:
        one = feed(address, taken)
        await one.once(30.0)
        assert sorted(taken.got) == sorted(bundles(WORLDS[:2]))
        await one.once(30.0)
        assert len(taken.got) == 2
        known_tasks.add(WORLDS[2])
        await one.once(30.0)
        assert sorted(taken.got[2:]) == sorted(bundles(WORLDS))


async def test_what_a_shuffler_cannot_take_is_passed_on_and_taken_back() -> None:
    """With the address, so that it counts for that shuffler's tasks alone; numbers that are no
    window and ids that are none are left out. Planted: the catalogue not made anew when that
    changes -> the old word stays, fails. Planted: a window beyond all left in, or its task then
    paused whole -> fails.
    """
    known_tasks, told = Book(), list[tuple[str, Mapping[TaskId, frozenset[int]]]]()
    for world in WORLDS[:2]:
        known_tasks.add(world)
    first, second = (world.task_id for world in WORLDS[:2])
    paused: dict[TaskId, frozenset[int]] = {first: frozenset({1, 3}), second: frozenset()}
    directory = Directory(known_tasks, FakeClock(START + 1.0), lambda: dict(paused))  # type: ignore[arg-type]
    async with serving(directory.service()) as address:
        one = GrpcFeed(address, CA, Taken(), every_s=3_600.0, pause=lambda *word: told.append(word))
        await one.once(30.0)
        paused.clear()
        await one.once(30.0)
        assert told == [(address, {first: frozenset({1, 3}), second: frozenset()}), (address, {})]
    made = directory_pb2.Catalogue(
        paused=[
            directory_pb2.Paused(task_id=b"x"),
            directory_pb2.Paused(task_id=bytes(32), windows=[1 << 20]),
        ]
    )
    async with serving(scripted(pages(made.SerializeToString(), 4_096))) as address:
        await GrpcFeed(
            address, CA, Taken(), every_s=3_600.0, pause=lambda *word: told.append(word)
        ).once(30.0)
        assert told[2:] == [(address, {})]


async def test_what_a_discovery_asks_is_passed_on_and_asked_for_again_where_it_was_not_taken() -> (
    None
):
    """A step that can't be taken now comes with every look until it is; one that is wrong for ever
    does not, and keeps none of the others back. Planted: the digest remembered all the same -> the
    second look brings nothing.
    """
    world, got = words_world(), list[bytes]()
    steps = [step_of(world, window, None).data for window in (1, 2, 3)]
    fails = {steps[0]: Kind.BAD_SIGNATURE, steps[1]: Kind.OVERLOADED}

    def take(data: bytes) -> None:
        got.append(data)
        if data in fails:
            raise ShoalError(fails[data], "not now")

    made = directory_pb2.Catalogue(steps=steps).SerializeToString()
    async with serving(scripted(pages(made, 4_096))) as address:
        one = GrpcFeed(address, CA, Taken(), every_s=3_600.0, step=take)
        await one.once(30.0)
        assert got == steps
        fails[steps[1]] = Kind.INVALID
        await one.once(30.0)
        assert got == steps * 2
        await one.once(30.0)
        assert got == steps * 2


async def test_an_empty_directory_is_fine() -> None:
    taken = Taken()
    async with serving(Directory(Book(), FakeClock(START + 1.0)).service()) as address:  # type: ignore[arg-type]
        one = feed(address, taken)
        await one.once(30.0)
        await one.once(30.0)
    assert taken.got == []


@pytest.mark.parametrize("size", [500, 1_000, 1 << 18])
async def test_pages_of_any_size_are_put_together(size: int) -> None:
    data, taken, asked = catalogue(WORLDS), Taken(), list[directory_pb2.PageRequest]()
    async with serving(scripted(pages(data, size), asked)) as address:
        one = feed(address, taken)
        await one.once(30.0)
        assert taken.got == bundles(WORLDS)
        calls = len(asked)
        assert calls == -(-len(data) // size)
        await one.once(30.0)
        assert len(asked) == calls + 1
        assert (asked[-1].digest, asked[-1].offset) == (hashlib.sha256(data).digest(), len(data))


async def test_a_catalogue_that_changes_half_way_is_read_from_its_beginning() -> None:
    before, after, taken, count = catalogue(WORLDS[:2]), catalogue(WORLDS), Taken(), 0

    def page(asked: directory_pb2.PageRequest) -> directory_pb2.PageReply:
        nonlocal count
        count += 1
        return pages(before if count <= 2 else after, 700)(asked)

    async with serving(scripted(page)) as address:
        await feed(address, taken).once(30.0)
    assert taken.got == bundles(WORLDS)


def lying(**changes: Any) -> Page:
    data = catalogue(WORLDS)

    def page(asked: directory_pb2.PageRequest) -> directory_pb2.PageReply:
        reply = pages(data, 700)(asked)
        for name, value in changes.items():
            setattr(reply, name, value)
        return reply

    return page


LIES: dict[str, tuple[Page, int]] = {  # and how many pages of it are asked for
    "another digest": (pages(catalogue(WORLDS), 1 << 17, bytes(range(32))), 1),
    "a short digest": (lying(digest=bytes(31)), 1),
    "too large": (lying(total=LIMITS.catalogue_bytes + 1), 1),
    "no progress": (lying(data=b""), 1),
    "a gap": (lying(offset=5), 1),
    "more than its size": (lying(total=100), 1),
    "no catalogue": (pages(b"\xff" * 1_000, 400), 3),
}


@for_each("name", LIES)
async def test_a_directory_that_lies_is_noticed_at_once_and_offers_nothing(name: str) -> None:
    """Planted: each check of ``_read`` taken out in turn -> its case goes on asking, or offers what
    nobody vouches for: this fails.
    """
    page, calls = LIES[name]
    taken, asked = Taken(), list[directory_pb2.PageRequest]()
    async with serving(scripted(page, asked)) as address:
        with pytest.raises(ShoalError) as error:
            await feed(address, taken).once(30.0)
    assert error.value.kind in {Kind.UNAVAILABLE, Kind.INVALID}
    assert taken.got == []
    assert len(asked) == calls


async def test_one_that_changes_for_ever_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no bound on pages -> it never ends."""
    monkeypatch.setattr(grpc_feed, "_MOST_PAGES", 20)
    asked: list[directory_pb2.PageRequest] = []

    def page(_: directory_pb2.PageRequest) -> directory_pb2.PageReply:
        return directory_pb2.PageReply(
            digest=hashlib.sha256(bytes([len(asked)])).digest(), total=10_000, offset=0, data=b"x"
        )

    async with serving(scripted(page, asked)) as address:
        with pytest.raises(ShoalError, match="does not end"):
            await feed(address, Taken()).once(30.0)
    assert len(asked) == 20


@for_each(
    "kind, again",
    [
        (Kind.OVERLOADED, True),
        (Kind.WINDOW_CLOSED, True),
        (Kind.FORBIDDEN, False),
        (Kind.CONFLICT, False),
    ],
)
async def test_what_could_not_be_taken_now_is_offered_again_and_what_never_will_is_not(
    kind: Kind, again: bool
) -> None:
    """A full disk, or a clock that was wrong at boot. Planted: the digest remembered whatever
    happened -> this fails.
    """
    taken = Taken()
    taken.refuse = kind
    async with serving(scripted(pages(catalogue(WORLDS), 4_096))) as address:
        one = feed(address, taken)
        await one.once(30.0)
        taken.refuse = None
        await one.once(30.0)
    assert taken.got == (bundles(WORLDS) if again else [])


async def test_one_task_that_breaks_its_reader_does_not_keep_the_others_away() -> None:
    """A bug that one bundle meets; garbage among good ones is refused and done with. Planted: only
    ShoalError caught -> what comes after it is never offered, at no look. Planted: the digest
    remembered all the same, or nothing said -> fails.
    """
    first, *others = bundles(WORLDS)
    garbage = directory_pb2.TaskBundle(signed_task=b"\xff" * 20, signed_schedule=b"\x00")
    made = directory_pb2.Catalogue.FromString(catalogue(WORLDS))
    made.bundles.insert(1, garbage)
    taken, broken = Taken(), True

    def offer(data: bytes, origin: str) -> None:
        if data == first and broken:
            raise RuntimeError("a bug of ours")
        codec.decode_signed_task(codec.decode_bundle(data).signed_task)
        taken(data, origin)

    async with serving(scripted(pages(made.SerializeToString(), 4_096))) as address:
        one = GrpcFeed(address, CA, offer, every_s=3_600.0, entropy=SeededEntropy("feed"))
        with pytest.raises(ShoalError, match="can't be read"):
            await one.once(30.0)
        assert taken.got == others
        broken = False
        await one.once(30.0)
        assert taken.got == [*others, first, *others]
        await one.once(30.0)
        assert len(taken.got) == 5


async def test_it_outlives_everything_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused connections, lies, bugs of ours: each is a pause. Planted: only ShoalError caught ->
    the feed dies, and this hangs.
    """
    waits: list[float] = []
    stop, taken = asyncio.Event(), Taken()
    answers = iter([LIES["a gap"][0], LIES["no catalogue"][0], pages(catalogue(WORLDS), 4_096)])
    current: list[Page] = [LIES["a gap"][0]]

    async def waited(_: asyncio.Event, seconds: float) -> bool:
        waits.append(seconds)
        following = next(answers, None)
        if following is None:
            stop.set()
        else:
            current[0] = following
        await asyncio.sleep(0)
        return stop.is_set()

    monkeypatch.setattr(grpc_feed, "waited", waited)

    def page(asked: directory_pb2.PageRequest) -> directory_pb2.PageReply:
        return current[0](asked)

    async with serving(scripted(page)) as address:
        one = feed(address, taken, every_s=100.0)
        await one.run(stop)
    assert taken.got == bundles(WORLDS)
    assert one.trouble is None
    assert len(waits) == 4
    assert all(seconds <= 5.0 * 2.0**i for i, seconds in enumerate(waits[:3]))
    assert 50.0 <= waits[3] <= 150.0


async def test_a_shuffler_that_is_away_is_one_line_of_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = asyncio.Event()

    async def waited(_: asyncio.Event, __: float) -> bool:
        stop.set()
        return True

    monkeypatch.setattr(grpc_feed, "waited", waited)
    one = feed("localhost:1", Taken())
    await one.run(stop)
    assert one.trouble
    assert "\n" not in one.trouble

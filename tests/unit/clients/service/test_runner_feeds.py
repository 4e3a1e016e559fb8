"""What feeds bring to a running agent: tasks that are answered, and every bundle that is refused
with its reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shoal import codec
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.service import runner as runner_module
from shoal.clients.settings.config import AgentConfig
from shoal.codec import TaskBundle
from shoal.crypto.hpke import generate
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.clients import START, World, make_world
from tests.worlds.devices.runner import HOUR, Place, bundle

# --- feeds ----------------------------------------------------------------------------------------


class FakeFeed:
    """Offers what the test gives it."""

    origin = "mqtt"

    def __init__(self, offer: Callable[[bytes, str], None]) -> None:
        self.trouble: str | None = None
        self._offer = offer
        self.refused: list[Kind] = []

    def give(self, data: bytes) -> None:
        try:
            self._offer(data, self.origin)
        except ShoalError as error:
            self.refused.append(error.kind)

    async def once(self, deadline_s: float) -> None:
        pass

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[FakeFeed]:
    feeds: list[FakeFeed] = []

    def opening(
        config: AgentConfig, offer: Callable[[bytes, str], None], *_: object
    ) -> list[FakeFeed]:
        feeds.append(FakeFeed(offer))
        return feeds[-1:]

    monkeypatch.setattr(runner_module, "open_feeds", opening)
    return feeds


def learnt(place: Place, **changes: Any) -> World:
    """A task that is not in the folder."""
    for path in (place.folder / "tasks").iterdir():
        path.unlink()
    world = make_world(
        **{
            "length": HOUR,
            "count": 6,
            "authority": place.world.authority,
            "hop": place.world.hop,
            **changes,
        }
    )
    place.world = world
    return world


async def test_a_task_learnt_from_a_feed_is_answered_also_after_a_restart(
    place: Place, fed: list[FakeFeed]
) -> None:
    world = learnt(place)
    async with place.running():
        await place.until(lambda: bool(fed))
        fed[0].give(bundle(world))
        await place.until(lambda: place.windows() == [0])
    async with place.running():
        await place.until(lambda: place.windows() == [0, 1])
    assert [one.task_id for one in place.entries(LedgerEvent.SEEN)] == [world.task_id]
    assert len(place.entries(LedgerEvent.ACCEPTED)) == 1


async def test_a_reload_does_not_say_that_a_feed_answers(
    place: Place, fed: list[FakeFeed], logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """It was only opened anew. Planted: keep what was said of the feed before -> "feed answers",
    with nobody there.
    """

    def events() -> set[str]:
        return {one["event"] for one in logged()}

    async with place.running():
        await place.until(lambda: bool(fed))
        fed[0].trouble = "nobody listens there"
        await place.until(lambda: "feed brings nothing" in events())
        place.reload.set()
        await place.until(lambda: len(fed) == 2 and len(place.windows()) >= 2)
    assert "configuration read again" in events()
    assert "feed answers" not in events()


async def test_a_second_schedule_from_a_feed_strikes_the_task_for_ever(
    place: Place, fed: list[FakeFeed]
) -> None:
    """Planted: no strike on the shelf's CONFLICT -> window 1 is answered under the first
    schedule.
    """
    world = learnt(place)
    async with place.running():
        await place.until(lambda: bool(fed))
        fed[0].give(bundle(world))
        await place.until(lambda: place.windows() == [0])
        other = world.schedule(generate(SuiteId.X25519_AES128))
        fed[0].give(codec.encode_bundle(TaskBundle(world.signed_task, other)))
        assert fed[0].refused == [Kind.CONFLICT]
        await place.until(lambda: bool(place.entries(LedgerEvent.STRUCK)))
        await place.until(lambda: place.clock.now() > START + 7 * HOUR)
    async with place.running():
        fed[-1].give(bundle(world))
        await place.settle()
    assert place.windows() == [0]
    (struck,) = place.entries(LedgerEvent.STRUCK)
    assert struck.task_id == world.task_id
    assert "another key schedule" in str(struck.details["reason"])


async def test_a_strike_that_a_full_disk_did_not_take_is_asked_for_again(
    place: Place, fed: list[FakeFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Feeds offer again what was OVERLOADED, and never what was a CONFLICT. Planted: the failure
    swallowed -> CONFLICT, and no strike.
    """
    world = learnt(place)
    async with place.running():
        await place.until(lambda: bool(fed))
        fed[0].give(bundle(world))
        await place.until(lambda: place.windows() == [0])
        other = codec.encode_bundle(
            TaskBundle(world.signed_task, world.schedule(generate(SuiteId.X25519_AES128)))
        )
        with monkeypatch.context() as full:

            def fails(*_: object) -> None:
                raise ShoalError(Kind.OVERLOADED, "the disk is full")

            full.setattr("shoal.clients.memory.device_memory.EnteredOutbox.strike", fails)
            fed[0].give(other)
        assert fed[0].refused == [Kind.OVERLOADED]
        fed[0].give(other)
        assert fed[0].refused == [Kind.OVERLOADED, Kind.CONFLICT]
        await place.until(lambda: bool(place.entries(LedgerEvent.STRUCK)))
        await place.until(lambda: place.clock.now() > START + 3 * HOUR)
    assert place.windows() == [0]


def altered(data: bytes) -> bytes:
    return data[:-10] + bytes([data[-10] ^ 1]) + data[-9:]


@pytest.mark.parametrize(
    "what",
    [
        "junk",
        "unsigned",
        "wrongly signed",
        "altered task",
        "altered schedule",
        "expired",
        "foreign",
    ],
)
async def test_what_a_feed_brings_and_is_refused_is_in_the_ledger_once_and_nothing_is_sent(
    place: Place, fed: list[FakeFeed], what: str
) -> None:
    """Planted: write the bundle before its signatures hold -> a file on the shelf; no digest kept
    -> an entry per offer.
    """
    world = learnt(place)
    signed = codec.decode_signed_task(world.signed_task)
    forged = codec.encode_signed_task(codec.Signed(signed.data, world.authority.public, bytes(64)))
    data, kinds = {
        "junk": (b"junk", {Kind.INVALID}),
        "unsigned": (
            codec.encode_bundle(TaskBundle(forged, world.signed_schedule)),
            {Kind.BAD_SIGNATURE, Kind.INVALID},
        ),
        "wrongly signed": (bundle(resigned(world)), {Kind.BAD_SIGNATURE}),
        "altered task": (
            codec.encode_bundle(TaskBundle(altered(world.signed_task), world.signed_schedule)),
            {Kind.BAD_SIGNATURE},
        ),
        "altered schedule": (
            codec.encode_bundle(TaskBundle(world.signed_task, altered(world.signed_schedule))),
            {Kind.BAD_SIGNATURE},
        ),
        "expired": (
            bundle(
                make_world(start=START - 10**7, count=1, length=HOUR, authority=world.authority)
            ),
            {Kind.WINDOW_CLOSED},
        ),
        "foreign": (bundle(make_world(length=HOUR)), {Kind.FORBIDDEN}),
    }[what]
    async with place.running():
        await place.until(lambda: bool(fed))
        for _ in range(3):
            fed[0].give(data)
        await place.until(lambda: place.clock.now() > START + 2 * HOUR)
    assert set(fed[0].refused) <= kinds
    assert len(fed[0].refused) == 3
    (problem,) = place.entries(LedgerEvent.PROBLEM)
    assert problem.details["origin"] == "mqtt"
    assert Kind[str(problem.details["kind"])] in kinds
    assert problem.details["reason"]
    assert place.far.frames == []
    assert not list((place.folder / "outbox.db.tasks").glob("*.task"))


def resigned(world: World) -> World:
    """The same task, its signature made by somebody else in the authority's name."""
    signed, stranger = codec.decode_signed_task(world.signed_task), SigningKey.generate()
    world.signed_task = codec.encode_signed_task(
        codec.Signed(
            signed.data, world.authority.public, stranger.sign(SigningContext.TASK, signed.data)
        )
    )
    return world

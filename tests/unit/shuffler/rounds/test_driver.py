"""Two shufflers over one store of sums: a window of rounds is driven by one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from shoal.clocks.backoff import Backoff
from shoal.clocks.clock import FakeClock
from shoal.crypto.secagg.exchange import open_reply, seal_request
from shoal.crypto.secagg.records import Reason
from shoal.entropy import SYSTEM, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2
from shoal.rpc.call import Call
from shoal.secagg import Mode
from shoal.services.given_up import TaskWindow
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.rounds import driver as driver_module
from shoal.shuffler.rounds.collection import Collection
from shoal.shuffler.rounds.driver import RoundDriver
from shoal.shuffler.rounds.ingress import RoundsIngress
from shoal.shuffler.rounds.parts import RoundParts
from shoal.shuffler.rounds.singles import Singles
from shoal.shuffler.stores.claims import CLAIM_S, Claim, HeldClaims, OwnerId
from shoal.shuffler.stores.configured import ShufflerStorage, open_embedded
from shoal.shuffler.stores.rounds import VerifiedVector
from shoal.shuffler.tasks import ShufflerTasks
from tests.worlds.rounds.services import PATIENCE_S, TICK_S, World
from tests.worlds.services.shuffler import START

DEVICE = b"d" * 32


class Analyzer:
    """Releases a window when it is asked to: in this process. ``answering``: when it does."""

    def __init__(self) -> None:
        self.finished: list[WindowId] = []
        self.failing = False
        self.asked, self.answering = asyncio.Event(), asyncio.Event()
        self.answering.set()

    async def finish(self, window: WindowId, damaged: int = 0, summed: int = 0) -> bool:
        self.asked.set()
        if self.failing:
            raise ShoalError(Kind.MISMATCH, "it won't")
        await self.answering.wait()
        self.finished.append(window)
        return True

    async def stream(self, method: str, messages: AsyncIterator[bytes]) -> bytes:
        raise AssertionError(f"{method} of a window with too few vectors")


@dataclass
class One:
    """A shuffler, as far as its rounds go, with a clock and tasks of its own."""

    driver: RoundDriver
    clock: FakeClock
    analyzer: Analyzer
    book: ShufflerTasks
    decided: list[WindowId] = field(default_factory=list)


class Two:
    """Two of them, over one store whose claims run out by ``seconds``."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        self.world, self.seconds = World(folder / "world", mode=mode), 0.0
        self.given_up = set[TaskWindow]()
        self.window = WindowId(self.world.published.task_id, 0)
        (folder / "data").mkdir()
        self.storage: ShufflerStorage = open_embedded(
            folder / "data", commit_ms=0, steady=lambda: self.seconds
        )
        self.first, self.second = (self._shuffler(name) for name in (b"f", b"s"))

    def _shuffler(self, name: bytes) -> One:
        world, clock, analyzer = self.world.shuffler, FakeClock(START + 1.0), Analyzer()
        book = ShufflerTasks(
            self.storage.reports,
            clock,
            world.tasks_dir,
            world.keys_dir,
            frozenset({world.authority.public}),
            world.shuffler.public,
        )
        entropy = SeededEntropy(name.hex())
        parts = RoundParts(
            cast(Collection, analyzer),  # no round is opened here
            world.shuffler,
            self.storage.scratch,
            clock,
            entropy,
            TICK_S,
        )
        decided: list[WindowId] = []

        async def decide(claim: Claim) -> None:
            await self.storage.reports.lapse([claim])
            book.decided(claim.window)
            decided.append(claim.window)

        driver = RoundDriver(
            book,
            parts,
            self.storage.answered,
            Singles(self.storage.vectors, entropy),
            decide,
            HeldClaims(self.storage.reports, OwnerId(name * 16)),
            self.given_up,
        )
        return One(driver, clock, analyzer, book, decided)

    def pass_time(self, seconds: float) -> None:
        """For everybody: also for who sleeps."""
        self.seconds += seconds
        for one in (self.first, self.second):
            one.clock.advance(seconds)

    def end_of_window(self) -> float:
        deadline = self.world.published.served.task.windows.deadline_of(0)
        return deadline - self.first.clock.now()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for what is going to happen."""
        async with asyncio.timeout(PATIENCE_S):
            while not happened():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(TICK_S / 4)

    async def close(self) -> None:
        for one in (self.first, self.second):
            one.analyzer.answering.set()
            await one.driver.stop()
        await self.storage.close()


@pytest.fixture(params=[Mode.DEFAULT, Mode.HELPER])
async def two(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Two]:
    made = Two(tmp_path, request.param)
    yield made
    await made.close()


async def test_rounds_of_a_window_have_one_shuffler_and_another_when_it_sleeps(two: Two) -> None:
    """A window is begun by who claimed it. Its shuffler sleeps longer than its claim holds and
    wakes: it remembers nobody any more, leaves the window, and ends nothing. Planted: the driver
    begins a window without a claim -> both have it; the claims not renewed, or what was taken over
    not left -> the first one keeps it; the claim not passed on by ``WindowRounds.remember`` ->
    remembered, fails.
    """
    first, second, window = two.first, two.second, two.window
    await first.driver.tick()
    await second.driver.tick()
    rounds = first.driver.window(window)
    assert rounds is not None
    assert second.driver.window(window) is None
    assert (first.driver.is_elsewhere(window), second.driver.is_elsewhere(window)) == (False, True)
    await rounds.remember(DEVICE)
    two.pass_time(CLAIM_S)  # the first one sleeps
    await second.driver.tick()
    assert second.driver.window(window) is not None
    with pytest.raises(ShoalError) as refused:  # it wakes, and a device's last chunk comes
        await rounds.remember(b"e" * 32)
    assert (refused.value.kind, refused.value.message) == (
        Kind.ABORTED,
        Reason.RESTARTED.error.message,
    )
    assert await two.storage.answered.answered(window, DEVICE)
    assert not await two.storage.answered.answered(window, b"e" * 32)
    await first.driver.tick()
    await two.until(lambda: first.driver.window(window) is None)
    await first.driver.tick()
    assert first.driver.is_elsewhere(window)
    two.pass_time(two.end_of_window() + 1)
    await second.driver.tick()
    await two.until(lambda: second.decided == [window])
    await two.until(lambda: second.driver.window(window) is None)
    assert (first.analyzer.finished, second.analyzer.finished) == ([], [window])
    assert not await two.storage.answered.answered(window, DEVICE)


async def test_a_window_that_is_given_up_is_not_asked_for_again(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it goes on its rounds go on; when it is over, an analyzer that won't finish it is left
    alone, and who answered is forgotten. Planted: retention alone ends the asking -> it is asked
    for ever, fails.
    """
    monkeypatch.setattr(driver_module, "_FINISH", Backoff(0.001, 0.001))
    one, window = two.first, two.window
    one.analyzer.failing = True
    await one.driver.tick()
    rounds = one.driver.window(window)
    assert rounds is not None
    await rounds.remember(DEVICE)
    two.given_up.add((window.task_id, window.window))
    await one.driver.tick()
    assert one.driver.window(window) is rounds
    two.given_up.clear()
    two.pass_time(two.end_of_window() + 1)
    await two.until(lambda: one.driver.failing[window] > 2)
    assert one.decided == []
    two.given_up.add((window.task_id, window.window))
    await two.until(lambda: one.decided == [window])
    assert one.analyzer.finished == []
    assert one.driver.failing[window] == 0
    assert not await two.storage.answered.answered(window, DEVICE)


async def test_a_window_that_was_finished_by_another_is_not_finished_again(two: Two) -> None:
    """The first shuffler sleeps while it waits for the analyzer's release, and wakes when another
    one has the window: what it does then changes nothing. Planted: ``forget`` of who answered
    without a look at the claim -> forgotten too early, fails; no look at the record when the first
    one has the claim again -> the window is finished anew, fails.
    """
    first, second, window = two.first, two.second, two.window
    await first.driver.tick()
    rounds = first.driver.window(window)
    assert rounds is not None
    await rounds.remember(DEVICE)
    if rounds.terms.plan.mode is Mode.HELPER:
        vector = VerifiedVector(window, 10, DEVICE, b"v" * 50, b"s" * 32)
        assert await two.storage.vectors.add(vector) is None
    first.analyzer.answering.clear()
    two.pass_time(two.end_of_window() + 1)
    async with asyncio.timeout(PATIENCE_S):
        await first.analyzer.asked.wait()
    two.pass_time(CLAIM_S)  # it sleeps
    second.analyzer.answering.clear()
    await second.driver.tick()
    async with asyncio.timeout(PATIENCE_S):
        await second.analyzer.asked.wait()
    first.analyzer.answering.set()  # it wakes in the middle: the answer is there, the window gone
    await two.until(lambda: first.driver.window(window) is None)
    assert first.decided == []
    assert await two.storage.answered.answered(window, DEVICE)
    assert two.storage.reports.record(window) is None
    second.analyzer.answering.set()
    await two.until(lambda: second.decided == [window])
    record = two.storage.reports.record(window)
    assert record is not None
    assert record.state is WindowState.SHREDDED
    assert not await two.storage.answered.answered(window, DEVICE)
    assert await two.storage.vectors.rows(window) == []
    asked = len(first.analyzer.finished)
    for _ in range(2):  # the first one looks around
        await first.driver.tick()
    assert first.driver.window(window) is None
    assert not first.driver.is_elsewhere(window)
    assert window not in [open_ for _, open_ in first.book.running(first.clock.now())]
    assert len(first.analyzer.finished) == asked
    assert first.decided == []


async def test_a_window_that_ends_while_its_claim_is_asked_for_is_not_begun_again(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of windows is older than the answer of a store across a network. Planted: no look at
    the record once the claim is there -> finished twice, fails.
    """
    first, second, window = two.first, two.second, two.window
    two.pass_time(two.end_of_window() + 1)
    store, asked, go_on = two.storage.reports, asyncio.Event(), asyncio.Event()
    claim_at_once = store.claim

    async def slowly(wanted: WindowId, owner: OwnerId, seconds: float) -> Claim | None:
        if owner == OwnerId(b"f" * 16):
            asked.set()
            await go_on.wait()
        return await claim_at_once(wanted, owner, seconds)

    monkeypatch.setattr(store, "claim", slowly)
    tick = asyncio.create_task(first.driver.tick())
    async with asyncio.timeout(PATIENCE_S):
        await asked.wait()
    await second.driver.tick()
    await two.until(lambda: second.decided == [window])
    await two.until(lambda: second.driver.window(window) is None)
    go_on.set()
    await tick
    assert first.driver.window(window) is None
    assert first.analyzer.finished == []


async def test_a_window_whose_rounds_are_cancelled_before_they_begin_is_begun_anew(
    two: Two,
) -> None:
    """Planted: what is under way forgotten in the task's own ``finally``, which never runs then ->
    the window is skipped for ever, fails.
    """
    first, window = two.first, two.window
    await first.driver.tick()
    first.driver._taken_over(window)
    await two.until(lambda: first.driver.window(window) is None)
    await first.driver.tick()
    assert first.driver.window(window) is not None


async def test_who_sleeps_over_the_end_of_a_window_shows_nothing_of_it(two: Two) -> None:
    """It wakes when the window is over and another shuffler's: it takes what it had begun to its
    end, finds that out at its first change, and leaves. Planted: StaleClaimError taken for an
    answer of the analyzer by ``_until_done`` -> in helper mode it asks for ever, fails.
    """
    first, second, window = two.first, two.second, two.window
    await first.driver.tick()
    two.seconds += CLAIM_S
    await second.driver.tick()
    assert second.driver.window(window) is not None
    first.clock.advance(two.end_of_window() + 1)
    await two.until(lambda: first.driver.window(window) is None)
    assert first.decided == []
    assert two.storage.reports.record(window) is None
    assert (
        await two.storage.vectors.add(VerifiedVector(window, 10, DEVICE, b"v" * 50, b"s" * 32))
        is None
    )  # it is open still, for its owner
    second.clock.time = first.clock.time
    await two.until(lambda: second.decided == [window])


async def test_a_device_that_asks_the_other_shuffler_is_told_to_come_again(two: Two) -> None:
    """Also after the window's end: the one that has it may still be at work. Planted: no look at
    ``is_elsewhere`` -> too early, then over, for which a device drops its answer, fails.
    """
    world, second = two.world.published, two.second
    step = pairwise_pb2.Step(
        task_id=world.task_id.raw, window=0, session=bytes(16), ask=pairwise_pb2.Ask()
    )
    singles = Singles(two.storage.vectors)
    ingress = RoundsIngress(second.book, second.driver, singles, second.clock)
    await two.first.driver.tick()
    await second.driver.tick()
    for _ in range(2):
        request = seal_request(world.hop.config, step.SerializeToString(), SYSTEM)
        frame = pairwise_pb2.ExchangeRequest(frame=request.frame).SerializeToString()
        reply = await ingress.exchange(frame, cast(Call, None))
        sealed = pairwise_pb2.ExchangeReply.FromString(reply).sealed
        answer = pairwise_pb2.Answer.FromString(open_reply(request.reply_key, sealed))
        assert Kind(answer.kind) is Kind.UNAVAILABLE
        second.clock.advance(two.end_of_window() + 1)


async def test_the_same_shuffler_takes_its_windows_up_after_a_start(two: Two) -> None:
    """Also at once: what stopped gave its claims back. Planted: not given back -> another one waits
    for CLAIM_S, fails.
    """
    await two.first.driver.tick()
    assert two.first.driver.window(two.window) is not None
    await two.first.driver.stop()
    await two.second.driver.tick()
    assert two.second.driver.window(two.window) is not None

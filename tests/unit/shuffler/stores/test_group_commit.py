"""Group commit: what is gathered, what is answered, what a cancelled caller undoes (nothing), what
a full queue does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.group_commit import GroupCommit
from shoal.shuffler.stores.store import AdmittedReport

WINDOW = WindowId(TaskId(bytes(32)), 0)


class Memory:
    """A store's ``append`` and ``confirm`` in memory, which a test can hold up."""

    def __init__(self) -> None:
        self.groups: list[list[bytes]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.answer: Callable[[AdmittedReport], Kind | None] = lambda _: None
        self.confirmed = 0

    def append(self, submissions: Sequence[AdmittedReport]) -> list[Kind | None]:
        self.entered.set()
        assert self.gate.wait(30)
        self.groups.append([submission.sealed[0] for submission in submissions])
        return [self.answer(submission) for submission in submissions]

    def appended(self, items: Sequence[tuple[bytes, ...]]) -> list[AdmittedReport]:
        """As ``append``, of items that are many reports each."""
        flat = [report(text) for item in items for text in item]
        self.append(flat)
        return flat

    def confirm(self) -> None:
        self.confirmed = len(self.groups)


def report(text: bytes) -> AdmittedReport:
    return AdmittedReport(WINDOW, (text,))


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
async def make(memory: Memory) -> AsyncIterator[Callable[..., GroupCommit[AdmittedReport]]]:
    made: list[GroupCommit[AdmittedReport]] = []

    def build(**limits: float) -> GroupCommit[AdmittedReport]:
        made.append(
            GroupCommit(
                lambda items: memory.append(items),  # noqa: PLW0108 - tests replace it
                lambda: memory.confirm(),  # noqa: PLW0108 - likewise
                what="report",
                **limits,  # type: ignore[arg-type]  # ints and a float
            )
        )
        return made[-1]

    yield build
    memory.gate.set()
    for writer in made:
        await writer.stop()


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 30)


async def test_an_item_that_is_many_counts_as_many(memory: Memory) -> None:
    """Its outcomes are as many, and so is its room in the queue. Planted: outcomes cut by the
    number of items -> fails. Planted: a call counted as its items are -> 6 wait, fails.
    """
    memory.gate.clear()
    writer = GroupCommit[tuple[bytes, ...]](
        lambda items: [*map(memory.answer, memory.appended(items))],
        what="report",
        wait_s=0.0,
        group_items=100,
        queue_items=6,
    )
    first = asyncio.ensure_future(writer.submit([(b"x",)]))
    await until(memory.entered)
    memory.answer = lambda one: Kind.CONFLICT if one.sealed[0] in (b"b", b"e") else None
    calls = [
        asyncio.ensure_future(writer.submit(items, count))
        for items, count in (([(b"a", b"b"), (b"c",)], 3), ([(b"d", b"e")], 2))
    ]
    await asyncio.sleep(0)
    with pytest.raises(ShoalError) as refused:
        await writer.submit([(b"f", b"g")], 2)
    assert refused.value.kind is Kind.OVERLOADED
    memory.gate.set()
    assert await first == [None]
    assert [await call for call in calls] == [[None, Kind.CONFLICT, None], [None, Kind.CONFLICT]]
    assert memory.groups[1:] == [[b"a", b"b", b"c", b"d", b"e"]]
    await writer.stop()


async def test_calls_are_committed_together_and_answered_each_with_its_own(
    memory: Memory, make: Callable[..., GroupCommit[AdmittedReport]]
) -> None:
    """Planted: slicing the outcomes from 0 for every call -> fails."""
    memory.answer = lambda submission: (
        Kind.WINDOW_FULL if submission.sealed[0] in (b"b", b"d") else None
    )
    writer = make(wait_s=1.0, group_items=5)
    answers = tuple(
        await asyncio.gather(
            writer.submit([report(b"a")]),
            writer.submit([report(b"b")]),
            writer.submit([report(b"c"), report(b"d"), report(b"e")]),
        )
    )
    assert memory.groups == [[b"a", b"b", b"c", b"d", b"e"]]
    assert answers == ([None], [Kind.WINDOW_FULL], [None, Kind.WINDOW_FULL, None])


async def test_nothing_is_answered_before_it_is_stored(
    memory: Memory, make: Callable[..., GroupCommit[AdmittedReport]]
) -> None:
    """Planted: answering before ``append`` -> fails."""
    memory.gate.clear()
    writer = make(group_items=1)
    waiting = asyncio.ensure_future(writer.submit([report(b"a")]))
    await until(memory.entered)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    memory.gate.set()
    assert await waiting == [None]


async def test_a_cancelled_caller_undoes_nothing(
    memory: Memory, make: Callable[..., GroupCommit[AdmittedReport]]
) -> None:
    memory.gate.clear()
    writer = make(wait_s=30.0, group_items=2)
    gone, stays = (asyncio.ensure_future(writer.submit([report(text)])) for text in (b"a", b"b"))
    await until(memory.entered)
    gone.cancel()
    memory.gate.set()
    assert await stays == [None]
    assert memory.groups == [[b"a", b"b"]]
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await writer.submit([report(b"c"), report(b"d")]) == [None, None]


async def test_the_queue_is_bounded_in_rows(
    memory: Memory, make: Callable[..., GroupCommit[AdmittedReport]]
) -> None:
    """Planted: no bound -> the fourth call waits, fails."""
    memory.gate.clear()
    writer = make(group_items=1, queue_items=3)
    first = asyncio.ensure_future(writer.submit([report(b"a")]))
    await until(memory.entered)
    second = asyncio.ensure_future(writer.submit([report(b"b"), report(b"c")]))
    await asyncio.sleep(0)
    with pytest.raises(ShoalError) as refused:
        await writer.submit([report(b"d")])
    assert refused.value.kind is Kind.OVERLOADED
    memory.gate.set()
    assert await first == [None]
    assert await second == [None, None]
    assert await writer.submit([report(b"d")]) == [None]


async def test_a_call_larger_than_the_queue_is_taken_when_the_queue_is_empty(
    make: Callable[..., GroupCommit[AdmittedReport]],
) -> None:
    assert await make(group_items=1, queue_items=2).submit([report(b"x")] * 5) == [None] * 5


async def test_work_runs_after_everything_submitted_before_it(
    memory: Memory, make: Callable[..., GroupCommit[AdmittedReport]]
) -> None:
    """So that a window closes behind the last report that was let in. Planted: running work first
    -> fails.
    """
    writer = make(wait_s=1.0, group_items=100)
    seen: list[int] = []
    before = asyncio.ensure_future(writer.submit([report(b"a")]))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(writer.run(lambda: seen.append(len(memory.groups))))
    await asyncio.sleep(0)
    after = asyncio.ensure_future(writer.submit([report(b"b")]))
    await asyncio.gather(before, closing)
    assert seen == [1]
    assert memory.groups == [[b"a"]]
    await writer.stop()
    assert await after == [None]


async def test_failures_reach_their_callers_and_writing_goes_on(
    memory: Memory, make: Callable[..., GroupCommit[AdmittedReport]]
) -> None:
    def broken(_: AdmittedReport) -> Kind | None:
        raise RuntimeError("a bug with a secret in its text")

    memory.answer = broken
    writer = make(group_items=1)
    with pytest.raises(ShoalError, match="could not be stored") as refused:
        await writer.submit([report(b"a")])
    assert refused.value.kind is Kind.INTERNAL
    with pytest.raises(ShoalError) as refused:
        await writer.run(lambda: memory.answer(report(b"x")))
    assert refused.value.kind is Kind.INTERNAL
    memory.answer = lambda _: None
    assert await writer.submit([report(b"c")]) == [None]


async def test_stopping_commits_what_is_queued_and_refuses_the_rest(
    memory: Memory, make: Callable[..., GroupCommit[AdmittedReport]]
) -> None:
    writer = make(wait_s=1.0, group_items=1_000)
    queued = [
        asyncio.ensure_future(writer.submit([report(bytes([number]))])) for number in range(5)
    ]
    await asyncio.sleep(0)
    await writer.stop()
    assert await asyncio.gather(*queued) == [[None]] * 5
    with pytest.raises(ShoalError) as refused:
        await writer.submit([report(b"late")])
    assert refused.value.kind is Kind.UNAVAILABLE


async def test_nothing_is_acknowledged_before_it_is_counted(
    memory: Memory,
    make: Callable[..., GroupCommit[AdmittedReport]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A count that can't be made durable refuses what was taken, and what was refused keeps its
    reason.

    Planted: answering after the commit, without ``confirm`` -> acknowledged, fails.
    """

    def full() -> None:
        raise ShoalError(Kind.OVERLOADED, "the disk is full: free some space")

    memory.answer = lambda submission: Kind.WINDOW_FULL if submission.sealed[0] == b"b" else None
    writer = make(wait_s=0.001)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "confirm", full)
        assert await writer.submit([report(b"a"), report(b"b")]) == [
            Kind.OVERLOADED,
            Kind.WINDOW_FULL,
        ]
    assert memory.confirmed == 0
    assert await writer.submit([report(b"c")]) == [None]
    assert memory.confirmed == 2


async def test_a_group_that_waits_is_committed_while_the_one_before_is_counted(
    memory: Memory,
    make: Callable[..., GroupCommit[AdmittedReport]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And neither is answered before that. Planted: one thread for both -> the second group waits
    for the first one's count, fails.
    """
    counting, go_on, both = threading.Event(), threading.Event(), threading.Event()
    real = memory.append

    def slow() -> None:
        counting.set()
        assert go_on.wait(30)

    def append(submissions: Sequence[AdmittedReport]) -> list[Kind | None]:
        outcomes = real(submissions)
        if len(memory.groups) == 2:
            both.set()
        return outcomes

    monkeypatch.setattr(memory, "confirm", slow)
    monkeypatch.setattr(memory, "append", append)
    memory.gate.clear()
    writer = make(wait_s=0.0, group_items=1)
    first = asyncio.ensure_future(writer.submit([report(b"a")]))
    await until(memory.entered)
    second = asyncio.ensure_future(writer.submit([report(b"b")]))
    await asyncio.sleep(0)
    memory.gate.set()
    await until(counting)
    await until(both)
    assert not first.done()
    assert not second.done()
    go_on.set()
    assert [*await first, *await second] == [None, None]

"""The parts of the PostgreSQL store that need no server: keys of windows, blocks, seats, and
commits over a network.
"""

from __future__ import annotations

import asyncio
import pickle
import random
from pathlib import Path

import pytest

from shoal.crypto.hpke import generate
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.postgresql.batches import WriterTally
from shoal.shuffler.stores.postgresql.blocks import BlockCipher, Part, batch_place, inbox_place
from shoal.shuffler.stores.postgresql.commits import AsyncCommits, Outcomes
from shoal.shuffler.stores.postgresql.window_keys import (
    Purpose,
    WindowKey,
    WindowKeyFiles,
    derive,
)
from shoal.shuffler.stores.seats import SeatSlice, grant

TASK = TaskId(bytes(range(32)))
ONE, TWO = WindowId(TASK, 1), WindowId(TASK, 2)
HOP = generate(SuiteId.X25519_AES128)


# --- keys


def test_every_window_and_purpose_has_a_key_of_its_own() -> None:
    """Planted: the window, or the purpose, left out of what is derived from -> two are equal,
    fails.
    """
    keys = [derive(HOP, window, purpose) for window in (ONE, TWO) for purpose in Purpose]
    other = derive(generate(SuiteId.X25519_AES128), ONE, Purpose.INBOX)
    values = {key.of("rows") for key in [*keys, other]}
    assert len(values) == 5
    assert derive(HOP, ONE, Purpose.INBOX).same_as(keys[0])
    assert len({keys[0].of(label) for label in ("rows", "names", "check")}) == 3


def test_a_key_neither_prints_nor_is_pickled() -> None:
    """Planted: a dataclass -> its root prints, fails."""
    key = WindowKey(b"\x11" * 32)
    assert "11" not in repr(key)
    with pytest.raises(TypeError):
        pickle.dumps(key)


def test_key_files_are_private_and_go_for_good(tmp_path: Path) -> None:
    """Planted: the memory left after a deletion -> it is still given out, fails."""
    files, key = WindowKeyFiles(tmp_path), derive(HOP, ONE, Purpose.INBOX)
    assert files.get(ONE, Purpose.INBOX) is None
    files.keep(ONE, Purpose.INBOX, key)
    files.keep(ONE, Purpose.INBOX, key)
    (path,) = (tmp_path / "window-keys").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    again = WindowKeyFiles(tmp_path)
    assert again.held() == [(ONE, Purpose.INBOX)]
    kept = again.get(ONE, Purpose.INBOX)
    assert kept is not None
    assert kept.same_as(key)
    again.delete(ONE, Purpose.INBOX)
    again.delete(ONE, Purpose.INBOX)
    assert again.get(ONE, Purpose.INBOX) is None
    assert again.held() == []


def test_another_key_of_the_same_window_is_refused(tmp_path: Path) -> None:
    """Planted: what is there not compared -> two replicas go on with two keys, fails."""
    files = WindowKeyFiles(tmp_path)
    files.keep(ONE, Purpose.BATCH, derive(HOP, ONE, Purpose.BATCH))
    with pytest.raises(ShoalError, match="another key") as refused:
        files.keep(ONE, Purpose.BATCH, derive(HOP, TWO, Purpose.BATCH))
    assert refused.value.kind is Kind.KEY_FILE
    (path,) = (tmp_path / "window-keys").iterdir()
    path.write_text("nothing")
    with pytest.raises(ShoalError, match="damaged"):
        WindowKeyFiles(tmp_path).get(ONE, Purpose.BATCH)


def test_a_key_is_needed_until_its_work_is_done() -> None:
    """Planted: INBOX needed while SEALED -> fails; BATCH not needed while CLOSING -> fails."""
    state = WindowState
    assert [one for one in state if Purpose.INBOX.needed(one)] == [state.OPEN, state.CLOSING]
    assert [one for one in state if Purpose.BATCH.needed(one)] == [
        *(state.OPEN, state.CLOSING, state.SEALED, state.DELIVERING)
    ]


# --- blocks


def test_a_block_opens_where_it_belongs_alone() -> None:
    """Planted, each: the part, the window, how often it was emptied, the place, the count left out
    of what is bound -> it opens there, fails.
    """
    key, data = b"\x22" * 32, b"rows of a window"
    cipher, place = BlockCipher(key, ONE), inbox_place(b"w" * 16, 5)
    block = cipher.seal(Part.ROWS, place, 2, data)
    assert data not in block
    assert cipher.open(Part.ROWS, place, 2, block) == data
    assert BlockCipher(key, TWO).open(Part.ROWS, place, 2, block) is None
    assert BlockCipher(key, ONE, emptied=1).open(Part.ROWS, place, 2, block) is None
    assert BlockCipher(b"\x23" * 32, ONE).open(Part.ROWS, place, 2, block) is None
    assert cipher.open(Part.KEYS, place, 2, block) is None
    assert cipher.open(Part.ROWS, inbox_place(b"w" * 16, 6), 2, block) is None
    assert cipher.open(Part.ROWS, batch_place(1, 5), 2, block) is None
    assert cipher.open(Part.ROWS, place, 3, block) is None
    for at in range(len(block)):
        assert cipher.open(Part.ROWS, place, 2, block[:at]) is None
    assert cipher.seal(Part.ROWS, place, 2, data) != block


# --- what blocks tell of those that are gone


@pytest.mark.parametrize(
    ("opened", "closed", "lost"),
    [
        ([(2, 10, 10)], [], 10),  # the first is missing
        ([(1, 0, 10), (3, 20, 10)], [(2, 10)], 10),  # the later one knew of it
        ([(2, 10, 10)], [(3, 10)], 20),  # one is missing, and a later one is damaged
        ([], [(2, 10)], 10),
        ([(0, 30, 0), (2, 10, 10)], [(3, 10)], 20),  # the last word knew of all
        ([(1, 0, 10), (2, 0, 10)], [], 0),  # both under way at a time
    ],
)
def test_missing_and_damaged_blocks_add_up(
    opened: list[tuple[int, int, int]], closed: list[tuple[int, int]], lost: int
) -> None:
    """``opened``: number, rows told of before, rows. Planted: the larger of both -> 10 of 20,
    fails.
    Planted: all added -> 20 of 10, fails.
    """
    tally = WriterTally(closed=closed)
    for block in opened:
        tally.add(*block)
    assert tally.damaged == lost


# --- seats


def test_seats_never_exceed_the_limit_whatever_the_replicas_do() -> None:
    """Three replicas, random slices, counts and losses: distinct rows <= seats <= limit, and the
    window ends full. Planted: seats of an epoch before spent -> more than the limit, fails.
    Planted: ``grant`` not bounded by what is free -> fails.
    """
    random_numbers = random.Random(7)  # noqa: S311 - a test's choices
    for _ in range(60):
        limit, given, epoch, stored = random_numbers.randint(1, 60), 0, 1, 0
        replicas = [SeatSlice() for _ in range(3)]
        for _ in range(3_000):
            one = random_numbers.choice(replicas)
            one.follow(epoch)
            if one.spend(1):
                stored += random_numbers.random() < 0.8  # some are found elsewhere, or lost
            elif given < limit:
                slice_ = grant(given, limit, 1)
                given += slice_
                one.add(epoch, slice_)
            else:
                given, epoch = stored, epoch + 1
            assert stored <= given <= limit
        assert stored == limit


def test_seats_of_an_epoch_before_are_void() -> None:
    seats = SeatSlice()
    seats.add(1, 5)
    assert seats.spend(3)
    seats.follow(2)
    assert not seats.spend(1)
    seats.add(1, 9)  # late news
    assert not seats.spend(1)


def test_the_limit_is_in_reports() -> None:
    assert Capacity(messages=3, distinct=10, rows=100).reports == 10
    assert Capacity(messages=3, distinct=0, rows=100).reports == 33
    assert Capacity(messages=3, distinct=50, rows=100).reports == 33


# --- commits


async def test_calls_of_a_moment_are_one_group_and_each_gets_its_own() -> None:
    """Planted: outcomes handed out from the first on for every call -> fails."""
    groups: list[list[int]] = []

    async def append(items: list[int]) -> Outcomes:
        groups.append(items)
        return [None if item % 2 else Kind.WINDOW_FULL for item in items]

    commits = AsyncCommits(append, wait_s=0.01)
    answers = await asyncio.gather(*(commits.submit([n, n + 1], 2) for n in range(0, 10, 2)))
    assert groups == [list(range(10))]
    assert answers == [[Kind.WINDOW_FULL, None]] * 5


async def test_several_groups_are_under_way_and_no_more_than_allowed() -> None:
    """Planted: the number under way not counted -> all ten, fails."""
    under_way, most, gate, three = 0, 0, asyncio.Event(), asyncio.Event()

    async def append(items: list[int]) -> Outcomes:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 3:
            three.set()
        await gate.wait()
        under_way -= 1
        return [None] * len(items)

    commits = AsyncCommits(append, wait_s=0, group_items=1, at_once=3)
    calls = [asyncio.ensure_future(commits.submit([n], 1)) for n in range(10)]
    await three.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*calls) == [[None]] * 10
    assert most == 3


async def test_a_failure_is_told_and_a_cancelled_call_undoes_nothing() -> None:
    """Planted: the group's task awaited by its caller alone -> cancelled with it, fails."""
    stored: list[int] = []
    began, gate = asyncio.Event(), asyncio.Event()

    async def append(items: list[int]) -> Outcomes:
        began.set()
        await gate.wait()
        if items == [3]:
            raise ValueError("a bug")
        stored.extend(items)
        return [None] * len(items)

    commits = AsyncCommits(append, wait_s=0, queue_items=3)
    gone = asyncio.ensure_future(commits.submit([1], 1))
    await began.wait()
    gone.cancel()
    failing = asyncio.ensure_future(commits.submit([3], 1))
    await asyncio.sleep(0)
    with pytest.raises(ShoalError) as refused:
        await commits.submit([4, 5], 2)
    assert refused.value.kind is Kind.OVERLOADED
    gate.set()
    with pytest.raises(ShoalError) as failed:
        await failing
    assert failed.value.kind is Kind.INTERNAL
    await commits.stop()
    assert stored == [1]
    with pytest.raises(ShoalError) as stopped:
        await commits.submit([6], 1)
    assert stopped.value.kind is Kind.UNAVAILABLE

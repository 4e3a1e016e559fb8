"""What several shufflers of one store tell of discoveries: one step of each window, whichever of
them was told first, whatever the store loses.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from shoal.clocks.clock import FakeClock
from shoal.crypto.discovery_steps import check_step
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.steps import EnteredStep
from tests.worlds.services.analyzer import LENGTH, START
from tests.worlds.step_books import MemoryBook, ServedBook, asking
from tests.worlds.words import SMALL, step_of, words_world

WORLD = words_world()
FIRST = step_of(WORLD, 1, SMALL.level(1, [b"\x02", b"\x13"]))
OTHER = step_of(WORLD, 1, SMALL.level(1, [b"\x02"]))
SECOND = step_of(WORLD, 2, SMALL.level(2, [b"\x02\x01"]))
ONE = WindowId(WORLD.task_id, 1)


async def test_a_step_that_one_was_told_is_told_by_all_after_a_look(tmp_path: Path) -> None:
    """Also where that one died at once, and by who starts later with an empty folder. Planted: no
    look at a start, or kept in its own folder alone -> fails.
    """
    book = MemoryBook()
    one, two = (asking(book, tmp_path / name, 1.0, WORLD) for name in ("one", "two"))
    await one.hear([FIRST.data])
    assert two.find(FIRST.name) is None
    await two.look()
    late = asking(book, tmp_path / "late", 1.0, WORLD)
    await late.look()
    for each in (one, two, late):
        assert each.listed() == (FIRST.data,)
        assert each.find(FIRST.name) == ONE
        assert each.named(ONE) == FIRST.name.raw
        assert list(each.conditions()) == []


async def test_of_two_steps_at_one_instant_one_is_told_by_all(tmp_path: Path) -> None:
    """The other replica says so. A report of the other step is of no question that is known.
    Planted: the one that was offered is kept -> two are told, fails.
    """
    book = MemoryBook()
    one, two = (asking(book, tmp_path / name, 1.0, WORLD) for name in ("one", "two"))
    await asyncio.gather(one.hear([FIRST.data]), two.hear([OTHER.data]))
    assert one.listed() == two.listed() == (FIRST.data,)
    assert one.find(OTHER.name) is two.find(OTHER.name) is None
    assert list(one.conditions()) == []
    (told,) = two.conditions()
    assert not told.stops
    await two.hear([FIRST.data])
    assert list(two.conditions()) == []


async def test_what_a_step_follows_is_looked_at_over_all(tmp_path: Path) -> None:
    """A later step is held against the ones that others were told. Planted: against its own alone
    -> taken, fails.
    """
    book = MemoryBook()
    one, two = (asking(book, tmp_path / name, LENGTH + 1.0, WORLD) for name in ("one", "two"))
    await one.hear([FIRST.data])
    await two.look()
    stray = step_of(WORLD, 2, SMALL.level(2, [b"\x07\x01"]))
    await two.hear([stray.data])
    assert [told.stops for told in two.conditions()] == [False]
    assert WindowId(WORLD.task_id, 2) not in book.rows


async def test_while_the_store_is_away_what_is_known_stands(tmp_path: Path) -> None:
    """Nothing new is told by anybody; it is taken when the store is back. Planted: kept before it
    is entered -> told by one, fails.
    """
    book = MemoryBook()
    one = asking(book, tmp_path / "one", LENGTH + 1.0, WORLD)
    await one.hear([FIRST.data])
    book.away = True
    await one.hear([SECOND.data])
    await one.look()
    assert one.listed() == (FIRST.data,)
    assert one.find(FIRST.name) == ONE
    assert {told.stops for told in one.conditions()} == {False}
    assert len(list(one.conditions())) == 2
    book.away = False
    await one.hear([SECOND.data])
    await one.look()
    assert one.listed() == (FIRST.data, SECOND.data)
    assert list(one.conditions()) == []


async def test_what_a_store_lost_is_entered_again_also_by_a_later_process(tmp_path: Path) -> None:
    """It was put back from before the step. Planted: nothing entered again -> the first one to be
    offered another is believed, fails.
    """
    book = MemoryBook()
    await asking(book, tmp_path / "one", 1.0, WORLD).hear([FIRST.data])
    book.rows.clear()
    one = asking(book, tmp_path / "one", 1.0, WORLD)  # killed meanwhile
    await one.look()
    two = asking(book, tmp_path / "two", 1.0, WORLD)
    await two.hear([OTHER.data])
    assert one.listed() == two.listed() == (FIRST.data,)
    assert book.rows[ONE].data == FIRST.data


async def test_who_told_another_step_than_a_restored_store_has_follows_it_and_says_so(
    tmp_path: Path,
) -> None:
    """The analyzer signed two, and the store was put back between. Reports of the one before are
    taken by nobody, also after a start. Planted: what is known here stands -> two questions are
    answered, fails; forgotten in memory alone -> the last lines fail.
    """
    book = MemoryBook()
    one, two = (asking(book, tmp_path / name, 1.0, WORLD) for name in ("one", "two"))
    verifiers = cast(ServedBook, one._tasks).verifiers
    verifiers[WORLD.task_id.raw] = "the task's"
    await one.hear([FIRST.data])
    book.rows.clear()
    await two.hear([OTHER.data])
    await one.look()
    assert verifiers.keys() == {WORLD.task_id.raw, OTHER.name.raw}
    for each in (one, two):
        assert each.listed() == (OTHER.data,)
        assert each.find(FIRST.name) is None
        assert each.find(OTHER.name) == ONE
    assert len(list(one.conditions())) == 1
    again = asking(book, tmp_path / "one", 1.0, WORLD)
    await again.look()
    assert again.listed() == (OTHER.data,)
    assert list(again.conditions()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        EnteredStep(ONE, FIRST.name.raw, FIRST.data[:-1]),  # damaged
        EnteredStep(ONE, OTHER.name.raw, FIRST.data),  # of another name
        EnteredStep(ONE, SECOND.name.raw, SECOND.data),  # of another window
        EnteredStep(ONE, FIRST.name.raw, step_of(words_world(), 1, SMALL.level(1, [b"\x02"])).data),
        EnteredStep(ONE, FIRST.name.raw, FIRST.data + bytes(1 << 20)),  # too large
        EnteredStep(ONE, b"", b""),
    ],
)
async def test_a_row_that_no_analyzer_signed_is_passed_over(
    tmp_path: Path, wrong: EnteredStep
) -> None:
    """Whoever may write to the database can stop a window, and ask nothing of his own. Planted:
    rows believed as they are -> told, fails.
    """
    book = MemoryBook()
    book.rows[ONE] = wrong
    one = asking(book, tmp_path / "one", 1.0, WORLD)
    await one.look()
    assert one.listed() == ()
    (told,) = one.conditions()
    assert (told.code, told.stops) == ("damage", False)
    book.rows[ONE] = replace(wrong, name=FIRST.name.raw, data=FIRST.data)
    await one.look()
    assert one.listed() == (FIRST.data,)
    assert list(one.conditions()) == []


async def test_a_damaged_row_takes_nothing_from_who_knows_the_step(tmp_path: Path) -> None:
    """Planted: forgotten like one that the store has otherwise -> fails."""
    book = MemoryBook()
    one = asking(book, tmp_path / "one", 1.0, WORLD)
    await one.hear([FIRST.data])
    book.rows[ONE] = replace(book.rows[ONE], data=b"\xff")
    await one.look()
    assert one.listed() == (FIRST.data,)
    assert [told.code for told in one.conditions()] == ["damage"]


async def test_late_rows_answer_reports_and_are_not_told(tmp_path: Path) -> None:
    """Who met it in time tells it to the end of its window. Who starts late does not, nor at its
    next start, but takes reports for it, and names it in the batch. Planted: rows told like what
    the analyzer says, or kept in the folder -> told, fails; not taken up -> a report that another
    replica asked for is refused, fails.
    """
    book = MemoryBook()
    clock = FakeClock(START + 1.7 * LENGTH)
    one = asking(book, tmp_path / "one", 0.0, WORLD, clock=clock)
    await one.hear([FIRST.data])
    for at, told in ((1.74, True), (1.76, False)):
        clock.time = START + at * LENGTH
        late = asking(book, tmp_path / f"at {at}", 0.0, WORLD, clock=clock)
        await late.look()
        assert late.listed() == ((FIRST.data,) if told else ())
    again = asking(book, tmp_path / "at 1.76", 0.0, WORLD, clock=clock)
    await again.look()
    assert again.listed() == ()
    assert again.find(FIRST.name) == ONE
    assert again.named(ONE) == FIRST.name.raw
    assert one.listed() == (FIRST.data,)
    book.rows.clear()  # and it counts for what was told, should the store lose it
    await again.look()
    assert book.rows[ONE].data == FIRST.data
    clock.time = START + 2.1 * LENGTH
    await again.hear([SECOND.data])
    assert again.listed() == (SECOND.data,)


async def test_a_broker_is_given_no_later_step_while_one_that_was_met_late_runs(
    tmp_path: Path,
) -> None:
    """A broker keeps one step of each discovery: of a shuffler that starts in the last quarter of a
    window it would be the next window's, in the place of the one that others told. Planted: the
    first of those that are listed -> the next one's, fails.
    """
    book, clock = MemoryBook(), FakeClock(START + 1.2 * LENGTH)
    one = asking(book, tmp_path / "one", 0.0, WORLD, clock=clock)
    await one.hear([FIRST.data])
    clock.time = START + 1.8 * LENGTH
    await one.hear([SECOND.data])
    late = asking(book, tmp_path / "late", 0.0, WORLD, clock=clock)
    await late.look()
    assert late.listed() == (SECOND.data,)
    assert late.announced() == ()
    assert one.announced() == one.listed() == (FIRST.data, SECOND.data)
    clock.time = START + 2.1 * LENGTH
    assert late.announced() == one.announced() == (SECOND.data,)


async def test_steps_go_with_the_retention_of_their_task(tmp_path: Path) -> None:
    """In the store, in the folders and in memory, at every shuffler, whatever their clocks; another
    task's stay. Nothing is decided while the clock is disputed. Planted: deleted when the last
    window is over -> too early, fails; in the store alone -> entered again, fails; heard anew from
    the analyzer -> fails.
    """
    book, other = MemoryBook(), words_world()
    plan, kept = WORLD.served.task.windows, WORLD.served.task.retention_s
    ends = max(plan.start_of(plan.count - 1) + kept, plan.end_of(plan.count - 1)) + plan.skew_s
    clock, slow = FakeClock(START + 1.2 * LENGTH), FakeClock(START + 1.2 * LENGTH)
    one = asking(book, tmp_path / "one", 0.0, WORLD, other, clock=clock)
    two = asking(book, tmp_path / "two", 0.0, WORLD, clock=slow)
    theirs = step_of(other, 1, SMALL.level(1, [b"\x02"]))
    await one.hear([FIRST.data, theirs.data])
    await two.look()
    cast(ServedBook, one._tasks).served[other.task_id] = replace(
        other.served, task=replace(other.served.task, retention_s=2 * kept)
    )
    for clock.time, clock.disputed in ((ends - 1.0, False), (ends, True)):
        await one.look()
        assert len(book.rows) == 2
        assert one.find(FIRST.name) == ONE
    clock.disputed = False
    for _ in range(2):
        await one.look()
        await one.hear([FIRST.data])
        assert list(book.rows) == [WindowId(other.task_id, 1)]
        assert one.find(FIRST.name) is None
        assert one.listed() == (theirs.data,)
        assert [path.name for path in (tmp_path / "one" / "steps").iterdir()] == [
            f"{other.task_id.hex}.1.step"
        ]
    slow.time = ends - 1.0
    await two.look()  # what the store lost is entered again, until it has ended here too
    assert ONE in book.rows
    slow.time = ends
    await two.look()
    assert ONE not in book.rows
    assert not list((tmp_path / "two" / "steps").iterdir())
    assert list(one.conditions()) == list(two.conditions()) == []


async def test_a_store_that_is_away_is_asked_again_to_delete(tmp_path: Path) -> None:
    """Planted: forgotten after the first try -> the row stays, fails."""
    book, clock = MemoryBook(), FakeClock(START + 1.2 * LENGTH)
    one = asking(book, tmp_path / "one", 0.0, WORLD, clock=clock)
    await one.hear([FIRST.data])
    clock.time = START + 10.0 * WORLD.served.task.retention_s
    book.away = True
    await one.look()
    assert ONE in book.rows
    book.away = False
    await one.look()
    assert not book.rows


async def test_while_the_clock_is_disputed_no_row_is_taken_up(tmp_path: Path) -> None:
    """Whether it is late is not known. With nothing but its own clock a replica goes on. Planted:
    taken up -> told, fails; not taken up alone -> the last lines fail.
    """
    book, clock = MemoryBook(), FakeClock(START + LENGTH)
    await asking(book, tmp_path / "one", LENGTH, WORLD).hear([FIRST.data])
    two = asking(book, tmp_path / "two", 0.0, WORLD, clock=clock)
    clock.disputed = True
    await two.look()
    assert two.listed() == ()
    clock.disputed, clock.alone = False, True
    await two.look()
    assert two.listed() == (FIRST.data,)


async def test_rows_that_contradict_one_another_are_believed_alike(tmp_path: Path) -> None:
    """Of two windows, by an analyzer that signed both, at two replicas that could not see one
    another's: the one of the first window counts at both, whoever told the other, and the
    discovery can go on from there. Another task is served as before. Planted: what a replica told
    stands against a row that was signed -> the two differ, fails; the failure ends the look ->
    the other task's step is not known, fails.
    """
    book, other = MemoryBook(), words_world()
    clock = FakeClock(START + LENGTH + 1.0)
    one, two = (
        asking(book, tmp_path / name, 0.0, WORLD, other, clock=clock) for name in ("one", "two")
    )
    stray = step_of(WORLD, 2, SMALL.level(2, [b"\x07\x01"]))
    await one.hear([FIRST.data])
    row = book.rows.pop(ONE)  # not there yet when the other one looks
    await two.hear([stray.data])
    assert two.listed() == (stray.data,)
    book.rows[ONE] = row
    fine = step_of(other, 1, SMALL.level(1, [b"\x02"]))
    await one.hear([fine.data])
    for _ in range(2):
        for each in (one, two):
            await each.look()
            assert set(each.listed()) == {FIRST.data, fine.data}
            assert each.find(stray.name) is None
            assert each.find(fine.name) == WindowId(other.task_id, 1)
    assert [told.code for told in one.conditions()] == ["damage"]
    assert [told.code for told in two.conditions()] == ["damage", "database"]
    clock.advance(LENGTH)
    third = step_of(WORLD, 3, SMALL.level(2, [b"\x02\x01"]))
    await two.hear([third.data])
    await one.look()
    for each in (one, two):
        assert third.data in each.listed()


async def test_a_step_is_held_against_what_others_were_told_this_moment(tmp_path: Path) -> None:
    """This one has not looked since. Planted: held against what it knows -> entered, fails."""
    book = MemoryBook()
    one, two = (asking(book, tmp_path / name, LENGTH + 1.0, WORLD) for name in ("one", "two"))
    await one.hear([FIRST.data])
    await two.hear([step_of(WORLD, 2, SMALL.level(2, [b"\x07\x01"])).data])
    assert two.listed() == (FIRST.data,)
    assert set(book.rows) == {ONE}
    assert [told.stops for told in two.conditions()] == [False]


async def test_a_disk_that_fails_costs_no_other_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one task's file. It is taken up when the disk is back. Planted: the failure ends the look
    -> the other task is not known, fails.
    """
    book, worlds = MemoryBook(), sorted((WORLD, words_world()), key=lambda one: one.task_id)
    steps = [step_of(world, 1, SMALL.level(1, [b"\x02"])) for world in worlds]
    await asking(book, tmp_path / "one", 1.0, *worlds).hear([step.data for step in steps])
    two, full = asking(book, tmp_path / "two", 1.0, *worlds), worlds[0].task_id.hex
    kept = two._steps._write

    def failing(path: Path, data: bytes) -> None:
        if path.name.startswith(full):
            raise OSError(28, "No space left on device")
        kept(path, data)

    monkeypatch.setattr(two._steps, "_write", failing)
    await two.look()
    assert two.listed() == (steps[1].data,)
    assert [told.stops for told in two.conditions()] == [False]
    monkeypatch.setattr(two._steps, "_write", kept)
    await two.look()
    assert two.listed() == (steps[0].data, steps[1].data)
    assert list(two.conditions()) == []


async def test_a_failure_is_told_no_longer_than_its_cause_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full, and the row is gone since: all is as it was agreed before. Planted: not
    judged anew -> the condition stays, fails.
    """
    book = MemoryBook()
    one = asking(book, tmp_path / "one", 1.0, WORLD)
    await one.look()

    def failing(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(one._steps, "_write", failing)
    book.rows[ONE] = EnteredStep(ONE, FIRST.name.raw, FIRST.data)
    await one.look()
    assert len(list(one.conditions())) == 1
    book.rows.clear()
    await one.look()
    assert list(one.conditions()) == []


async def test_what_was_agreed_is_not_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second all windows of a discovery are looked at, and to check that thousands of
    beginnings follow takes long. Planted: judged at every look -> counted, fails; what is agreed
    believed whatever the store has -> the last line fails.
    """
    judged = list[object]()

    def counting(*given: Any) -> None:
        judged.append(given)
        check_step(*given)

    monkeypatch.setattr("shoal.shuffler.step_agreement.check_step", counting)
    book = MemoryBook()
    one = asking(book, tmp_path / "one", LENGTH + 1.0, WORLD)
    await one.hear([FIRST.data])
    await one.look()
    judged.clear()
    for _ in range(3):
        await one.look()
    assert judged == []
    book.rows[ONE] = EnteredStep(ONE, OTHER.name.raw, OTHER.data)
    await one.look()
    assert one.listed() == (OTHER.data,)


async def test_no_condition_is_left_of_a_task_that_is_served_no_more(tmp_path: Path) -> None:
    """Planted: of all tasks that there ever were -> fails."""
    book = MemoryBook()
    book.rows[ONE] = EnteredStep(ONE, FIRST.name.raw, b"")
    one = asking(book, tmp_path / "one", 1.0, WORLD)
    await one.look()
    assert len(list(one.conditions())) == 1
    cast(ServedBook, one._tasks).served.clear()
    await one.look()
    assert list(one.conditions()) == []


async def test_a_task_that_goes_while_the_store_is_asked_is_known_when_it_comes_back(
    tmp_path: Path,
) -> None:
    """Planted: a task looked up that is served no more -> KeyError, fails."""
    book = MemoryBook()
    one = asking(book, tmp_path / "one", 1.0, WORLD)
    tasks, enter = cast(ServedBook, one._tasks), book.enter

    async def entering(step: EnteredStep) -> EnteredStep:
        tasks.served.clear()
        return await enter(step)

    book.enter = entering  # type: ignore[method-assign]
    await one.hear([FIRST.data])
    assert one.find(FIRST.name) is None
    tasks.served[WORLD.task_id] = WORLD.served
    await one.look()
    assert one.find(FIRST.name) == ONE
    assert one.listed() == (FIRST.data,)

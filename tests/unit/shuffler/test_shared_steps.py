"""What several shufflers of one store tell of discoveries: one step of each window, whichever of
them was told first, whatever the store loses.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.steps import EnteredStep
from tests.worlds.services.analyzer import LENGTH
from tests.worlds.step_books import MemoryBook, asking
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
    await one.hear([FIRST.data])
    book.rows.clear()
    await two.hear([OTHER.data])
    await one.look()
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

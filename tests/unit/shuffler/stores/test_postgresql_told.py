"""The file of what a replica promised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.told import ToldRows, WriterWord

ONE, TWO = (WindowId(TaskId(bytes(range(32))), window) for window in (1, 2))
WORD = WriterWord(ONE, 0, b"w" * 16, 30, 5, (3, 4))


def test_a_word_is_there_after_a_start_without_an_end(tmp_path: Path) -> None:
    """As after kill -9; twice, with what came meanwhile. Planted: words written at the end alone ->
    nothing, fails. Planted: what was before not written to the new file -> nothing at the second
    start, fails.
    """
    told = ToldRows(tmp_path)
    told.note(WORD)
    told.note(replace(WORD, acked=40, newest=6))
    told.note(replace(WORD, window=TWO))
    again = ToldRows(tmp_path)
    again.note(replace(WORD, writer=b"v" * 16))
    for _ in range(2):
        again = ToldRows(tmp_path)
    assert sorted(again.of(ONE), key=lambda one: one.writer) == [
        replace(WORD, writer=b"v" * 16),
        replace(WORD, acked=40, newest=6),
    ]
    assert again.of(TWO) == [replace(WORD, window=TWO)]
    assert len(list((tmp_path / "acknowledged").iterdir())) == 1


def test_places_are_used_again_and_never_two_for_one(tmp_path: Path) -> None:
    """Planted: a place not forgotten when it is freed -> one entry lies over another, fails."""
    told = ToldRows(tmp_path)
    for _ in range(5):
        told.note(WORD)
        told.note(replace(WORD, window=TWO))
        told.drop(ONE)
        told.note(replace(WORD, writer=b"x" * 16))
        told.drop(ONE)
    (path,) = (tmp_path / "acknowledged").iterdir()
    assert path.stat().st_size == 512
    three = replace(TWO, window=TWO.window + 1)
    told.note(replace(WORD, window=three))  # where ONE lay
    told.note(WORD)
    told.close()
    again = ToldRows(tmp_path)
    assert set(again.windows()) == {ONE, TWO, three}
    assert again.of(TWO) == [replace(WORD, window=TWO)]


def test_what_was_found_lost_stays_found(tmp_path: Path) -> None:
    """Planted: a later note without it written as it is -> 0, fails."""
    told = ToldRows(tmp_path)
    told.note(WORD)
    told.lose(WORD, 7)
    told.note(replace(WORD, acked=50))
    assert ToldRows(tmp_path).of(ONE) == [replace(WORD, acked=50, lost=7)]


@pytest.mark.parametrize("at", [0, 70, 200, 255])
def test_a_damaged_entry_is_counted_and_believed_nothing(tmp_path: Path, at: int) -> None:
    """Planted: the check not looked at -> another number, or a word of nobody, fails."""
    told = ToldRows(tmp_path)
    told.note(WORD)
    told.note(replace(WORD, window=TWO))
    (path,) = (tmp_path / "acknowledged").iterdir()
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data[:-100])  # and the second is cut
    again = ToldRows(tmp_path)
    assert (again.windows(), again.damaged) == ([], 2)


def test_more_blocks_under_way_than_an_entry_holds_leave_the_one_before(tmp_path: Path) -> None:
    """Planted: as many as fit written -> rows counted that were never acknowledged, fails."""
    told = ToldRows(tmp_path)
    told.note(WORD)
    told.note(replace(WORD, acked=99, waiting=tuple(range(17))))
    assert ToldRows(tmp_path).of(ONE) == [WORD]
    told.note(replace(WORD, acked=99, waiting=tuple(range(16))))
    assert told.of(ONE)[0].acked == 99


def test_a_folder_that_can_not_be_made_is_a_wrong_configuration(tmp_path: Path) -> None:
    (tmp_path / "acknowledged").write_text("")
    with pytest.raises(ShoalError) as refused:
        ToldRows(tmp_path)
    assert refused.value.kind is Kind.CONFIG

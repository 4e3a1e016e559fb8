"""Blocks of an inbox: what is whole of damaged ones, and what a damaged page of the file costs."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shoal.arrays import np
from shoal.ids import Digest, TaskId
from shoal.shuffler.core import Capacity, WindowId
from shoal.shuffler.stores.sqlite import batch, blocks
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.storage_keys import key_of
from shoal.shuffler.stores.store import AdmittedRows
from tests.worlds.inbox_file import stored

TASK, ROW, COUNT = TaskId(bytes(range(32))), 65, 1_000
WINDOW = WindowId(TASK, 0)
SECRET = bytes(range(32))


def packed(count: int, size: int) -> tuple[list[tuple[bytes, bytes]], list[blocks.Block]]:
    """Rows in the order of their keys, and their blocks."""
    messages = [secrets.token_bytes(size) for _ in range(count)]
    rows = [(key_of(SECRET, one), one) for one in messages]
    order = sorted(range(count), key=lambda at: rows[at])
    keys = b"".join(key for key, _ in rows)
    places = np.array(order, dtype=np.intp)
    return sorted(rows), blocks.packed(7, keys, b"".join(messages), places, size)


def pairs(found: blocks.Rows, size: int) -> list[tuple[bytes, bytes]]:
    keys = [found.keys[at : at + 16] for at in range(0, len(found.keys), 16)]
    return list(
        zip(
            keys,
            [found.sealed[at : at + size] for at in range(0, len(found.sealed), size)],
            strict=True,
        )
    )


@pytest.mark.parametrize("size", [1, 65, 300, 4_023, 4_024, 9_000])
@pytest.mark.parametrize("count", [1, 100])
def test_what_was_packed_comes_out(count: int, size: int) -> None:
    rows, made = packed(count, size)
    assert [number for number, _, _ in made] == list(range(7, 7 + len(made)))
    assert all(len(body) <= max(4_040, 16 + size) for _, body, _ in made)
    found = blocks.unpacked(SECRET, made, size)
    assert (pairs(found, size), found.damaged) == (rows, 0)


def test_a_changed_byte_costs_its_row() -> None:
    """Wherever it is. Planted: CRC-32 of the first half of the body -> rows that were never sent,
    fails; the whole block given up -> fails.
    """
    rows, made = packed(40, 65)
    ((number, body, crc),) = made
    for at in range(0, len(body), 23):
        changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        found = blocks.unpacked(SECRET, [(number, changed, crc)], 65)
        assert found.damaged == 1
        assert pairs(found, 65) == [row for place, row in enumerate(rows) if place != at // 81]


def test_a_report_of_several_messages_lies_in_one_block_and_is_lost_whole() -> None:
    """200 rows are more than a page: a block of their own. Planted: blocks cut as of single
    messages -> a report in two blocks, fails; each row checked by itself -> nothing is whole, or
    parts of reports are, fails.
    """
    sizes = [1, 200, 3, 40, 7, 2, 12]
    messages = [[secrets.token_bytes(65) for _ in range(size)] for size in sizes]
    keys = [key_of(SECRET, b"".join(report)) for report in messages]
    order = sorted(range(len(sizes)), key=lambda at: keys[at])
    flat = b"".join(message for report in messages for message in report)
    made = blocks.packed(7, b"".join(keys), flat, np.array(order), 65, sizes)
    rows = [(keys[at], message) for at in order for message in messages[at]]
    found = blocks.unpacked(SECRET, made, 65)
    assert (pairs(found, 65), found.damaged) == (rows, 0)
    held = [{body[at : at + 16] for at in range(0, len(body), 81)} for _, body, _ in made]
    assert sum(map(len, held)) == len(sizes)
    assert [keys[1]] in map(list, held)
    assert pairs(blocks.unpacked(SECRET, made, 65, closely=True), 65) == rows
    for place, (number, body, crc) in enumerate(made):
        for at in range(5, len(body), 997):
            changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
            found = blocks.unpacked(SECRET, [*made[:place], (number, changed, crc)], 65)
            whole = {key for key, _ in pairs(found, 65)}
            hit = body[at // 81 * 81 :][:16]
            expected = set().union(*held[: place + 1]) - {hit}
            assert whole == expected
            assert found.damaged == sizes[keys.index(hit)]
    assert blocks.made_by(SECRET, made[0], 65)
    assert not blocks.made_by(bytes(32), made[0], 65)


@pytest.mark.parametrize(
    "block", [(b"7", b"x" * 81, 1), (7, "text", 1), (7, None, None), (7, b"x" * 40, 1), (7, b"", 0)]
)
def test_what_is_no_block_gives_nothing(block: tuple[object, ...]) -> None:
    found = blocks.unpacked(SECRET, [block], 65)
    assert (found.keys, found.sealed) == (b"", b"")


def test_a_checksum_is_of_one_number_and_one_length() -> None:
    """So a page that the disk shows in place of another is looked at row by row, and one that is
    under another secret gives nothing. Planted: the number left out of the checksum -> fails.
    """
    ((number, body, crc),) = packed(10, 65)[1]
    other = bytes(32)
    assert blocks.unpacked(other, [(number, body, crc)], 65).damaged == 0
    assert blocks.unpacked(other, [(number + 1, body, crc)], 65).damaged == 10
    assert blocks.unpacked(other, [(number, body[:-81], crc)], 65).damaged == 9
    assert blocks.unpacked(other, [(number, body, crc)], 65, closely=True).damaged == 10


def filled(folder: Path) -> tuple[SqliteStore, set[bytes]]:
    """One commit of 1,000 reports."""
    store, sent = SqliteStore(folder), secrets.token_bytes(COUNT * ROW)
    store.adopt(TASK, Digest(bytes(32)), Capacity(1, 0, 100_000), ROW)
    assert store.append([AdmittedRows(WINDOW, sent, COUNT)]) == [None] * COUNT
    store.confirm()
    return store, {sent[at : at + ROW] for at in range(0, len(sent), ROW)}


@pytest.mark.parametrize("part", ["page", "head", "middle"])
def test_a_damaged_page_costs_the_reports_that_lie_on_it(tmp_path: Path, part: str) -> None:
    """Of 1,000 of one commit no more than one block's, and they are counted; the others, and what
    comes later, are delivered. Planted: one blob for the whole commit -> hundreds are lost, fails.
    """
    filled(tmp_path)[0].close()
    path = tmp_path / f"inbox-{TASK.hex}-0.db"
    lies = [sealed for _, sealed in stored(path, ROW)]
    data = path.read_bytes()
    page = data.index(lies[500]) // 4_096 * 4_096
    begin, end = {"page": (0, 4_096), "head": (0, 8), "middle": (2_000, 2_010)}[part]
    path.write_bytes(data[: page + begin] + b"\xff" * (end - begin) + data[page + end :])
    store = SqliteStore(tmp_path)
    store.adopt(TASK, Digest(bytes(32)), Capacity(1, 0, 100_000), ROW)
    late = secrets.token_bytes(ROW)
    assert store.append([AdmittedRows(WINDOW, late, 1)]) == [None]
    store.close_intake(WINDOW)
    found = store.seal(WINDOW)
    rows = batch.read(store._batch_path(WINDOW), found.rows, ROW, 0, found.rows)
    kept = {rows[at : at + ROW] for at in range(0, len(rows), ROW)}
    assert kept <= {*lies, late}
    assert late in kept
    assert found.damaged == COUNT + 1 - len(kept)
    assert 0 < found.damaged <= (2 if part == "middle" else blocks.per_block(ROW))
    assert list(store.damage())
    store.close()


@pytest.mark.parametrize("found_at", ["start", "sealing"])
def test_what_a_disk_shows_twice_counts_once(tmp_path: Path, found_at: str) -> None:
    """A page in place of another one: the reports of that one are missing, and counted. Planted:
    rows counted as they are read, at the start or at sealing -> nothing is missed, fails.
    """
    store, lost = filled(tmp_path)[0], blocks.per_block(ROW)
    if found_at == "sealing":
        store.close_intake(WINDOW)
    store.close()
    with closing(sqlite3.connect(tmp_path / f"inbox-{TASK.hex}-0.db")) as box:
        box.execute(
            "UPDATE block SET (body, crc) = (SELECT body, crc FROM block WHERE number = 3) WHERE "
            "number = 4"
        )
        box.commit()
    store = SqliteStore(tmp_path)
    store.adopt(TASK, Digest(bytes(32)), Capacity(1, 0, 100_000), ROW)
    if found_at == "start":
        record = store.record(WINDOW)
        assert record is not None
        assert record.damaged == lost
        store.close_intake(WINDOW)
    found = store.seal(WINDOW)
    assert (found.rows, found.damaged) == (COUNT - lost, lost)
    store.close()

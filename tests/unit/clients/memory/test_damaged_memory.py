"""A device's disk that changes what was written: nothing damaged is sent or answered from, and its
owner is told in one line.
"""

from __future__ import annotations

import logging
import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from shoal.clients.core import ReportState, SealedReport
from shoal.clients.memory.commitments import SeenTask
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.memory.marks import OUTBOX, ROUNDS
from shoal.clients.memory.rounds_ledger import RoundStanding, SqliteLedger
from shoal.clients.owner.consent import DENIED, NOT_ASKED, consent_to
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from tests.conformance.outbox import device as memories
from tests.sizes import size
from tests.worlds.devices.outbox import claim
from tests.worlds.devices.owner import Owner
from tests.worlds.devices.runner import HOUR, Place


def flipped(path: Path, table: str, column: str, chosen: str = "true") -> None:
    """One bit in the middle of a stored value, as a disk would: no trigger and no check sees it.
    ``chosen``: which row.
    """
    database = sqlite3.connect(path)
    database.execute("PRAGMA ignore_check_constraints = ON")
    for (trigger,) in database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall():
        database.execute(f"DROP TRIGGER {trigger}")
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    # names of the schema
    row = database.execute(f"SELECT * FROM {table} WHERE {chosen} LIMIT 1").fetchone()  # noqa: S608
    this = " AND ".join(f"{name} IS ?" for name in columns)
    changed = with_a_flipped_bit(row[columns.index(column)])
    # the same
    database.execute(f"UPDATE {table} SET {column} = ? WHERE {this}", (changed, *row))  # noqa: S608
    assert database.total_changes == 1
    database.commit()
    database.close()


def with_a_flipped_bit(value: object) -> object:
    match value:
        case None:
            return 3
        case int():
            return value ^ 64
        case float():
            return value * (1 + 2**-40)
        case bytes():
            at = len(value) // 2
            return value[:at] + bytes([value[at] ^ 4]) + value[at + 1 :]
        case _:
            text = str(value)
            return text[:2] + chr(ord(text[2]) ^ 1) + text[3:]


@pytest.mark.parametrize("column", ["frame", "ack_key", "expires_s"])
async def test_a_damaged_report_is_never_sent(
    place: Place, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    """It ends, named in ledger and log; its charge stays; the others are sent, and its window is
    not answered again.

    Planted: ``load`` without a look at the mark -> the changed frame is sent.
    """
    place.transport.down = True
    for _ in range(3):
        await place.runner().once(place.config)
        place.clock.advance(HOUR)
    flipped(place.folder / "outbox.db", "report", column)
    place.clock.time -= HOUR  # still in the last window
    place.transport.down = False
    with caplog.at_level(logging.ERROR, "shoal"):
        await place.runner().once(place.config)
    assert place.windows() == [1, 2]
    assert len(place.far.frames) == 2
    ends = {
        entry.window: (entry.details["state"], entry.details["kind"])
        for entry in place.entries(LedgerEvent.OUTCOME)
    }
    assert ends[0][1] == "MISMATCH"
    assert ends[0][0] in (ReportState.REFUSED.value, ReportState.UNKNOWN.value)
    assert ends[1] == ends[2] == ("acked", None)
    assert len(place.entries(LedgerEvent.REPORTED)) == 3


# --- every column of every table ------------------------------------------------------------------

ONE, OTHER, PURPOSE, ROUND = memories.TASK, TaskId(b"o" * 32), "health research", Digest(b"r" * 32)
SPENT = 17
STRUCK = TaskId(b"s" * 32)
MINE = {"task_id": f"x'{ONE.raw.hex()}'", "purpose": f"'{PURPOSE}'"}  # how its rows are chosen


def lived(path: Path) -> memories.Device:
    """A memory with rows in every table: of ``ONE``, all that may be damaged comes first; and
    ``OTHER``, which goes on.
    """
    device = memories.Device(path)
    commitments, outbox = device.commitments, device.outbox
    with commitments.transaction():
        for task in (ONE, OTHER):
            commitments.see(
                SeenTask(
                    task, "visits", PURPOSE if task == ONE else "other", b"a" * 32, 5, "accepted"
                )
            )
            outbox.pin(task, Digest(b"1" * 32))
            claim(outbox, task, 0, partial(SealedReport, task, 0, b"f" * 512, b"k" * 32, 1_000))
            commitments.charge(task, 0, 5, None)
            commitments.remember(task, 0, bytes(64))
            commitments.choose(task, b"chosen")
            commitments.accept(task, 4.0)
        commitments.set_consent(PURPOSE, "denied")
        commitments.set_consent("other", "allowed")
        commitments.lose(1_000.0, 7)
        commitments.problem(Digest(b"2" * 32), memories.entry())
        commitments.see(SeenTask(STRUCK, "struck", "other", b"a" * 32, 5, "refused"))
        outbox.strike(STRUCK)
        claim(outbox, OTHER, 1, lambda: SealedReport(OTHER, 1, b"f" * 512, b"k" * 32, 1_000))
        outbox.sending(OTHER, 1)
        device.store.longer()
    assert device.store.marked.damages() == []
    return device


def refuses(*steps: Callable[[], object]) -> None:
    for step in steps:
        assert "damaged" in memories.error_of(Kind.MISMATCH, step)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("column", ["tag", "report", "used"])
def test_a_damaged_answer_stops_its_task_whatever_the_value(
    tmp_path: Path, column: str, restart: bool
) -> None:
    """Three kept answers, one of them damaged: on no day is the task answered, also not with a
    value whose answer is whole, for else the days tell the value. Another task goes on. Planted:
    only the answer that is asked for looked at -> two values are answered, fails; a look that is an
    hour old believed -> fails without a restart.
    """
    path = tmp_path / "outbox.db"
    device = lived(path)
    for cell in (1, 2):
        device.commitments.remember(ONE, cell, bytes([cell]) * 64)
        device.commitments.remember(OTHER, cell, bytes([cell]) * 64)
    assert device.commitments.permanent(ONE, 3) is None  # a look at all there is
    if restart:
        device.store.close()
    flipped(path, "memo", column, f"task_id = {MINE['task_id']}")
    if restart:
        device = memories.Device(path)
    for cell in range(4):
        refuses(lambda cell=cell: device.commitments.permanent(ONE, cell))  # type: ignore[misc]
    assert device.commitments.permanent(OTHER, 1) == bytes([1]) * 64
    device.store.close()


def spends_enough(device: memories.Device) -> None:
    assert device.commitments.spent() >= SPENT


def counts_as_spent(device: memories.Device) -> None:
    refuses(
        lambda: device.commitments.tally(ONE), lambda: device.commitments.charge(ONE, 3, 5, None)
    )
    spends_enough(device)


def counts_as_lost(device: memories.Device) -> None:
    refuses(device.commitments.lost)
    spends_enough(device)


def is_not_asked(device: memories.Device) -> None:
    stored = device.commitments.consents()
    assert consent_to(PURPOSE, {PURPOSE: "allowed"}, stored) in (DENIED, NOT_ASKED)
    assert (
        consent_to("never answered here", {"never answered here": "allowed"}, stored) == NOT_ASKED
    )


def is_never_accepted(device: memories.Device) -> None:
    assert device.commitments.accepted(ONE) is None


def is_never_lost_sight_of(device: memories.Device) -> None:
    commitments = device.commitments
    assert commitments.seen(ONE) is None
    assert ONE in commitments.tasks_of(PURPOSE) or ONE not in {
        *commitments.tasks_of("other"),
        *commitments.tasks_of(PURPOSE),
    }


# What a device does, by the table in which a row of ``ONE`` is damaged. A table that is not here
# fails below.
SAFE: dict[str, Callable[[memories.Device], object]] = {
    "report": lambda d: refuses(lambda: claim(d.outbox, ONE, 0, never)),
    "schedule": lambda d: refuses(lambda: d.outbox.pin(ONE, Digest(b"3" * 32))),
    "struck": lambda d: refuses(lambda: d.outbox.struck(STRUCK)),
    "charge": lambda d: refuses(
        lambda: d.commitments.charged(ONE, 0), lambda: d.commitments.charge(ONE, 0, 5, None)
    ),
    "tally": counts_as_spent,
    "memo_key": lambda d: refuses(
        lambda: d.commitments.rounding(ONE),
        lambda: d.commitments.permanent(ONE, 0),
        lambda: d.commitments.remember(ONE, 0, b""),
    ),
    "memo": lambda d: refuses(
        lambda: d.commitments.permanent(ONE, 0), lambda: d.commitments.latest(ONE)
    ),
    "seen": is_never_lost_sight_of,
    "consent": is_not_asked,
    "acceptance": is_never_accepted,
    "choice": lambda d: refuses(lambda: d.commitments.choice(ONE)),
    "lost": counts_as_lost,
    "problem": spends_enough,
    "ledger": lambda d: memories.error_of(Kind.MISMATCH, d.commitments.verify),
}


def never() -> SealedReport:
    raise AssertionError("a window is not answered again")


def columns_of(path: Path, opened: Callable[[Path], Closable]) -> list[tuple[str, str]]:
    """Every column of every table, as the schema has them."""
    opened(path).close()
    database = sqlite3.connect(path)
    tables = [
        name
        for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        )
    ]
    found = [
        (table, row[1])
        for table in tables
        for row in database.execute(f"PRAGMA table_info({table})")
    ]
    database.close()
    return found


class Closable(Protocol):
    def close(self) -> None: ...


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a device that has rows in every table."""
    folder = tmp_path_factory.mktemp("living")
    lived(folder / "outbox.db").store.close()
    ledger = SqliteLedger(folder / "rounds.db")
    ledger.masked(ONE, 0, ROUND, Digest(b"s" * 32))
    ledger.released(ONE, 0, ROUND, Digest(b"c" * 32))
    assert ledger.file.marked.damages() == []
    ledger.close()
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def restored(folder: Path, living: dict[str, bytes]) -> None:
    for old in folder.iterdir():
        old.unlink()
    for name, data in living.items():
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o600)


def test_every_column_has_a_mark_and_is_read_by_it(
    tmp_path: Path, living: dict[str, bytes]
) -> None:
    """A flipped bit anywhere is named, and what the device then does is safe; another task goes on.

    Planted: ``sift`` that takes every row, a mark that leaves out its last column, ``absent`` that
    never looks: each is seen.
    """
    columns = columns_of(tmp_path / "new.db", AgentStore)
    assert {table for table, _ in columns} == set(SAFE) == {*OUTBOX, "ledger"}
    assert all(("mark" in [name for of, name in columns if of == table]) for table in OUTBOX)
    for table, column in columns:
        restored(tmp_path, living)
        chosen = [
            f"{name} = {value}"
            for name, value in MINE.items()
            if (table, name) in columns and table != "struck"
        ]
        flipped(tmp_path / "outbox.db", table, column, " AND ".join(chosen) or "true")
        device = memories.Device(tmp_path / "outbox.db")
        found = device.store.marked.damages()
        if table != "ledger":
            assert [one.table for one in found] == [table], (table, column)
            assert "\n" not in str(found[0])
        SAFE[table](device)
        if column not in ("task_id", "number") and table not in ("lost", "ledger"):
            assert device.commitments.charged(OTHER, 9) is None
            device.commitments.charge(OTHER, 9, 1, None)
            assert device.commitments.spent() >= SPENT + 1
        device.store.close()


def test_every_column_of_the_rounds_has_a_mark_and_is_read_by_it(
    tmp_path: Path, living: dict[str, bytes]
) -> None:
    """The window is not answered again, no shares are given for another set. Planted: ``read``
    without marks -> a second commit.
    """
    columns = columns_of(tmp_path / "new.db", SqliteLedger)
    assert {table for table, _ in columns} == set(ROUNDS)
    for table, column in columns:
        restored(tmp_path, living)
        flipped(tmp_path / "rounds.db", table, column)
        ledger = SqliteLedger(tmp_path / "rounds.db")
        assert [one.table for one in ledger.file.marked.damages()] == [table], column
        # the charge says that the window was answered: test_setback.py
        if column in ("task_id", "window"):
            assert ledger.find(ONE, 0) is None
        else:
            refuses(partial(ledger.find, ONE, 0), partial(ledger.masked, ONE, 0, ROUND, ROUND))
            refuses(
                partial(ledger.released, ONE, 0, ROUND, Digest(b"d" * 32)),
                partial(ledger.settle, ONE, 0, RoundStanding.LOST),
            )
        ledger.close()


def test_a_charge_that_is_gone_is_missed(tmp_path: Path) -> None:
    """The row, or its entry in the index alone: its window is not answered again. Planted: sums not
    compared, indices not checked.
    """
    for statement in (
        "DELETE FROM charge WHERE window = 0",
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM "
        "sqlite_master WHERE name = 'queued') "
        "WHERE name = 'sqlite_autoindex_charge_1'",
    ):
        path = tmp_path / f"{len(statement)}.db"
        device = memories.Device(path)
        for window in range(2):
            device.commitments.charge(ONE, window, 5, None)
        device.store.close()
        database = sqlite3.connect(path)
        for (trigger,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            database.execute(f"DROP TRIGGER {trigger}")
        database.executescript(statement)
        database.commit()
        database.close()
        device = memories.Device(path)
        refuses(partial(device.commitments.charge, ONE, 0, 5, None))
        assert device.commitments.spent() == 10
        device.store.close()


def test_what_is_noted_beside_is_marked(tmp_path: Path) -> None:
    """What may have been spent is not trusted either. Planted: the mark not compared -> less was
    spent than was.
    """
    device = memories.Device(tmp_path / "outbox.db")
    device.commitments.charge(ONE, 0, 5, None)
    device.store.close()
    head = tmp_path / "outbox.db.head"
    words = head.read_text()
    assert words.startswith("spent 40 ")
    head.write_text(words.replace("spent 40 ", "spent 10 "))
    device = memories.Device(tmp_path / "outbox.db")
    assert device.store.noted() is None
    memories.error_of(Kind.MISMATCH, lambda: device.commitments.charge(ONE, 1, 5, None))
    device.store.close()


def spoiled(whole: bytes) -> Iterator[bytes]:
    """The state of the report in every place where it may be stored, a schema that is no text, then
    one to forty bits anywhere.
    """
    for found in re.finditer(b"queued", whole):
        yield whole[: found.start()] + b"quaued" + whole[found.end() :]
    yield whole.replace(b"CREATE TABLE", b"CREATE\xdfTABLE", 1)
    rng = random.Random("pages")  # noqa: S311 - no secret
    for _ in range(size(5, 300)):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 40)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        yield bytes(data)


def test_damaged_pages_are_one_line_and_never_a_second_answer(owner: Owner) -> None:
    """Bytes changed anywhere in the file: every command ends in one line or works, and no window is
    charged twice.

    Planted: a row that no outbox wrote is a bug (``ReportState`` of a garbled text), and so is a
    schema that SQLite quotes in its message -> each fails.
    """
    owner.write(consent="allowed")
    assert owner.run("report", "visits", "3", "--queue")[0] == 0
    for data in spoiled(owner.outbox.read_bytes()):
        owner.outbox.write_bytes(data)
        for suffix in ("-wal", "-shm"):
            owner.outbox.with_name(owner.outbox.name + suffix).unlink(missing_ok=True)
        for command in (("ledger",), ("status",), ("report", "visits", "3", "--queue")):
            code, out, err = owner.run(*command)
            assert code in (0, 1, 2)
            assert len([line for line in err.splitlines() if line.startswith("shoal:")]) <= 1
            assert "a bug" not in err
            if command[0] == "report" and code == 0:
                assert "answered before" in out


def test_a_file_that_is_no_database_says_what_to_do(owner: Owner) -> None:
    """And the head beside it stays: a new memory begins knowing that there was another."""
    owner.remember()
    owner.outbox.write_bytes(b"not a database at all" * 300)
    code, _, err = owner.run("ledger")
    assert (code, err.count("\n")) == (2, 1)
    assert "leave outbox.db.head where it is" in err
    owner.outbox.unlink()
    with pytest.raises(ShoalError):
        memories.Device(owner.outbox).commitments.charge(memories.TASK, 0, 1, None)

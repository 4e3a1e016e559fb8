"""The folders that an operator fills: tasks (read again when something new is asked for) and keys
(read when needed, deleted after).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.missing_keys import MissingKeys
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import FakeClock
from shoal.crypto import keyfiles
from shoal.crypto.hpke import generate
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from tests.cases import for_each
from tests.worlds.services.analyzer import World, make_task, make_world

WORLD = make_world()


def second() -> World:
    """Another task of the same authority and the same analyzer."""
    return World(make_task(name="second"), authority=WORLD.authority, analyzer=WORLD.analyzer)


def tasks_of(folder: Path) -> AnalyzerTasks:
    return AnalyzerTasks(folder / "tasks", {WORLD.authority.public}, WORLD.analyzer.public)


class Heard:
    """What is logged inside, each line once; however an earlier test has configured the logs."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog, self._logger = caplog, logging.getLogger("shoal")

    def __enter__(self) -> None:
        self._logger.addHandler(self._caplog.handler)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self._caplog.handler)

    @property
    def texts(self) -> list[str]:
        return list({id(record): record.getMessage() for record in self._caplog.records}.values())


def test_a_new_task_is_found_when_it_is_asked_for(tmp_path: Path) -> None:
    WORLD.write(tmp_path)
    tasks = tasks_of(tmp_path)
    other = second()
    with pytest.raises(ShoalError) as error:
        tasks.get(other.task_id)
    assert error.value.kind is Kind.UNKNOWN_TASK
    other.write(tmp_path)
    assert tasks.get(other.task_id).task.name == "second"
    assert tasks.get(WORLD.task_id).task == WORLD.task


def test_a_broken_folder_leaves_what_was_served(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A bad file costs its own task alone, at a start too. Planted: reload() raising, the first bad
    file raised at the start -> fails.
    """
    WORLD.write(tmp_path)
    tasks = tasks_of(tmp_path)
    (tmp_path / "tasks" / "bad.task").write_bytes(b"no task")
    with pytest.raises(ShoalError) as error:
        tasks.get(TaskId(bytes(32)))
    assert error.value.kind is Kind.UNKNOWN_TASK
    assert [served.task_id for served in tasks.all()] == [WORLD.task_id]
    assert [(one.code, one.subject, one.stops) for one in tasks.conditions()] == [
        ("task", "bad.task", True)
    ]
    again = tasks_of(tmp_path)
    assert [served.task_id for served in again.all()] == [WORLD.task_id]
    assert list(again.conditions()) == list(tasks.conditions())


def test_a_start_counts_every_file_that_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted: only those counted whose files verify -> count=0, fails."""
    WORLD.write(tmp_path)
    (tmp_path / "tasks" / "bad.task").write_bytes(b"no task")
    heard = Heard(caplog)
    caplog.set_level(logging.INFO, "shoal")
    with heard:
        tasks_of(tmp_path)
    assert [text for text in heard.texts if text.startswith("tasks read")] == [
        "tasks read tasks=1 count=1"
    ]


def test_a_folder_that_stays_broken_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service looks every few seconds: one line per mistake, another one for another mistake or
    the same after it was mended; nothing that a reader raises comes through.

    Planted: a line at every look -> ten of them; OSError not caught -> it raises. Both fail.
    """
    WORLD.write(tmp_path)
    tasks, bad = tasks_of(tmp_path), tmp_path / "tasks" / "bad.task"
    heard = Heard(caplog)
    with heard:
        for _ in range(2):
            bad.write_bytes(b"no task")
            assert not any(tasks.refresh() for _ in range(5))
            bad.unlink()
            assert tasks.refresh()

        def unreadable(*_: object) -> dict[TaskId, ServedTask]:
            raise OSError(5, "of the disk")

        monkeypatch.setattr("shoal.crypto.task_folder.load_task_folder", unreadable)
        bad.write_bytes(b"no task")
        assert not any(tasks.refresh() for _ in range(5))
    assert len([text for text in heard.texts if "bad.task" in text]) == 2
    assert len([text for text in heard.texts if "not taken" in text]) == 1
    assert [served.task_id for served in tasks.all()] == [WORLD.task_id]
    assert any("OSError" in one.message for one in tasks.conditions())


def test_a_task_stays_served_when_its_files_go(tmp_path: Path) -> None:
    WORLD.write(tmp_path)
    tasks = tasks_of(tmp_path)
    for path in (tmp_path / "tasks").iterdir():
        path.unlink()
    tasks.reload()
    assert tasks.get(WORLD.task_id).task == WORLD.task


def test_a_second_schedule_for_a_task_is_not_taken(tmp_path: Path) -> None:
    """Planted: the newer schedule wins -> this fails."""
    WORLD.write(tmp_path)
    tasks = tasks_of(tmp_path)
    before = tasks.get(WORLD.task_id).keys.digest
    other = World(
        WORLD.task,
        WORLD.authority,
        WORLD.shuffler,
        WORLD.analyzer,
        [generate(SuiteId.X25519_AES128) for _ in range(2)],
        WORLD.hop,
    )
    (tmp_path / "tasks" / "visits.keys").write_bytes(other.signed_schedule)
    tasks.reload()
    assert tasks.get(WORLD.task_id).keys.digest == before


def test_another_analyzers_task_is_refused(tmp_path: Path) -> None:
    World(WORLD.task, WORLD.authority, analyzer=SigningKey.generate()).write(tmp_path)
    tasks = tasks_of(tmp_path)
    assert not tasks.all()
    assert ["analyzer_key" in one.message for one in tasks.conditions()] == [True]


def test_a_report_size_that_is_not_the_mechanisms_is_refused(tmp_path: Path) -> None:
    World(replace(WORLD.task, report_size=2), WORLD.authority, analyzer=WORLD.analyzer).write(
        tmp_path
    )
    tasks = tasks_of(tmp_path)
    assert not tasks.all()
    assert ["report_size" in one.message for one in tasks.conditions()] == [True]


def test_a_key_that_a_refused_task_names_is_in_use(tmp_path: Path) -> None:
    """It may be mended. Planted: served tasks alone looked at -> its key could go with another
    task's window, fails.
    """
    WORLD.write(tmp_path)
    other = World(
        replace(make_task(name="second"), report_size=2),
        WORLD.authority,
        analyzer=WORLD.analyzer,
        keys=WORLD.keys,
    )
    other.write(tmp_path)
    tasks = tasks_of(tmp_path)
    assert not tasks.serves(other.task_id)
    assert tasks.refresh()  # in order, as far as keys go: each of them is known
    assert tasks.users_of(WORLD.keys[0].config.key_id) == {(WORLD.task_id, 0), (other.task_id, 0)}


def test_windows_without_a_key_are_named_as_long_as_they_need_one(tmp_path: Path) -> None:
    """At a start, later, and until it is back; of a window that is over, none. Planted: no look at
    what a file holds -> the second case fails. Planted: windows that are over not left out -> the
    last one fails.
    """
    WORLD.write(tmp_path)
    store, clock = AnalyzerStore(tmp_path / FILE_NAME), FakeClock(WORLD.after)
    missing = MissingKeys(store, tasks_of(tmp_path), KeyFolder(tmp_path / "keys"), clock)

    def found() -> list[tuple[str, tuple[int, ...]]]:
        missing.look()
        return [(one.subject, missing.unserved(WORLD.task_id)) for one in missing.conditions()]

    assert found() == []
    path = tmp_path / "keys" / f"{WORLD.keys[1].config.key_id.hex}.key"
    kept = path.read_bytes()
    path.unlink()
    assert found() == [(WORLD.task_id.short, (1,))]
    path.write_bytes(b"no key")
    path.chmod(0o600)
    assert found() == [(WORLD.task_id.short, (1,))]
    path.write_bytes(kept)
    assert found() == []
    for key in WORLD.keys:
        (tmp_path / "keys" / f"{key.config.key_id.hex}.key").unlink()
    assert found() == [(WORLD.task_id.short, (0, 1))]
    clock.advance(10 * WORLD.task.retention_s)
    assert found() == []
    store.close()


def test_who_uses_a_key(tmp_path: Path) -> None:
    WORLD.write(tmp_path)
    other = World(
        make_task(name="second", windows=1),
        WORLD.authority,
        analyzer=WORLD.analyzer,
        keys=WORLD.keys[:1],
    )
    other.write(tmp_path)
    tasks = tasks_of(tmp_path)
    assert tasks.users_of(WORLD.keys[0].config.key_id) == {(WORLD.task_id, 0), (other.task_id, 0)}
    assert tasks.users_of(WORLD.keys[1].config.key_id) == {(WORLD.task_id, 1)}


def test_keys_are_read_by_their_id(tmp_path: Path) -> None:
    WORLD.write(tmp_path)
    keys = KeyFolder(tmp_path / "keys")
    assert keys.load(WORLD.keys[1].config.key_id).config.key_id == WORLD.keys[1].config.key_id


@for_each("what", ["missing", "readable", "other", "garbage"])
def test_a_key_that_can_not_be_used(tmp_path: Path, what: str) -> None:
    """Planted: the comparison of key and name left out -> "other" fails."""
    keys, key_id = KeyFolder(tmp_path), WORLD.keys[0].config.key_id
    path = keys.path(key_id)
    match what:
        case "readable":
            keyfiles.save_hpke_key(path, WORLD.keys[0])
            path.chmod(0o640)
        case "other":
            keyfiles.save_hpke_key(path, WORLD.keys[1])
        case "garbage":
            path.touch(0o600)
            path.write_bytes(b"-----BEGIN NOTHING-----")
    with pytest.raises(ShoalError) as error:
        keys.load(key_id)
    assert error.value.kind is Kind.KEY_FILE
    assert str(path) in str(error.value)


def test_deleting_a_key_is_idempotent(tmp_path: Path) -> None:
    WORLD.write(tmp_path)
    keys, key_id = KeyFolder(tmp_path / "keys"), WORLD.keys[0].config.key_id
    keys.delete(key_id)
    keys.delete(key_id)
    assert not keys.path(key_id).exists()
    assert keys.path(WORLD.keys[1].config.key_id).exists()

"""The task book: what refuses to start, what a later mistake leaves as it was, when a hop key
goes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.clocks.clock import FakeClock
from shoal.crypto.admission.admission import Verifier
from shoal.crypto.hpke import generate
from shoal.crypto.keyfiles import save_hpke_key
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from shoal.shuffler import tasks
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport
from shoal.shuffler.stores.threaded import ThreadedStore
from shoal.shuffler.tasks import ShufflerTasks
from shoal.task import Task
from tests.cases import for_each
from tests.worlds.services.shuffler import GRACE, LENGTH, START, Published, World, digest_of


class Desk:
    """A world, a store and the task books opened over them."""

    def __init__(self, folder: Path) -> None:
        self.world, self.clock = World(folder), FakeClock(START)
        self.world.data_dir.mkdir()
        self.store = SqliteStore(self.world.data_dir)
        self.delay = 0.0  # delivery_delay_max_s

    def book(self) -> ShufflerTasks:
        world = self.world
        authorities = frozenset({world.authority.public})
        return ShufflerTasks(
            ThreadedStore(self.store),
            self.clock,
            world.tasks_dir,
            world.keys_dir,
            authorities,
            world.shuffler.public,
            self.delay,
        )

    def restart(self) -> ShufflerTasks:
        self.store.close()
        self.store = SqliteStore(self.world.data_dir)
        return self.book()

    def close_window(self, book: ShufflerTasks, published: Published, window: int) -> None:
        one = WindowId(published.task_id, window)
        self.store.append([AdmittedReport(one, (published.sealed(),))])
        self.store.close_intake(one)
        book.decided(one)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    one = Desk(tmp_path)
    yield one
    one.store.close()


def key_path(desk: Desk, published: Published) -> Path:
    return ShufflerTasks.key_path(desk.world.keys_dir, published.hop.config.key_id)


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def task_file(desk: Desk, published: Published) -> Path:
    return desk.world.tasks_dir / f"{published.task_id.short}.task"


def no_such_folder(desk: Desk) -> None:
    for path in desk.world.tasks_dir.iterdir():
        path.unlink()
    desk.world.tasks_dir.rmdir()


def foreign_schedule(desk: Desk, published: Published) -> None:
    keys = task_file(desk, published).with_suffix(".keys")
    keys.write_bytes((desk.world.tasks_dir / "good.keys").read_bytes())


def two_schedules(desk: Desk, published: Published) -> None:
    copy = desk.world.tasks_dir / "copy.task"
    copy.write_bytes(task_file(desk, published).read_bytes())
    copy.with_suffix(".keys").write_bytes(
        desk.world.schedule(published.task_id, published.analyzer_keys[::-1], published.hop)
    )


def wrong_key_in_file(desk: Desk, published: Published) -> None:
    key_path(desk, published).unlink()
    save_hpke_key(key_path(desk, published), generate(SuiteId.X25519_AES128))


def foreign_shuffler(desk: Desk, _: Published) -> None:
    desk.world.publish(shuffler=SigningKey.generate())


def test_a_delivery_delay_beyond_the_retention_is_refused(desk: Desk) -> None:
    """Otherwise a batch could expire while it waits for its turn. Planted: the check removed -> no
    refusal.
    """
    desk.world.publish(retention_s=100_000)
    spare = 100_000 - LENGTH - GRACE
    desk.delay = spare
    book = desk.book()
    assert not book.served
    assert ["delivery_delay_max_s" in one.message for one in book.conditions()] == [True]
    desk.delay = spare - 1
    assert desk.book().served


MISTAKES: list[tuple[str, Callable[[Desk, Published], object], str]] = [
    ("task damaged", lambda desk, one: spoil(task_file(desk, one)), "does not verify"),
    (
        "schedule damaged",
        lambda desk, one: spoil(task_file(desk, one).with_suffix(".keys")),
        "does not verify",
    ),
    (
        "schedule missing",
        lambda desk, one: task_file(desk, one).with_suffix(".keys").unlink(),
        "it is not there",
    ),
    ("schedule of another task", foreign_schedule, "another task"),
    ("no protobuf", lambda desk, one: task_file(desk, one).write_bytes(b"\xff" * 40), "protobuf"),
    ("two schedules", two_schedules, "different key schedules"),
    ("another shuffler's task", foreign_shuffler, "another shuffler key"),
    ("hop key missing", lambda desk, one: key_path(desk, one).unlink(), "key file"),
    ("hop key readable by others", lambda desk, one: key_path(desk, one).chmod(0o644), "key file"),
    ("hop key damaged", lambda desk, one: key_path(desk, one).write_bytes(b"no key"), "key file"),
    ("another key under the name", wrong_key_in_file, "another key"),
]


@for_each("mistake, said", [entry[1:] for entry in MISTAKES], ids=[entry[0] for entry in MISTAKES])
def test_a_mistake_costs_its_own_task_alone(
    tmp_path: Path, mistake: Callable[[Desk, Published], object], said: str
) -> None:
    """Named by its file, at a start and later; the other task is served, at a start too. Planted:
    the first failure raised out of ``load`` -> nothing is served, every case fails.
    """
    desk = Desk(tmp_path)
    good = desk.world.publish(name="good")
    published = desk.world.publish()
    desk.book()
    served = desk.restart()
    assert not list(served.conditions())
    mistake(desk, published)
    before = digest_of(desk.world.data_dir)
    book = desk.restart()
    assert good.task_id in book.served
    # there it is one more task that is no good
    assert (published.task_id in book.served) == (mistake is foreign_shuffler)
    found = list(book.conditions())
    assert all(said in one.message and one.stops and "\n" not in one.message for one in found)
    assert {one.subject for one in found} <= {path.name for path in desk.world.tasks_dir.iterdir()}
    assert found
    assert digest_of(desk.world.data_dir) == before
    served.reload()
    assert served.served.keys() == {good.task_id, published.task_id}  # what was served stays
    desk.store.close()


def test_no_folder_is_no_start(desk: Desk) -> None:
    desk.world.publish()
    no_such_folder(desk)
    with pytest.raises(ShoalError) as refused:
        desk.book()
    assert refused.value.kind is Kind.CONFIG


def test_a_copy_of_a_task_is_named_and_serves(desk: Desk) -> None:
    published = desk.world.publish()
    for suffix in (".task", ".keys"):
        (desk.world.tasks_dir / f"copy{suffix}").write_bytes(
            task_file(desk, published).with_suffix(suffix).read_bytes()
        )
    book = desk.book()
    assert book.served.keys() == {published.task_id}
    assert ["twice" in one.message for one in book.conditions()] == [True]


def test_a_key_that_is_put_back_serves_its_task(desk: Desk) -> None:
    """Without a change of the tasks folder. Planted: a look at that folder alone -> not served,
    fails.
    """
    published = desk.world.publish()
    away = key_path(desk, published).rename(desk.world.folder / "away.key")
    book = desk.book()
    assert [one.code for one in book.conditions()] == ["key"]
    away.rename(key_path(desk, published))
    assert book.refresh()
    assert published.task_id in book.served
    assert not list(book.conditions())


def test_no_hop_key_goes_that_a_refused_task_still_names(desk: Desk) -> None:
    """It may be mended while its windows run; when they are over it keeps nothing. Planted: refused
    tasks not looked at in ``_unused`` -> deleted, fails. Planted: looked at for ever -> never
    deleted, fails.
    """
    first = desk.world.publish(name="first")
    desk.world.publish(name="second", hop=first.hop, shuffler=SigningKey.generate())
    book = desk.book()
    assert book.served.keys() == {first.task_id}
    for window in (0, 1):
        desk.close_window(book, first, window)
    assert book.retire() is False
    assert key_path(desk, first).exists()
    desk.clock.advance(2 * LENGTH + GRACE)
    assert book.retire() is True
    assert not key_path(desk, first).exists()


def test_a_second_schedule_is_a_conflict_at_start_and_is_not_taken_up_later(desk: Desk) -> None:
    """Planted: ``adopt`` overwriting the digest -> fails."""
    published = desk.world.publish()
    book = desk.book()
    path = desk.world.tasks_dir / f"{published.task_id.short}.keys"
    path.write_bytes(
        desk.world.schedule(published.task_id, published.analyzer_keys[::-1], published.hop)
    )
    assert book.refresh()
    assert book.served[published.task_id].keys.digest == published.served.keys.digest
    assert ["second key schedule" in one.message for one in book.conditions()] == [True]
    again = desk.restart()
    assert not again.served
    assert [one.subject for one in again.conditions()] == [path.with_suffix(".task").name]


def test_a_task_whose_admission_is_not_available_changes_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the verifier made after the windows and keys are noted -> the refused task's windows
    run, fails.
    """

    def unavailable(task: Task) -> Verifier:
        raise ShoalError(Kind.INVALID, f"task {task.name}: planted")

    desk.world.publish()
    monkeypatch.setattr(tasks, "verifier_of", unavailable)
    book = desk.book()
    assert (book.served, book.keys, book.verifiers) == ({}, {}, {})
    assert list(book.running(START + LENGTH)) == []
    assert [one.code for one in book.conditions()] == ["task"]


def test_new_tasks_are_taken_up_and_vanished_ones_stay_until_the_next_start(desk: Desk) -> None:
    first = desk.world.publish(name="first")
    book = desk.book()
    second = desk.world.publish(name="second")
    for path in desk.world.tasks_dir.glob("first.*"):
        path.unlink()
    book.refresh()
    assert book.served.keys() == {first.task_id, second.task_id}
    assert book.keys.keys() == {first.hop.config.key_id, second.hop.config.key_id}
    assert desk.restart().served.keys() == {second.task_id}


def test_a_task_with_reports_that_vanishes_is_named_until_it_is_back(desk: Desk) -> None:
    """Its reports were acknowledged: without the task they can't be delivered, and other tasks
    can't wait for that. Planted: no condition for records without a task -> ready, fails.
    """
    published, other = desk.world.publish(), desk.world.publish(name="other")
    desk.book()
    desk.store.append([AdmittedReport(WindowId(published.task_id, 0), (published.sealed(),))])
    away = [
        path.rename(desk.world.folder / path.name)
        for path in desk.world.tasks_dir.glob(f"{published.task_id.short}.*")
    ]
    book = desk.restart()
    assert book.served.keys() == {other.task_id}
    assert [(one.code, one.subject, one.stops) for one in book.conditions()] == [
        ("task", published.task_id.short, True)
    ]
    for path in away:
        path.rename(desk.world.tasks_dir / path.name)
    assert book.refresh()
    assert not list(book.conditions())
    assert [window.window for _, window in book.running(START)] == [0, 0]


# --- windows and keys -----------------------------------------------------------------------------


def test_running_windows_are_those_that_have_begun_and_are_not_decided(desk: Desk) -> None:
    published = desk.world.publish(count=5)
    book = desk.book()

    def running(now: float) -> list[int]:
        return [window.window for _, window in book.running(now)]

    assert running(START - 61) == []
    assert running(START - 60) == [0]
    assert running(START + 2 * LENGTH) == [0, 1, 2]
    desk.close_window(book, published, 1)
    assert running(START + 2 * LENGTH) == [0, 2]
    assert [window.window for _, window in desk.restart().running(START + 2 * LENGTH)] == [0, 2]


def test_a_hop_key_lives_as_long_as_any_window_of_any_task_needs_it(desk: Desk) -> None:
    """Planted: deleting with the first task's last window -> fails. Planted: never deleting ->
    fails.
    """
    first = desk.world.publish(name="first")
    second = desk.world.publish(name="second", hop=first.hop)
    book, key_id = desk.book(), first.hop.config.key_id
    for published, window in ((first, 0), (first, 1), (second, 1)):
        desk.close_window(book, published, window)
        assert book.retire() is False
        assert key_id in book.keys
        assert not book.over(key_id)
    desk.close_window(book, second, 0)
    assert book.retire() is True
    assert book.retire() is False
    assert key_id not in book.keys
    assert book.over(key_id)
    assert not key_path(desk, first).exists()
    again = desk.restart()  # without the key file
    assert again.over(key_id)
    assert not list(again.running(START + 10**9))


def test_a_task_published_a_moment_ago_keeps_its_hop_key(desk: Desk) -> None:
    """Planted: no look into the folder before deleting -> fails."""
    first = desk.world.publish(name="first")
    book = desk.book()
    for window in (0, 1):
        desk.close_window(book, first, window)
    second = desk.world.publish(name="second", hop=first.hop)
    assert book.retire() is False
    assert second.hop.config.key_id in book.keys


def not_mounted(desk: Desk) -> None:
    desk.world.tasks_dir.rename(desk.world.folder / "away")


def mounted_again(desk: Desk) -> None:
    (desk.world.folder / "away").rename(desk.world.tasks_dir)


def half_copied(desk: Desk) -> None:
    (desk.world.tasks_dir / "second.keys").rename(desk.world.folder / "second.keys")


def copied(desk: Desk) -> None:
    (desk.world.folder / "second.keys").rename(desk.world.tasks_dir / "second.keys")


@pytest.mark.parametrize(("break_", "mend"), [(not_mounted, mounted_again), (half_copied, copied)])
def test_no_key_goes_while_the_folder_cannot_be_read(
    desk: Desk,
    caplog: pytest.LogCaptureFixture,
    break_: Callable[[Desk], None],
    mend: Callable[[Desk], None],
) -> None:
    """It may hold a task with the same key, that this process has not seen. Planted: deleting
    whatever ``reload`` says -> fails.
    """
    first = desk.world.publish(name="first")
    book, key_id = desk.book(), first.hop.config.key_id
    second = desk.world.publish(name="second", hop=first.hop)
    break_(desk)
    for window in (0, 1):
        desk.close_window(book, first, window)
    for _ in range(3):
        assert book.retire() is False
        assert key_path(desk, first).exists()
        assert key_id in book.keys
    # said once, though asked three times
    assert [entry.levelname for entry in caplog.records].count("ERROR") == 1
    mend(desk)
    assert book.retire() is False
    assert second.task_id in book.served
    assert key_id in book.keys


def test_a_task_whose_files_come_back_after_a_start_keeps_its_key(desk: Desk) -> None:
    """Files that were away at the start and are back before the other task's last window ends.
    Planted: no ``reload`` -> fails.
    """
    first = desk.world.publish(name="first")
    second = desk.world.publish(name="second", hop=first.hop)
    desk.book()
    away = [
        path.rename(desk.world.folder / path.name) for path in desk.world.tasks_dir.glob("second.*")
    ]
    book = desk.restart()
    for path in away:
        path.rename(desk.world.tasks_dir / path.name)
    for window in (0, 1):
        desk.close_window(book, first, window)
    assert book.retire() is False
    assert book.served.keys() == {first.task_id, second.task_id}
    assert key_path(desk, first).exists()


@pytest.mark.parametrize(
    ("delay", "max_batch", "warned"), [(0.0, 10, True), (0.0, 0, False), (1.0, 10, False)]
)
def test_a_full_window_delivered_at_once_is_warned_of(
    desk: Desk, caplog: pytest.LogCaptureFixture, delay: float, max_batch: int, warned: bool
) -> None:
    """Planted: no warning, or one for every task -> fails."""
    desk.world.publish(max_batch=max_batch)
    desk.delay = delay
    desk.book()
    assert [
        entry.levelname
        for entry in caplog.records
        if "shows when the last report came" in entry.getMessage()
    ] == ["WARNING"] * warned


def test_a_deletion_that_a_crash_interrupted_is_finished_at_the_start(desk: Desk) -> None:
    published = desk.world.publish()
    book = desk.book()
    for window in (0, 1):
        desk.close_window(book, published, window)
    assert key_path(desk, published).exists()
    desk.restart()
    assert not key_path(desk, published).exists()


def test_a_key_of_windows_that_are_over_need_not_be_there(desk: Desk) -> None:
    published = desk.world.publish()
    os.unlink(key_path(desk, published))
    desk.clock.time = START + 2 * LENGTH + GRACE
    book = desk.book()
    assert [window.window for _, window in book.running(desk.clock.now())] == [0, 1]


def test_states_other_than_open_are_decided(desk: Desk) -> None:
    published = desk.world.publish()
    one = WindowId(published.task_id, 0)
    desk.book()
    desk.store.append([AdmittedReport(one, (published.sealed(),))])
    assert [w.window for _, w in desk.restart().running(START + LENGTH)] == [0, 1]
    desk.store.close_intake(one)
    desk.store.advance(one, WindowState.CLOSING, WindowState.WITHHELD)
    assert [w.window for _, w in desk.restart().running(START + LENGTH)] == [1]

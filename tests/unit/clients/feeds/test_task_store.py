"""The shelf of learnt tasks: nothing is written that two signatures don't vouch for, and no task
ever has two schedules.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest

from shoal import codec
from shoal.clients.core import expiry
from shoal.clients.feeds.task_store import FINAL, LearntTask, LearntTasks
from shoal.clocks.clock import FakeClock
from shoal.codec import TaskBundle
from shoal.crypto.hpke import generate
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.task_folder import load_task_folder
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from tests.worlds.devices.clients import START, WEEK, World, make_world

AUTHORITY = SigningKey.generate()
WORLD = make_world(authority=AUTHORITY)
END = START + 4 * WEEK


def bundle(world: World = WORLD, task: bytes | None = None, schedule: bytes | None = None) -> bytes:
    return codec.encode_bundle(
        TaskBundle(
            world.signed_task if task is None else task,
            world.signed_schedule if schedule is None else schedule,
        )
    )


class Desk:
    def __init__(self, folder: Path, most: int = 3) -> None:
        self.clock, self.folder, self.conflicts = (
            FakeClock(START + 1.0),
            folder / "outbox.db.tasks",
            list[TaskId](),
        )
        self.most = most

    def open(self, authorities: frozenset[bytes] = WORLD.authorities) -> LearntTasks:
        return LearntTasks(self.folder, authorities, self.clock, self.most, self.conflicts.append)

    @property
    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def refused(shelf: LearntTasks, data: bytes) -> Kind:
    with pytest.raises(ShoalError) as error:
        shelf.offer(data)
    assert "\n" not in str(error.value)
    return error.value.kind


def test_a_task_is_kept_once_private_and_as_any_folder_of_tasks_has_it(desk: Desk) -> None:
    shelf = desk.open()
    assert shelf.offer(bundle()) == LearntTask(WORLD.task_id, "visits", fresh=True)
    written = desk.files
    assert sorted(written) == [f"{WORLD.task_id.hex}.keys", f"{WORLD.task_id.hex}.task"]
    assert desk.folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in desk.folder.iterdir())
    assert shelf.offer(bundle()) == LearntTask(WORLD.task_id, "visits", fresh=False)
    # after a restart too
    assert desk.open().offer(bundle()) == LearntTask(WORLD.task_id, "visits", fresh=False)
    assert desk.files == written
    assert list(load_task_folder(desk.folder, WORLD.authorities).served) == [WORLD.task_id]


def test_a_wide_umask_and_an_open_folder_change_nothing(desk: Desk) -> None:
    desk.folder.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        desk.open().offer(bundle())
    finally:
        os.umask(before)
    assert desk.folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in desk.folder.iterdir())


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


STRANGER = SigningKey.generate()
FOREIGN = make_world(authority=STRANGER)
OTHER = make_world(authority=AUTHORITY, name="steps")
BAD = {
    "garbage": (b"\xff" * 40, Kind.INVALID),
    "nothing": (b"", Kind.FORBIDDEN),
    "too large": (bytes(5 << 20), Kind.OVERSIZE),
    "another authority": (bundle(FOREIGN), Kind.FORBIDDEN),
    "task altered": (bundle(task=flipped(WORLD.signed_task, 40)), Kind.BAD_SIGNATURE),
    "task's signature altered": (
        bundle(task=flipped(WORLD.signed_task, len(WORLD.signed_task) - 1)),
        Kind.BAD_SIGNATURE,
    ),
    "schedule altered": (bundle(schedule=flipped(WORLD.signed_schedule, 60)), Kind.BAD_SIGNATURE),
    "schedule of another": (bundle(schedule=OTHER.signed_schedule), Kind.MISMATCH),
    "schedule by another": (
        bundle(schedule=WORLD.schedule(WORLD.hop, by=STRANGER)),
        Kind.FORBIDDEN,
    ),
    "no schedule": (bundle(schedule=b""), Kind.FORBIDDEN),
    "no task": (bundle(task=b""), Kind.FORBIDDEN),
}


@pytest.mark.parametrize("name", BAD)
def test_nothing_is_written_of_what_does_not_verify(desk: Desk, name: str) -> None:
    """Planted: write first, verify then -> files, and this fails; ``trust_schedule`` left out ->
    the schedules' cases fail.
    """
    data, kind = BAD[name]
    shelf = desk.open()
    assert refused(shelf, data) is kind
    assert not desk.files
    assert not desk.conflicts
    shelf.offer(bundle())
    kept = desk.files
    assert refused(shelf, data) in FINAL
    assert desk.files == kept
    # above all: nobody but the key authority can make a task look two-faced
    assert not desk.conflicts


def test_fields_that_nobody_signed_are_not_kept(desk: Desk) -> None:
    """Around the signed bytes an envelope may hold anything. Planted: the envelope as it came ->
    its megabyte on disk, this fails.
    """
    padding = b"\x9a\x06" + b"\x80\x80\x0c" + bytes(3 << 16)  # field 99, length-delimited
    desk.open().offer(bundle(task=WORLD.signed_task + padding))
    assert desk.files[f"{WORLD.task_id.hex}.task"] == WORLD.signed_task
    assert not desk.open().offer(bundle(task=padding + WORLD.signed_task)).fresh


def test_a_second_schedule_is_a_conflict_and_is_told(desk: Desk) -> None:
    """Both orders, and after a restart. Planted: the newer one kept -> another hop key on disk,
    this fails.
    """
    second = bundle(schedule=WORLD.schedule(generate(SuiteId.X25519_AES128)))
    shelf = desk.open()
    shelf.offer(bundle())
    kept = desk.files
    assert refused(shelf, second) is Kind.CONFLICT
    assert desk.conflicts == [WORLD.task_id]
    assert refused(desk.open(), second) is Kind.CONFLICT
    assert desk.files == kept
    assert not shelf.offer(bundle()).fresh


def test_the_same_schedule_signed_by_the_same_hand_in_another_envelope_is_no_conflict(
    desk: Desk,
) -> None:
    shelf = desk.open()
    shelf.offer(bundle())
    assert not shelf.offer(bundle(schedule=WORLD.signed_schedule + b"\xa0\x06\x01")).fresh
    assert not desk.conflicts


def test_a_task_that_is_over_is_refused_and_pruned_when_nobody_can_hold_it_any_more(
    desk: Desk,
) -> None:
    shelf = desk.open()
    desk.clock.time = WORLD.task.windows.deadline_of(3) + WORLD.task.windows.skew_s - 1.0
    assert shelf.offer(bundle()).fresh
    desk.clock.advance(1.0)
    late = make_world(authority=AUTHORITY, name="late")
    assert refused(shelf, bundle(late)) is Kind.WINDOW_CLOSED
    assert refused(shelf, bundle()) is Kind.WINDOW_CLOSED
    assert shelf.prune() == []  # a queued report may still want its task
    desk.clock.time = float(expiry(WORLD.task, 3))
    assert shelf.prune() == [WORLD.task_id]
    assert desk.files == {}
    assert shelf.prune() == []


def test_a_full_shelf_takes_no_more_before_something_is_over(desk: Desk) -> None:
    shelf = desk.open()
    worlds = [make_world(authority=AUTHORITY, name=f"task-{i}", count=4 + i) for i in range(4)]
    for world in worlds[:3]:
        shelf.offer(bundle(world))
    assert refused(shelf, bundle(worlds[3])) is Kind.OVERLOADED
    assert Kind.OVERLOADED not in FINAL  # a feed offers it again
    assert not shelf.offer(bundle(worlds[0])).fresh
    assert len(desk.files) == 6
    longer = make_world(authority=AUTHORITY, name="longer", count=20)
    desk.clock.time = float(expiry(worlds[0].task, 3))
    assert shelf.offer(bundle(longer)).fresh
    assert f"{worlds[0].task_id.hex}.task" not in desk.files


def test_a_damaged_file_is_learnt_anew_and_a_lost_one_too(desk: Desk) -> None:
    """A power cut, a bad sector, a hand that deletes. Planted: the index trusted without a look ->
    never mended, this fails.
    """
    desk.open().offer(bundle())
    for suffix in ("task", "keys"):
        path = desk.folder / f"{WORLD.task_id.hex}.{suffix}"
        path.write_bytes(flipped(path.read_bytes(), 50))
        shelf = desk.open()
        assert shelf.offer(bundle()).fresh
        path.unlink()
        assert desk.open().offer(bundle()).fresh
        assert desk.files[path.name] in {WORLD.signed_task, WORLD.signed_schedule}
    shelf = desk.open()
    shelf.offer(bundle())
    (desk.folder / f"{WORLD.task_id.hex}.task").unlink()
    assert shelf.offer(bundle()).fresh


def test_a_task_whose_authority_is_not_trusted_any_more_stays_unseen(desk: Desk) -> None:
    desk.open().offer(bundle())
    other = desk.open(frozenset({STRANGER.public}))
    assert refused(other, bundle()) is Kind.FORBIDDEN
    assert other.offer(bundle(FOREIGN)).fresh
    assert len(desk.files) == 4


@pytest.mark.parametrize("step", range(6))
def test_a_crash_between_any_two_steps_leaves_a_folder_that_reads_and_is_mended(
    desk: Desk, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the task before its schedule -> a task without keys for a reader, and this fails."""
    calls = itertools.count()
    real = {"fsync": os.fsync, "replace": Path.replace}

    def strike() -> None:
        if next(calls) == step:
            raise OSError(28, "No space left on device")

    def fsync(handle: int) -> None:
        strike()
        real["fsync"](handle)  # type: ignore[operator]

    def rename(self: Path, target: Path) -> Path:
        strike()
        return real["replace"](self, target)  # type: ignore[operator,no-any-return]

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", rename)
    shelf = desk.open()
    if step < 5:
        assert refused(shelf, bundle()) is Kind.OVERLOADED
    else:
        assert shelf.offer(bundle()).fresh  # five steps in all
    # as a task without its schedule would be
    assert not load_task_folder(desk.folder, WORLD.authorities).refused
    monkeypatch.undo()
    shelf.offer(bundle())
    assert {name: data for name, data in desk.files.items() if not name.startswith(".")} == {
        f"{WORLD.task_id.hex}.keys": WORLD.signed_schedule,
        f"{WORLD.task_id.hex}.task": WORLD.signed_task,
    }


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ShoalError, match="can't be made") as error:
        LearntTasks(tmp_path / "file" / "x", WORLD.authorities, FakeClock())
    assert error.value.kind is Kind.CONFIG


def test_memoized_tasks_are_kept_like_others(desk: Desk) -> None:
    """Whether the device answers them is not the shelf's decision."""
    world = World(
        replace(WORLD.task, memoized=True), AUTHORITY, WORLD.analyzer, WORLD.hop, WORLD.services
    )
    assert desk.open().offer(bundle(world)).fresh
    assert world.task_id != WORLD.task_id

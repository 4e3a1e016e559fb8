"""Steps on disk: the first one of a window, also after a restart; damage comes again."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.crypto.step_folder import StepFolder
from shoal.errors import Kind, ShoalError
from shoal.services.whole_files import replace_whole
from tests.flipped import last_bit_flipped
from tests.worlds.services.analyzer import World, make_task
from tests.worlds.words import SMALL, step_of, words_world

WORLD = words_world()
LEVEL = SMALL.level(1, [b"\x02", b"\x13"])
OTHER = SMALL.level(1, [b"\x02"])


def folder_of(path: Path) -> StepFolder:
    return StepFolder(path / "steps", replace_whole)


def take(folder: StepFolder, data: bytes) -> bool:
    return folder.take(WORLD.task, WORLD.task_id, data)


def test_what_was_taken_is_there_after_a_restart(tmp_path: Path) -> None:
    """Planted: kept in memory alone -> fails."""
    one = step_of(WORLD, 1, LEVEL)
    first = folder_of(tmp_path)
    assert take(first, one.data)
    assert not take(first, one.data)
    assert folder_of(tmp_path).of(WORLD.task, WORLD.task_id) == {1: one}
    assert (tmp_path / "steps").stat().st_mode & 0o077 == 0


def test_a_second_step_of_a_window_is_refused_by_every_program(tmp_path: Path) -> None:
    """``second`` looked before the first took its step. Planted: what was read is not read again
    -> it takes the other one, and this fails.
    """
    first, second = folder_of(tmp_path), folder_of(tmp_path)
    assert second.of(WORLD.task, WORLD.task_id) == {}
    assert take(first, step_of(WORLD, 1, LEVEL).data)
    for folder in (first, second, folder_of(tmp_path)):
        with pytest.raises(ShoalError) as refused:
            take(folder, step_of(WORLD, 1, OTHER).data)
        assert refused.value.kind is Kind.CONFLICT
        assert [one.step.level for one in folder.of(WORLD.task, WORLD.task_id).values()] == [LEVEL]


def test_a_damaged_file_is_as_none_and_goes(tmp_path: Path) -> None:
    """Planted: the signature of a file believed -> the changed step counts, and this fails."""
    one = step_of(WORLD, 1, LEVEL)
    take(folder_of(tmp_path), one.data)
    (path,) = (tmp_path / "steps").iterdir()
    path.write_bytes(last_bit_flipped(one.data))
    again = folder_of(tmp_path)
    assert again.of(WORLD.task, WORLD.task_id) == {}
    assert not path.exists()
    assert take(again, one.data)


def test_forgetting_a_task_leaves_others(tmp_path: Path) -> None:
    other = words_world()
    folder = folder_of(tmp_path)
    take(folder, step_of(WORLD, 1, LEVEL).data)
    folder.take(other.task, other.task_id, step_of(other, 1, LEVEL).data)
    folder.forget(WORLD.task_id.hex)
    assert folder_of(tmp_path).of(WORLD.task, WORLD.task_id) == {}
    assert len(folder_of(tmp_path).of(other.task, other.task_id)) == 1


def test_a_disk_that_fails_changes_nothing(tmp_path: Path) -> None:
    """Planted: known before it is on disk -> the second look has it."""

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    folder = StepFolder(tmp_path / "steps", full)
    with pytest.raises(ShoalError) as refused:
        take(folder, step_of(WORLD, 1, LEVEL).data)
    assert refused.value.kind is Kind.OVERLOADED
    assert folder.of(WORLD.task, WORLD.task_id) == {}


def test_other_tasks_have_no_steps(tmp_path: Path) -> None:
    other = World(make_task())
    assert folder_of(tmp_path).of(other.task, other.task_id) == {}


def test_what_was_dropped_is_not_read_again_though_its_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another step is the first, and the disk can't delete. Planted: the file read again when the
    other is kept -> CONFLICT, fails.
    """
    folder, other = folder_of(tmp_path), step_of(WORLD, 1, OTHER)
    take(folder, step_of(WORLD, 1, LEVEL).data)

    def stuck(self: Path, **_: bool) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", stuck)
        with pytest.raises(ShoalError) as refused:
            folder.drop(WORLD.task, WORLD.task_id, 1)
    assert refused.value.kind is Kind.OVERLOADED
    assert folder.of(WORLD.task, WORLD.task_id) == {}
    assert take(folder, other.data)
    assert folder_of(tmp_path).of(WORLD.task, WORLD.task_id) == {1: other}


def test_what_is_known_for_now_alone_is_on_no_disk(tmp_path: Path) -> None:
    """Planted: written all the same -> fails."""
    folder, one = folder_of(tmp_path), step_of(WORLD, 1, LEVEL)
    assert folder.keep(one, WORLD.task, WORLD.task_id, stored=False)
    assert folder.of(WORLD.task, WORLD.task_id) == {1: one}
    assert folder_of(tmp_path).of(WORLD.task, WORLD.task_id) == {}

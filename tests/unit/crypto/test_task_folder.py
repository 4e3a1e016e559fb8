"""One folder of signed tasks that reloads, whoever reads it: what is taken up, refused, tried again
and kept.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.crypto.task_folder import TaskFolder
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from tests.worlds.services.analyzer import World, make_task, make_world

WORLD = make_world()


class Folder(TaskFolder):
    """Takes up what ``refuses`` does not name, and counts the tries."""

    def __init__(self, folder: Path, refuses: dict[str, Exception] | None = None) -> None:
        self.refuses, self.tries = refuses or {}, list[str]()
        super().__init__(folder / "tasks", {WORLD.authority.public}, "analyzer")

    def take_up(self, served: ServedTask) -> None:
        self.tries.append(served.task.name)
        if (error := self.refuses.get(served.task.name)) is not None:
            raise error

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(one.code, one.subject) for one in self.conditions()]


def second() -> World:
    return World(make_task(name="second"), authority=WORLD.authority, analyzer=WORLD.analyzer)


def test_a_task_is_taken_up_once_and_kept(tmp_path: Path) -> None:
    """Planted: known tasks taken up at every read, or dropped with their files -> this fails."""
    WORLD.write(tmp_path)
    folder = Folder(tmp_path)
    before = folder.served
    assert folder.refresh()
    assert folder.reload()
    assert folder.tries == ["visits"]
    second().write(tmp_path)
    assert folder.changed()
    assert folder.refresh()
    assert not folder.changed()
    assert folder.tries == ["visits", "second"]
    for path in (tmp_path / "tasks").iterdir():
        path.unlink()
    assert folder.refresh()
    assert len(folder.served) == 2
    assert len(before) == 1  # who holds what was served sees no change


def test_what_is_refused_is_tried_again_only_if_that_may_help(tmp_path: Path) -> None:
    """Planted: nothing tried again, or what a task says itself tried for ever -> this fails."""
    cases = {
        Kind.KEY_FILE: True,
        Kind.OVERLOADED: True,
        Kind.CONFIG: False,
        Kind.INVALID: False,
        Kind.CONFLICT: False,
    }
    WORLD.write(tmp_path)
    for kind, again in cases.items():
        folder = Folder(tmp_path, {"visits": ShoalError(kind, "planted")})
        assert folder.told == [("key" if kind is Kind.KEY_FILE else "task", "visits.task")], kind
        assert [one.task_id for one in folder.refused()] == [WORLD.task_id], kind
        assert folder.refresh(), kind  # every key that the folder names is known all the same
        folder.refuses = {}
        assert folder.refresh(), kind
        assert (len(folder.served), folder.told == []) == (int(again), again), kind
        assert len(folder.tries) == (3 if again else 1), kind


def test_an_unexpected_failure_of_one_task_stops_no_other(tmp_path: Path) -> None:
    WORLD.write(tmp_path)
    second().write(tmp_path)
    folder = Folder(tmp_path, {"second": ZeroDivisionError("planted")})
    assert list(folder.served) == [WORLD.task_id]
    assert folder.told == [("task", "second.task")]
    assert "planted" not in "".join(one.message for one in folder.conditions())


def test_a_folder_that_goes_away_keeps_what_was_served(tmp_path: Path) -> None:
    """Also an empty one. Planted: one that can't be listed looks like an empty one -> fails."""
    WORLD.write(tmp_path)
    for empty in (False, True):
        if empty:
            for path in (tmp_path / "tasks").iterdir():
                path.unlink()
        folder = Folder(tmp_path)
        moved = (tmp_path / "tasks").rename(tmp_path / "moved")
        assert not folder.refresh(), empty
        assert folder.told == [("task", "")], empty
        moved.rename(tmp_path / "tasks")
        assert folder.refresh(), empty
        assert (folder.told, len(folder.served)) == ([], int(not empty)), empty
    (tmp_path / "tasks").rmdir()
    with pytest.raises(ShoalError) as caught:
        Folder(tmp_path)
    assert caught.value.kind is Kind.CONFIG


@pytest.mark.parametrize("suffix", [".task", ".keys"])
def test_a_link_to_nothing_changes_once(tmp_path: Path, suffix: str) -> None:
    """It costs its own task alone, and what it points to is found when it is there. Planted: a file
    that can't be looked at taken for a folder that can't -> always changed; left out -> the file
    behind it is not found. Both fail.
    """
    WORLD.write(tmp_path)
    target = tmp_path / "target"
    (tmp_path / "tasks" / f"link{suffix}").symlink_to(target)
    folder = Folder(tmp_path)
    assert list(folder.served) == [WORLD.task_id]
    assert not folder.changed()
    target.write_bytes(b"no task")
    assert folder.changed()
    folder.reload()
    assert not folder.changed()
    target.unlink()
    assert folder.changed()

"""Who has answered a window of rounds: remembered over restarts, by hashes that die with the
window.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.sqlite.admissions import FILE_NAME, Admissions

FIRST, SECOND = WindowId(TaskId(bytes(32)), 0), WindowId(TaskId(bytes(32)), 1)
DEVICE, OTHER = b"\x01" * 32, b"\x02" * 32


@pytest.fixture
def admissions(tmp_path: Path) -> Iterator[Admissions]:
    made = Admissions(tmp_path, SeededEntropy("admissions"))
    yield made
    failpoints.arm("")
    made.close()


def test_a_device_is_remembered_per_window(admissions: Admissions) -> None:
    assert not admissions.answered(FIRST, DEVICE)
    admissions.remember(FIRST, DEVICE)
    admissions.remember(FIRST, DEVICE)
    assert admissions.answered(FIRST, DEVICE)
    assert not admissions.answered(FIRST, OTHER)
    assert not admissions.answered(SECOND, DEVICE)


def test_a_restart_forgets_nobody(tmp_path: Path, admissions: Admissions) -> None:
    """Planted: the secret not stored -> after a start every device may answer again."""
    admissions.remember(FIRST, DEVICE)
    admissions.close()
    again = Admissions(tmp_path)
    assert again.answered(FIRST, DEVICE)
    again.remember(FIRST, OTHER)
    assert again.answered(FIRST, OTHER)
    again.close()


def test_windows_share_no_hash_and_no_key_is_on_disk(
    tmp_path: Path, admissions: Admissions
) -> None:
    """Planted: one secret for all windows -> a device has the same hash twice; the bare key stored
    -> it is found in the file.
    """
    admissions.remember(FIRST, DEVICE)
    admissions.remember(SECOND, DEVICE)
    # to see everything
    hashes = {row[0] for row in admissions._open().execute("SELECT device FROM admitted")}
    assert len(hashes) == 2
    admissions.close()
    assert all(DEVICE not in path.read_bytes() for path in tmp_path.iterdir())


def test_a_window_that_is_over_leaves_no_trace(tmp_path: Path, admissions: Admissions) -> None:
    """Planted: no secure_delete, or the log kept -> the secret's bytes are still in a file."""
    admissions.remember(FIRST, DEVICE)
    admissions.remember(SECOND, DEVICE)
    secret = admissions._secrets[FIRST.task_id.raw, 0]
    stored = (
        admissions._open().execute("SELECT device FROM admitted WHERE window = 0").fetchone()[0]
    )
    admissions.forget(FIRST)
    admissions.forget(FIRST)
    assert admissions.windows() == {SECOND}
    assert not admissions.answered(FIRST, DEVICE)
    for path in tmp_path.iterdir():
        assert secret not in path.read_bytes()
        assert stored not in path.read_bytes()
    assert admissions.answered(SECOND, DEVICE)


@pytest.mark.parametrize(("point", "kind"), [("enospc", Kind.OVERLOADED), ("eio", Kind.INTERNAL)])
def test_what_could_not_be_written_down_is_not_remembered(
    admissions: Admissions, point: str, kind: Kind
) -> None:
    failpoints.arm(f"rounds.admitted={point}@1")
    with pytest.raises(ShoalError) as error:
        admissions.remember(FIRST, DEVICE)
    assert error.value.kind is kind
    assert not admissions.answered(FIRST, DEVICE)
    assert admissions.windows() == set()
    admissions.remember(FIRST, DEVICE)
    assert admissions.answered(FIRST, DEVICE)
    failpoints.arm(f"rounds.forgotten={point}@1")
    with pytest.raises(ShoalError):
        admissions.forget(FIRST)
    assert admissions.answered(FIRST, DEVICE)


def test_a_file_that_is_none_of_ours_is_set_aside_and_told(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database, surely" * 100)
    store = Admissions(tmp_path)
    assert [one.code for one in store.damage()] == ["damage"]
    store.remember(FIRST, DEVICE)
    assert store.answered(FIRST, DEVICE)
    assert (tmp_path / f"{FILE_NAME}.damaged-1").exists()
    store.close()

"""Nothing that the shuffler keeps of rounds and of helper mode is lost silently: every file damaged
in every way.

The rule for vectors: what would be summed is what came, byte for byte with its seed; what is
missing is counted or told. For who answered: nobody answers twice unless it is told.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.rounds import VerifiedVector
from shoal.shuffler.stores.sqlite import admissions, single_store
from shoal.shuffler.stores.sqlite.admissions import Admissions
from shoal.shuffler.stores.sqlite.single_store import SingleStore
from tests.faults import corrupt
from tests.sizes import size

pytestmark = pytest.mark.campaign

WINDOW = WindowId(TaskId(bytes(range(32))), 0)
SIZE, COUNT = 700, 24
SEEDS = size(2, 15, 60)
RNG = random.Random("vectors")  # noqa: S311 - what a device sends is no secret here
SENT = {RNG.randbytes(SIZE): RNG.randbytes(32) for _ in range(COUNT)}
DEVICES = [RNG.randbytes(32) for _ in range(COUNT)]


@pytest.fixture(scope="module")
def singles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    live, copy = (tmp_path_factory.mktemp("singles") / name for name in ("live", "copy"))
    live.mkdir()
    with closing(SingleStore(live)) as store:
        arrivals = [
            VerifiedVector(WINDOW, 1_000, device, *pair)
            for device, pair in zip(DEVICES, SENT.items(), strict=True)
        ]
        for at in range(0, COUNT, 6):
            assert store.add(arrivals[at : at + 6]) == [None] * 6
        shutil.copytree(live, copy)
    return copy


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    live, copy = (tmp_path_factory.mktemp("answered") / name for name in ("live", "copy"))
    live.mkdir()
    with closing(Admissions(live)) as store:
        for device in DEVICES:
            store.remember(WINDOW, device)
        shutil.copytree(live, copy)
    return copy


def singles_verdict(folder: Path) -> str:
    with closing(SingleStore(folder)) as store:
        store.leave_out_damaged(WINDOW, SIZE)
        rows = store.rows(WINDOW)
        if any(SENT.get(store.read(WINDOW, row.place, SIZE)) != row.seed for row in rows):
            return "a vector that never came, or another's seed, would be summed"
        missing = COUNT - len(rows)
        if missing and not store.damage():
            return f"{missing} vectors are lost silently"
        return "damage is told where there is none" if store.missing(WINDOW) > missing else ""


def answered_verdict(folder: Path) -> str:
    with closing(Admissions(folder)) as store:
        again = 0
        for device in DEVICES:
            try:
                again += not store.answered(WINDOW, device)
            except ShoalError:  # the window takes nobody any more
                return "" if store.damage() else "nobody is let in, silently"
        return f"{again} devices may answer twice, silently" if again and not store.damage() else ""


@pytest.mark.parametrize("name", ["singles", "answered"])
def test_whatever_is_damaged_is_told(
    name: str, memory_folder: Path, request: pytest.FixtureRequest
) -> None:
    """Planted: vectors read without their digest -> a flipped one is summed. Planted: no count
    beside the rows -> rows gone silently. Each fails.
    """
    source: Path = request.getfixturevalue(name)
    verdict: Callable[[Path], str] = {"singles": singles_verdict, "answered": answered_verdict}[
        name
    ]
    assert verdict(_copied(source, memory_folder / "whole")) == ""
    bad, count = list[str](), 0
    for file in sorted(
        path.name
        for path in source.iterdir()
        if not path.name.endswith("-shm") and path.stat().st_size
    ):
        for how, corruption in corrupt.ALL.items():
            for seed in range(1 if how in corrupt.ONCE else SEEDS):
                folder = _copied(source, memory_folder / str(count))
                # which byte is no secret
                corruption(folder / file, random.Random(f"{file} {how} {seed}"))  # noqa: S311
                try:
                    wrong = verdict(folder)
                except (ShoalError, sqlite3.Error) as error:
                    # of a newer version, as far as anybody can tell
                    told = isinstance(error, ShoalError) and error.kind is Kind.CONFIG
                    wrong = "" if told else f"{type(error).__name__}: {error}"
                bad += [f"{file} {how} {seed}: {wrong}"] if wrong else []
                count += 1
                shutil.rmtree(folder)
    assert bad == []
    assert count >= 5 * SEEDS


def _copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        (single_store.FILE_NAME, "UPDATE single SET seed = zeroblob(32) WHERE place = 3"),
        (single_store.FILE_NAME, "UPDATE single SET place = 4 WHERE place = 3"),
        (single_store.FILE_NAME, "DELETE FROM single WHERE place = 3"),
        (single_store.FILE_NAME, "UPDATE single SET left_out = 1 WHERE place = 3"),
        (admissions.FILE_NAME, "DELETE FROM admitted WHERE rowid_ = 0"),
        (admissions.FILE_NAME, "UPDATE secret SET secret = zeroblob(32), task_id = task_id"),
    ],
)
def test_a_changed_row_is_not_believed(
    singles: Path, answered: Path, tmp_path: Path, file: str, statement: str
) -> None:
    """Planted: no digest of rows -> the seed of another vector, fails. Planted: no count beside the
    rows -> one is gone silently.
    """
    first = file == single_store.FILE_NAME
    folder = _copied(singles if first else answered, tmp_path / "one")
    with closing(sqlite3.connect(folder / file, isolation_level=None)) as db:
        db.execute(statement.replace("rowid_ = 0", "device = (SELECT min(device) FROM admitted)"))
    verdict = singles_verdict if first else answered_verdict
    assert verdict(folder) == ""
    with closing(SingleStore(folder) if first else Admissions(folder)) as store:
        assert store.damage()

"""Nothing that the analyzer stores is lost silently: every file damaged in every way, and what is
read of it afterwards.

The rule: a release that is read is the one that was signed; one that is not read is told, and what
all of them together give away is never said to be less.
"""

from __future__ import annotations

import math
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shoal.analyzer.core import BatchState
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.results.cumulative import compose_spendings
from shoal.analyzer.rounds.sums import DAMAGED, StoredSum, SumStore
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.analyzer.store_mending import HEAD_NAME
from shoal.cli.main import main
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.protos import release_pb2
from shoal.storage.checksums import row_digest
from tests.faults import corrupt
from tests.sizes import size
from tests.worlds.services.analyzer import make_world

pytestmark = pytest.mark.campaign

KEY = SigningKey.generate()
WINDOWS, EPSILON = 8, 0.5
SEEDS = size(2, 20, 100)
TASK = TaskId(bytes(range(32)))


def outcome(window: int, task_id: TaskId = TASK) -> WindowOutcome:
    privacy = release_pb2.Privacy(epsilon_upper=EPSILON, epsilon_at_received_n=EPSILON, delta=1e-9)
    made = release_pb2.Release(
        version=1,
        task_id=task_id.raw,
        name="answers",
        window=window,
        n=100 + window,
        privacy=privacy,
    )
    release = made.SerializeToString(deterministic=True)
    return WindowOutcome(
        release=release,
        release_signature=KEY.sign(SigningContext.RELEASE, release),
        ack=b"ack" * 10,
        ack_signature=bytes(64),
        tally=b"tally" * 100,
        spending=Spending(task_id, EPSILON, 1e-9),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of WINDOWS releases, as a killed service leaves it."""
    live, copy = (tmp_path_factory.mktemp("damage") / name for name in ("live", "copy"))
    live.mkdir()
    world = make_world(windows=WINDOWS)
    with closing(AnalyzerStore(live / FILE_NAME)) as store:
        store.sign_with(KEY.public)
        for window in range(WINDOWS):
            made = world.batch([world.seal(world.report(0), window)] * 100, window)
            batch = store.accept(made.manifest_bytes)
            assert store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
            batch = next(one for one in store.batches() if one.manifest_hash == batch.manifest_hash)
            assert store.finish(batch, lambda _, window=window: outcome(window, world.task_id))  # type: ignore[misc]
            SumStore(store).add(TASK, window, StoredSum(Digest.of(bytes([window])), 9, [1, 2, 3]))  # type: ignore[arg-type]
        shutil.copytree(live, copy)
    return copy


def verdict(path: Path, originals: list[bytes]) -> str:
    """Empty if the rule holds of the folder of this store."""
    with closing(AnalyzerStore(path / FILE_NAME)) as store:
        found = [stored.release for stored in store.releases()]
        told = [*store.damage(), *store.damaged_releases()]
        if not set(found) <= set(originals):
            return "a release is read that was never signed"
        if len(found) < len(originals) and not told:
            return "a release is gone silently"
        promised = together(store) if store.spendings() else 0.0
        if (
            promised
            < compose_spendings([Spending(TASK, EPSILON, 1e-9)] * len(originals)).epsilon_upper
            - 1e-9
            and not told
        ):
            return f"composition is understated: {promised}"
        if len(found) < len(originals) and store.lost and not math.isinf(promised):
            return "releases are gone and something is promised"
        for batch in store.batches():
            if batch.state is not BatchState.DONE and not told:
                return "a batch that is done is opened again"
        sums = sum(len(SumStore(store).of(TASK, window)) for window in range(WINDOWS))
        if (
            sums < WINDOWS
            and not told
            and not any(
                SumStore(store).reasons(TASK, window).get(DAMAGED) for window in range(WINDOWS)
            )
        ):
            return "a sum is gone silently"
    return ""


def test_whatever_is_damaged_is_told_and_nothing_is_understated(
    folder: Path, memory_folder: Path
) -> None:
    """Planted: no look at the whole file when it is opened, or no head beside it -> releases gone
    silently.
    """
    with closing(AnalyzerStore(folder / FILE_NAME)) as store:
        originals = [stored.release for stored in store.releases()]
    assert len(originals) == WINDOWS
    bad, count = list[str](), 0
    for name in sorted(path.name for path in folder.iterdir() if not path.name.endswith("-shm")):
        for how, corruption in corrupt.ALL.items():
            for seed in range(1 if how in corrupt.ONCE else SEEDS):
                one = memory_folder / str(count)
                shutil.copytree(folder, one)
                if not (one / name).stat().st_size:
                    continue
                # which byte is no secret
                corruption(one / name, random.Random(f"{name} {how} {seed}"))  # noqa: S311
                try:
                    wrong = verdict(one, originals)
                except (ShoalError, sqlite3.Error) as error:
                    wrong = f"{type(error).__name__}: {error}"
                bad += [f"{name} {how} {seed}: {wrong}"] if wrong else []
                count += 1
                shutil.rmtree(one)
    assert bad == []
    assert count >= 2 * 5 * SEEDS


def together(store: AnalyzerStore) -> float:
    return compose_spendings(store.spendings()).epsilon_upper


def change(path: Path, statement: str) -> None:
    """As a disk would: past the triggers."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.create_function("row_digest", -1, row_digest)
        for (name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute(statement)


@pytest.mark.parametrize(
    ("statement", "seen"),
    [
        (
            "UPDATE releases SET release = CAST(release || x'00' AS BLOB) WHERE window = 3",
            lambda s: len(s.releases()) == WINDOWS - 1,
        ),
        ("UPDATE releases SET epsilon = 0 WHERE window = 3", lambda s: together(s) >= 3.9),
        (
            "UPDATE releases SET signature = zeroblob(64) WHERE window = 3",
            lambda s: math.isinf(together(s)),
        ),
        (
            "DELETE FROM releases WHERE window = 3",
            lambda s: s.lost == 1 and math.isinf(together(s)),
        ),
        (
            "UPDATE batches SET state = 1 WHERE window = 3",
            lambda s: len(s.batches()) == WINDOWS - 1,
        ),
    ],
)
def test_a_changed_row_is_not_believed(
    folder: Path, tmp_path: Path, statement: str, seen: Callable[[AnalyzerStore], bool]
) -> None:
    """Planted: no digest of that table, or no signature looked at -> the changed row is read,
    fails.
    """
    shutil.copytree(folder, tmp_path / "one")
    change(
        tmp_path / "one" / FILE_NAME, f"PRAGMA foreign_keys = OFF; {statement}".partition("; ")[2]
    )
    with closing(AnalyzerStore(tmp_path / "one" / FILE_NAME)) as store:
        assert seen(store)
        assert store.damage()


def own(store: AnalyzerStore) -> TaskId:
    return store.batches()[3].manifest.task_id


def refused(read: Callable[[], object]) -> bool:
    with pytest.raises(ShoalError) as caught:
        read()
    return caught.value.kind is Kind.UNAVAILABLE


@pytest.mark.parametrize(
    ("statement", "seen"),
    [
        (
            "UPDATE sums SET vector = zeroblob(24) WHERE window = 3",
            lambda s: SumStore(s).of(TASK, 3) == [],
        ),
        (
            "UPDATE sums SET survivors = 8 WHERE window = 3",
            lambda s: SumStore(s).reasons(TASK, 3) == {DAMAGED: 1},
        ),
        (
            "UPDATE tallies SET tally = zeroblob(500) WHERE window = 3",
            lambda s: refused(lambda: s.tally(own(s), 3)),
        ),
        (
            "UPDATE acks SET ack = zeroblob(30) WHERE window = 3",
            lambda s: refused(lambda: s.ack(s.batches()[3].manifest_hash)),
        ),
    ],
)
def test_what_else_changed_is_told(
    folder: Path, tmp_path: Path, statement: str, seen: Callable[[AnalyzerStore], bool]
) -> None:
    """To whoever reads it. Planted: sums, tallies or acknowledgements read without their digest ->
    the changed one is read, fails.
    """
    shutil.copytree(folder, tmp_path / "one")
    change(tmp_path / "one" / FILE_NAME, statement)
    with closing(AnalyzerStore(tmp_path / "one" / FILE_NAME)) as store:
        assert seen(store)


def test_an_older_copy_is_found_out(folder: Path, tmp_path: Path) -> None:
    """Planted: no head beside the store -> fewer releases, as if there had never been more;
    fails.
    """
    shutil.copytree(folder, tmp_path / "one")
    with closing(AnalyzerStore(tmp_path / "one" / FILE_NAME)) as store:
        older = len(store.releases())
    copy = (tmp_path / "one" / FILE_NAME).read_bytes()
    with closing(AnalyzerStore(tmp_path / "one" / FILE_NAME)) as store, store.transaction():
        store.write_release(TASK, 77, outcome(77))
    with closing(AnalyzerStore(tmp_path / "one" / FILE_NAME)) as store:
        assert len(store.releases()) == older + 1
    (tmp_path / "one" / FILE_NAME).write_bytes(copy)
    with closing(AnalyzerStore(tmp_path / "one" / FILE_NAME)) as store:
        assert store.lost == 1
        assert math.isinf(compose_spendings(store.spendings()).epsilon_upper)
    assert (tmp_path / "one" / HEAD_NAME).exists()


@pytest.mark.parametrize("digest", ["as it was", "that fits"])
def test_a_damaged_release_is_named_and_the_others_are_shown(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], digest: str
) -> None:
    """One line with window and file, exit status 1; also of a row whose digest was made anew.
    Planted: releases read without their signature -> half of a count, exit 0.
    """
    shutil.copytree(folder, tmp_path / "one")
    with closing(AnalyzerStore(tmp_path / "one" / FILE_NAME)):
        pass
    change(
        tmp_path / "one" / FILE_NAME,
        "UPDATE releases SET release = CAST(replace(release, x'65', x'64') AS BLOB) WHERE window = "
        "3",
    )
    if digest == "that fits":
        row = "task_id, window, release, signature, epsilon, delta, loss_law, lifetime"
        change(
            tmp_path / "one" / FILE_NAME,
            f"UPDATE releases SET digest = row_digest({row}) WHERE window = 3",  # noqa: S608
        )
    data = str(tmp_path / "one")
    assert main(["results", "show", "answers:3", "--data", data]) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "window 3" in said[0]
    assert FILE_NAME in said[0]
    assert main(["results", "show", "answers:4", "--data", data]) == 0
    assert "104" in capsys.readouterr().out
    assert main(["results", "list", "--data", data]) == 1
    assert sum("answers" in line for line in capsys.readouterr().out.splitlines()) == WINDOWS - 1
    out = tmp_path / "out.json"
    assert main(["results", "export", "--out", str(out), "--data", data]) == 1
    assert out.exists()


def test_reading_a_file_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"nothing like it" * 1_000)
    with pytest.raises(ShoalError) as error:
        AnalyzerStore(tmp_path / FILE_NAME, read_only=True)
    assert error.value.kind is Kind.CONFIG

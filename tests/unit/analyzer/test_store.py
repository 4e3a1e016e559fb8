"""The analyzer's memory: one batch per window, everything of a batch in one transaction, releases
that never change.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.analyzer.core import Batch, BatchState
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.analyzer.store_mending import write_head
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from tests.cases import for_each
from tests.worlds.services.analyzer import make_world

WORLD = make_world(windows=3)
ROWS = [bytes(WORLD.row_size())] * 20
FIRST, OTHER, SECOND = (
    WORLD.batch(ROWS),
    WORLD.batch(ROWS, rows_hash=Digest(bytes(32))),
    WORLD.batch(ROWS, window=1),
)
OUTCOME = WindowOutcome(
    b"release", bytes(64), b"ack", bytes(range(64)), b"tally", Spending(WORLD.task_id, 0.25, 1e-6)
)
POINTS = (
    "analyzer.store.release",
    "analyzer.store.ack",
    "analyzer.store.tally",
    "analyzer.store.commit",
)


def always(_: list[Spending]) -> WindowOutcome:
    return OUTCOME


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AnalyzerStore]:
    made = AnalyzerStore(tmp_path / FILE_NAME)
    yield made
    failpoints.arm("")
    made.close()


def dump(store: AnalyzerStore) -> list[str]:
    return list(store._db.iterdump())  # to see everything


def processing(store: AnalyzerStore) -> Batch:
    batch = store.accept(FIRST.manifest_bytes)
    assert store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
    return batch


def test_a_manifest_is_accepted_once_however_often_it_comes(store: AnalyzerStore) -> None:
    batch = store.accept(FIRST.manifest_bytes)
    assert (batch.manifest, batch.manifest_hash, batch.state) == (
        FIRST.manifest,
        FIRST.manifest_hash,
        BatchState.RECEIVING,
    )
    before = dump(store)
    assert store.accept(FIRST.manifest_bytes) == batch
    assert store.batch(FIRST.manifest_hash) == store.batch_of(WORLD.task_id, 0) == batch
    assert dump(store) == before


def test_another_manifest_for_the_window_is_a_conflict(store: AnalyzerStore) -> None:
    """Planted: INSERT OR REPLACE -> the second batch takes the window over, and this fails."""
    store.accept(FIRST.manifest_bytes)
    before = dump(store)
    with pytest.raises(ShoalError) as error:
        store.accept(OTHER.manifest_bytes)
    assert error.value.kind is Kind.CONFLICT
    assert dump(store) == before


def test_states_move_only_from_where_they_are(store: AnalyzerStore) -> None:
    batch = store.accept(FIRST.manifest_bytes)
    assert store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
    assert not store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
    with pytest.raises(ValueError, match="DONE"):
        store.move(batch.manifest_hash, BatchState.PROCESSING, BatchState.DONE)


def test_finish_writes_everything_once(store: AnalyzerStore) -> None:
    """Planted: finish() without the look at the state -> the second call raises or counts twice,
    and this fails.
    """
    batch = processing(store)
    assert store.finish(batch, always)
    before = dump(store)
    assert not store.finish(batch, lambda _: pytest.fail("made twice"))
    assert dump(store) == before
    (stored,) = store.releases()
    assert (stored.release, stored.signature, stored.window) == (b"release", bytes(64), 0)
    ack = store.ack(FIRST.manifest_hash)
    assert ack is not None
    assert ack.ack == b"ack"
    assert store.tally(WORLD.task_id, 0) == b"tally"
    found = store.batch(FIRST.manifest_hash)
    assert found is not None
    assert found.state is BatchState.DONE


def test_finish_needs_a_batch_that_is_processing(store: AnalyzerStore) -> None:
    batch = store.accept(FIRST.manifest_bytes)
    assert not store.finish(batch, always)
    assert store.releases() == []


def test_the_tally_of_a_withheld_release_is_not_kept(store: AnalyzerStore) -> None:
    store.finish(
        processing(store),
        lambda _: WindowOutcome(b"r", bytes(64), b"a", bytes(64), None, OUTCOME.spending),
    )
    assert store.tally(WORLD.task_id, 0) is None


@pytest.mark.parametrize("point", POINTS)
def test_finish_is_all_or_nothing(store: AnalyzerStore, point: str) -> None:
    """Planted: a COMMIT between release and acknowledgement -> half a batch stays, and this
    fails.
    """
    batch = processing(store)
    before = dump(store)
    failpoints.arm(f"{point}=eio@1")
    with pytest.raises(ShoalError) as error:
        store.finish(batch, always)
    assert error.value.kind is Kind.OVERLOADED
    assert dump(store) == before
    failpoints.arm("")
    assert store.finish(batch, always)


@for_each("point", [*POINTS, ""])
def test_what_is_missing_stays_missing_whenever_the_next_release_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """A process that made a release after others went missing, and died in its transaction or right
    behind it (""): the next one knows that something is missing. Planted: the count written after
    the commit alone -> a death behind it, and nothing is missing.
    """
    folder = tmp_path / (point or "behind")
    folder.mkdir()
    write_head(folder, 1)  # of one that is gone
    store = AnalyzerStore(folder / FILE_NAME)
    batch = processing(store)
    with monkeypatch.context() as dying:
        dying.setattr(store, "write_release_count", lambda: None)
        failpoints.arm(f"{point}=eio@1" if point else "")
        if point:
            with pytest.raises(ShoalError):
                store.finish(batch, always)
        else:
            assert store.finish(batch, always)
        failpoints.arm("")
    store.close()
    again = AnalyzerStore(folder / FILE_NAME)
    assert again.lost >= 1
    assert max(one.epsilon_upper for one in again.spendings()) == math.inf
    again.close()


def test_an_error_while_the_release_is_made_changes_nothing(store: AnalyzerStore) -> None:
    batch = processing(store)
    before = dump(store)

    def fail(earlier: list[Spending]) -> WindowOutcome:
        raise ShoalError(Kind.INVALID, "no")

    with pytest.raises(ShoalError):
        store.finish(batch, fail)
    assert dump(store) == before


def test_every_batch_sees_what_the_ones_before_it_cost(store: AnalyzerStore) -> None:
    store.finish(processing(store), always)
    second = store.accept(SECOND.manifest_bytes)
    store.move(second.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
    seen: list[list[Spending]] = []

    def make(earlier: list[Spending]) -> WindowOutcome:
        seen.append(earlier)
        return OUTCOME

    store.finish(second, make)
    assert seen == [[OUTCOME.spending]]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE releases SET release = x'00'",
        "DELETE FROM releases",
        "UPDATE acks SET ack = x'00'",
        "DELETE FROM acks",
        "UPDATE batches SET state = 1",
        "DELETE FROM batches",
    ],
)
def test_what_is_done_never_changes(store: AnalyzerStore, statement: str) -> None:
    """Planted: a trigger left out of analyzer_001.sql -> its case fails."""
    store.finish(processing(store), always)
    before = dump(store)
    with pytest.raises(sqlite3.IntegrityError):
        store._db.execute(statement)
    assert dump(store) == before


def test_commits_are_synced(store: AnalyzerStore) -> None:
    """A commit that returned survives a power cut (WAL, synchronous = FULL = 2). Planted: NORMAL ->
    this fails.
    """
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_it_is_the_same_after_closing(tmp_path: Path) -> None:
    store = AnalyzerStore(tmp_path / FILE_NAME)
    store.finish(processing(store), always)
    before = dump(store)
    store.close()
    again = AnalyzerStore(tmp_path / FILE_NAME)
    assert dump(again) == before
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    again.close()


def test_a_reader_looks_on_while_the_service_writes_and_after(tmp_path: Path) -> None:
    store = AnalyzerStore(tmp_path / FILE_NAME)
    store.finish(processing(store), always)
    for closed in (False, True):
        if closed:
            store.close()
        reader = AnalyzerStore(tmp_path / FILE_NAME, read_only=True)
        assert [stored.release for stored in reader.releases()] == [b"release"]
        with pytest.raises(ShoalError):
            reader.accept(SECOND.manifest_bytes)
        reader.close()


def test_a_store_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(ShoalError) as error:
        AnalyzerStore(tmp_path / FILE_NAME, read_only=True)
    assert error.value.kind is Kind.NOT_FOUND
    (tmp_path / FILE_NAME).write_bytes(b"no database at all, but quite some bytes" * 100)
    with pytest.raises(ShoalError) as error:
        AnalyzerStore(tmp_path / FILE_NAME, read_only=True)
    assert error.value.kind is Kind.CONFIG
    store = AnalyzerStore(tmp_path / FILE_NAME)  # the service goes on, and tells
    assert [one.code for one in store.damage()] == ["damage"]
    assert (tmp_path / f"{FILE_NAME}.damaged-1").read_bytes().startswith(b"no database")
    store.close()


@pytest.mark.parametrize("version", [99, 2**30])
def test_a_newer_programs_store_is_left_alone(tmp_path: Path, version: int) -> None:
    """However far ahead it says that it is. Planted: far ahead taken for damage -> it is set aside
    and the store opens, fails.
    """
    database = sqlite3.connect(tmp_path / FILE_NAME)
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    for read_only in (True, False):
        with pytest.raises(ShoalError) as error:
            AnalyzerStore(tmp_path / FILE_NAME, read_only=read_only)
        assert error.value.kind is Kind.CONFIG

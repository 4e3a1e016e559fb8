"""Rows on their way in: resumable, whole, never more or other than what was accepted, whatever the
disk does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.analyzer.batches.spool import Spool, Spools, delete_spool, spool_path
from shoal.errors import Kind, ShoalError
from tests.worlds.services.analyzer import Batch, make_world

WORLD = make_world()
SIZE = WORLD.row_size()
BATCH: Batch = WORLD.batch([bytes([i]) * SIZE for i in range(40)])


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield spool_path(tmp_path, BATCH.manifest_hash)
    failpoints.arm("")


def fill(spool: Spool, upto: int = 40) -> None:
    while spool.received < upto:
        spool.append(
            spool.received, b"".join(BATCH.rows[spool.received : min(spool.received + 7, upto)])
        )


def fill_and_sync(spool: Spool, upto: int) -> None:
    fill(spool, upto)
    spool.sync()


def test_rows_arrive_in_order_and_are_checked_at_the_end(path: Path) -> None:
    spool = Spool(path, BATCH.manifest)
    fill(spool)
    assert spool.sync() == 40
    assert spool.check()
    assert path.read_bytes() == BATCH.data
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_incomplete_batch_is_not_finished(path: Path) -> None:
    spool = Spool(path, BATCH.manifest)
    fill(spool, 39)
    spool.sync()
    assert not spool.check()


def test_rows_that_are_not_synced_do_not_finish_a_batch(path: Path) -> None:
    """Planted: check() looks at received instead of synced rows -> a batch could be PROCESSING
    before it is on disk, and this fails.
    """
    spool = Spool(path, BATCH.manifest)
    fill(spool)
    assert not spool.check()
    spool.end()


def test_a_new_process_goes_on_where_the_last_one_was(path: Path) -> None:
    """Planted: _resume doesn't hash what is there -> MISMATCH here."""
    spool = Spool(path, BATCH.manifest)
    fill(spool, 17)
    spool.sync()
    again = Spool(path, BATCH.manifest)
    assert again.received == 17
    fill(again)
    again.sync()
    assert again.check()


def test_a_torn_row_is_cut_off(path: Path) -> None:
    path.write_bytes(BATCH.data[: 17 * SIZE + 5])
    spool = Spool(path, BATCH.manifest)
    assert spool.received == 17
    assert path.stat().st_size == 17 * SIZE
    fill(spool)
    spool.sync()
    assert spool.check()


def test_other_rows_than_the_manifests_are_dropped_and_can_be_sent_again(path: Path) -> None:
    """Planted: check() keeps the file on MISMATCH -> the batch could never be mended, and this
    fails.
    """
    spool = Spool(path, BATCH.manifest)
    fill(spool, 39)
    spool.append(39, bytes(SIZE))
    spool.sync()
    with pytest.raises(ShoalError) as error:
        spool.check()
    assert error.value.kind is Kind.MISMATCH
    assert not path.exists()
    assert spool.received == 0
    fill(spool)
    spool.sync()
    assert spool.check()


@pytest.mark.parametrize(("first", "rows"), [(1, SIZE), (0, SIZE - 1), (0, 41 * SIZE), (0, 0)])
def test_a_refused_chunk_changes_nothing(path: Path, first: int, rows: int) -> None:
    spool = Spool(path, BATCH.manifest)
    with pytest.raises(ShoalError):
        spool.append(first, bytes(rows))
    assert spool.received == 0
    assert not path.exists()


@pytest.mark.parametrize("point", ["analyzer.spool.write", "analyzer.spool.sync"])
@pytest.mark.parametrize("action", ["eio", "enospc"])
def test_disk_trouble_takes_back_what_was_not_synced(path: Path, point: str, action: str) -> None:
    """Planted: _take_back doesn't reset the hash -> MISMATCH at the end."""
    spool = Spool(path, BATCH.manifest)
    fill(spool, 14)
    spool.sync()
    failpoints.arm(f"{point}={action}@1")
    with pytest.raises(ShoalError) as error:
        fill_and_sync(spool, 28)
    assert error.value.kind is Kind.OVERLOADED
    assert spool.received == 14
    assert path.stat().st_size == 14 * SIZE
    fill(spool)
    spool.sync()
    assert spool.check()


def test_deleting_is_idempotent(path: Path) -> None:
    path.write_bytes(b"x")
    delete_spool(path.parent, BATCH.manifest_hash)
    delete_spool(path.parent, BATCH.manifest_hash)
    assert not path.exists()


def test_a_deleted_batch_is_not_made_anew(tmp_path: Path, path: Path) -> None:
    """Under a call that still delivers it. Planted: end() not called -> a file with a hole comes
    back, and this fails.
    """
    spools = Spools(tmp_path)
    spool = spools.get(BATCH.manifest_hash, BATCH.manifest)
    assert spools.get(BATCH.manifest_hash, BATCH.manifest) is spool
    fill_and_sync(spool, 10)
    fill(spool, 39)
    spools.delete(BATCH.manifest_hash)
    for call in (lambda: fill(spool), spool.sync, spool.check):
        with pytest.raises(ShoalError, match="rows are deleted") as caught:
            call()
        assert caught.value.kind is Kind.WINDOW_CLOSED
    assert not path.exists()
    assert spools.get(BATCH.manifest_hash, BATCH.manifest).received == 0


def test_a_complete_batch_whose_rows_are_deleted_is_not_complete(tmp_path: Path) -> None:
    """The file goes between the last row and the look at the whole. Planted: check() of what is in
    memory alone -> True here.
    """
    spools = Spools(tmp_path)
    spool = spools.get(BATCH.manifest_hash, BATCH.manifest)
    fill_and_sync(spool, 40)
    spools.delete(BATCH.manifest_hash)
    with pytest.raises(ShoalError, match="rows are deleted"):
        spool.check()


def test_a_spool_that_can_not_be_opened_is_tried_again(tmp_path: Path, path: Path) -> None:
    path.mkdir()
    spools = Spools(tmp_path)
    for _ in range(2):
        with pytest.raises(ShoalError) as caught:
            spools.get(BATCH.manifest_hash, BATCH.manifest)
        assert caught.value.kind is Kind.OVERLOADED
    path.rmdir()
    assert spools.get(BATCH.manifest_hash, BATCH.manifest).received == 0

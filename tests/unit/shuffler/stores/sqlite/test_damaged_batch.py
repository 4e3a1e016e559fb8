"""A sealed batch that its disk damages: what is left is delivered under a manifest that says how
much is missing, or withheld.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal.codec import decode_manifest
from shoal.errors import Kind, ShoalError
from shoal.shuffler.core import WindowState as S
from shoal.shuffler.stores.sqlite.batch import GROUP
from tests.unit.shuffler.reports.test_lifecycle import DEADLINE, Line

AWAY = ShoalError(Kind.UNAVAILABLE, "away")


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    one = Line(tmp_path)
    yield one
    await one.stop()


def harm(line: Line, at: int = 5) -> None:
    """Change one byte of the batch; ``at``: of the file."""
    (path,) = line.world.data_dir.glob("batch-*.rows")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("restart", [False, True])
async def test_a_damaged_group_is_left_out_and_counted(line: Line, restart: bool) -> None:
    """Planted: rows sent without looking at their checksum -> the flipped row is delivered, fails.
    Planted: ``mend`` looked at once per process, whatever reading finds later -> never delivered,
    fails without a restart.
    """
    published = line.world.publish()
    line.answers.append(AWAY)
    line.start()
    await line.submit(published, 3 * GROUP)
    await line.tick(DEADLINE)
    assert line.state(published) is S.DELIVERING
    harm(line)
    if restart:
        await line.stop()
        line.start()
    await line.tick(DEADLINE + 700, times=3)
    await line.tick(DEADLINE + 1_400, times=2)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome, record.rows, record.damaged) == (
        S.SHREDDED,
        S.ACKNOWLEDGED,
        2 * GROUP,
        GROUP,
    )
    (rows,) = line.sink.batches.values()
    assert len(rows) == 2 * GROUP * record.row_size


async def test_the_manifest_says_how_many_rows_are_missing(line: Line) -> None:
    published = line.world.publish()
    line.answers.extend([AWAY, AWAY])
    line.start()
    await line.submit(published, 2 * GROUP)
    await line.tick(DEADLINE)
    before = line.record(published)
    harm(line)
    await line.stop()
    line.start()
    await line.tick(DEADLINE + 700)
    after = line.record(published)
    assert before is not None
    assert after is not None
    assert decode_manifest(before.manifest).damaged == 0
    manifest = decode_manifest(after.manifest)
    assert (manifest.rows, manifest.damaged, manifest.rows_hash) == (GROUP, GROUP, after.rows_hash)


async def test_what_is_left_of_a_batch_is_withheld_when_it_is_too_little(line: Line) -> None:
    """Planted: mended batches offered whatever their size -> offered, fails."""
    published = line.world.publish()  # min_batch 3
    line.answers.append(AWAY)
    line.start()
    await line.submit(published, 10)
    await line.tick(DEADLINE)
    harm(line)
    await line.stop()
    line.start()
    await line.tick(DEADLINE + 700)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome, record.damaged) == (S.SHREDDED, S.WITHHELD, 10)
    assert not line.sink.batches


async def test_a_batch_that_is_gone_waits_for_its_copy(line: Line, tmp_path: Path) -> None:
    """Told until then; the copy is delivered whole."""
    published = line.world.publish()
    line.answers.append(AWAY)
    line.start()
    await line.submit(published, 10)
    await line.tick(DEADLINE)
    await line.stop()
    (path,) = line.world.data_dir.glob("batch-*.rows")
    path.rename(tmp_path / "copy")
    line.start()
    await line.tick(DEADLINE + 700)
    assert line.state(published) is S.DELIVERING
    assert [one.code for one in line.store.damage()] == ["damage"]
    (tmp_path / "copy").rename(path)
    await line.tick(DEADLINE + 1_400, times=2)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome, record.damaged) == (S.SHREDDED, S.ACKNOWLEDGED, 0)
    assert not line.store.damage()

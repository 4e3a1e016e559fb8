"""The file of counts: what a write leaves behind when it is torn, fails or is lost, and what a full
block does.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.ids import TaskId
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.sqlite.acknowledged import BLOCK, ENTRIES, FILE_NAME, Acknowledged

WINDOWS = [
    WindowId(TaskId(bytes([number // 256]) * 32), number % 256) for number in range(2 * ENTRIES + 1)
]
ONE, OTHER = WINDOWS[:2]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def held(folder: Path) -> dict[WindowId, int]:
    with closing(Acknowledged(folder)) as counts:
        return counts.all()


def test_counts_are_there_at_the_next_start(tmp_path: Path) -> None:
    with closing(Acknowledged(tmp_path)) as counts:
        counts.begin(ONE)
        counts.begin(OTHER, 7)
        for number in range(1, 6):
            counts.put({ONE: 100 * number})
        assert counts.all() == held(tmp_path) == {ONE: 500, OTHER: 7}
        counts.forget(OTHER)
        counts.put({OTHER: 8, ONE: 600})
    assert held(tmp_path) == {ONE: 600}


def test_a_write_that_is_torn_anywhere_leaves_what_was_counted_before(tmp_path: Path) -> None:
    """Of both windows in the block. Planted: writing to the copy that is the latest -> nothing is
    left, fails.
    """
    rng = random.Random(1)  # noqa: S311 - where it is cut is no secret
    with closing(Acknowledged(tmp_path)) as counts:
        counts.begin(ONE)
        counts.begin(OTHER)
        path, folder = tmp_path / FILE_NAME, tmp_path / "cut"
        folder.mkdir()
        for number in range(1, 30):
            before = path.read_bytes()
            counts.put({ONE: number, OTHER: 3 * number})
            after = path.read_bytes()
            cut = rng.randrange(len(after))
            for image in (after[:cut] + before[cut:], before[:cut] + after[cut:]):
                (folder / FILE_NAME).write_bytes(image)
                assert held(folder) in (
                    {ONE: number, OTHER: 3 * number},
                    {ONE: number - 1, OTHER: 3 * (number - 1)},
                )
            one_block_lost = bytearray(after)
            at = BLOCK * (number % 2)
            one_block_lost[at : at + BLOCK] = bytes(BLOCK)
            (folder / FILE_NAME).write_bytes(one_block_lost)
            assert held(folder)[OTHER] in (3 * number, 3 * (number - 1))


@pytest.mark.parametrize("point", ["acknowledged.write", "acknowledged.sync"])
def test_a_count_that_could_not_be_written_is_put_again(tmp_path: Path, point: str) -> None:
    """Planted: the copy taken for the latest before its sync -> the next write goes over the only
    good one, fails.
    """
    with closing(Acknowledged(tmp_path)) as counts:
        counts.begin(ONE)
        counts.put({ONE: 1})
        sound = (tmp_path / FILE_NAME).read_bytes()
        for _ in range(2):
            failpoints.arm(f"{point}=eio@1")
            with pytest.raises(OSError, match="failpoint"):
                counts.put({ONE: 2})
        now = (tmp_path / FILE_NAME).read_bytes()
        assert now[:BLOCK] == sound[:BLOCK] or now[BLOCK:] == sound[BLOCK:]
        failpoints.arm("")
        counts.put({ONE: 2})
    assert held(tmp_path) == {ONE: 2}


def test_more_windows_than_a_block_holds(tmp_path: Path) -> None:
    """Places of windows that are over are used again. Planted: entries beyond the block's end ->
    fails.
    """
    with closing(Acknowledged(tmp_path)) as counts:
        for number, window in enumerate(WINDOWS):
            counts.begin(window, number)
        counts.put({window: 1_000 + number for number, window in enumerate(WINDOWS)})
        assert held(tmp_path) == {window: 1_000 + number for number, window in enumerate(WINDOWS)}
        assert os.stat(tmp_path / FILE_NAME).st_size == 3 * 2 * BLOCK
        for window in WINDOWS[:ENTRIES]:
            counts.forget(window)
        for window in WINDOWS[:ENTRIES]:
            counts.begin(window, 5)
        assert os.stat(tmp_path / FILE_NAME).st_size == 3 * 2 * BLOCK
    assert held(tmp_path)[WINDOWS[0]] == 5


@pytest.mark.parametrize("at", [0, 8, 20, 60, 80])
def test_a_flipped_bit_is_not_believed(tmp_path: Path, at: int) -> None:
    """Planted: no checksum -> another count, fails."""
    with closing(Acknowledged(tmp_path)) as counts:
        counts.begin(ONE, 9)
    data = bytearray((tmp_path / FILE_NAME).read_bytes())
    for copy in (0, BLOCK):
        data[copy + at] ^= 1
    (tmp_path / FILE_NAME).write_bytes(data)
    assert held(tmp_path) == {}


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("harm", [b"\xff", bytes(BLOCK)])
def test_a_copy_that_is_not_what_was_written_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, copy: int, harm: bytes
) -> None:
    """Also one that came back empty. Planted: the other one taken without a word -> fails. Planted:
    said of sound files -> fails.
    """
    with closing(Acknowledged(tmp_path)) as counts:
        for number in range(4):
            counts.begin(ONE, number)
    assert held(tmp_path) == {ONE: 3}
    assert not caplog.records
    data = bytearray((tmp_path / FILE_NAME).read_bytes())
    data[copy * BLOCK : copy * BLOCK + len(harm)] = harm
    (tmp_path / FILE_NAME).write_bytes(data)
    assert held(tmp_path) == {ONE: 3}
    assert [one.levelname for one in caplog.records] == ["WARNING"]


def test_the_first_copy_alone_is_what_a_power_cut_leaves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Acknowledged(tmp_path)) as counts:
        failpoints.arm("acknowledged.begin=eio@2")
        with pytest.raises(OSError, match="failpoint"):
            counts.begin(ONE)
        failpoints.arm("")
    assert held(tmp_path) == {ONE: 0}
    assert not caplog.records

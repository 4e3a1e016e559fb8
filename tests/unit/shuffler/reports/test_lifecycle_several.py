"""The life of a window whose reports have several messages, under a clock that a test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from shoal.codec import Manifest, decode_manifest
from shoal.errors import Kind
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.store import AdmittedReport
from tests.unit.shuffler.reports.test_lifecycle import DEADLINE, Line
from tests.worlds.services.shuffler import Published

S = WindowState
SEVERAL: dict[str, Any] = {"messages": 4, "fewest_messages": 1}


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    one = Line(tmp_path)
    yield one
    await one.stop()


async def put(line: Line, published: Published, *reports: tuple[bytes, ...]) -> list[Kind | None]:
    window = WindowId(published.task_id, 0)
    return await line.store.append([AdmittedReport(window, report) for report in reports])


def manifest(line: Line, published: Published) -> Manifest:
    record = line.record(published)
    assert record is not None
    return decode_manifest(record.manifest)


async def test_reports_that_share_their_messages_keep_no_batch_back(line: Line) -> None:
    """Devices that work together seal four messages and send them in every order: 24 reports of
    four rows. The honest ones beside them are delivered all the same, and no more reports are
    counted than there are rows, for each honest one has a row of its own.

    Planted: reports counted as they are stored -> no manifest can say so, the window stays CLOSING
    until its retention ends and everybody's report is lost, fails.
    """
    published = line.world.publish(**SEVERAL)
    line.start()
    shared = tuple(published.sealed() for _ in range(4))
    sent = [*permutations(shared), *((published.sealed(),) for _ in range(5))]
    assert await put(line, published, *sent) == [None] * 29
    line.answers += [False] * 9
    await line.tick(DEADLINE, times=2)
    assert line.state(published) is S.DELIVERING
    found = manifest(line, published)
    assert (found.rows, found.reports, found.damaged) == (9, 9, 0)


async def test_reports_that_share_their_messages_make_no_batch_large_enough(line: Line) -> None:
    """Two messages in four reports, and min_batch is 3: two rows hold at most two reports of
    devices that keep to the protocol. Planted: decided by what is stored -> SEALED, fails.
    """
    published = line.world.publish(**SEVERAL)
    line.start()
    one, other = published.sealed(), published.sealed()
    sent = [(one,), (other,), (one, other), (other, one)]
    assert await put(line, published, *sent) == [None] * 4
    await line.tick(DEADLINE, times=2)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome, record.reports) == (S.SHREDDED, S.WITHHELD, 2)

"""Submissions of several messages that come twice, in parts, late or cut up, at a running shuffler
over TLS: refused whole, or a bounded effect that is counted; never half a report.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.clocks.clock import FakeClock
from shoal.crypto.envelope import seal_frame
from shoal.errors import Kind
from shoal.limits import LIMITS
from shoal.protos import submit_pb2
from shoal.rpc.channel import call
from shoal.shuffler.core import WindowId, WindowState
from tests.integration.services.test_shuffler_service import Running
from tests.worlds.services.shuffler import (
    GRACE,
    LENGTH,
    START,
    Published,
    World,
    submit_batch,
)

SEVERAL: dict[str, Any] = {"messages": 4, "fewest_messages": 1}
STORED = 0  # the status of a receipt


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr("shoal.shuffler.reports.lifecycle.TICK_S", 3_600.0)
    one = Running(World(tmp_path), FakeClock(START + 10))
    yield one
    await one.stop()


async def statuses(running: Running, *frames: bytes) -> list[int]:
    """Of one call of a relay."""
    request = submit_batch(list(frames))
    reply = await call(running.channel, "/shoal.v1.Ingress/SubmitBatch", request, 10)
    return [one.status for one in submit_pb2.SubmitBatchReply.FromString(reply).receipts]


def report(published: Published, messages: int) -> tuple[bytes, ...]:
    return tuple(published.sealed() for _ in range(messages))


async def delivered(running: Running, published: Published) -> tuple[int, list[bytes]]:
    """(reports, rows in order of their bytes) of window 0, once it is over."""
    running.clock.advance(LENGTH + GRACE)
    await running.tick(6)
    record = running.shuffler.store.record(WindowId(published.task_id, 0))
    assert record is not None
    assert (record.state, record.outcome) == (WindowState.SHREDDED, WindowState.ACKNOWLEDGED)
    return record.reports, sorted(running.analyzer.delivered[published.task_id, 0])


async def test_what_comes_twice_counts_once_and_a_part_is_another_report(
    running: Running,
) -> None:
    """The same bytes, sealed for the shuffler once or twice; and three of a report's four messages,
    which a hostile device may seal by itself: one report more, and no row. Planted: equal rows of a
    batch kept -> fails.
    """
    published = running.world.publish(**SEVERAL)
    await running.start()
    reports = [report(published, messages) for messages in (1, 2, 4, 4)]
    frames = [published.bundle(one) for one in reports]
    assert await statuses(running, *frames) == [STORED] * 4
    again = [frames[2], published.bundle(reports[3]), published.bundle(reports[3][:3])]
    assert await statuses(running, *again) == [STORED] * 3
    counted, rows = await delivered(running, published)
    assert rows == sorted(message for one in reports for message in one)
    assert counted == 5


async def test_a_relay_that_splits_a_submission_has_nothing_of_it_stored(running: Running) -> None:
    """In halves, in pieces as long as frames are, with a piece of another, each in the place of a
    frame: none opens, and the whole one is taken afterwards.
    """
    published = running.world.publish(messages=8, fewest_messages=1)
    await running.start()
    frames = [published.bundle(report(published, 8)) for _ in range(3)]
    whole, other, _ = frames
    half, small = len(whole) // 2, LIMITS.frame_sizes[0]
    assert small < len(whole)
    pieces = [
        whole[:half],
        whole[half:],
        whole[:small],
        whole[:small].ljust(len(whole), b"\x00"),
        whole[:half] + other[half:],
        whole[:-1],
        b"",
    ]
    assert await statuses(running, *pieces) == [Kind.INVALID.value] * len(pieces)
    assert running.shuffler.store.distinct(WindowId(published.task_id, 0)) == 0
    assert await statuses(running, *frames) == [STORED] * 3
    counted, rows = await delivered(running, published)
    assert (counted, len(rows)) == (3, 24)


async def test_too_many_messages_and_frames_of_another_size_are_refused(running: Running) -> None:
    """One of two, 41 of 40, and a frame that is not as large as one of the task's most, which would
    tell whoever sees it how many messages it has. Beside them good ones are taken. Planted:
    ``check_size`` or the number of messages not looked at -> fails.
    """
    published = running.world.publish(messages=40, fewest_messages=2)
    await running.start()
    content = published.content()
    good = [published.bundle(report(published, 2 + number)) for number in range(3)]
    bad = [
        published.bundle(report(published, 1)),
        published.bundle(report(published, 41)),
        seal_frame(published.hop.config, replace(content, sealed=report(published, 2))),
    ]
    assert await statuses(running, *good, *bad) == [STORED] * 3 + [Kind.INVALID.value] * 3
    counted, rows = await delivered(running, published)
    assert (counted, len(rows)) == (3, 2 + 3 + 4)


async def test_a_device_with_a_wrong_clock_has_nothing_of_its_report_stored(
    running: Running,
) -> None:
    """An hour ahead: the next window, which has not begun. An hour behind: one that is over.
    Planted: the start of windows not looked at -> stored before its time, fails.
    """
    published = running.world.publish(**SEVERAL)
    await running.start()
    ahead = published.bundle(report(published, 4), window=1)
    assert await statuses(running, ahead) == [Kind.TOO_EARLY.value]
    for window in (0, 1):
        assert running.shuffler.store.distinct(WindowId(published.task_id, window)) == 0
    good = [report(published, 4) for _ in range(3)]
    assert await statuses(running, *map(published.bundle, good)) == [STORED] * 3
    counted, rows = await delivered(running, published)
    behind = published.bundle(report(published, 4))
    assert await statuses(running, behind) == [Kind.WINDOW_CLOSED.value]
    assert await statuses(running, ahead) == [STORED]  # its time has come, in the same bytes
    assert (counted, rows) == (3, sorted(message for one in good for message in one))

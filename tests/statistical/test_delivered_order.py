"""What the order of a delivered batch says of which shuffler took a report, and when: nothing.

Two replicas on one database take reports in turn; labels are the replica, and the half of the time.
Two statistics of each label over the delivered rows: AUC of the row's place, and the share of
neighbours with the same label (also an order that mixes whole blocks would show). Both are .5 but
for chance: their standard deviations are sqrt((n + 1) / 3) / n and .5 / sqrt(n), about. Reduced,
5 of them are allowed: each of the four is wrong with probability 6e-7. In full, .01 with 1e5 rows:
5.5 deviations of the AUC, 6.3 of the share.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.shuffler.stores import sorting
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.store import open_reports
from tests.conformance.store.harness import (
    HASH,
    HOP_KEY,
    OPEN_ENDED,
    ROW,
    TASK,
    reports,
    seal,
    submissions,
)
from tests.sizes import FULL, size
from tests.worlds import postgres

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
ROWS = size(8_000, 100_000)
GROUP = 50
AUC_WITHIN = 0.01 if FULL else 5 * math.sqrt((ROWS + 1) / 3) / ROWS
SHARE_WITHIN = 0.01 if FULL else 5 * 0.5 / math.sqrt(ROWS)


async def delivered(folder: Path) -> list[NDArray[np.bool_]]:
    """The labels of all rows in delivered order: taken by the second replica; in the second half
    of the time.
    """
    dsn, stores = postgres.shared().database(), []
    for name in ("one", "two"):
        (folder / name).mkdir()
        store = await open_reports(
            await Database.open(dsn, b"\x07" * 32), folder / name, commit_ms=0
        )
        store.adopt(TASK, HASH, OPEN_ENDED, ROW, lambda _: HOP_KEY)
        stores.append(store)
    labels: dict[bytes, tuple[bool, bool]] = {}
    for turn in range(ROWS // GROUP):
        sent, number = reports(GROUP), turn % 2
        assert await stores[number].append(submissions(sent)) == [None] * GROUP
        labels |= dict.fromkeys(sent, (number == 1, turn >= ROWS // GROUP // 2))
    _, rows = await seal(stores[0])
    for store in stores:
        await store.close()
    assert len(rows) == ROWS
    return list(np.array([labels[row] for row in rows]).T)


def auc(label: NDArray[np.bool_]) -> float:
    """That a row with the label stands behind one without it."""
    ones = int(label.sum())
    below = float(np.flatnonzero(label).sum()) - ones * (ones - 1) / 2
    return below / (ones * (len(label) - ones))


def same(label: NDArray[np.bool_]) -> float:
    """The share of neighbours that agree."""
    return float((label[1:] == label[:-1]).mean())


async def test_the_order_says_neither_replica_nor_time(tmp_path: Path) -> None:
    """Planted: rows in the order of blocks: the control below."""
    for label in await delivered(tmp_path):
        assert abs(auc(label) - 0.5) <= AUC_WITHIN
        assert abs(same(label) - 0.5) <= SHARE_WITHIN


async def test_the_order_of_blocks_would_say_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a batch that is not sorted is caught by either statistic of either label."""

    def unsorted(steps: Any, *_: object) -> Any:
        return (memoryview(rows) for _, rows in steps)

    monkeypatch.setattr(sorting, "distinct_sorted", unsorted)
    for label in await delivered(tmp_path):
        assert abs(auc(label) - 0.5) > AUC_WITHIN
        assert abs(same(label) - 0.5) > SHARE_WITHIN

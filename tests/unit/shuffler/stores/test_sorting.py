"""Messages in the order of their keys: against sorting in memory, for runs of every size."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

from shoal.shuffler.stores.sorting import distinct_sorted
from tests.cases import for_each

WIDTH = 33


@for_each("count", [0, 1, 2, 700, 3_000])
@for_each("run_bytes", [1, 2_000, 20_000, 1 << 20])
def test_blocks_are_the_distinct_messages_in_order(
    tmp_path: Path, count: int, run_bytes: int
) -> None:
    """Keys that share their first half, and repeats of one key in one run and in several, among
    them.

    Planted: no second sort within a range -> fails for several runs. Planted: equal first halves
    taken for equal keys -> fails.
    """
    rng = random.Random(f"{count} {run_bytes}")  # noqa: S311 - test data
    keys = [rng.randbytes(16) for _ in range(count)]
    for number in range(0, count - 3, 50):
        keys[number + 1] = keys[number][:8] + rng.randbytes(8)
        keys[rng.randrange(count)] = keys[number + 2]
    first = {key: rng.randbytes(WIDTH) for key in keys}
    steps = [
        (b"".join(keys[at : at + 7]), b"".join(first[key] for key in keys[at : at + 7]))
        for at in range(0, count if run_bytes > 1 else min(count, 140), 7)
    ]
    seen = keys if run_bytes > 1 else keys[:140]
    assert b"".join(distinct_sorted(steps, tmp_path, run_bytes)) == b"".join(
        first[key] for key in sorted(set(seen))
    )
    assert list(tmp_path.iterdir()) == []


def test_any_number_of_runs_is_in_one_file(tmp_path: Path) -> None:
    """A process may have 1,024 files. Planted: one for each run -> a window of 300 runs opens 300,
    fails.
    """
    rng, opened = random.Random(3), list[int]()  # noqa: S311 - test data
    rows = {rng.randbytes(16): rng.randbytes(WIDTH) for _ in range(300)}

    def steps() -> Iterator[tuple[bytes, bytes]]:
        for row in rows.items():
            opened.append(len(os.listdir("/dev/fd")))
            yield row

    assert b"".join(distinct_sorted(steps(), tmp_path, 1)) == b"".join(
        rows[key] for key in sorted(rows)
    )
    assert max(opened) - opened[0] <= 1

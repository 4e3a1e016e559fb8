"""A sum of shares is published of whole batches alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import UNOPENABLE, Batch, BatchState
from shoal.analyzer.results.release import readable_sum
from shoal.domain import Numeric
from shoal.mechanisms import Tally
from shoal.mechanisms.several.registry import create
from shoal.mechanisms.several.split_mix import SplitMix
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.worlds.services.analyzer import make_world

WORLD = make_world(min_batch=1_000)
MADE = create(
    MechanismSpec.of("split_mix", scale=1 << 16, shares=900, slots=10, bytes=2),
    Numeric(0.0, 1.0, 3),
)


@for_each(
    "manifest, rows, rejected, whole",
    [
        ({"rows": 10_000, "reports": 1_000}, 10_000, 0, True),
        ({"rows": 10_000, "reports": 1_000}, 9_999, 1, False),
        ({"rows": 9_999, "reports": 1_000}, 9_999, 0, False),
        ({"rows": 9_990, "reports": 999}, 9_990, 0, True),
        ({"rows": 9_990, "reports": 999, "damaged": 1}, 9_990, 0, False),
        # nine lost and one refused: as many as 999 whole reports
        ({"rows": 9_991, "reports": 1_000}, 9_990, 1, False),
        ({"rows": 9_991, "reports": 1_000, "damaged": 9}, 9_990, 1, False),
        ({"rows": 81_920, "reports": 8_192}, 81_920, 0, True),
        ({"rows": 81_930, "reports": 8_193}, 81_930, 0, False),
    ],
)
def test_of_a_batch_that_is_not_whole_no_sum_is_read(
    manifest: dict[str, Any], rows: int, rejected: int, whole: bool
) -> None:
    """And of none with more reports than the modulus holds. Planted: rows compared with whole
    reports less those refused -> nine lost ones make up for one refused, and a mean of chance is
    published, fails; damage not asked for -> fails; any number of reports -> fails.
    """
    assert isinstance(MADE, SplitMix)
    assert MADE.most_reports == 8_192
    made = WORLD.batch([bytes(WORLD.row_size())])
    batch = Batch(replace(made.manifest, **manifest), made.manifest_hash, BatchState.PROCESSING)
    opened = Opened(
        Tally(np.zeros(16, dtype=np.int64), rows), {UNOPENABLE: rejected} if rejected else {}
    )
    assert readable_sum(batch, opened, MADE) is whole

"""A sum by secure aggregation as most tests ask for one, to be changed one number at a time, and
its task.
"""

from __future__ import annotations

from typing import Any

from shoal.accounting.sums.sum_task import SumDesign, design_sum
from shoal.domain import Norm
from shoal.secagg import Mode
from shoal.task import Task
from tests.worlds.tasks import pairwise

_USUAL: dict[str, Any] = {
    "norm": Norm.L2,
    "clip": 1.0,
    "noise": "skellam",
    "mode": Mode.DEFAULT,
    "cohort_max": 100,
    "dropout_ppm": 100_000,
    "honest_fraction_ppm": 900_000,
    "epsilon": 2.0,
    "delta": 1e-5,
}


def designed(dimension: int, **changes: Any) -> SumDesign:
    """Of so many coordinates: clipped to 1 in L2, Skellam noise for (2, 1e-5), rounds of 80 to 100
    devices, a tenth of which may be lost; 90 % are honest.
    """
    return design_sum(dimension=dimension, **(_USUAL | changes))


def task_of(made: SumDesign, **changes: Any) -> Task:
    """A valid task for it, released from one round on."""
    fields = {
        "domain": made.domain,
        "mechanism": made.mechanism,
        "pairwise": made.plan,
        "min_batch": made.plan.survivors_min,
        "report_size": made.plan.vector_bytes(made.domain.dimension),
    }
    return pairwise(**(fields | changes))

"""From shares and a masked sum to the sum: the analyzer's arithmetic, free of state machines, sockets and clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RoundSum:
    """``vector``: int64[d], the exact sum of the vectors (noise included) of ``survivors`` devices, in grid steps.

    ``blamed``: positions on the ring whose shares were wrong or missing from their own bundle; a hint, not a proof (a dealer can
    make its neighbour look so).
    """

    vector: NDArray[np.int64]
    survivors: int
    blamed: tuple[int, ...] = ()

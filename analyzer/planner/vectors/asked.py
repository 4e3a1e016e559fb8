"""What is asked of a plan for vectors, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from shoal.accounting.certificate import check_delta, check_honest, check_n
from shoal.domain import Norm, Vector
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.secagg import Mode
from shoal.task import OF_VECTORS, PPM

SUMS = tuple(mode.name.lower() for mode in Mode)
"""The modes of secure aggregation, as they are typed."""
WAYS = (*OF_VECTORS, *SUMS)
"""Every way that is compared: a randomizer of the whole vector, and sums by each mode."""


@dataclass(frozen=True, slots=True)
class VectorRequest:
    """``n`` devices with a vector each, whose mean is asked for. Raises CONFIG naming the option.

    ``names``: of coordinates, or empty. ``clip`` > 0: of a vector's ``norm``, in ``unit``.
    ``epsilon``: central, of all ``windows`` together, at ``delta``. ``min_batch``: reports of the
    smallest batch, where they are shuffled. ``honest``: share of honest devices. ``drop_out``: of a
    round, in millionths. ``enrolled``: whether devices can be enrolled. ``several_visits``: whether
    a device can stay for a round of some minutes. ``most_epsilon0``: of what is left if shuffler
    and analyzer work together. ``most_bytes``: of a report before it is sealed. ``ways``: the only
    ones to choose from, of ``WAYS``; empty: all.
    """

    dimension: int
    clip: float
    n: int
    epsilon: float
    delta: float
    norm: Norm = Norm.L2
    names: tuple[str, ...] = ()
    unit: str = ""
    min_batch: int = 0
    honest: Fraction = Fraction(1)
    windows: int = 1
    drop_out: int = 200_000
    enrolled: bool = True
    several_visits: bool = True
    most_epsilon0: float = math.inf
    most_bytes: int | None = None
    ways: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_delta(self.delta)
        check_n(self.n)
        check_honest(self.honest)
        if self.n < 2:
            raise wrong("--n: 2 devices or more: one alone is hidden among nobody")
        if self.n > LIMITS.batch_rows:
            raise wrong(
                f"--n: at most {LIMITS.batch_rows:,} devices, which is the largest batch that an "
                "analyzer opens: ask a part of them"
            )
        if not (math.isfinite(self.epsilon) and self.epsilon > 0.0):
            raise wrong("--epsilon: a finite number above 0, as 1")
        if not 1 <= self.windows <= LIMITS.windows:
            raise wrong(f"--windows: 1 to {LIMITS.windows:,}")
        if not 0 <= self.drop_out < PPM:
            raise wrong("--drop-out: at least 0 and below 1")
        if not self.most_epsilon0 > 0.0:
            raise wrong("--max-epsilon0: a number above 0")
        if self.most_bytes is not None and self.most_bytes < 1:
            raise wrong("--max-bytes: at least 1")
        if self.min_batch and not 2 <= self.min_batch <= self.n:
            raise wrong(f"--min-batch: 2 to {self.n:,}, the devices that are expected")
        for each in self.ways:
            if each not in WAYS:
                raise wrong(f"--mechanism {each}: vectors go by {', '.join(WAYS)}")
        try:
            Vector(self.dimension, self.norm, self.clip, 1, self.names, self.unit)
        except ShoalError as error:
            raise wrong(f"--dimension, --labels, --clip, --unit: {error}") from None

    @property
    def smallest_batch(self) -> int:
        """Reports: ``min_batch``, or ``n`` where nothing was said."""
        return self.min_batch or self.n

    @property
    def honest_ppm(self) -> int:
        """In millionths, rounded down."""
        return math.floor(self.honest * PPM)


def wrong(message: str) -> ShoalError:
    """CONFIG."""
    return ShoalError(Kind.CONFIG, message)

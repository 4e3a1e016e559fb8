"""Questions that several tests plan."""

from __future__ import annotations

from dataclasses import replace

from shoal.analyzer.planner import (
    Frequencies,
    Plan,
    Request,
)
from shoal.domain import Categories, YesNo

DELTA = 1e-6


def cells(k: int) -> Categories:
    return Categories(tuple(f"c{i}" for i in range(k - 1)))


def counting(k: int, n: int, **more: object) -> Request:
    domain = YesNo() if k == 2 else cells(k)
    return replace(Request(Frequencies(domain), n, DELTA, epsilon=1.0), **more)  # type: ignore[arg-type]


def error_of(option_plan: Plan) -> float:
    assert option_plan.choice.errors is not None
    return option_plan.choice.errors.ranked

"""A valid task, to be changed one field at a time, and its parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.domain import Categories, Numeric, YesNo
from shoal.task import MechanismSpec, Task, WindowPlan

WINDOWS = WindowPlan(start_s=1_700_000_000, length_s=3_600, count=24, grace_s=600, skew_s=60)
TASK = Task(
    salt=bytes(range(16)),
    name="visits",
    purpose="To plan how many doctors a town needs.",
    question="Did you see a doctor this year?",
    domain=YesNo(),
    mechanism=MechanismSpec.of("binary_rr", no_one=1 << 62, yes_one=3 << 62),
    windows=WINDOWS,
    min_batch=1_000,
    max_batch=0,
    honest_fraction_ppm=900_000,
    delta=1e-8,
    target_epsilon=0.5,
    key_authority=bytes([1]) * 32,
    shuffler_key=bytes([2]) * 32,
    analyzer_key=bytes([3]) * 32,
    shuffler_address="shuffler.example:7443",
    shuffler_ca=b"-----BEGIN CERTIFICATE-----\n",
    retention_s=86_400,
    report_size=1,
)
DOMAINS = (
    YesNo(),
    Categories(("red", "green", "blue")),
    Categories(("none", "few", "many"), (0, 1, 5)),
    Numeric(0.0, 20.0, 21, unit="visits"),
    Numeric(-1.5, 1.5, 7, clip=False),
)


def task(**changes: Any) -> Task:
    """TASK with some fields changed; raises what the constructor raises."""
    return replace(TASK, **changes)


def window_plan(**changes: int) -> WindowPlan:
    return replace(WINDOWS, **changes)

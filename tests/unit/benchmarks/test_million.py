"""What makes a load of the benchmark fail, and how CPU is told apart by time. The benchmark itself
runs in test_benchmarks.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet_site import Load
from benchmarks.million import cpu_at
from shoal.clients.fleet.misbehaviour import Shares

FEW = 2
LOAD = Load(
    Path("whole.task"),
    200,
    204,
    Shares(duplicates=FEW / 204, malformed=FEW / 204, hostile=FEW / 204),
)


def told(**changes: Any) -> dict[str, Any]:
    """A load that went well, but for ``changes``. Of two hostile devices one sends garbage for the
    analyzer.
    """
    row = {"counted": changes.pop("counted", 200), "rejected": changes.pop("rejected", 1)}
    services = {"shuffler": {"restarts": changes.pop("restarts", 0)}}
    right = {
        "sent": 200,
        "acked": 200,
        "unknown": 0,
        "refused": {},
        "surprises": {},
        "services": services,
        "tasks": [row],
    }
    return {**right, **changes}


def test_a_load_that_went_well_passes() -> None:
    LOAD.check(told())


@pytest.mark.parametrize(
    "changes",
    [
        {"counted": 199},  # lost
        {"counted": 201},  # doubled
        {"counted": None},  # not decided in time
        {"acked": 199},
        {"acked": 199, "counted": 199},  # consistent, but a report is missing
        {"sent": 199},
        {"unknown": 1},
        {"refused": {"WINDOW_FULL": 1}},
        {"surprises": {"noise frame acknowledged": 1}},
        {"rejected": 0},
        {"rejected": 2},
        {"restarts": 1},
    ],
)
def test_whatever_else_it_tells_fails_the_benchmark(changes: dict[str, Any]) -> None:
    """Planted: compare ``acked`` with ``counted`` alone -> several of these pass."""
    with pytest.raises(RuntimeError, match="lost, doubled"):
        LOAD.check(told(**changes))


def test_a_load_is_told_its_shares() -> None:
    """Planted: a share rounded for the command line -> other counts than the window has room
    for.
    """
    given = dict(zip(LOAD.arguments[::2], LOAD.arguments[1::2], strict=True))
    assert given["--devices"] == "204"
    assert float(given["--malformed"]) == FEW / 204
    assert Load(Path("plain.task"), 5, 5).arguments == ["--task", "plain.task", "--devices", "5"]


@pytest.mark.parametrize(
    ("at", "cpu_s"),
    [(0.0, 5.0), (10.0, 5.0), (12.5, 6.0), (15.0, 7.0), (17.5, 17.0), (20.0, 27.0), (99.0, 27.0)],
)
def test_cpu_between_two_looks(at: float, cpu_s: float) -> None:
    """Before the first look and after the last one there is nothing to tell. Planted: take the next
    look's -> fails.
    """
    assert cpu_at([(10.0, 5.0), (15.0, 7.0), (20.0, 27.0)], at) == pytest.approx(cpu_s)

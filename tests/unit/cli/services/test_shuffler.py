"""What ``shoal shuffler status`` shows."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.cli.services.shuffler import _show


def _task(name: str, *, pairwise: bool, **window: object) -> dict[str, Any]:
    shown = [{"window": 0, "state": "SHREDDED", "reports": 0, **window}]
    return {
        "task_id": name * 64,
        "name": name,
        "pairwise": pairwise,
        "windows": 4,
        "states": {"SHREDDED": 1},
        "shown": shown,
    }


def test_a_window_of_sums_is_shown_by_its_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    """Reports and sums beside each other. Planted: the outcome of the empty batch shown for a
    window of sums -> "withheld", for a window that the analyzer released, and this fails.
    """
    tasks = [
        _task("a", pairwise=False, outcome="WITHHELD"),
        _task("b", pairwise=True, outcome="WITHHELD"),
    ]
    tasks.append(_task("c", pairwise=True))
    rounds = {"b" * 8: {"open": {"join": 1}, "ended": {"done": 2, "too few devices joined": 3}}}
    _show({"ready": None, "tasks": tasks, "rounds": rounds})
    lines = capsys.readouterr().out.splitlines()
    (row,) = (line for line in lines if "bbbbbbbb" in line and "shredded" in line)
    assert "withheld" not in row
    assert sum("withheld" in line for line in lines) == 1
    words = " ".join(lines)
    assert (
        "rounds under way: 1 (1 join); ended since the start: 5 (2 done, 3 too few devices joined)"
        in words
    )
    assert "task cccccccc: rounds under way: none; ended since the start: none" in words

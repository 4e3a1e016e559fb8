"""The load command's own arithmetic and its refusals; with services it runs in tests/integration/test_clients_load.py."""

from __future__ import annotations

import time
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.cli import load
from shoal.cli.counted import Counted, Counter
from shoal.clients.fleet.plan import SimulationPlan
from shoal.crypto.keyfiles import save_signing_key
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import serve_task
from shoal.domain import Numeric, YesNo
from shoal.errors import Kind, ShoalError
from shoal.task import Admission
from tests.clients_world import VISITS, make_world


def test_percentiles_are_nearest_rank() -> None:
    """Planted: interpolate, or floor the rank -> fails."""
    assert load.percentiles(array("f")) == {}
    assert load.percentiles(array("f", [7.0])) == {"p50": 7.0, "p90": 7.0, "p99": 7.0, "max": 7.0}
    hundred = array("f", reversed(range(1, 101)))
    assert load.percentiles(hundred) == {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}
    assert load.percentiles(array("f", range(1, 102)))["p99"] == 100.0


@pytest.mark.parametrize("domain", [YesNo(), VISITS, Numeric(0, 20, 21)])
def test_values_are_valid_answers_and_cover_them_all(domain: YesNo | Numeric) -> None:
    assert sorted({domain.encode(value) for value in load._values(domain)}) == list(range(domain.size - (0 if domain.size == 2 else 1)))


@pytest.mark.parametrize(
    ("acked", "unknown", "counted", "agrees"),
    [
        (10, 0, 10, True),
        (10, 0, 9, False),
        (10, 0, 11, False),
        (10, 2, 10, True),
        (10, 2, 12, True),
        (10, 2, 13, False),
        (10, 2, 9, False),
        (10, 0, None, False),
    ],
)
def test_what_agrees(acked: int, unknown: int, counted: int | None, agrees: bool) -> None:
    """Acknowledged: exactly once. Unknown: once or not at all. Planted: `<=` alone on one side -> fails."""
    world = make_world()
    served = serve_task(world.signed_task, world.signed_schedule, world.authorities)
    row = load.Row(served, 0, 20, acked, unknown, None if counted is None else Counted(counted, 0))
    assert row.agrees is agrees


def test_a_window_that_closes_too_late_is_refused_before_anything_is_sent() -> None:
    world = make_world(start=int(time.time()) - 10)
    served = serve_task(world.signed_task, world.signed_schedule, world.authorities)
    with pytest.raises(ShoalError) as caught:
        load._check_closing([served], [0], 10, 600.0)
    assert caught.value.kind is Kind.CONFIG
    assert "--wait" in caught.value.message
    load._check_closing([served], [0], 10, 10 * 86_400.0)


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({}, "give either --task"),
        ({"task": [Path("a.task")], "tasks_dir": Path()}, "give either --task"),
        ({"tasks_dir": Path("/nonexistent")}, "no *.task"),
        ({"task": [Path("/nonexistent.task")]}, "cannot read"),
        ({"task": [Path("x.task")], "authority": ["zz"]}, "--authority"),
        ({"task": ["visits", "visits"]}, "given twice"),
        ({"task": ["visits"], "authority": ["00" * 32]}, "authority is not among"),
        ({"task": ["enrolled"]}, "task enrolled admits enrolled devices alone: give"),
        ({"task": ["enrolled"], "enrolment": ["other.key"]}, "task enrolled admits enrolled devices alone: give"),
        ({"task": ["enrolled"], "enrolment": ["none.key"]}, "does not exist"),
        ({"task": ["visits"], "analyzer_status": "127.0.0.1:7446"}, "an address like http://"),
        ({"task": ["visits"], "analyzer_status": "http://127.0.0.1:1"}, "no analyzer answers"),
    ],
)
def test_wrong_requests_are_one_line_and_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choices: dict[str, object], text: str
) -> None:
    async def sent(_: SimulationPlan) -> None:
        raise AssertionError("sent")

    monkeypatch.setattr(load, "_run", sent)
    world = make_world(start=int(time.time()) - 10)
    world.write(tmp_path)
    certified = replace(world.task, name="enrolled", admission=Admission.ENROLLED, enrolment_key=SigningKey.generate().public)
    replace(world, task=certified).write(tmp_path)
    save_signing_key(tmp_path / "other.key", SigningKey.generate())
    if isinstance(keys := choices.get("enrolment"), list):
        choices = {**choices, "enrolment": [tmp_path / key for key in keys]}
    if isinstance(names := choices.get("task"), list):
        choices = {**choices, "task": [tmp_path / f"{name}.task" if isinstance(name, str) else name for name in names]}
    values: dict[str, object] = {
        "task": None,
        "tasks_dir": None,
        "rate": None,
        "window": None,
        "relay": False,
        "in_flight": None,
        "processes": 1,
        "channels": 1,
        "address": None,
        "authority": None,
        "enrolment": None,
        "patience": 1.0,
        "analyzer_status": None,
        "shuffler_status": None,
        "wait": 1.0,
        "as_json": False,
    }
    with pytest.raises(ShoalError) as caught:
        load.load(devices=3, **{**values, **choices})  # type: ignore[arg-type] # each case knows its own
    assert text in caught.value.message
    assert "\n" not in caught.value.message


def test_a_service_that_is_down_counts_nothing_yet() -> None:
    assert Counter("http://127.0.0.1:1", "http://127.0.0.1:1").read([("ab", 0)]) == [None]

"""The load command's own arithmetic and its refusals; with services it runs in
tests/integration/load/test_load.py.
"""

from __future__ import annotations

import json
import time
from array import array
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.cli.load import command as load
from shoal.cli.load.command import run
from shoal.cli.load.options import LoadOptions
from shoal.cli.load.service_counts import Counted, Counter
from shoal.cli.load.show import LoadOutcome, TaskRow, agreeing, show
from shoal.cli.load.tasks import check_closing, plan_of, stored_by, targets, values_of
from shoal.clients.fleet.arrivals import Pattern
from shoal.clients.fleet.misbehaviour import Carrier, Conduct, Shares
from shoal.clients.fleet.plan import Breaches, SimulationPlan, SimulationResult
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import target_of
from shoal.crypto.keyfiles import save_signing_key
from shoal.crypto.signing import SigningKey
from shoal.domain import Norm, Numeric, Vector, Words, YesNo
from shoal.errors import Kind, ShoalError
from shoal.task import Admission
from tests.cases import for_each
from tests.unit.cli.load.loads import target_of_world
from tests.worlds.devices.clients import VISITS, make_world


@pytest.mark.parametrize("domain", [YesNo(), VISITS, Numeric(0, 20, 21)])
def test_values_are_valid_answers_and_cover_them_all(domain: YesNo | Numeric) -> None:
    assert sorted({domain.encode(value) for value in values_of(domain)}) == list(
        range(domain.size - (0 if domain.size == 2 else 1))
    )


def test_values_of_an_open_vocabulary_are_words_that_are_looked_for_and_others() -> None:
    words = Words(("flu", "cold"))
    cells = {words.encode(value) for value in values_of(words)}
    assert (len(cells), cells & set(words.label_cells)) == (4, set(words.label_cells[:2]))


def test_values_of_vectors_are_vectors_within_the_clip() -> None:
    """Planted: a whole clip to both sides of a second axis too -> fails."""
    for dimension in (1, 40):
        domain = Vector(dimension, Norm.L2, 3.0, 1 << 20)
        found = [json.loads(str(value)) for value in values_of(domain)]
        assert len(found) == 1 + 2 * min(dimension, 6)
        assert all(
            len(one) == dimension and sum(x * x for x in one) in {0.0, 2.25} for one in found
        )


@for_each(
    "acked, unknown, counted, agrees",
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
    """Acknowledged: exactly once. Unknown: once or not at all. Planted: `<=` alone on one side ->
    fails.
    """
    row = TaskRow(
        target_of_world(make_world()),
        20,
        acked,
        unknown,
        0,
        0,
        None if counted is None else Counted(counted, 0),
    )
    assert row.agrees is agrees


@for_each(
    "garbage, perhaps, counted, agrees",
    [
        (3, 0, Counted(10, 3), True),
        (3, 0, Counted(10, 2), False),
        (3, 0, Counted(10, 4), False),
        (3, 0, Counted(13, 0), False),
        (3, 1, Counted(10, 4), True),
        (3, 1, Counted(10, 5), False),
        (0, 0, Counted(10, 1), False),
        (3, 0, Counted(13, None), True),  # withheld by the shuffler
        (3, 0, Counted(12, None), False),
        (3, 1, Counted(14, None), True),
    ],
)
def test_garbage_is_rejected_exactly(
    garbage: int, perhaps: int, counted: Counted, agrees: bool
) -> None:
    """Planted: don't look at ``rejected`` -> a report that is rejected in place of garbage
    agrees.
    """
    assert (
        TaskRow(target_of_world(make_world()), 20, 10, 0, garbage, perhaps, counted).agrees
        is agrees
    )


@for_each(
    "stored, garbage, counted, agrees",
    [
        ((40, 0), (3, 0), Counted(31, 12), True),  # 43 reports less 12 messages
        ((40, 0), (3, 0), Counted(40, 12), False),
        ((40, 0), (3, 0), Counted(34, 9), False),
        ((40, 2), (3, 0), Counted(33, 12), True),
        ((40, 2), (3, 0), Counted(34, 12), False),
        ((40, 0), (3, 1), Counted(28, 16), True),
        ((5, 0), (3, 0), Counted(0, 12), True),  # never below none
        ((5, 0), (3, 0), Counted(1, 12), False),
        ((40, 0), (0, 0), Counted(40, 0), True),
        ((40, 0), (3, 0), Counted(43, None), True),  # withheld by the shuffler
    ],
)
def test_garbage_of_several_messages_costs_as_many_reports(
    stored: tuple[int, int], garbage: tuple[int, int], counted: Counted, agrees: bool
) -> None:
    """Four messages to a report: of those the analyzer refused it can't tell which came together.
    Planted: what was acknowledged wanted in full -> a load with hostile clients never agrees.
    """
    assert agreeing(counted, stored, garbage, 4) is agrees


@pytest.mark.parametrize(("acked", "fails"), [(0, True), (1, False)])
def test_a_load_that_reached_nobody_fails(acked: int, fails: bool) -> None:
    """Whether or not counts were asked for. Planted: look at counts alone -> a load against a
    shuffler that is down ends well.
    """
    row = TaskRow(target_of_world(make_world()), 10, acked, 10 - acked, 0, 0, None)
    result = SimulationResult(10, acked, {}, 10 - acked, 8.0, array("f"), (b"",))
    outcome = LoadOutcome(result, [row], None, {}, counting=False, interrupted=False)
    match = "none of 10 reports was acknowledged: check that the shuffler"
    with pytest.raises(ShoalError, match=match) if fails else nullcontext():
        outcome.check()


def test_a_load_that_was_refused_is_not_told_to_look_for_the_service() -> None:
    """A full window refuses all, by a service that is there. Planted: one text for both ->
    fails.
    """
    row = TaskRow(target_of_world(make_world()), 10, 0, 0, 0, 0, None)
    refused = {Kind.WINDOW_FULL: 10}
    result = SimulationResult(10, 0, refused, 0, 8.0, array("f"), (b"",))
    outcome = LoadOutcome(result, [row], None, {}, counting=False, interrupted=False)
    with pytest.raises(ShoalError, match="all were refused"):
        outcome.check()


def test_silence_is_in_the_column_of_silence(capsys: pytest.CaptureFixture[str]) -> None:
    """Over MQTT nobody answers noise. Planted: DEADLINE among the refusals -> it is in the wrong
    column.
    """
    breaches = {Conduct.NOISE: Breaches(refused={Kind.DEADLINE: 5, Kind.INVALID: 3})}
    result = SimulationResult(0, 0, {}, 0, 1.0, array("f"), (b"",), breaches=breaches)
    show(LoadOutcome(result, [], None, {}, counting=False, interrupted=False))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "noise" in line]
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "noise",
        "8",
        "3 INVALID",
        "0",
        "5",
        "0",
    ]


def test_a_window_that_closes_too_late_is_refused_before_anything_is_sent() -> None:
    world = make_world(start=1_000_000, length=100)  # and as much grace
    found = [target_of_world(world)]
    with pytest.raises(
        ShoalError, match=r"closes 51 s after the last report, later than --wait 50"
    ) as caught:
        check_closing(found, 10, 50.0, 1_000_149.0)
    assert caught.value.kind is Kind.CONFIG
    check_closing(found, 10, 50.0, 1_000_150.0)


def test_what_is_stored_is_reports_and_garbage() -> None:
    """Planted: count late or malformed ones -> a load waits for a window that never fills."""
    world = make_world(start=int(time.time()) - 10)
    task = SimulatedTask(world.signed_task, world.signed_schedule, (1,) * 100)
    plan = SimulationPlan((task,), world.authorities, shares=Shares(0.1, 0.1, 0.1, 0.08))
    assert stored_by(plan) == 100 - 10 - 10 - 6  # late, malformed, and hostile but for garbage


@for_each(
    "choices, text",
    [
        ({}, "give either --task"),
        ({"task": [Path("a.task")], "tasks_dir": Path()}, "give either --task"),
        ({"tasks_dir": Path("/nonexistent")}, "no *.task"),
        ({"task": [Path("/nonexistent.task")]}, "cannot read"),
        ({"task": [Path("x.task")], "authority": ["zz"]}, "--authority"),
        ({"task": ["visits", "visits"]}, "given twice"),
        ({"task": ["visits"], "authority": ["00" * 32]}, "authority is not among"),
        ({"task": ["enrolled"]}, "task enrolled admits enrolled devices alone: give"),
        (
            {"task": ["enrolled"], "enrolment": ["other.key"]},
            "task enrolled admits enrolled devices alone: give",
        ),
        ({"task": ["enrolled"], "enrolment": ["none.key"]}, "does not exist"),
        ({"task": ["visits"], "analyzer_status": "127.0.0.1:7446"}, "an address like http://"),
        ({"task": ["far"]}, "far.example:7443 is not on this machine: name it, --address"),
        ({"task": ["visits", "far"]}, "different shufflers"),
        ({"task": ["visits"], "way": Carrier.MQTT}, "--way mqtt wants --broker"),
        ({"task": ["visits"], "broker": "localhost:8883"}, "--broker is for --way mqtt"),
        (
            {
                "task": ["visits"],
                "way": Carrier.MQTT,
                "relay": True,
                "broker": "localhost:8883",
            },
            "choose one way",
        ),
        (
            {
                "task": ["visits"],
                "way": Carrier.MQTT,
                "broker": "localhost:8883",
                "address": "localhost:1",
            },
            "--address is for gRPC",
        ),
        ({"task": ["visits"], "way": Carrier.MQTT, "broker": "localhost"}, "--broker"),
        (
            {
                "task": ["visits"],
                "way": Carrier.MQTT,
                "broker": "far.example:1883",
                "broker_insecure": True,
            },
            "loopback",
        ),
        ({"task": ["visits"], "rate": 1.0, "over": 1.0}, "not both"),
        ({"task": ["visits"], "arrival": Pattern.SPIKE}, "--arrival spike wants --over"),
        ({"task": ["visits"], "arrival": Pattern.RUSH, "window": 99}, "has windows 0 to 3"),
        ({"task": ["visits"], "late": 0.5}, "no window that is over"),
        ({"task": ["visits"], "late": 0.7, "hostile": 0.7}, "together at most 1"),
        ({"task": ["visits"], "analyzer_status": "http://127.0.0.1:1"}, "no analyzer answers"),
    ],
)
def test_wrong_requests_are_one_line_and_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choices: dict[str, object], text: str
) -> None:
    async def sent(*_: object) -> None:
        raise AssertionError("sent")

    monkeypatch.setattr(load, "_send", sent)
    monkeypatch.setattr(load, "START_S", 0.0)
    world = make_world(start=int(time.time()) - 10)
    world.write(tmp_path)
    replace(world, task=replace(world.task, name="far", shuffler_address="far.example:7443")).write(
        tmp_path
    )
    certified = replace(
        world.task,
        name="enrolled",
        admission=Admission.ENROLLED,
        enrolment_key=SigningKey.generate().public,
    )
    replace(world, task=certified).write(tmp_path)
    save_signing_key(tmp_path / "other.key", SigningKey.generate())
    if isinstance(keys := choices.get("enrolment"), list):
        choices = {**choices, "enrolment": [tmp_path / key for key in keys]}
    if isinstance(names := choices.get("task"), list):
        choices = {
            **choices,
            "task": [
                tmp_path / f"{name}.task" if isinstance(name, str) else name for name in names
            ],
        }
    with pytest.raises(ShoalError) as caught:
        run(LoadOptions(devices=3, **{"patience": 1.0, "wait": 1.0, **choices}))  # type: ignore[arg-type] # each case knows its own
    assert text in caught.value.message
    assert "\n" not in caught.value.message


def test_a_service_that_is_down_counts_nothing_yet() -> None:
    assert Counter("http://127.0.0.1:1", "http://127.0.0.1:1").read([("ab", 0)]) == [None]


def test_an_address_that_is_named_may_be_anywhere(tmp_path: Path) -> None:
    """Planted: refuse every address beyond this machine, or none -> this or the case above
    fails.
    """
    make_world("far.example:7443", start=int(time.time()) - 10).write(tmp_path)
    options = LoadOptions(devices=3, task=[tmp_path / "visits.task"], address="far.example:7443")
    assert (
        target_of(plan_of(options, targets(options, time.time()), time.time()))
        == "far.example:7443"
    )


def test_a_rush_lasts_until_its_window_ends(tmp_path: Path) -> None:
    make_world(start=1_000_000, length=100).write(tmp_path)  # and as much grace
    options = LoadOptions(devices=3, task=[tmp_path / "visits.task"], arrival=Pattern.RUSH)
    arrivals = plan_of(options, targets(options, 1_000_010.0), 1_000_010.0).arrivals
    assert arrivals is not None
    assert arrivals.over_s == 180.0
    assert arrivals.pattern is Pattern.RUSH

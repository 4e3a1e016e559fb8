"""``shoal load --part`` and ``--merge``: many JSONs, one load."""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.cli.load import merging
from shoal.cli.load.options import LoadOptions, part_of
from shoal.cli.load.parts import classes_of, merged, part_json, percentiles_of, read_parts
from shoal.cli.load.service_counts import Counted, Counter
from shoal.cli.load.show import KnownTruth, LoadOutcome, TaskRow, to_json
from shoal.cli.load.tasks import plan_of
from shoal.cli.load.values import RowsOfTasks
from shoal.cli.main import main
from shoal.clients.fleet.measure import percentiles
from shoal.clients.fleet.misbehaviour import Conduct
from shoal.clients.fleet.plan import Breaches, SimulationResult
from shoal.clients.fleet.share import GARBAGE_ACKED, GARBAGE_UNKNOWN, SealingEffort
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.unit.cli.load.loads import target_of_world
from tests.worlds.devices.clients import make_world

WORLD = make_world(start=int(time.time()) - 10)
TARGET = target_of_world(WORLD)
OF, DEVICES = 3, 100
LATENCIES = np.random.default_rng(85).lognormal(3.0, 1.0, 3_000).astype(np.float32)
Change = Callable[[dict[str, Any]], None]


def part(number: int, **more: Any) -> dict[str, Any]:
    """What part ``number`` of 3 prints: 30 sent, 25 acknowledged, ..."""
    options = LoadOptions(devices=DEVICES, part=f"{number}/{OF}", as_json=True, **more)
    rows = RowsOfTasks({})
    plan = plan_of(options, [TARGET], time.time(), rows)
    result = SimulationResult(
        30,
        25 + number,
        {Kind.WINDOW_FULL: 2},
        1,
        8.0,
        array("f", LATENCIES[number - 1 :: OF].tolist()),
        (bytes([GARBAGE_ACKED, GARBAGE_UNKNOWN] * number),),
        breaches={Conduct.NOISE: Breaches(refused={Kind.INVALID: number}, unanswered=1)},
        copies=(4, 3),
        began_at=1_000.0 + number,
        efforts=(SealingEffort(0.0, 2.0, 100 + number),),
    )
    row = TaskRow(
        TARGET, 30, 25 + number, 1, number, number, None, KnownTruth({"yes": 5.0, "no": 20.0})
    )
    extra = part_json(options, plan, [TARGET], rows, result)
    outcome = LoadOutcome(
        result, [row], None, {}, counting=False, interrupted=False, decided_s=None, part=extra
    )
    return dict(json.loads(json.dumps(to_json(outcome))))


def kept(folder: Path, *told: dict[str, Any]) -> list[Path]:
    paths = [folder / f"part-{number}.json" for number in range(1, len(told) + 1)]
    for path, one in zip(paths, told, strict=True):
        path.write_text(json.dumps(one))
    return paths


def test_parts_add_up_to_one_load(tmp_path: Path) -> None:
    """In any order. Planted: the first part's figures for all; latencies averaged -> each fails."""
    paths = kept(tmp_path, part(3), part(1), part(2))
    whole = merged(read_parts(paths))
    assert (whole["sent"], whole["acked"], whole["unknown"]) == (90, 81, 3)
    assert whole["refused"] == {"WINDOW_FULL": 6}
    assert whole["duplicates"] == {"sent": 12, "acked": 9}
    assert whole["misbehaving"]["noise"]["refused"] == {"INVALID": 6}
    assert whole["misbehaving"]["noise"]["unanswered"] == 3
    assert (whole["began_at"], whole["seconds"], whole["parts"]) == (1_001.0, 10.0, 3)
    assert whole["generator"] == {
        "processes": 3,
        "prepare_cpu_s": 0.0,
        "cpu_s": 6.0,
        "memory_bytes": 103,
    }
    (task,) = whole["tasks"]
    assert (task["sent"], task["acked"], task["garbage"]) == (90, 81, 6)
    exact = percentiles(array("f", LATENCIES.tolist()))
    assert whole["latency_ms"].keys() == exact.keys()
    for name, value in exact.items():
        assert value * 0.9999 <= whole["latency_ms"][name] <= value * 1.008


def test_counts_of_a_table_add_up_and_means_do_not(tmp_path: Path) -> None:
    """Planted: the truth of one part; a number's means added -> each fails."""
    told = [part(number) for number in (1, 2, 3)]
    for one in told:
        one["part"]["plan"]["tasks"][0]["numeric"] = False
    (task,) = merged(read_parts(kept(tmp_path, *told)))["tasks"]
    assert task["truth"] == {"yes": 15.0, "no": 60.0}
    for one in told:
        one["part"]["plan"]["tasks"][0]["numeric"] = True
    (task,) = merged(read_parts(kept(tmp_path, *told)))["tasks"]
    assert "truth" not in task


def test_percentiles_of_classes_are_not_below_the_exact_ones() -> None:
    """Planted: classes rounded to the nearest -> below, fails."""
    classes = {int(one): count for one, count in classes_of(LATENCIES).items()}
    assert sum(classes.values()) == LATENCIES.size
    for name, value in percentiles(array("f", LATENCIES.tolist())).items():
        assert value * 0.9999 <= percentiles_of(classes, [name])[name] <= value * 1.008
    assert classes_of(np.zeros(0, dtype=np.float32)) == {}


def test_every_device_is_in_one_part_and_answers_its_row() -> None:
    """Planted: every part takes the first rows; a rate for each part -> each fails."""
    rows = RowsOfTasks({0: [str(row) for row in range(DEVICES)]})
    seen: list[Any] = []
    for number in range(1, OF + 1):
        options = LoadOptions(devices=DEVICES, part=f"{number}/{OF}", as_json=True, rate=90.0)
        plan = plan_of(options, [TARGET], time.time(), rows)
        seen += plan.tasks[0].values
        assert plan.part is not None
        assert plan.rate == pytest.approx(90.0 * plan.devices / DEVICES)
    assert sorted(seen, key=int) == [str(row) for row in range(DEVICES)]


def _plan(key: str, value: Any) -> Change:
    def change(told: dict[str, Any]) -> None:
        told["part"]["plan"][key] = value

    return change


@for_each(
    "change, words",
    [
        (
            _plan("devices", 101),
            "part-2.json is a part of another load than part-1.json: their",
        ),
        (_plan("hostile", 0.5), "their hostile differ"),
        (_plan("tasks", [{}]), "their tasks differ"),
        (lambda told: told["part"].update(number=1), "part-2.json and part-1.json are both part 1"),
        (lambda told: told["part"].update(number=4), "no whole JSON of a part"),
        (lambda told: told.pop("part"), "part-2.json is no part of a load"),
        (lambda told: told.pop("acked"), "no whole JSON of a part"),
        (lambda told: told.pop("generator"), "no whole JSON of a part"),
        (lambda told: told.pop("latency_ms"), "no whole JSON of a part"),
        (lambda told: told.update(acked=-1), "no whole JSON of a part"),
        (lambda told: told.update(refused=[]), "no whole JSON of a part"),
        (lambda told: told.update(tasks=[]), "no whole JSON of a part"),
        (lambda told: told.update(seconds=float("nan")), "no whole JSON of a part"),
        (lambda told: told["part"].update(latencies={"x": 1}), "no whole JSON of a part"),
    ],
)
def test_parts_that_are_no_load_are_refused(change: Change, words: str, tmp_path: Path) -> None:
    """Planted: plans not compared; a part that is twice there taken twice; a part that can't be
    merged taken -> each fails.
    """
    told = [part(number) for number in (1, 2, 3)]
    change(told[1])
    with pytest.raises(ShoalError) as caught:
        read_parts(kept(tmp_path, *told))
    assert caught.value.kind is Kind.CONFIG
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    """Planted: what is there merged -> fails."""
    with pytest.raises(ShoalError, match="of 3 parts 1 are missing: 2: --merge wants all"):
        read_parts(kept(tmp_path, part(1), part(3)))
    (tmp_path / "odd.json").write_text("[1")
    with pytest.raises(ShoalError, match=r"odd\.json is no whole JSON"):
        read_parts([tmp_path / "odd.json"])


@for_each(
    "counted, status",
    [
        (Counted(81, 6), 0),
        (Counted(84, 12), 0),
        (Counted(80, 6), 1),
        (Counted(85, 6), 1),
        (Counted(81, 13), 1),
        (None, 1),
    ],
)
def test_one_comparison_for_all(
    counted: Counted | None,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Planted: unknown reports of the last part alone -> fails."""
    monkeypatch.setattr(Counter, "check", lambda *_: None)
    monkeypatch.setattr(merging, "count_windows", lambda *_: [counted])
    paths = kept(tmp_path, part(1), part(2), part(3))
    typed = ["load", *(word for path in paths for word in ("--merge", str(path)))]
    typed += ["--analyzer-status", "http://127.0.0.1:1"]
    assert main([*typed, "--json"]) == status
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    assert (task["agrees"] is True) is (status == 0)
    assert main(typed) == status
    assert "81 reports in" in capsys.readouterr().out


@for_each(
    "given, words",
    [
        ({"part": "3"}, "--part: I/N is wanted"),
        ({"part": "0/3"}, "--part: I/N is wanted"),
        ({"part": "4/3"}, "--part: I/N is wanted"),
        ({"part": "1/3"}, "add --json"),
        ({"part": "1/3", "as_json": True, "analyzer_status": "http://a:1"}, "with --merge"),
        ({"merge": [Path("a")], "devices": 5}, "leave out --devices"),
        ({"merge": [Path("a")], "tasks_dir": Path("x")}, "leave out --tasks-dir"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, Any], words: str) -> None:
    """Before anything is read. Planted: a part compared with all of its window -> fails."""
    with pytest.raises(ShoalError) as caught:
        LoadOptions(**given)
    assert caught.value.kind is Kind.CONFIG
    assert words in str(caught.value)


def test_one_machine_has_its_limit() -> None:
    """Planted: devices beyond it made here -> gigabytes, and no word."""
    with pytest.raises(ShoalError, match=r"--part 1/20 and so on"):
        plan_of(LoadOptions(devices=1_000_000_000), [TARGET], time.time())
    assert part_of("20/20") == (19, 20)

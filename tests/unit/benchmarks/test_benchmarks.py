"""Each benchmark runs at a tiny size, against the real services, and prints its ratios. Nothing
here looks at a figure's size.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import __main__ as runner
from benchmarks import machine
from benchmarks.bench import Bench, Scale
from benchmarks.figures import Figure, Goal, Outcome, show
from tests.sizes import FULL
from tests.worlds import postgres


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    one = Bench(Scale.TINY, tmp_path_factory.mktemp("bench"))
    yield one
    one.close()


WITH_POSTGRES = ("blocks", "replicas")
# Together they take a third of the time of all.
SLOW = ("blocks", "million", "replicas")


@pytest.mark.parametrize("name", [name for name in runner.NAMES if FULL or name not in SLOW])
def test_runs_and_prints_its_ratio(name: str, bench: Bench) -> None:
    """Planted: a benchmark that leaves its service running -> the count of processes fails; one
    without a ratio -> the unit fails.
    """
    if name in WITH_POSTGRES and postgres.programs() is None:
        pytest.skip(postgres.LACKING)
    before = set(machine.tree(os.getpid())) if bench.pool else set()
    title, outcome = runner.run_one(name, bench)
    assert outcome.figures[0].unit == "x" or name == "memory"
    assert all(
        math.isfinite(value) and value >= 0 for figure in outcome.figures for value in figure.values
    )
    assert any(figure.unit == "x" and figure.median > 0 for figure in outcome.figures)
    assert f"{name}: {title}" in show(name, title, outcome)
    json.dumps(outcome.to_json(), allow_nan=False)
    assert set(machine.tree(os.getpid())) <= before


def test_every_goal_of_the_project_is_held_by_some_benchmark(bench: Bench) -> None:
    """The names and the files belong together: a benchmark that is not in the list is never run.
    Planted: a name dropped -> this fails.
    """
    helpers = {
        "__init__",
        "__main__",
        "bare",
        "bench",
        "driver",
        "echo",
        "figures",
        "fleet_site",
        "idle",
        "machine",
        "ratios",
        "raw",
        "site",
        "scaling",
        "secagg_round",
        "flower_secagg",
        "peers_child",
        "postgresql",
        "wire",
    }
    files = {path.stem for path in Path(runner.__file__).parent.glob("*.py")}
    assert files - helpers == set(runner.NAMES)


def _fake(name: str, bench: Bench) -> tuple[str, Outcome]:
    if name == "batch":
        raise RuntimeError("it broke")
    return name, Outcome((Figure("rate", (0.1,), goal=Goal(at_least=0.9)),))


def test_a_missed_goal_is_no_failure_and_a_failure_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: the exit status taken from missed goals, or no ``except`` around a benchmark -> this
    fails.
    """
    monkeypatch.setattr(runner, "run_one", _fake)
    written, work = tmp_path / "out.json", tmp_path / "work"
    work.mkdir()
    assert runner.main(["unary", "--quick", "--json", str(written), "--dir", str(work)]) == 0
    found = json.loads(written.read_text())
    assert found["missed"] == ["unary: rate"]
    assert found["scale"] == "quick"
    assert list(work.iterdir()) == []
    assert (
        runner.main(["unary", "batch", "sealing", "--dir", str(work), "--json", str(written)]) == 1
    )
    found = json.loads(written.read_text())
    assert found["failed"] == {"batch": "RuntimeError: it broke"}
    assert list(found["benchmarks"]) == ["unary", "sealing"]
    printed = capsys.readouterr().out
    assert "missed goals" in printed
    assert "failed, so not measured: batch" in printed


def test_an_unknown_name_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        runner.main(["speed"])
    assert stopped.value.code == 2
    assert "choose from unary" in capsys.readouterr().err

"""Windows go on while ``shoal load --prepare`` works."""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.cli.load import command as load
from shoal.cli.load import plan as load_plan
from shoal.cli.load.command import failures, run
from shoal.cli.load.options import LoadOptions
from shoal.cli.load.service_counts import Counted, Counter, ServiceUsage, Watch
from shoal.cli.load.show import LoadOutcome, TaskRow, show
from shoal.clients.fleet.arrivals import Pattern
from shoal.clients.fleet.measure import LoadCost
from shoal.clients.fleet.misbehaviour import Carrier, Shares
from shoal.clients.fleet.plan import Progress, SimulationPlan, SimulationResult
from shoal.clients.fleet.share import SealingEffort, SimulatedTask
from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from tests.unit.cli.load.loads import target_of_world
from tests.worlds.devices.clients import make_world

# --- windows go on while --prepare works ----------------------------------------------------------


class Load:
    """``shoal load`` on a clock that a test moves, for a window that takes reports for 200 s; what
    it would send is kept.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, prepare_s: float) -> None:
        self.clock, self._file = FakeClock(1_000_010.0), folder / "visits.task"  # 190 s are left
        self.sent: list[tuple[SimulationPlan, Callable[[SimulationPlan], SimulationPlan]]] = []
        make_world(start=1_000_000, length=100).write(folder)
        monkeypatch.setattr(load, "_send", self._send)
        monkeypatch.setattr(load_plan, "preparing_s", lambda _: prepare_s)
        monkeypatch.setattr(load, "Counter", Undecided)

    async def _send(
        self, plan: SimulationPlan, _: Watch, ready: Callable[[SimulationPlan], SimulationPlan]
    ) -> SimulationResult:
        self.sent.append((plan, ready))
        return SimulationResult(3, 3, {}, 0, 1.0, array("f"), (bytes(3),), interrupted=True)

    def run(self, **choices: object) -> str:
        """Nothing if it sends, else why not."""
        with pytest.raises((KeyboardInterrupt, ShoalError)) as caught:
            run(LoadOptions(devices=3, task=[self._file], **choices), self.clock)  # type: ignore[arg-type] # each test knows its own
        refusal = caught.value if isinstance(caught.value, ShoalError) else None
        assert len(self.sent) == (refusal is None)
        assert refusal is None or refusal.kind is Kind.CONFIG
        return refusal.message if refusal is not None else ""


class Undecided:
    """In place of the services' pages: every window is open."""

    def __init__(self, *_: object) -> None: ...

    def check(self, *_: object) -> None: ...

    def read(self, windows: list[tuple[str, int]]) -> list[None]:
        return [None] * len(windows)


def test_a_window_that_is_over_before_the_first_report_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """190 s are left, and preparing takes 189 or 190. Planted: look at the clock of the beginning
    -> nothing is refused.
    """
    assert Load(tmp_path, monkeypatch, 189.0).run(prepare=True) == ""
    why = Load(tmp_path, monkeypatch, 190.0).run(prepare=True)
    assert why.startswith(
        "window 0 of task visits is over before the first report: --prepare takes about 190.0 s "
        "here: choose --window 2,"
    )
    assert Load(tmp_path, monkeypatch, 190.0).run(prepare=True, window=2) == ""
    # after the last window
    assert "choose another --window" in Load(tmp_path, monkeypatch, 600.0).run(prepare=True)
    assert Load(tmp_path, monkeypatch, 190.0).run() == ""  # what is not prepared takes no time


def test_preparing_that_took_longer_than_the_estimate_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: only the estimate is looked at -> reports for a window that is over are sent."""
    seen = Load(tmp_path, monkeypatch, 1.0)
    assert seen.run(prepare=True) == ""
    ((plan, ready),) = seen.sent
    seen.clock.advance(189.9)
    assert ready(plan) == plan
    seen.clock.advance(0.1)
    with pytest.raises(
        ShoalError, match=r"^window 0 of task visits is over: choose --window 2, which is open then"
    ) as caught:
        ready(plan)
    assert caught.value.kind is Kind.CONFIG


def test_a_rush_is_over_with_its_window_however_long_preparing_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned for what is left after 60 s, run in what is left after 100. Planted: the span of the
    plan -> it ends 100 s too late.
    """
    seen = Load(tmp_path, monkeypatch, 60.0)
    assert seen.run(prepare=True, arrival=Pattern.RUSH) == ""
    ((plan, ready),) = seen.sent
    assert plan.over_s == 190 - 60 - 10
    seen.clock.advance(100.0)
    assert ready(plan).over_s == 190 - 100 - 9
    assert "ends now or is over" in Load(tmp_path, monkeypatch, 188.0).run(
        prepare=True, arrival=Pattern.RUSH
    )


def test_the_wait_for_counts_begins_with_the_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 s are waited, and the window is open for 190 s: too long at once, but not after 90 s of
    preparing or of sending.

    Planted: count from now, from the end of the preparation, or from the beginning of the sending
    -> a load that fits is refused.
    """
    page = {"analyzer_status": "http://127.0.0.1:1", "wait": 100.0}
    assert "closes 190 s after the last report, later than --wait 100" in Load(
        tmp_path, monkeypatch, 0.0
    ).run(**page)
    assert "closes 101 s after" in Load(tmp_path, monkeypatch, 89.0).run(prepare=True, **page)
    assert Load(tmp_path, monkeypatch, 90.0).run(prepare=True, **page) == ""
    assert Load(tmp_path, monkeypatch, 0.0).run(over=90.0, **page) == ""
    assert "closes 101 s after" in Load(tmp_path, monkeypatch, 40.0).run(
        prepare=True, over=49.0, **page
    )
    assert Load(tmp_path, monkeypatch, 40.0).run(prepare=True, over=50.0, **page) == ""


def test_what_preparing_takes_is_shared_out_over_the_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """80 of 100 devices report, 2 ms each without and 0.5 ms with encapsulations. Planted: for all
    devices, or on one core -> fails.
    """

    def cost(*_: object, prepare: bool = False) -> LoadCost:
        return LoadCost(0.000_5 if prepare else 0.002, 0.001, 512, 65)

    monkeypatch.setattr(load_plan, "cost_of", cost)
    monkeypatch.setattr(load_plan, "cpu_count", lambda: 4)
    world = make_world(start=int(time.time()) - 10)
    task = SimulatedTask(world.signed_task, world.signed_schedule, (1,) * 100)
    plan = SimulationPlan(
        (task, task), world.authorities, shares=Shares(malformed=0.2), prepare=True
    )
    for processes, shared in ((0, 4), (1, 1), (3, 3), (9, 4)):
        assert load_plan.preparing_s(replace(plan, processes=processes)) == pytest.approx(
            2 * 80 * 0.001_5 / shared
        )
    assert load_plan.preparing_s(replace(plan, prepare=False)) == 0


@pytest.mark.parametrize("way", [Carrier.GRPC, Carrier.RELAY])
@pytest.mark.parametrize("prepare", [False, True])
def test_a_plan_says_what_it_costs_and_sends_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    way: Carrier,
    prepare: bool,
) -> None:
    """Planted: leave out copies -> fewer frames."""

    async def sent(*_: object) -> None:
        raise AssertionError("sent")

    monkeypatch.setattr(load, "_send", sent)
    make_world(start=int(time.time()) - 10).write(tmp_path)
    options = LoadOptions(
        devices=1_000,
        task=[tmp_path / "visits.task"],
        duplicates=0.1,
        malformed=0.05,
        hostile=0.04,
        rate=100.0,
        way=way,
        prepare=prepare,
        analyzer_status="http://127.0.0.1:1",
        plan=True,
        as_json=True,
    )
    run(options)
    shown = json.loads(capsys.readouterr().out)
    assert shown["reports"] == 1_000
    assert shown["frames"] == 1_000 + 2 * 100
    assert shown["calls"] == (1_200 if way is Carrier.GRPC else 3)
    assert shown["conduct"]["duplicate"] == 100
    assert shown["bytes"] == 512 * (1_200 - 10) + 10 * (65_536 + 1)
    assert shown["stored_reports"] == 1_000 - 50 - 30
    assert shown["stored_bytes"] == 920 * (32 + 16 + 16 + 1)
    assert shown["arrival"] == {"pattern": "steady", "over_s": 10.0, "peak_rate": 100.0}
    assert shown["least_s"] == 10.0
    assert shown["target"] == "127.0.0.1:1"
    assert (shown["cpu_s"]["prepare"] > 0) is prepare
    run(replace(options, as_json=False))
    text = capsys.readouterr().out
    assert "nothing was sent" in text
    assert "acknowledged, rejected by the analyzer" in text


def test_small_loads_have_figures_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three devices, in the plan and in the end. Planted: tenths of MiB and of seconds -> "0.0
    MiB", "0.0 s" and 0 per second.
    """
    make_world(start=int(time.time()) - 10).write(tmp_path)
    run(LoadOptions(devices=3, task=[tmp_path / "visits.task"], rate=0.05, prepare=True, plan=True))
    text = " ".join(capsys.readouterr().out.split())
    assert "within 60 s, at most 0.05 per second" in text
    assert "sends 1.5 KiB of frames in 3 calls; the shuffler stores 195 bytes" in text
    assert "under 1 s to make the reports; under 1 s for the services" in text
    row = TaskRow(target_of_world(make_world()), 3, 3, 0, 0, 0, Counted(3, 0))
    effort = SealingEffort(0.01, 0.02, 3 << 20)
    result = SimulationResult(3, 3, {}, 0, 0.04, array("f"), (b"",), efforts=(effort,))
    show(
        LoadOutcome(
            result,
            [row],
            None,
            {"shuffler": ServiceUsage(0.0, 50 << 20, 0)},
            counting=True,
            interrupted=False,
            decided_s=0.01,
        )
    )
    text += " ".join(capsys.readouterr().out.split())
    assert "3 reports in under 1 s: 75 per second" in text
    assert (
        "under 1 s of CPU, and under 1 s before for encapsulations, at most 3.0 MiB of memory each"
        in text
    )
    assert "shuffler: under 1 s of CPU, at most 50 MiB" in text
    assert " 0.0 " not in text


def test_failures_are_in_the_live_line() -> None:
    assert failures(Progress(10, 5, 0, 0, 3, 0)) == ""
    assert (
        failures(Progress(10, 1, 2, 3, 1, 1_000)) == "2 refused, 3 unknown, 1,000 answered wrongly"
    )
    assert (
        failures(Progress(10, 0, 0, 1, trouble="nobody listens"))
        == "1 unknown, trying again: nobody listens"
    )


def test_a_watch_adds_up_over_restarts_and_says_nothing_of_the_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: last minus first -> a restart makes CPU time negative."""
    pages = iter([(5, 100, 1), (9, 300, 1), (2, 200, 7), (3, 150, 7)])

    def page(*_: object) -> bytes:
        cpu, memory, start = next(pages)
        rows = (
            f"process_cpu_seconds_total {cpu}.0",
            f"process_resident_memory_bytes {memory}",
            f"process_start_time_seconds {start}",
        )
        return "\n".join(("# HELP process_cpu_seconds_total x", *rows, 'other{a="b"} 3')).encode()

    monkeypatch.setattr("shoal.cli.load.service_counts._read", page)
    watch = Watch({"shuffler": "http://127.0.0.1:1", "analyzer": None})
    for _ in range(4):
        watch.look()
    assert watch.figures() == {"shuffler": ServiceUsage(4 + 2 + 1, 300, 1)}
    monkeypatch.undo()
    silent = Watch({"shuffler": "http://127.0.0.1:1"})
    silent.look()
    assert silent.figures() == {}


def test_whoever_waits_for_a_service_is_told_once() -> None:
    """Planted: ``waiting`` never called -> half a minute of silence."""
    told: list[str] = []
    with pytest.raises(ShoalError) as caught:
        Counter("http://127.0.0.1:1", None).check(0.5, told.append)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert told == ["waiting up to 0 s for the analyzer at http://127.0.0.1:1"]

"""What fell since the figures that are kept, on made-up figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as runner
from benchmarks import ratios
from benchmarks.figures import Figure, Goal, Outcome
from benchmarks.ratios import Better, Change, Compared, Kept, Measured
from tests.cases import for_each

_UP, _DOWN = Better.HIGHER, Better.LOWER


def _kept(median: float, low: float, high: float, better: Better = _UP) -> Kept:
    return Kept("x", better, median, low, high)


def _measured(figures: dict[str, Kept], others: float = 0.0, scale: str = "quick") -> Measured:
    return Measured("0123abcdef", "2026-11-23", scale, 2, others, figures)


@for_each(
    "before, now, change",
    [
        (_kept(0.9, 0.88, 0.92), _kept(0.8, 0.78, 0.82), Change.FELL),
        (_kept(0.9, 0.88, 0.92), _kept(0.99, 0.97, 1.0), Change.ROSE),
        (_kept(0.9, 0.88, 0.92), _kept(0.89, 0.86, 0.91), Change.SAME),
        # within what was kept, and within what this run shows itself
        (_kept(0.9, 0.70, 0.95), _kept(0.8, 0.79, 0.81), Change.SAME),
        (_kept(0.9, 0.88, 0.92), _kept(0.8, 0.60, 0.95), Change.SAME),
        (_kept(0.8, 0.78, 0.82), _kept(0.9, 0.70, 0.95), Change.SAME),
        (_kept(0.8, 0.60, 0.95), _kept(0.9, 0.88, 0.92), Change.SAME),
        # lower is better
        (_kept(20, 19, 21, _DOWN), _kept(25, 24, 26, _DOWN), Change.FELL),
        (_kept(20, 19, 21, _DOWN), _kept(15, 14, 16, _DOWN), Change.ROSE),
        # measured once: a hundredth is no change, a tenth is one
        (_kept(55.0, 55.0, 55.0, _DOWN), _kept(55.5, 55.5, 55.5, _DOWN), Change.SAME),
        (_kept(55.0, 55.0, 55.0, _DOWN), _kept(60.5, 60.5, 60.5, _DOWN), Change.FELL),
    ],
)
def test_a_figure_fell_where_each_median_is_outside_of_the_others_spread(
    before: Kept, now: Kept, change: Change
) -> None:
    """Planted: one of the two spreads left out, sides exchanged for lower figures, or no least
    spread -> a case fails.
    """
    assert Compared("unary", "rate", before, now).change is change


@for_each(
    "figure, side",
    [
        (Figure("rate", (0.8,)), _UP),
        (Figure("2 workers: rate", (0.8,)), _UP),
        (Figure("server CPU per report", (1.6,)), _DOWN),
        (Figure("latency p99", (1.6,)), _DOWN),
        (Figure("append / plain log", (0.3,)), None),
        (Figure("append / plain log", (0.3,), goal=Goal(at_least=0.25)), _UP),
        (Figure("idle", (54.0,), "MB", Goal(at_most=55)), _DOWN),
        (Figure("echo: rate", (3_000.0,), "/s"), None),
    ],
)
def test_kept_is_what_has_a_better_side(figure: Figure, side: Better | None) -> None:
    """An absolute rate without a goal says more about the machine. Planted: units not looked at
    -> fails.
    """
    assert ratios.better(figure.to_json()) is side


def test_the_report_names_what_fell_rose_and_was_not_measured() -> None:
    """Planted: figures of another size compared, or absent ones passed over in silence -> this
    fails.
    """
    before = {
        "unary": _measured({"rate": _kept(0.9, 0.9, 0.9), "CPU": _kept(2, 2, 2, _DOWN)}),
        "batch": _measured({"rate": _kept(0.9, 0.9, 0.9), "gone": _kept(1, 1, 1)}),
        "demo": _measured({"CPU": _kept(2, 2, 2, _DOWN)}, scale="full"),
        "agent": _measured({"CPU": _kept(2, 2, 2, _DOWN)}),
        "sealing": _measured({"rate": _kept(0.9, 0.9, 0.9)}),
    }
    now = {
        "unary": _measured({"rate": _kept(0.5, 0.5, 0.5), "CPU": _kept(1, 1, 1, _DOWN)}),
        "batch": _measured({"rate": _kept(0.9, 0.9, 0.9), "found": _kept(1, 1, 1)}),
        "demo": _measured({"CPU": _kept(9, 9, 9, _DOWN)}),
    }
    text, fell = ratios.report(before, now, ["unary", "batch", "demo", "agent"])
    assert [(one.name, one.what) for one in fell] == [("unary", "rate")]
    lines = text.splitlines()
    assert lines[1].split()[:2] == ["unary:", "rate:"]
    assert lines[3].split()[:2] == ["unary:", "CPU:"]
    assert "1 of 3 figures are within their spread" in lines
    missing = {line.split()[0] for line in lines[lines.index("not measured:") + 1 :]}
    assert missing >= {"agent:", "demo:", "batch:"}
    assert "  batch: gone" in lines
    assert "  batch: found" in lines
    assert "sealing" not in text  # nobody asked for it


def test_beside_busy_neighbours_nothing_is_evidence() -> None:
    """Planted: the neighbours of the kept run, or of this one, not looked at -> this fails."""
    figures = {"rate": _kept(0.9, 0.9, 0.9)}
    quiet, busy = _measured(figures, 0.1), _measured(figures, 1.2)

    def said(before: Measured, now: Measured) -> list[str]:
        both = ({"unary": before, "demo": quiet}, {"unary": now, "demo": quiet})
        return ratios.report(*both, ["unary", "demo"])[0].splitlines()[1:]

    assert said(quiet, quiet) == []
    assert said(quiet, busy) == [
        "unary: other programs used 1.2 of 2 cores: this run is no evidence"
    ]
    (line,) = said(busy, quiet)
    assert line.startswith("unary: kept from a run beside others that used 1.2 of 2 cores (0123")
    text, _ = ratios.report({"unary": quiet}, {"unary": busy}, ["unary"])
    assert text.endswith("nothing here is evidence: run it again on a quiet machine")


def _fake(name: str, bench: Any) -> tuple[str, Outcome]:
    value = {"unary": 0.9, "batch": 0.4}[name]
    return name, Outcome((Figure("rate", (value, value, value)), Figure("echo", (5.0,), "/s")))


def test_saved_figures_are_checked_against_and_the_exit_status_is_for_the_strict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: the other benchmarks' figures lost when one is saved, or the exit status taken from
    falls unasked -> this fails.
    """
    monkeypatch.setattr(ratios, "FILE", tmp_path / "ratios.json")
    monkeypatch.setattr(runner, "run_one", _fake)
    monkeypatch.setattr(runner, "_commit", lambda: "0123abcdef")
    old = _measured({"rate": _kept(0.8, 0.79, 0.81)})
    ratios.save(ratios.FILE, {"unary": old, "batch": old})
    arguments = ["--quick", "--check", "--dir", str(tmp_path)]
    assert runner.main(arguments) == 0
    assert "fell by more than its spread:\n  batch: rate: 0.80" in capsys.readouterr().out
    assert runner.main([*arguments, "--strict"]) == 1
    assert runner.main([*arguments, "--strict", "unary"]) == 0
    assert runner.main(["--quick", "--save-ratios", "batch", "--dir", str(tmp_path)]) == 0
    saved = ratios.load(ratios.FILE)
    assert saved["unary"] == old
    assert saved["batch"].figures == {"rate": _kept(0.4, 0.4, 0.4)}
    assert runner.main([*arguments, "--strict", "batch"]) == 0


@for_each("text", ["{", "[]", '{"unary": {}}', '{"unary": {"figures": 3}}'])
def test_a_damaged_file_is_an_error_of_one_line(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ratios, "FILE", tmp_path / "ratios.json")
    ratios.FILE.write_text(text)
    with pytest.raises(SystemExit) as stopped:
        runner.main(["--check"])
    assert stopped.value.code == 2
    assert "is damaged" in capsys.readouterr().err


def test_the_file_of_the_repository_names_benchmarks_and_figures_that_there_are() -> None:
    """Planted: a name that no benchmark has -> this fails."""
    kept = ratios.load(ratios.FILE)
    assert set(kept) <= set(runner.NAMES)
    written = json.loads(ratios.FILE.read_text()) if kept else {}
    assert {name: each.to_json() for name, each in kept.items()} == written

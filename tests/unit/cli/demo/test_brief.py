"""The demo's last screen: small, and every figure on it true of the release."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from shoal.accounting.meaning import best_guess, percent_text
from shoal.cli.demo.brief import brief
from shoal.cli.demo.sums.brief import brief_sums


def task(
    labels: tuple[str, ...], truth: tuple[float, ...], off: float, **more: Any
) -> dict[str, Any]:
    """A released question; every estimate is ``off`` from the truth, with intervals of 9 around."""
    rows = [
        {"label": label, "value": true + off, "ci_low": true + off - 9, "ci_high": true + off + 9}
        for label, true in zip(labels, truth, strict=True)
    ]
    privacy = {"honest_fraction": 0.9}
    return {
        "name": f"t{len(labels)}",
        "question": f"Which of {len(labels)}?",
        "mechanism": {"name": "krr", "report_bytes": 1},
        "truth": dict(zip(labels, truth, strict=True)),
        "release": {"n": 200, "estimates": rows, "privacy": privacy, **more},
    }


PROCESSED = {"processed": {"method": "m", "note": "", "counts": []}}
RESULTS: dict[str, Any] = {
    "tasks": [
        task(("no", "yes"), (80.0, 120.0), 2.0, **PROCESSED),
        task(
            (*"abcdefgh", "no answer"),
            (1.0, 10.0, 20.0, 30.0, 40.0, 50.0, 19.0, 30.0, 0.0),
            20.0,
            **PROCESSED,
        ),
        task(("mean", "no answer"), (2.75, 0.0), 0.5),
    ],
    "composed": {"epsilon_upper": 0.25, "delta": 3e-8, "tasks": 3},
    "devices": 200,
    "reports": {"acknowledged": 600, "counted": 600, "unknown": 0, "refused": {}},
}


def shown(results: dict[str, Any], sums: bool = False, width: int = 80) -> list[str]:
    screen = Console(file=io.StringIO(), width=width)
    (brief_sums if sums else brief)(screen, results, 12.3, Path("out"), None)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue().splitlines()


def row(lines: list[str], label: str) -> list[str]:
    (line,) = [line for line in lines if line.split()[:1] == [label] and line.startswith("   ")]
    return line.split()[1:]


def test_it_fits_a_screen_and_shows_what_most_devices_are_in() -> None:
    """Planted: all rows shown -> "a" is there; counts shown as they are -> no per cent; the truth
    compared with the estimate instead of its interval -> "yes" is outside.
    """
    lines = shown(RESULTS)
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert row(lines, "yes") == ["60.0%", "61.0%", "56.5%", "to", "65.5%"]
    assert [line for line in lines if line.split()[:1] in (["a"], ["b"], ["no"])] == []
    assert row(lines, "f") == ["25.0%", "35.0%", "30.5%", "to", "39.5%", "outside"]
    assert "   ... and 2 more" in lines
    assert row(lines, "mean") == ["2.75", "3.25", "-5.75", "to", "12.25"]
    assert lines[-2].startswith("Page:    out/report.html")


def test_a_narrow_terminal_has_narrow_columns() -> None:
    """Planted: the wide columns -> rows of 70 in a terminal of 60 break."""
    lines = shown(RESULTS, width=60)
    assert len(lines) <= 25
    assert max(len(line) for line in lines if not line.startswith(("Page:", "Figures:"))) <= 60
    assert row(lines, "f") == ["25.0%", "35.0%", "30.5%", "to", "39.5%", "outside"]


def test_the_promise_is_the_composed_one() -> None:
    """Planted: the first release's epsilon -> other odds."""
    text = " ".join(shown(RESULTS))
    odds = percent_text(best_guess(0.25, 3e-8))
    assert f"right at most {odds} of the time after seeing all 3 results" in text
    assert "do not collude and 90% of the reports are honest" in text


def test_a_withheld_question_says_why() -> None:
    """Planted: rows of a withheld release -> KeyError."""
    withheld = {**RESULTS["tasks"][0], "release": {"withheld": "too few", "privacy": {}}}
    lines = shown({**RESULTS, "tasks": [RESULTS["tasks"][2], withheld]})
    assert "   withheld: too few" in lines


def test_sums_fit_a_screen_too() -> None:
    """Planted: a row left out, or the truth of another row -> fails."""
    release = {
        "withheld": None,
        "n": 40,
        "estimates": [{"label": "x", "value": 7.5, "ci_low": 5.0, "ci_high": 9.0}],
        "privacy": {"epsilon_upper": 4.0, "delta": 1e-6, "n_certified": 20},
        "rounds": {"epsilon_together": None, "mode": "default"},
    }
    results = {
        "tasks": [{"truth": {"x": 4.0}, "release": release}],
        "rounds": [{}, {}],
        "devices": 60,
        "outcomes": {"killed after joining": 9, "killed after sharing": 2, "counted": 49},
    }
    lines = shown(results, sums=True)
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert "60 devices, of which 11 were killed" in lines[0]
    assert row(lines, "x") == ["4.0", "7.5", "5.0", "to", "9.0", "outside"]

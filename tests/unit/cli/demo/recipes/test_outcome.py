"""Errors, words that were found, and what is said at the end: all from releases and accounts."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from shoal.cli.demo.recipes import show
from shoal.cli.demo.recipes.outcome import errors_of
from shoal.cli.demo.recipes.words_found import true_beginnings, words_of_run
from shoal.domain import Categories, Discovery, Numeric
from shoal.questions.spelling import ANOTHER, spell


def row(label: str, value: float, stderr: float = 2.0) -> dict[str, Any]:
    low, high = value - 2 * stderr, value + 2 * stderr
    return {"label": label, "value": value, "stderr": stderr, "ci_low": low, "ci_high": high}


def task(truth: dict[str, float], *rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"truth": truth, "release": {"withheld": None, "estimates": list(rows), **more}}


def test_errors_are_root_mean_squares_over_labels_and_windows() -> None:
    """A withheld window has none. Planted: the mean of errors with their signs -> 0.5, fails."""
    tasks = [
        task({"a": 10.0, "b": 5.0}, row("a", 13.0), row("b", 9.0)),
        task({"a": 10.0, "b": 5.0}, row("a", 10.0), row("b", 0.0)),
        task({"a": 1.0}, row("a", 99.0), withheld="too few"),
    ]
    found = errors_of(Categories(("a", "b")), 3.0, tasks)
    assert found["observed"] == pytest.approx(((9 + 16 + 0 + 25) / 4) ** 0.5)
    assert (found["stderr"], found["intervals"], found["inside"]) == (2.0, 4, 3)
    mean = Numeric(0.0, 10.0, 3, True, "s")
    one = task({"mean": 4.0, "no answer": 0.0}, row("mean", 5.0), row("no answer", 70.0))
    assert errors_of(mean, 1.0, [one])["observed"] == 1.0
    assert errors_of(mean, 1.0, [one])["unit"] == "s"


def test_found_words_stand_beside_what_devices_have() -> None:
    """Known words are of nobody. Planted: a beginning taken for a word -> two words, fails; known
    words counted -> "the" is missed, fails.
    """
    discovery = Discovery(first=2, longest=4, most=8, known=(spell("the", 4),))
    values = ["cat"] * 6 + ["cow"] * 4 + ["the"] * 9 + ["ox"] * 2
    level = discovery.level(0)
    beginnings = (b"\x02\x00",)  # ca
    truth = true_beginnings(level, values, beginnings)
    assert list(truth.values()) == [6.0, 9.0]  # others of level 0 are cells of their own
    assert list(truth)[-1] == ANOTHER
    first = task({"ca…": 6.0, ANOTHER: 9.0}, row("ca…", 7.0), row(ANOTHER, 9.0))
    first["release"]["discovered"] = {"level": 0}
    last = task({"cat": 6.0, "zzz": 0.0, ANOTHER: 9.0}, row("cat", 6.5), row("zzz", 5.0))
    last["release"]["discovered"] = {"level": 2}
    found = words_of_run(discovery, values, [first, last], least=3, found_from=4)
    assert [(one["word"], one["truth"]) for one in found["words"]] == [("cat", 6.0), ("zzz", 0.0)]
    assert found["missed"] == [{"word": "cow", "truth": 4}]
    assert (found["false"], found["known"], found["distinct"]) == (1, 9, 3)
    assert (found["levels"], found["windows"]) == (3, 2)


def test_a_withheld_window_finds_no_words_and_was_answered() -> None:
    """Planted: what it found looked up -> KeyError, as such a release has no level."""
    discovery = Discovery(first=2, longest=4, most=8)
    gone = task({}, withheld="too few")
    found = words_of_run(discovery, ["cat"] * 6, [gone], least=3, found_from=4)
    assert (found["words"], found["windows"]) == ([], 1)


def spent(*figures: float | None) -> dict[str, float | None]:
    return dict(zip(("window", "day", "run", "year"), figures, strict=True))


def way(name: str, memoized: bool, apart: Any, together: Any, unchanged: Any) -> dict[str, Any]:
    honest = {"epsilon0": 1.5, "n": 500, "delta": 1e-6}
    honest |= {"apart": apart, "together": together, "unchanged": unchanged}
    return {
        "way": name,
        "run": True,
        "memoized": memoized,
        "mechanism": {"name": f"m-{name}"},
        "honest": honest,
        "ledgers": {"most": 3.25, "mean": 2.125},
        "error": {"unit": "devices", "predicted": 12.0, "observed": 13.0},
    }


def results() -> dict[str, Any]:
    rows = task({"a": 300.0, "no answer": 0.0}, row("a", 310.0), row("no answer", 1.0))
    claim = {"epsilon": 1.5, "unit": "a report", "claim": "Local.", "sources": []}
    kept = way(
        "claimed",
        True,
        spent(0.3, 3.0, 3.1, 9.0),
        spent(1.5, 3.0, 3.1, 9.0),
        spent(1.5, 1.5, 1.5, 1.5),
    )
    fresh = way("planned", False, spent(0.4, 0.5, 1.5, 77.0), spent(None, None, None, None), None)
    return {
        "window": "a day",
        "windows": 2,
        "fresh": False,
        "reports_per_day": 1,
        "made_up": "All of it.",
        "claimed": claim,
        "matched": {"epsilon": 1.5, "windows": 2, "what": "a test"},
        "ways": [kept, fresh],
        "trusted_server": None,
        "found": None,
        "tasks": [rows, rows],
        "composed": {"epsilon_upper": 4.5, "delta": 2e-6},
    }


def said(told: dict[str, Any]) -> str:
    screen = Console(file=io.StringIO(), width=120)
    screen.print(show._estimates(told))
    screen.print(show._figures(told))
    for line in show.notes(told):
        screen.print(line)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def cells(text: str, beginning: str) -> list[str]:
    found = next(line for line in text.splitlines() if beginning in line)
    return [part.strip() for part in found.strip("│").split("│")][1:]


def test_claimed_and_honest_stand_side_by_side() -> None:
    """Planted: the unchanged value's figure in the line of a run -> 1.5 for 3.1, fails; null as 0
    -> fails.
    """
    text = said(results())
    assert "claimed: 1.5. An upper bound, of" in text
    assert cells(text, "one window (a day) ") == ["0.3", "0.4"]
    assert cells(text, "the 2 windows of this run ") == ["3.1", "1.5"]
    assert cells(text, "a year ") == ["9", "77"]
    assert cells(text, "a year, if both collude") == ["9", "the value"]
    assert cells(text, "a year, of a value that never changes") == ["1.5", "77"]
    assert cells(text, "error, observed here") == ["13", "13"]
    assert cells(text, "│ a ") == ["300", "310 +- 2", "310 +- 2"]
    assert "most 3.25, and 2.125 on average" in text.replace("\n", " ")
    assert "epsilon <= 4.5" in text


def test_a_trusted_server_sees_everything() -> None:
    told = results()
    told["trusted_server"] = {"stderr": 1.0} | {
        f"epsilon_{name}": figure for name, figure in spent(2.64, 2.64, 5.28, 963.6).items()
    }
    text = said(told)
    assert cells(text, "a year ") == ["963.6", "9", "77"]
    assert cells(text, "a year, if both collude")[0] == "the value"
    assert "on devices: m-claimed" in text


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        (6, "answered 6 windows, one for each of 6 levels."),
        (8, "answered 8 windows, 6 were planned, one for each level: some were asked again."),
        (4, "answered 4 windows, of 6 levels: nothing was left to look for."),
    ],
)
def test_how_often_a_device_answered_is_said_with_what_it_cost(windows: int, words: str) -> None:
    """By the analyzer's book. Planted: the plan's levels in place of the windows -> 6, fails; the
    account of the plan in place of the book -> 1.5, fails.
    """
    told = results()
    told["found"] = {"windows": windows, "levels": 6}
    told["ways"][-1]["released"] = {"epsilon_run": 4.75, "delta_run": 1e-8}
    line = show._of_windows(told)
    assert words in line
    assert "epsilon <= 4.75 at delta = 1e-08" in line


def test_of_devices_that_answer_once_the_cost_is_of_one_window() -> None:
    """Planted: the analyzer's book, which adds up all windows, as what it cost a device -> 4.75,
    fails; counts of a window told as those of the fleet -> fails.
    """
    told = results()
    told |= {"fresh": True, "windows": 6}
    told["found"] = {"windows": 6, "levels": 6, "drawn": 8}
    told["ways"][-1]["released"] = {"epsilon_run": 4.75, "delta_run": 1e-8}
    line = show._of_windows(told)
    assert "epsilon <= 1.5 at delta = 1e-06" in line
    assert "4.75" not in line
    assert "of 8 windows 6 asked something" in line
    assert "times 8" in line
    text = said(told | {"found": None})
    assert cells(text, "the 6 windows of this run, of one of them ") == ["3.1", "1.5"]

"""What the demo says at its end, on one small screen: what was asked, the truth beside the
estimate, the promise as odds, and where the rest lies.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from shoal.accounting.meaning import bet, bound_text
from shoal.analyzer.results.processed import MEANS
from shoal.cli.demo.made import AUTHORITY

WIDTH = 80  # columns
_ROWS = 6  # of one question, at most: those that most devices are in
_NO_ANSWER = "no answer"
_OUTSIDE = "   outside"


@dataclass(frozen=True, slots=True)
class _Layout:
    """Widths in columns: of a label, of a figure, and of an interval with what is left of it."""

    label: int
    figure: int
    interval: int


_WIDE, _NARROW = _Layout(22, 12, 21), _Layout(11, 9, 18)


def brief(
    screen: Console, results: dict[str, Any], seconds: float, out: Path, keep: Path | None
) -> None:
    """At most 25 lines of at most 80 columns, unless a path or a label is longer; 60 columns where
    the screen has fewer than 80.
    """
    layout = _WIDE if screen.width >= WIDTH else _NARROW
    for line in _head(results, layout):
        _say(screen, line)
    for task in results["tasks"]:
        _say(screen, task["question"], style="bold")
        for line in _answers(task, results.get("chosen"), layout):
            _say(screen, line)
    for line in ["", *promise(results, min(screen.width, WIDTH)), ""]:
        _say(screen, line)
    reports = results["reports"]
    counts = f"{reports['acknowledged']:,} reports acknowledged, {reports['counted']:,} counted"
    for line in (f"{counts}, in {seconds:.0f} s.", *places(out, keep)):
        _say(screen, line)


def places(out: Path, keep: Path | None) -> list[str]:
    """Where the rest lies, and how to see it."""
    releases = out / "releases"
    check = f"Check:   shoal verify {releases} --authority {out / AUTHORITY}"
    return [
        f"Page:    {out / 'report.html'}   (--open: look around in all of it)",
        f"Figures: {out / 'results.json'}   (--full prints all of them)",
        *([check] if releases.is_dir() else []),
        *([f"Kept:    {keep}"] if keep is not None else []),
    ]


def promise(results: dict[str, Any], width: int = WIDTH) -> list[str]:
    """The odds that everything together allows, and what they stand on, in lines of ``width``."""
    composed = results["composed"]
    epsilon, delta, tasks = composed["epsilon_upper"], composed["delta"], composed["tasks"]
    honest = results["tasks"][0]["release"]["privacy"]["honest_fraction"]
    return textwrap.wrap(
        f"The promise: {_lower(bet(epsilon, delta, tasks))} (epsilon <= {bound_text(epsilon)}, "
        f"delta = {delta:.0e}), if shuffler and analyzer do not collude and {honest:.0%} of the "
        "reports are honest.",
        width,
    )


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _head(results: dict[str, Any], layout: _Layout) -> list[str]:
    title, label = f"{results['devices']:,} devices were asked:", layout.label + 3
    columns = (
        f"{'truth':>{layout.figure}}{'estimate':>{layout.figure}}"
        f"{'95 % interval':>{layout.interval}}"
    )
    if len(title) > label + layout.figure - len("truth "):
        return [title, " " * label + columns]
    return [f"{title:<{label}}{columns[max(0, len(title) - label) :]}"]


def _answers(task: dict[str, Any], chosen: str | None, layout: _Layout) -> list[str]:
    """What stands below a question. ``chosen``: the task whose mechanism was asked for."""
    withheld, made = task["release"].get("withheld"), task["mechanism"]
    lines = [f"   withheld: {withheld}"] if withheld else _rows(task, layout)
    if task["name"] == chosen:
        size = made["report_bytes"]
        unit = "byte" if size == 1 else "bytes"
        lines.append(
            f"   {task['name']} is randomized by {made['name']}: a report of {size} {unit}"
        )
    return lines


def _rows(task: dict[str, Any], layout: _Layout) -> list[str]:
    """The labels that most devices have, in the order of the question; of yes/no the yes alone."""
    release, truth = task["release"], task["truth"]
    estimates = [
        estimate
        for estimate in release["estimates"]
        if estimate["label"] != _NO_ANSWER or truth[_NO_ANSWER] > 0
    ]
    if [estimate["label"] for estimate in estimates] == ["no", "yes"]:
        estimates = estimates[1:]
    most = sorted(truth[estimate["label"]] for estimate in estimates)[-_ROWS:]
    shown = [estimate for estimate in estimates if truth[estimate["label"]] >= most[0]][:_ROWS]
    lines = [_row(estimate, truth[estimate["label"]], release, layout) for estimate in shown]
    left = len(estimates) - len(shown)
    if any(line.endswith(_OUTSIDE) for line in lines):
        lines.append("   (about 1 interval in 20 is expected to miss the truth)")
    return [*lines, *([f"   ... and {left} more"] if left else [])]


def _row(estimate: dict[str, Any], truth: float, release: dict[str, Any], layout: _Layout) -> str:
    """Counts are shown as shares of all; a mean is shown as it is."""
    figures = truth, estimate["value"], estimate["ci_low"], estimate["ci_high"]
    if estimate["label"] in MEANS and "processed" not in release:
        true, value, low, high = (f"{figure:.2f}" for figure in figures)
    else:
        true, value, low, high = (f"{figure / release['n']:.1%}" for figure in figures)
    outside = "" if figures[2] <= truth <= figures[3] else _OUTSIDE
    return (
        f"   {estimate['label']:<{layout.label}}{true:>{layout.figure}}{value:>{layout.figure}}"
        f"{f'{low} to {high}':>{layout.interval}}{outside}"
    )


def _say(screen: Console, line: str, style: str | None = None) -> None:
    screen.print(line, markup=False, soft_wrap=True, style=style)

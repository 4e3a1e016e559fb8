"""What a trial says: what is asked, before it begins; the truth beside the estimates and what they
promise, on one screen, at its end.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from shoal.analyzer.planner import Frequencies, Plan
from shoal.cli.demo.brief import WIDTH, promise
from shoal.cli.trial.asked import AskedColumn
from shoal.cli.trial.overruled import Sort
from shoal.domain import NO_ANSWER

_ROWS, _ROWS_ALONE = 5, 10  # of one question of several, and of one alone
_LABEL = 24  # columns
_MANY = 20_000  # devices: from here on a tenth of a percent is coarser than the noise
_OUTSIDE = "   outside"


def announce(screen: Console, asked: Sequence[AskedColumn], notes: Sequence[str]) -> None:
    """What was taken for what, while it can still be stopped."""
    for note in notes:
        _say(screen, f"The file: {note}")
    for one in asked:
        missing = len(one.values) - one.answered
        cells = f"; {missing:,} empty" if missing else ""
        source = f" (from the data; otherwise: {one.overrule})" if one.inferred else ""
        _say(screen, f"{one.column}: {one.says}{cells}{source}")


def predict(screen: Console, asked: Sequence[AskedColumn], plans: Sequence[Plan]) -> None:
    """How far off estimates are expected to be, before anybody is asked."""
    for one, plan in zip(asked, plans, strict=True):
        choice, question = plan.choice, plan.request.question
        if choice.errors is None:
            continue
        error = choice.errors.ranked
        shown = (
            f"{error / plan.request.n:.2%} of all devices in a count"
            if isinstance(question, Frequencies)
            else f"{error:,.3g} in a {'quantile' if one.sort is Sort.QUANTILES else 'mean'}"
        )
        _say(
            screen,
            f"{one.column}: randomized by {choice.candidate.title}; predicted standard error: "
            f"{shown}",
        )


def show(
    screen: Console,
    asked: Sequence[AskedColumn],
    results: dict[str, Any],
    seconds: float,
    left: Path | None,
    authority: str,
) -> None:
    """At most one screen of 24 lines for one column, of lines of at most 80 columns."""
    title = f"{results['devices']:,} devices were asked:"
    _say(screen, "")
    _say(screen, f"{title:<{_LABEL + 3}}{'truth':>12}{'estimate':>12}   {'95 % interval':>20}")
    most = _ROWS_ALONE if len(asked) == 1 else _ROWS
    outside = False
    for one, task in zip(asked, results["tasks"], strict=True):
        _say(screen, one.column, style="bold")
        lines = [f"   withheld: {task['release']['withheld']}"]
        if not task["release"]["withheld"]:
            lines = _rows(one, task, most)
        outside = outside or any(line.endswith(_OUTSIDE) for line in lines)
        for line in lines:
            _say(screen, line)
    if outside:
        _say(screen, "   (of such intervals about 1 in 20 is expected not to hold the truth)")
    for line in ("", *promise(results), "", *_caution(asked)):
        _say(screen, line)
    reports = results["reports"]
    counts = f"{reports['acknowledged']:,} reports acknowledged, {reports['counted']:,} counted"
    _say(screen, f"{counts}, in {seconds:.0f} s.")
    if left is None:
        _say(screen, "Keys, services and reports are gone; --out FOLDER keeps the results.")
    else:
        tasks = ", ".join(f"{task['name']}.toml" for task in results["tasks"])
        _say(screen, f"Kept in {left}: results.json, report.html, releases; to sign: {tasks}")
        _say(screen, f"Check: shoal verify {left / 'releases'} --authority {authority}")


def _caution(asked: Sequence[AskedColumn]) -> list[str]:
    """Why the truth can be shown, and what must not be taken over into a deployment."""
    sentences = "The truth is shown because these are your own data, on your own machine."
    if any(one.inferred for one in asked):
        sentences += (
            " What is asked was looked up in them, and would reveal them: before real devices are "
            "asked, fix it by what is known without the data."
        )
    return textwrap.wrap(sentences, WIDTH)


def _rows(one: AskedColumn, task: dict[str, Any], most: int) -> list[str]:
    release, truth = task["release"], task["truth"]
    if one.is_number:
        return list(_figures(one, release, truth))
    estimates = [
        estimate
        for estimate in release["estimates"]
        if estimate["label"] != NO_ANSWER or truth[NO_ANSWER] > 0
    ]
    if [estimate["label"] for estimate in estimates] == ["no", "yes"]:
        estimates = estimates[1:]
    digits = 1 if release["n"] < _MANY else 2
    # those that most devices are in, in the order of the question
    kept = sorted(estimates, key=lambda estimate: -truth[estimate["label"]])[:most]
    lines = [
        _row(
            estimate["label"],
            [truth[estimate["label"]], *(estimate[key] for key in ("value", "ci_low", "ci_high"))],
            lambda count: f"{count / release['n']:.{digits}%}",
        )
        for estimate in estimates
        if estimate in kept
    ]
    more = len(estimates) - len(lines)
    return [*lines, *([f"   ... and {more} more: --json shows all"] if more else [])]


def _figures(one: AskedColumn, release: dict[str, Any], truth: dict[str, float]) -> Iterator[str]:
    """The mean, or the quantiles, of a number; and how many did not answer."""
    question = one.question
    width = 1.0 if isinstance(question, Frequencies) else question.high - question.low
    digits = max(0, 3 - math.floor(math.log10(width)))

    def shown(value: float | None) -> str:
        return "more" if value is None else f"{value:,.{digits}f}"

    if one.sort is Sort.QUANTILES and release.get("quantiles"):
        for row in release["quantiles"]:
            figures = [truth[f"quantile {row['share']:g}"]]
            figures += [row[key] for key in ("value", "ci_low", "ci_high")]
            share = f"{row['share']:.0%} have at most"
            yield _row("median" if row["share"] == 0.5 else share, figures, shown)
    else:
        for estimate in release["estimates"]:
            if estimate["label"] in truth and estimate["label"] != NO_ANSWER:
                figures = [truth[estimate["label"]]]
                figures += [estimate[key] for key in ("value", "ci_low", "ci_high")]
                label = estimate["label"] if truth[NO_ANSWER] > 0 else "mean"
                yield _row(label, figures, shown)
        if one.beyond and one.unclipped is not None:
            yield f"   (of all rows, without the ends of the range: {shown(one.unclipped)})"
    for estimate in release["estimates"]:
        if estimate["label"] == NO_ANSWER and truth[NO_ANSWER] > 0:
            figures = [truth[NO_ANSWER]]
            figures += [estimate[key] for key in ("value", "ci_low", "ci_high")]
            yield _row(NO_ANSWER, figures, lambda count: f"{(count or 0) / release['n']:.1%}")


def _row(label: str, figures: Sequence[float | None], shown: Any) -> str:
    truth, value, low, high = figures
    inside = (
        truth is not None and low is not None and low <= truth and (high is None or truth <= high)
    )
    name = label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"
    interval = f"{shown(low)} to {shown(high)}"
    return (
        f"   {name:<{_LABEL}}{shown(truth):>12}{shown(value):>12}   {interval:>20}"
        f"{'' if inside else _OUTSIDE}"
    )


def _say(screen: Console, line: str, style: str | None = None) -> None:
    screen.print(line, markup=False, soft_wrap=True, style=style)

"""``shoal plan --plot``: the predicted error against epsilon, after shuffling and without it, as an
SVG picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from shoal.analyzer.planner import Plan
from shoal.analyzer.planner.curve import Point, curve, curve_of_several
from shoal.analyzer.planner.frontier.option import SeveralOption
from shoal.cli.figures import figure
from shoal.cli.pictures.chart import Mark, Series, draw
from shoal.cli.pictures.writing import bar_of_points, write_plot


def plot(path: Path, chosen_plan: Plan, several: SeveralOption | None = None) -> None:
    """Compute the curve (a bar on stderr shows how far), draw it and write it, atomically; replaces
    the file. ``several``: what is recommended of several messages, drawn too. Raises CONFIG.
    """
    with bar_of_points("error against epsilon") as progress:
        bar = progress.add_task("", total=13)
        points = curve(chosen_plan, lambda: progress.advance(bar))
    write_plot(path, picture(chosen_plan, points, several))


def picture(
    chosen_plan: Plan, points: tuple[Point, ...], several: SeveralOption | None = None
) -> str:
    """The SVG text."""
    request, choice = chosen_plan.request, chosen_plan.choice
    series = [
        Series(
            f"{choice.candidate.title}, shuffled: epsilon is central",
            "upper",
            _line((p.epsilon, p.shuffled) for p in points),
        ),
        Series(
            "best without shuffling: epsilon is local",
            "ceiling",
            _line((p.epsilon, p.local) for p in points),
        ),
    ]
    if several is not None:
        line = _line(curve_of_several(chosen_plan, several, points))
        series.insert(1, Series(f"{several.title}, several messages, shuffled", "lower", line))
    error = 0.0 if choice.errors is None else choice.errors.ranked
    at = chosen_plan.guarantee.epsilon_upper if request.epsilon is None else request.epsilon
    if several is not None:
        error, at = several.error, several.epsilon
    mark = Mark(f"planned: {figure(error)} at epsilon {at:g}", at, error) if error > 0.0 else None
    what = request.question.what
    unit = request.question.unit or "the value's unit"
    subtitle = (
        f"{request.n:,} devices, {chosen_plan.guarantee.n_honest:,} certified reports, delta = "
        f"{request.delta:g}, replace-one"
    )
    return draw(
        f"Predicted error: {what}", subtitle, "epsilon", f"standard error, {unit}", series, mark
    )


def _line(points: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    return tuple((x, y) for x, y in points if math.isfinite(y) and y > 0.0)

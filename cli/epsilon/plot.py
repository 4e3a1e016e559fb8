"""``shoal epsilon --plot``: the certified epsilon against the number of reports, as an SVG
picture.
"""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction
from pathlib import Path

from shoal.accounting.certificate import Certificate
from shoal.accounting.meaning import bound_text
from shoal.cli.epsilon.several import Mixture
from shoal.cli.epsilon.subjects import Bound, Dummies, Subject
from shoal.cli.pictures.chart import Mark, Series, draw
from shoal.cli.pictures.writing import bar_of_points, write_plot
from shoal.errors import Kind, ShoalError

_PER_DECADE, _FINE_BELOW = 8, 10_000  # where the curve bends; every other point beyond
_FIRST, _LAST = 1, 7  # powers of ten
_LARGEST_N = 10**15
# of what is drawn: below this share of the largest value a lower bound leaves the picture
_SMALLEST = 1e-12


def numbers_of_reports(n: int) -> list[int]:
    """Eight per decade from 10 to 10^4 and four from there to 10^7, further where n lies outside, n
    among them.
    """
    first = min(_FIRST, math.floor(math.log10(n)))
    last = max(_LAST, math.ceil(math.log10(n)))
    steps = range(first * _PER_DECADE, last * _PER_DECADE + 1)
    grid = (
        round(10.0 ** (step / _PER_DECADE))
        for step in steps
        if step % 2 == 0 or 10.0 ** (step / _PER_DECADE) < _FINE_BELOW
    )
    return sorted({n, *grid})


def plot(
    path: Path, subject: Subject, epsilon0: float | None, bound: Bound, share: Fraction
) -> None:
    """Compute the curve (a bar on stderr shows how far), draw it and write it, atomically.
    ``bound``: the certificate asked for.
    """
    if bound.n > _LARGEST_N:
        raise ShoalError(
            Kind.CONFIG,
            f"--plot draws up to n = {_LARGEST_N:.0e}, got {bound.n}: leave it out, or give a "
            "smaller n",
        )
    counts = numbers_of_reports(bound.n)
    bounds: list[Bound] = []
    with bar_of_points("epsilon against n") as progress:
        bar = progress.add_task("points", total=len(counts))
        for n in counts:
            if n == bound.n:
                bounds.append(bound)
            else:
                with (
                    contextlib.suppress(ShoalError)
                    if isinstance(subject, Dummies | Mixture)
                    else contextlib.nullcontext()
                ):
                    bounds.append(subject.certify(epsilon0, n, bound.delta, share))
            progress.update(bar, advance=1)
    write_plot(path, picture(subject.title, bound, bounds))


def picture(title: str, bound: Bound, bounds: list[Bound]) -> str:
    """The SVG text. ``bounds``: one bound for each n, in its order."""
    floor = _SMALLEST * max(each.epsilon_upper for each in bounds)
    upper = tuple(
        (float(each.n), each.epsilon_upper) for each in bounds if each.epsilon_upper > floor
    )
    lower = tuple(
        (float(each.n), each.epsilon_lower) for each in bounds if each.epsilon_lower > floor
    )
    series = []
    if math.isfinite(bound.epsilon0):
        ends = ((float(bounds[0].n), bound.epsilon0), (float(bounds[-1].n), bound.epsilon0))
        series.append(
            Series(f"epsilon0 = {bound_text(bound.epsilon0)}: without shuffling", "ceiling", ends)
        )
    series += [
        Series("proven: epsilon is at most this", "upper", upper),
        Series("no accounting can go below this", "lower", lower),
    ]
    mark = None
    if bound.epsilon_upper > floor:
        mark = Mark(
            f"n = {bound.n:,}: {bound_text(bound.epsilon_upper)}",
            float(bound.n),
            bound.epsilon_upper,
        )
    honest = (
        "" if bound.honest_fraction == 1 else f", honest fraction {float(bound.honest_fraction):g}"
    )
    what = "shuffled reports n" if isinstance(bound, Certificate) else "devices n"
    return draw(
        title,
        f"delta = {bound.delta:g}{honest}, replace-one",
        what,
        "central epsilon",
        series,
        mark,
    )

"""Write the tables and the picture of docs/ACCURACY.md: predicted errors at one central guarantee,
of everything that is registered, beside the central model.

    PYTHONPATH=. .venv/bin/python tools/accuracy.py

Each single message is planned by ``analyzer.planner`` at its own largest epsilon0, several messages
by the design that a task file gets. tests/unit/packaging/test_accuracy.py says when a table is out
of date.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.analyzer.planner import Frequencies, Mean, Plan, Request, plan
from shoal.analyzer.planner.frontier.option import SeveralOption
from shoal.analyzer.planner.frontier.several import several_options
from shoal.cli.figures import figure
from shoal.cli.pictures.chart import Series, draw
from shoal.domain import Categories, YesNo
from tests.worlds.modules import ROOT

PAGE, PICTURE = ROOT / "docs" / "ACCURACY.md", ROOT / "docs" / "accuracy.svg"
EPSILON, DELTA = 1.0, 1e-6
DEVICES = (1_000, 10_000, 100_000, 1_000_000)
LISTED = 100_000  # devices of the table of everything
BEGIN, END = "<!-- tools/accuracy.py writes from here -->", "<!-- to here -->"


def _cells(count: int) -> Frequencies:
    return Frequencies(Categories(tuple(f"c{i}" for i in range(count - 1))))


QUESTIONS: dict[str, Frequencies | Mean] = {
    "yes/no": Frequencies(YesNo()),
    "16 cells": _cells(16),
    "1,024 cells": _cells(1_024),
    "mean of [0, 1]": Mean(0.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One question with so many devices, all of them honest. ``central``: the standard error of a
    trusted curator with discrete Laplace noise.
    """

    question: str
    n: int
    single: Plan
    several: tuple[SeveralOption, ...]
    central: float

    @property
    def best(self) -> float:
        """The least error of a single message."""
        return 0.0 if self.single.choice.errors is None else self.single.choice.errors.ranked

    @property
    def line(self) -> str:
        """A row of the first table."""
        near = self.several[0] if self.several else None
        told = "-" if near is None else f"{figure(near.error)} ({near.spec.name})"
        messages = "-" if near is None else f"{near.mean_messages:.2f}, {near.messages}"
        errors, title = self.single.choice.errors, self.single.choice.candidate.title
        worst = "-" if errors is None else figure(errors.heavy)
        return (
            f"| {self.question} | {self.n:,} | {figure(self.central)} | {told} | {messages} | "
            f"{figure(self.best)} ({title}) | {worst} |"
        )


def row(question: str, n: int) -> Row:
    """Planned at (1, 1e-6)."""
    asked = QUESTIONS[question]
    request = Request(asked, n, DELTA, epsilon=EPSILON)
    several = several_options(request)[0]
    return Row(question, n, plan(request), several, central(question, n))


def central(question: str, n: int) -> float:
    """Of discrete Laplace noise e^(-|x| epsilon / shift), with standard deviation sqrt(2 a) / (1 -
    a): replacing one device moves a histogram by 2 in all, a count by 1, and a mean by 1 / n, on
    the reals.
    """
    asked = QUESTIONS[question]
    if isinstance(asked, Mean):
        return math.sqrt(2.0) / (n * EPSILON)
    a = math.exp(-EPSILON / (1 if question == "yes/no" else 2))
    return math.sqrt(2.0 * a) / (1.0 - a)


def every(rows: list[Row]) -> list[str]:
    """The second table: all mechanisms for the same questions, each in its best setting; of losers
    the planner knows a lower end alone.
    """
    errors: dict[str, dict[str, tuple[float, bool]]] = {}
    for one in rows:
        for option in one.single.options:
            if option.errors is not None:
                mine = errors.setdefault(option.candidate.mechanism, {})
                this = option.errors.ranked, option.settled
                mine[one.question] = min(mine.get(one.question, this), this)
        for several in one.several:
            errors.setdefault(several.spec.name, {})[one.question] = several.error, True
    lines = [f"| mechanism | {' | '.join(QUESTIONS)} |", "|---" * (1 + len(QUESTIONS)) + "|"]
    for name, mine in sorted(errors.items()):
        told = " | ".join(_cell(*mine[each]) if each in mine else "-" for each in QUESTIONS)
        lines.append(f"| `{name}` | {told} |")
    return lines


def _cell(error: float, settled: bool) -> str:
    return figure(error) if settled else f">= {figure(error)}"


def tables(rows: list[Row]) -> str:
    """What stands between the marks."""
    head = (
        "| question | devices | central | several messages | messages: mean, most | one message | "
        "the same at worst |"
    )
    return "\n".join(
        [
            head,
            "|---" * 7 + "|",
            *(one.line for one in rows),
            "",
            f"What the planner looks at, {LISTED:,} devices, each in its best setting:",
            "",
            *every([one for one in rows if one.n == LISTED]),
        ]
    )


def picture(rows: list[Row]) -> str:
    """Of 16 cells."""
    mine = [one for one in rows if one.question == "16 cells"]
    series = (
        Series("several messages", "upper", tuple((o.n, o.several[0].error) for o in mine)),
        Series("one message", "lower", tuple((o.n, o.best) for o in mine)),
        Series("central model", "ceiling", tuple((o.n, o.central) for o in mine)),
    )
    return draw(
        "Error of a count, 16 cells",
        f"central epsilon {EPSILON:g}, delta = {DELTA:g}, replace-one, all devices honest",
        "devices",
        "standard error, devices",
        series,
    )


def page(rows: list[Row]) -> str:
    """The page, with other tables."""
    text = PAGE.read_text()
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    return f"{head}{BEGIN}\n\n{tables(rows)}\n\n{END}{tail}"


def all_rows() -> list[Row]:
    """Every question with every number of devices: about half a minute of CPU."""
    return [row(question, n) for question in QUESTIONS for n in DEVICES]


def main() -> None:
    """Write both."""
    rows = all_rows()
    PAGE.write_text(page(rows))
    PICTURE.write_text(picture(rows))


if __name__ == "__main__":
    main()

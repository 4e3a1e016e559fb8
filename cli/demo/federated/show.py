"""What ``shoal demo --federated`` says: a line for each round as it ends, then the model beside a
curator's and beside one without privacy.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from rich.console import Console

from shoal.accounting.meaning import bound_text
from shoal.cli.demo.brief import WIDTH, places
from shoal.cli.demo.federated.outcome import Course

_HEAD = (
    f"{'round':>5}{'devices':>9}{'clip':>8}{'epsilon':>10}{'so far':>10}{'right':>9}{'curator':>10}"
)


def head(screen: Console) -> None:
    """Above the rows."""
    _say(screen, "")
    _say(screen, _HEAD, style="bold")


def row(screen: Console, course: Course) -> None:
    """The round that has just ended."""
    at = len(course.rounds) - 1
    one = course.rounds[at]
    central = course.beside.central.by_round[at]
    if one.release["withheld"]:
        _say(screen, f"{at + 1:>5}   withheld: {one.release['withheld']}; charged all the same")
        return
    _say(
        screen,
        f"{at + 1:>5}{one.release['n']:>9}{one.clip:>8.3g}{bound_text(one.epsilon):>10}"
        f"{bound_text(one.so_far):>10}{one.accuracy:>9.1%}{central:>10.1%}",
    )


def ending(
    screen: Console, results: dict[str, Any], seconds: float, out: Path, keep: Path | None
) -> None:
    """What the columns are, the model beside the others, and the promise."""
    told, composed = results["accuracy"], results["composed"]
    added = sum(one["epsilon"] for one in results["rounds"])
    lines = [
        "epsilon: of this round by itself; so far: of all rounds until now, together.",
        "right: of the held-out patients after the round; curator: the same, mean of "
        f"{told['central_runs']} runs with a curator's noise.",
        "",
        f"Right of {results['held_out']} held-out patients:",
        f"   {told['federated']:>6.1%}   learnt here, from {results['devices']} devices that "
        "showed nobody their row",
        f"   {told['central']:>6.1%}   by a curator who sees every row, at the same epsilon "
        f"(95 % of runs: {told['central_low']:.1%} to {told['central_high']:.1%})",
        *_logistic(told),
        f"   {told['open']:>6.1%}   without privacy",
        "",
        f"The promise: all {composed['windows']} rounds together have epsilon <= "
        f"{bound_text(composed['epsilon_upper'])} at delta = {composed['delta']:g}, for a device "
        f"that answers in each. Adding the rounds' epsilons up would say {added:.1f}.",
        "",
        f"{seconds:.0f} s.",
    ]
    for line in lines:
        for part in textwrap.wrap(line, WIDTH, subsequent_indent="   ") or [""]:
            _say(screen, part)
    for line in places(out, keep):
        _say(screen, line)


def _logistic(told: dict[str, Any]) -> list[str]:
    """Beside another model."""
    if "central_logistic" not in told:
        return []
    return [f"   {told['central_logistic']:>6.1%}   logistic regression by such a curator"]


def _say(screen: Console, line: str, style: str | None = None) -> None:
    screen.print(line, markup=False, soft_wrap=True, style=style, highlight=False)

"""As ``brief``, of ``shoal demo --secagg``: exact sums, and what their noise promises."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from rich.console import Console

from shoal.accounting.meaning import sum_sentences
from shoal.cli.demo.brief import WIDTH, places

_LABEL = 26  # columns


def brief_sums(
    screen: Console, results: dict[str, Any], seconds: float, out: Path, keep: Path | None
) -> None:
    """At most 25 lines of at most 80 columns, unless a path or a label is longer."""
    (task,) = results["tasks"]
    withheld = task["release"]["withheld"]
    shown = [f"withheld: {withheld}"] if withheld else _sums(task)
    for line in (*_who(results), "", *shown, "", f"{seconds:.0f} s.", *places(out, keep)):
        screen.print(line, markup=False, soft_wrap=True)


def _who(results: dict[str, Any]) -> list[str]:
    """How many devices took part, died or came too late."""
    killed = sum(
        count for outcome, count in results["outcomes"].items() if outcome.startswith("killed")
    )
    rounds = len(results["rounds"])
    return textwrap.wrap(
        f"{results['devices']} devices, of which {killed} were killed on the way. Sums of rounds: "
        f"{rounds}, each exactly that of its devices.",
        WIDTH,
    )


def _sums(task: dict[str, Any]) -> list[str]:
    """Totals beside the truth, and the odds."""
    release = task["release"]
    privacy, rounds = release["privacy"], release["rounds"]
    title = f"Totals of {release['n']} devices:"
    lines = [f"{title:<{_LABEL + 3}}{'truth':>10}{'released':>10}   {'95 % interval':>18}"]
    for estimate in release["estimates"]:
        truth = task["truth"][estimate["label"]]
        outside = "" if estimate["ci_low"] <= truth <= estimate["ci_high"] else "   outside"
        interval = f"{estimate['ci_low']:,.1f} to {estimate['ci_high']:,.1f}"
        lines.append(
            f"   {estimate['label']:<{_LABEL}}{truth:>10,.1f}{estimate['value']:>10,.1f}   "
            f"{interval:>18}{outside}"
        )
    odds = sum_sentences(
        privacy["epsilon_upper"],
        privacy["delta"],
        privacy["n_certified"],
        rounds["epsilon_together"],
        rounds["mode"],
    )[0]
    return [*lines, "", *textwrap.wrap(f"The promise: {odds}", WIDTH)]

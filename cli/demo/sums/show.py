"""What ``shoal demo --secagg`` says at its end: the rounds and their exact sums, the release beside
the truth, what it promises.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from shoal.accounting.meaning import bound_text, sum_sentences
from shoal.cli.output import say_table


def everything(console: Console, results: dict[str, Any]) -> None:
    """Tables, then sentences that are true for the figures shown."""
    release = results["tasks"][0]["release"]
    lost = ", ".join(f"{count} {outcome}" for outcome, count in sorted(results["outcomes"].items()))
    console.print(f"{results['devices']} devices: {lost}.")
    say_table(_rounds(results["rounds"], release), console)
    if release["withheld"]:
        console.print(f"withheld: {release['withheld']}")
        return
    say_table(_totals(results["tasks"][0]), console)
    privacy, rounds = release["privacy"], release["rounds"]
    for sentence in sum_sentences(
        privacy["epsilon_upper"],
        privacy["delta"],
        privacy["n_certified"],
        rounds["epsilon_together"],
        rounds["mode"],
    ):
        console.print(sentence + "\n")
    console.print(
        f"The noise of {rounds['rounds']} rounds gives each total a standard error of "
        f"{rounds['noise_stderr']:.3g}; one round of all these "
        f"devices would have {rounds['one_round_noise_stderr']:.3g}. Rounding to the grid adds at "
        f"most {rounds['rounding_stderr']:.2g}.\n"
    )


def _rounds(rounds: list[dict[str, Any]], release: dict[str, Any]) -> Table:
    table = Table(
        title="Rounds: what the analyzer learned, against what was masked",
        title_justify="left",
        title_style="bold",
    )
    for name, justify in (
        ("round", "left"),
        ("shared", "right"),
        ("in the sum", "right"),
        ("integer sum", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # rich's literal type
    for finished in rounds:
        table.add_row(
            finished["round"][:8],
            str(finished["shared"]),
            str(finished["survivors"]),
            "exact" if finished["exact"] else "WRONG",
        )
    for reason, count in release["rounds"]["aborted"].items():
        table.add_row(f"{count} aborted", "", "", reason)
    return table


def _totals(task: dict[str, Any]) -> Table:
    release = task["release"]
    privacy = release["privacy"]
    table = Table(
        title=f"{task['name']}: totals over the {release['n']} devices in the sums",
        caption=f"epsilon <= {bound_text(privacy['epsilon_upper'])} (>= "
        f"{bound_text(privacy['epsilon_lower'], up=False)}) at delta = "
        f"{privacy['delta']:g}, {privacy['method']}",
        title_justify="left",
        caption_justify="left",
        title_style="bold",
    )
    for name, justify in (
        ("", "left"),
        ("truth", "right"),
        ("released", "right"),
        ("95 % interval", "right"),
        ("", "center"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # rich's literal type
    for estimate in release["estimates"]:
        truth = task["truth"][estimate["label"]]
        inside = estimate["ci_low"] <= truth <= estimate["ci_high"]
        table.add_row(
            estimate["label"],
            f"{truth:,.2f}",
            f"{estimate['value']:,.2f}",
            f"{estimate['ci_low']:,.1f} to {estimate['ci_high']:,.1f}",
            "truth inside" if inside else "truth outside",
        )
    return table

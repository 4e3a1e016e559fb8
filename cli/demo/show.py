"""What the demo says at its end: a table per task, the composed epsilon, and what it means in plain
words.
"""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.table import Table

from shoal.accounting.meaning import best_guess, bet, bound_text, percent_text
from shoal.analyzer.results.processed import MEANS, beside, readable_note
from shoal.cli.output import say_table
from shoal.mechanisms.categories.binary_rr import two_coin


def tables(console: Console, results: dict[str, Any]) -> None:
    """One table of estimates against the truth per task, then one of guarantees."""
    for task in results["tasks"]:
        release = task["release"]
        if release.get("withheld"):
            console.print(f"[bold]{task['name']}[/]: withheld: {release['withheld']}")
            continue
        say_table(_estimates(task), console)
    say_table(_guarantees(results), console)


def _estimates(task: dict[str, Any]) -> Table:
    release, n = task["release"], task["release"]["n"]
    processed = release.get("processed")
    table = Table(
        title=f"{task['name']}: {task['question']}",
        title_justify="left",
        title_style="bold",
        caption_justify="left",
    )
    whole = () if processed is None else (("processed", "right"),)
    for name, justify in (
        ("", "left"),
        ("truth", "right"),
        ("estimate", "right"),
        ("95 % interval", "right"),
        ("truth is", "left"),
        *whole,
    ):
        table.add_column(name, justify=justify)
    table.caption = _caption(release)
    for at, estimate in enumerate(release["estimates"]):
        label, truth = estimate["label"], task["truth"][estimate["label"]]
        inside = estimate["ci_low"] <= truth <= estimate["ci_high"]
        if processed is None and label in MEANS:
            cells = [
                f"{truth:.4f}",
                f"{estimate['value']:.4f}",
                f"{estimate['ci_low']:.4f} to {estimate['ci_high']:.4f}",
            ]
        else:
            cells = [
                f"{truth:,.0f} = {truth / n:.3%}",
                f"{estimate['value']:,.0f} = {estimate['value'] / n:.2%}",
                f"{estimate['ci_low']:,.0f} to {estimate['ci_high']:,.0f}",
            ]
        count = [] if processed is None else [f"{processed['counts'][at]:,}"]
        table.add_row(label, *cells, "inside" if inside else "outside", *count)
    return table


def _caption(release: dict[str, Any]) -> str | None:
    """What is not raw in the table, or beside it, and what its intervals mean."""
    sentences = beside(release)
    if "processed" in release:
        made = release["processed"]
        sentences.append(f"processed ({made['method']}): {readable_note(made)}")
    if "quantiles" in release:
        sentences.append(f"quantiles: {', '.join(map(_quantile, release['quantiles']))}")
    elif "distribution" in release:
        made = release["distribution"]
        quantiles = ", ".join(
            f"{float(share):.0%} <= {value:.2f}" for share, value in made["quantiles"].items()
        )
        sentences.append(f"distribution ({made['method']}): {quantiles}; {readable_note(made)}")
    return "\n".join(sentences) or None


def _quantile(row: dict[str, Any]) -> str:
    high = "no end" if row["ci_high"] is None else f"{row['ci_high']:.2f}"
    return f"{row['share']:.0%} <= {row['value']:.2f} ({row['ci_low']:.2f} to {high})"


def _guarantees(results: dict[str, Any]) -> Table:
    table = Table(
        title="What each release promises every device",
        caption=(
            "epsilon0: one report alone. epsilon: what is proven after shuffling (<=), and what no "
            "accounting can go below (>=)."
        ),
        title_justify="left",
        caption_justify="left",
        title_style="bold",
    )
    for name in ("task", "n", "epsilon0", "epsilon <=", "epsilon >=", "delta", "method"):
        table.add_column(
            name, justify="left" if name in {"task", "method"} else "right", no_wrap=True
        )
    for task in results["tasks"]:
        release, privacy = task["release"], task["release"]["privacy"]
        table.add_row(
            task["name"],
            f"{release['n']:,}",
            bound_text(privacy["epsilon0"]),
            bound_text(privacy["epsilon_upper"]),
            bound_text(privacy["epsilon_lower"], up=False),
            f"{privacy['delta']:.0e}",
            privacy["method"],
        )
    composed = results["composed"]
    table.add_row(
        f"all {composed['tasks']} together",
        "",
        "",
        bound_text(composed["epsilon_upper"]),
        "",
        f"{composed['delta']:.0e}",
        "joint",
    )
    return table


def meaning(results: dict[str, Any]) -> list[str]:
    """Plain sentences, each true for the figures shown."""
    composed = results["composed"]
    privacy = results["tasks"][0]["release"]["privacy"]
    coin = best_guess(math.log(3.0), 0.0)
    first = results["tasks"][0]["mechanism"]
    two_coins = [
        "The first question is randomized response in its two-coin form (heads: the truth; tails: "
        "a second coin answers): "
        f"epsilon0 = ln 3 = {math.log(3.0):.4f}. One report alone would let them be right up to "
        f"{percent_text(coin)} of the time."
    ]
    return [
        bet(composed["epsilon_upper"], composed["delta"], composed["tasks"])
        + ": at most (e^eps + delta) / (1 + e^eps).",
        *(two_coins if first["parameters"] == dict(two_coin().parameters) else []),
        *_chosen(results),
        f"The certificates hold if at least {privacy['honest_fraction']:.0%} of the reports in "
        "every batch are honest and the shuffler "
        "and the analyzer do not collude. If they do, epsilon0 is what remains. That a device "
        "takes part is never hidden.",
    ]


def _chosen(results: dict[str, Any]) -> list[str]:
    """Which randomizer was asked for, where one was."""
    if "chosen" not in results:
        return []
    task = next(task for task in results["tasks"] if task["name"] == results["chosen"])
    mechanism = task["mechanism"]
    integers = ", ".join(f"{name} = {value}" for name, value in mechanism["parameters"].items())
    unit = "byte" if mechanism["report_bytes"] == 1 else "bytes"
    return [
        f"{task['name']} is randomized by {mechanism['name']} ({integers}): a report of "
        f"{mechanism['report_bytes']} {unit}."
    ]

"""What ``shoal demo --recipe`` says at its end: the last window's estimates beside the truth, then
what is claimed beside what is true of each way to ask.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from shoal.accounting.meaning import bound_text
from shoal.cli.demo.brief import WIDTH, places
from shoal.cli.demo.show import tables
from shoal.cli.figures import figure
from shoal.cli.output import say_table

_WORDS = 12
_ROWS = 6  # labels of the last window, those that most devices have
_NO_ANSWER = "no answer"
_NOTHING = "the value"  # what is seen where no epsilon holds
_NONE = "none proven"


def ending(
    screen: Console,
    results: dict[str, Any],
    seconds: float,
    out: Path,
    keep: Path | None,
    *,
    full: bool = False,
) -> None:
    """Estimates, figures, what they mean, and where the rest lies. ``full``: before them every
    window's estimates.
    """
    if full:
        tables(screen, results)
    say_table(_estimates(results) if results["found"] is None else _words(results), screen)
    say_table(_figures(results), screen)
    for line in ["", *notes(results), "", f"{seconds:.0f} s."]:
        for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ") or [""]:
            screen.print(part, markup=False, soft_wrap=True, highlight=False)
    for line in places(out, keep):
        screen.print(line, markup=False, soft_wrap=True, highlight=False)


def _estimates(results: dict[str, Any]) -> Table:
    """Of the last window."""
    last = results["tasks"][-len(results["ways"]) :]
    table = Table()
    table.add_column(f"window {results['windows']} of {results['windows']}")
    table.add_column("truth", justify="right")
    for way in results["ways"]:
        table.add_column(_heading(way, results), justify="right")
    told = [_by_label(task["release"]) for task in last]
    truth = last[0]["truth"]
    if results["ways"][0]["error"]["unit"] != "devices":  # a mean, which each way names as it is
        truth = {"mean": truth[next(iter(told[0]))]}
        told = [{"mean": next(iter(each.values()))} for each in told]
    labels = list(told[0])
    if len(labels) > _ROWS:
        labels = sorted(labels, key=lambda label: -truth[label])[:_ROWS]
    for label in labels:
        cells = [f"{_number(each[label][0])} +- {figure(each[label][1])}" for each in told]
        table.add_row(label, _number(truth[label]), *cells)
    return table


def _words(results: dict[str, Any]) -> Table:
    """Those that were found, of most devices first."""
    table = Table()
    table.add_column("word found")
    table.add_column("truth", justify="right")
    table.add_column("planned", justify="right")
    found = results["found"]["words"]
    for one in found[:_WORDS]:
        estimate = f"{_number(one['estimate'])} +- {figure(one['stderr'])}"
        table.add_row(one["word"], _number(one["truth"]), estimate)
    if len(found) > _WORDS:
        table.add_row(f"... and {len(found) - _WORDS} more", "", "")
    return table


def _by_label(release: dict[str, Any]) -> dict[str, tuple[float, float]]:
    return {
        one["label"]: (one["value"], one["stderr"])
        for one in release["estimates"]
        if one["label"] != _NO_ANSWER
    }


def _heading(way: dict[str, Any], results: dict[str, Any]) -> str:
    """A server's claim is no randomizer's: of it devices' own reports are a way to keep it."""
    name = way["way"]
    if not way["run"]:
        name = f"{name}, not run"
    elif name == "claimed" and results["trusted_server"] is not None:
        name = "on devices"
    return f"{name}: {way['mechanism']['name']}"


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _figures(results: dict[str, Any]) -> Table:
    """Claimed and honest side by side: a column for each way."""
    ways, server, claimed = results["ways"], results["trusted_server"], results["claimed"]
    table = Table()
    table.add_column(f"claimed: {claimed['epsilon']:g}. An upper bound, of")
    if server is not None:
        table.add_column("trusted server", justify="right")
    for way in ways:
        table.add_column(_heading(way, results), justify="right")
    for label, cells in _rows(results):
        table.add_row(label, *cells)
    unit = ways[0]["error"]["unit"]
    for label, key in (("predicted", "predicted"), ("observed here", "observed")):
        cells = [_error(way["error"][key]) for way in ways]
        beside = [] if server is None else [_error(server["stderr"]) if key == "predicted" else "-"]
        table.add_row(f"error, {label}, {unit}", *beside, *cells)
    return table


def _rows(results: dict[str, Any]) -> list[tuple[str, list[str]]]:
    ways, server = results["ways"], results["trusted_server"]
    spans = [
        ("window", f"one window ({results['window']})"),
        ("day", f"a day ({results['reports_per_day']} x)"),
        ("run", _of_run(results)),
        ("year", "a year"),
    ]
    rows = list[tuple[str, list[str]]]()
    for key, what in spans:
        beside = [] if server is None else [_bound(server[f"epsilon_{key}"])]
        rows.append((what, [*beside, *(_bound(way["honest"]["apart"][key]) for way in ways)]))
    for key, what in (spans[0], spans[2], spans[3]):
        beside = [] if server is None else [_NOTHING]
        cells = [_bound(way["honest"]["together"][key], _NOTHING) for way in ways]
        rows.append((f"{what}, if both collude", [*beside, *cells]))
    if any(way["memoized"] for way in ways):
        for key, what in (spans[2], spans[3]):
            cells = [_still(way, key) for way in ways]
            rows.append((f"{what}, of a value that never changes", cells))
    return rows


def _of_run(results: dict[str, Any]) -> str:
    of = f"the {results['windows']} windows of this run"
    return f"{of}, of one of them" if results["fresh"] else of


def _still(way: dict[str, Any], key: str) -> str:
    kept = way["honest"]["unchanged"]
    return _bound((kept or way["honest"]["apart"])[key])


def _bound(epsilon: float | None, nothing: str = _NONE) -> str:
    return nothing if epsilon is None else bound_text(epsilon)


def _error(value: float | None) -> str:
    return "-" if value is None else figure(value)


def notes(results: dict[str, Any]) -> list[str]:
    """What the figures mean, and what they leave out."""
    claimed, ways, matched = results["claimed"], results["ways"], results["matched"]
    honest = ways[0]["honest"]
    lines = [
        f"Made up: {results['made_up']}",
        f"Claimed: epsilon = {claimed['epsilon']:g} of {claimed['unit']}. {claimed['claim']}",
        f"The figures hold for batches of {_batches(results)} honest reports, each at delta = "
        f"{honest['delta']:g}, while shuffler and analyzer do not collude; if they do, the lines "
        "that say so hold. A value may change in every window.",
        f"planned: what Shoal would choose at epsilon {bound_text(matched['epsilon'])}, "
        f"{matched['what']}.",
    ]
    for way in ways:
        if way["memoized"]:
            ledgers = way["ledgers"]
            lines.append(
                f"{way['way']}: devices keep their answers. By their own ledgers this run cost the "
                f"one whose value changed most {bound_text(ledgers['most'])}, and "
                f"{bound_text(ledgers['mean'])} on average. When a value changed is not hidden, "
                "and the figure of one window holds of a window that is seen alone."
            )
    if results["trusted_server"] is not None:
        lines.append(
            "trusted server: the claim as it is made. Nothing of it is run: no service here takes "
            "raw values. Its server sees everything."
        )
    composed = results["composed"]
    if results["found"] is not None:
        lines += [_of_windows(results), *_of_words(results["found"])]
    else:
        lines.append(
            "Here the same devices answered both ways: together that cost them epsilon <= "
            f"{_bound(composed['epsilon_upper'])} at delta = {composed['delta']:.2g}."
        )
    lines.append(_sources(claimed))
    return lines


def _batches(results: dict[str, Any]) -> str:
    claimed, *_, planned = [way["honest"]["n"] for way in results["ways"]]
    if claimed == planned:
        return f"{claimed:,}"
    return f"{claimed:,}, as planned {planned:,} or more,"


def _of_windows(results: dict[str, Any]) -> str:
    """How often a device answered, and what that cost it by the analyzer's own book."""
    found, spent = results["found"], results["ways"][-1]["released"]
    if results["fresh"]:
        return (
            f"Every device drew one window by itself and answered in no other: of {found['drawn']} "
            f"windows {found['windows']} asked something. That cost it epsilon <= "
            f"{_bound(results['ways'][-1]['honest']['apart']['run'])} at delta = "
            f"{results['ways'][-1]['honest']['delta']:.2g}. The analyzer's own book adds up all "
            "windows, as if the same devices had answered. A word's numbers are of the devices of "
            f"one window: times {found['drawn']} they are those of the whole fleet."
        )
    windows, levels = found["windows"], found["levels"]
    planned = f"one for each of {levels} levels"
    if windows > levels:
        planned = f"{levels} were planned, one for each level: some were asked again"
    elif windows < levels:
        planned = f"of {levels} levels: nothing was left to look for"
    return (
        f"Every device answered {windows} windows, {planned}. Together they cost it epsilon <= "
        f"{_bound(spent['epsilon_run'])} at delta = {spent['delta_run']:.2g}, by the analyzer's "
        "own book."
    )


def _of_words(found: dict[str, Any]) -> list[str]:
    followed = f"{found['threshold']:,} devices have"
    if found["drawn"] is not None:
        followed = f"{found['threshold']:,} devices of a window have"
    missed = ", ".join(f"{one['word']} ({one['truth']:,})" for one in found["missed"])
    return [
        f"Of {found['distinct']} words {len(found['words'])} were found, {found['false']} of them "
        f"false; followed is what {followed}, and what "
        f"{found['found_from']:,} have is found with 95 %"
        + (f": missed were {missed}." if missed else ": none was missed.")
        + f" {found['known']:,} devices have a word that the dictionary knows, and answered "
        '"another".',
        "claimed, not run: a stand-in for reports that nothing here makes. A day is one discovery, "
        "of all its levels; a word that stays is looked for anew on every day of the year.",
    ]


def _sources(claimed: dict[str, Any]) -> str:
    recalled = [one for one in claimed["sources"] if not one["checked"]]
    if not recalled:
        return "Sources are in the results."
    return (
        f"Of {len(claimed['sources'])} sources {len(recalled)} were not read for this: see the "
        "results."
    )

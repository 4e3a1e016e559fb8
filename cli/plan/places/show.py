"""What ``shoal places`` prints: for people, and for programs; and its task file."""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.frontier.maps import MapPlan, MapWay, TreeWay, chosen_task
from shoal.analyzer.planner.simulation.maps import MapPlayed
from shoal.analyzer.planner.task_file import file_text
from shoal.analyzer.results.maps.drawing import CLEAR, text_of
from shoal.analyzer.results.maps.released import BOUNDS
from shoal.cli.figures import figure
from shoal.cli.output import plain_table, say, say_table
from shoal.questions.coordinates import MICRO


def say_plan(plan: MapPlan, chosen: MapWay) -> None:
    """The ways, the least error of rectangles first."""
    request = plan.request
    say(f"{request.places.described}")
    say(f"{request.n:,} devices, {request.n_honest:,} of them honest")
    table = plain_table(
        "mechanism",
        "a device names",
        "epsilon <=",
        *([f"of {request.windows} windows"] if request.windows > 1 else []),
        "to both",
        "error of a cell",
        "of a rectangle",
        "messages",
        "slots",
    )
    for way in plan.ways:
        table.add_row(
            way.name,
            way.shape,
            bound_text(way.epsilon),
            *([_bound(way.together)] if request.windows > 1 else []),
            bound_text(way.epsilon0 if math.isfinite(way.epsilon0) else None),
            figure(way.cell),
            figure(way.rectangle),
            f"{way.messages:.3g}",
            f"{way.slots:,}",
        )
    if plan.tree is not None:
        _add_tree(table, plan.tree, several=request.windows > 1)
    say_table(table)
    if plan.tree is not None:
        say(_of_tree(plan.tree))
    together = (
        f"; of {request.windows} windows: of a device that answers in all, at the same delta"
        if request.windows > 1
        else ""
    )
    say(
        f"epsilon: of a release, at delta {request.delta:g}{together}; to both: what is left if "
        "shuffler and analyzer work together. Errors: standard errors in devices, of a rectangle "
        "root mean square over all of them."
    )
    say(_seen(plan, chosen))
    for name, why in plan.unsuited:
        say(why if why.startswith(f"{name}:") else f"{name}: {why}")
    best = "the least error of rectangles" if chosen is plan.best else "as you chose"
    if chosen is plan.best and plan.tree is not None and plan.tree.rectangle < chosen.rectangle:
        best += " in one window; the tree errs less, in several"
    asked = (
        "; owners are asked by name, since both services together would see their cells"
        if math.isinf(chosen.epsilon0)
        else ""
    )
    say(f"{chosen.name}: {best}{asked}")


def _seen(plan: MapPlan, chosen: MapWay) -> str:
    """How many devices a cell has if all are alike, and from how many on it is seen."""
    share, least = plan.request.n / plan.request.places.size, CLEAR * chosen.cell
    words = (
        f"An even share is {figure(share)} devices in a cell; with {chosen.name} a cell is drawn "
        f"as clear from about {figure(least)} on"
    )
    if share >= least:
        return f"{words}."
    return (
        f"{words}: only cells with many more than others will be seen. Give fewer rows and "
        "columns, or ask more devices, to see the others too."
    )


def _bound(epsilon: float) -> str:
    """An upper bound that may be infinite."""
    return bound_text(epsilon if math.isfinite(epsilon) else None)


def _add_tree(table: Table, tree: TreeWay, *, several: bool) -> None:
    """``several``: whether there is a column for all windows, which of a tree are its levels."""
    found, discovery = tree.plan, tree.plan.discovery
    table.add_row(
        "tree",
        f"parts of parts, in {discovery.levels} windows",
        bound_text(found.epsilon),
        *(["its own"] if several else []),
        bound_text(None),
        figure(found.stderr),
        figure(tree.rectangle),
        f"{found.messages(discovery.size):.3g}",
        f"{found.made.messages:,}",
    )


def _of_tree(tree: TreeWay) -> str:
    return (
        f"tree: {tree.rows:,} x {tree.rows:,} cells where many devices are, from "
        f"{tree.plan.found_from:,} in a cell on with 95 %; shoal discover plan --places makes its "
        "task. Its messages are of each window."
    )


def plan_json(plan: MapPlan) -> dict[str, Any]:
    """Plain JSON values. Epsilons are upper bounds, null for none; errors are in devices."""
    request, places = plan.request, plan.request.places
    return {
        **{name: getattr(places, name) / MICRO for name in BOUNDS},
        "rows": places.rows,
        "columns": places.columns,
        "cell_height_m": places.cell_height_m,
        "cell_width_m": places.cell_width_m,
        "n": request.n,
        "n_honest": request.n_honest,
        "epsilon": request.epsilon,
        "delta": request.delta,
        "windows": request.windows,
        "ways": [
            {
                "mechanism": way.name,
                "parameters": dict(way.spec.parameters),
                "epsilon_upper": way.epsilon,
                "epsilon_together": way.together if math.isfinite(way.together) else None,
                "epsilon0": way.epsilon0 if math.isfinite(way.epsilon0) else None,
                "error_cell": way.cell,
                "error_rectangle": way.rectangle,
                "messages": way.messages,
                "slots": way.slots,
            }
            for way in plan.ways
        ],
        "tree": None if plan.tree is None else _tree_json(plan.tree),
        "unsuited": [{"mechanism": name, "reason": why} for name, why in plan.unsuited],
    }


def _tree_json(tree: TreeWay) -> dict[str, Any]:
    found, discovery = tree.plan, tree.plan.discovery
    return {
        "rows": tree.rows,
        "levels": discovery.levels,
        "epsilon_upper": found.epsilon,
        "error_cell": found.stderr,
        "error_rectangle": tree.rectangle,
        "found_from": found.found_from,
        "messages": found.messages(discovery.size),
        "slots": found.made.messages,
    }


def task_file(way: MapWay, length_s: int) -> str:
    """The task of a way, as TOML."""
    return file_text(*chosen_task(way), length_s, command="shoal places plan")


def say_done(done: MapPlayed) -> None:
    """The map, and its errors beside what was predicted."""
    say("")
    for line in text_of(done.release):
        say(line)
    say(
        f"played ({done.way.name}): cells err by {figure(done.cell_error)} devices, "
        f"{done.covered:.1%} of their 95 % intervals hold the truth"
    )
    say(
        f"{len(done.rectangles):,} rectangles err by {figure(done.rectangle_error)} (predicted "
        f"{figure(done.rectangle_said)}), {done.rectangles_covered:.1%} of their intervals hold "
        "it; in one release they share their errors, so this varies from one to the next"
    )


def done_json(done: MapPlayed) -> dict[str, Any]:
    """The same for programs; errors in devices."""
    return {
        "mechanism": done.way.name,
        "cells": [
            {**row, "truth": int(true)}
            for row, true in zip(done.release["estimates"], done.truth.tolist(), strict=True)
        ],
        "error_cell": done.cell_error,
        "covered_cells": done.covered,
        "rectangles": len(done.rectangles),
        "error_rectangle": done.rectangle_error,
        "predicted_rectangle": done.rectangle_said,
        "covered_rectangles": done.rectangles_covered,
    }

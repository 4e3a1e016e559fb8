"""Places on a map, on the Planner's page: which way errs least in rectangles at the epsilon that is
given, and the grid that would be asked, drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shoal.accounting.meaning import bet, bound_text
from shoal.analyzer.planner.frontier.maps import (
    WAYS,
    MapPlan,
    MapRequest,
    MapWay,
    TreeWay,
    UnsuitedWay,
    each_way,
    map_plan,
)
from shoal.analyzer.results.maps.drawing import MapFrame, frame_of
from shoal.console.words import odds
from shoal.pictures.axes import number

AGAIN_MS = 300
TREE = "tree"
WAY_NAMES = {"": "what errs least in rectangles, in one window", TREE: "part by part (tree)"} | {
    name: name for name in WAYS
}
_MOST_LINES = 64  # of the picture, each way


@dataclass(frozen=True, slots=True)
class PlacesAnswer:
    """``plan``: None until it is known; ``tried`` of the ways that there are."""

    plan: MapPlan | None = None
    tried: int = 0

    @property
    def done(self) -> bool:
        """Whether there is a plan."""
        return self.plan is not None

    @property
    def options(self) -> tuple[MapPlan, ...]:
        """What there is to see."""
        return () if self.plan is None else (self.plan,)


@dataclass(frozen=True, slots=True)
class GridPicture:
    """A grid on a map that nobody has answered yet. ``upright``: x of lines from south to north,
    ``level``: y of those from west to east, each with whether it is an edge of a block; ``words``.
    """

    frame: MapFrame
    upright: tuple[tuple[float, bool], ...]
    level: tuple[tuple[float, bool], ...]
    words: str


def places_answers(request: MapRequest) -> Iterator[PlacesAnswer]:
    """One more way in each. Raises CONFIG where none fits."""
    found = list[MapWay | UnsuitedWay]()
    for way in each_way(request):
        found.append(way)
        yield PlacesAnswer(None, len(found))
    yield PlacesAnswer(map_plan(request, found), len(found))


def places_view(
    request: MapRequest, answer: PlacesAnswer | None, trouble: str | None, way: str
) -> dict[str, Any]:
    """Values for the template's part ``places``. ``way``: one of ``WAY_NAMES``."""
    known = PlacesAnswer() if answer is None else answer
    shown: dict[str, Any] = {
        "wanted": f"a map at central epsilon {request.epsilon:g} of a release",
        "trouble": trouble,
        "again_ms": None if known.done or trouble else AGAIN_MS,
        "tried": known.tried,
        "of": len(WAYS),
        "places": None,
    }
    if known.plan is not None:
        shown["places"] = _found(known.plan, way)
    return shown


def chosen_way(plan: MapPlan, way: str) -> MapWay | TreeWay:
    """Of a plan what a task file is written of. Raises CONFIG for a way that does not fit."""
    if way == TREE and plan.tree is not None:
        return plan.tree
    return plan.named(way or None)


def lacking(plan: MapPlan, way: str) -> str | None:
    """Why a plan does not have that way, for the form; None if it has."""
    if way == TREE and plan.tree is None:
        return (
            "a map of 64 rows and columns or less is asked for at once, and one with more needs "
            "devices enough: choose another line"
        )
    if way not in ("", TREE) and way not in {one.name for one in plan.ways}:
        return f"{dict(plan.unsuited).get(way, 'there is no such way')}: choose another line"
    return None


def _found(plan: MapPlan, way: str) -> dict[str, Any]:
    request = plan.request
    taken = plan.best if lacking(plan, way) else chosen_way(plan, way)
    one = taken if isinstance(taken, MapWay) else None
    epsilon = taken.epsilon if isinstance(taken, MapWay) else taken.plan.epsilon
    epsilon0 = None if one is None or math.isinf(one.epsilon0) else one.epsilon0
    tree = plan.tree
    return {
        "bet": bet(epsilon, request.delta, 1 if isinstance(taken, MapWay) else taken.levels),
        "odds": odds(epsilon, request.delta),
        "name": TREE if one is None else one.name,
        "recommended": taken is plan.best,
        "epsilon": epsilon,
        "delta": request.delta,
        "windows": request.windows,
        "honest": request.n_honest,
        "epsilon0": epsilon0,
        "total": one.together if one is not None and math.isfinite(one.together) else None,
        "together": None if epsilon0 is None else odds(epsilon0, 0.0),
        "rectangle": number(taken.rectangle),
        "cell": number(taken.cell if isinstance(taken, MapWay) else taken.plan.stderr),
        "grid": grid_of(taken if isinstance(taken, MapWay) else plan.best, tree_of(taken)),
        "rows": [
            *map(_row, plan.ways),
            *([] if tree is None else [_tree_row(tree)]),
        ],
        "tree_windows": None if tree is None else tree.plan.discovery.levels,
        "tree_from": None if tree is None else tree.plan.found_from,
        "tree_better": tree is not None and tree.rectangle < plan.best.rectangle,
        "unsuited": [
            why if why.startswith(f"{name}:") else f"{name}: {why}" for name, why in plan.unsuited
        ],
    }


def tree_of(taken: MapWay | TreeWay) -> TreeWay | None:
    """The tree, if it was taken."""
    return taken if isinstance(taken, TreeWay) else None


def _row(way: MapWay) -> dict[str, Any]:
    return {
        "name": way.name,
        "shape": way.shape,
        "epsilon": way.epsilon,
        "epsilon0": bound_text(way.epsilon0) if math.isfinite(way.epsilon0) else None,
        "cell": number(way.cell),
        "rectangle": number(way.rectangle),
        "messages": f"{way.messages:.3g}",
        "slots": way.slots,
    }


def _tree_row(tree: TreeWay) -> dict[str, Any]:
    found, discovery = tree.plan, tree.plan.discovery
    return {
        "name": TREE,
        "shape": f"parts of parts, in {discovery.levels} windows",
        "epsilon": found.epsilon,
        "epsilon0": None,
        "cell": number(found.stderr),
        "rectangle": number(tree.rectangle),
        "messages": f"{found.messages(discovery.size):.3g}",
        "slots": found.made.messages,
    }


def grid_of(way: MapWay, tree: TreeWay | None) -> GridPicture:
    """What devices are asked: cells, with the edges of blocks; of a tree its first level."""
    places = way.request.places
    frame = frame_of(places)
    rows, columns, side = places.rows, places.columns, dict(way.spec.parameters).get("side", 0)
    words = places.described
    if tree is not None:
        rows = columns = tree.first_rows
        words = f"{rows} x {rows} cells at level 0, over {places.box}; later ones cut those alone "
        words += "that many devices are in"
        side = 0
    elif side:
        words += f"; strong lines: blocks of {side} x {side}"
    by = max(1, -(-max(rows, columns) // _MOST_LINES))
    if by > 1:
        words += f"; lines are {by} cells apart"
        side = 0
    return GridPicture(
        frame,
        tuple(_lines(frame.left, frame.right, columns, by, side)),
        # the south is below, and blocks begin there
        tuple(_lines(frame.bottom, frame.top, rows, by, side)),
        words,
    )


def _lines(
    start: float, end: float, cells: int, by: int, side: int
) -> Iterator[tuple[float, bool]]:
    for at in range(by, cells, by):
        yield round(start + (end - start) * at / cells, 2), bool(side) and at % side == 0

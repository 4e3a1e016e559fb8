"""``shoal discover show``: what a running discovery found so far, as a tree that grows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from shoal.analyzer.results.maps.tree import PlaceMap, place_map
from shoal.analyzer.results.reading import check_damage, read_releases, select
from shoal.analyzer.results.word_tree import WordNode, WordTree, word_tree
from shoal.cli.discover.map import drawn_map, map_json
from shoal.cli.output import console, emit_json, say
from shoal.cli.results.terminal import up
from shoal.errors import Kind, ShoalError

_LOOK_S = 2.0  # between two looks at the store
_SHOWN = 8  # branches of a beginning
_MARK = "\u25cf"


def show_tree(task: str, data: Path | None, config: Path | None, *, as_json: bool) -> None:
    """What there is now. Raises CONFIG, NOT_FOUND, and MISMATCH for a damaged release."""
    releases = _of_task(task, data, config)
    found = _found(releases)
    if as_json:
        emit_json(map_json(found) if isinstance(found, PlaceMap) else _json(found))
    else:
        console.print(_shown(found, releases))
    check_damage(data, config, releases[0]["task_id"])


def watch_tree(task: str, data: Path | None, config: Path | None) -> None:
    """Until Ctrl-C, or nothing is left to follow. Raises as ``show_tree``."""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                releases = _of_task(task, data, config)
                found = _found(releases)
            except ShoalError as error:
                if error.kind is not Kind.NOT_FOUND:
                    raise
                live.update(Text("nothing is released yet"), refresh=True)
            else:
                live.update(_shown(found, releases), refresh=True)
                if not found.going_on:
                    break
            time.sleep(_LOOK_S)
    say("nothing is left to follow")


def _of_task(task: str, data: Path | None, config: Path | None) -> list[dict[str, Any]]:
    return select(read_releases(data, config), task)


def _found(releases: Sequence[Mapping[str, Any]]) -> WordTree | PlaceMap:
    """Raises NOT_FOUND."""
    if any("cells" in one.get("discovered", ()) for one in releases):
        return place_map(releases)
    return word_tree(releases)


def _shown(found: WordTree | PlaceMap, releases: Sequence[Mapping[str, Any]]) -> Tree | Group:
    if isinstance(found, PlaceMap):
        return drawn_map(found, releases)
    return _drawn(found, releases)


def _drawn(found: WordTree, releases: Sequence[Mapping[str, Any]]) -> Tree:
    released = max(
        (one for one in releases if "discovered" in one), key=lambda one: int(one["window"])
    )
    privacy = released["privacy"]
    head = (
        f"{released['name']}: level {found.level} of 0 to {found.levels - 1}, window "
        f"{found.window}: {len(found.words):,} words so far"
    )
    tree = Tree(Text(head))
    _grow(tree, found.roots)
    epsilon = up(privacy["epsilon_upper"])
    cost = f"of {released['n']:,} devices; epsilon \u2264 {epsilon} in each window"
    tree.add(Text(cost, style="dim"))
    if found.no_room:
        tree.add(Text(f"{found.no_room:,} more beginnings had no room", style="dim"))
    return tree


def _grow(tree: Tree, nodes: Sequence[WordNode]) -> None:
    for node in nodes[:_SHOWN]:
        text = f"{node.label}  {node.value:,.0f} \u00b1 {(node.high - node.low) / 2:,.0f}"
        branch = tree.add(Text(f"{_MARK} {text}" if node.whole else text))
        _grow(branch, node.children)
    if len(nodes) > _SHOWN:
        tree.add(Text(f"and {len(nodes) - _SHOWN:,} more", style="dim"))


def _json(found: WordTree) -> dict[str, Any]:
    return {
        "level": found.level,
        "levels": found.levels,
        "window": found.window,
        "no_room": found.no_room,
        "words": [_row(node) for node in found.words],
        "tree": [_branch(node) for node in found.roots],
    }


def _row(node: WordNode) -> dict[str, Any]:
    return {"label": node.label, "value": node.value, "ci_low": node.low, "ci_high": node.high}


def _branch(node: WordNode) -> dict[str, Any]:
    return {
        **_row(node),
        "whole": node.whole,
        "children": [_branch(child) for child in node.children],
    }

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

from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.discovery.progress import Stand, WordProgress, progress
from shoal.analyzer.results.maps.tree import PlaceMap, place_map
from shoal.analyzer.results.reading import check_damage, read_releases, select
from shoal.analyzer.results.word_tree import WordNode, WordTree, scale_words, word_tree
from shoal.cli.discover.map import drawn_map, map_json
from shoal.cli.figures import counted
from shoal.cli.output import console, emit_json, say
from shoal.cli.results.terminal import up
from shoal.crypto.discovery_steps import DiscoveryStep
from shoal.crypto.step_folder import STEPS_FOLDER, read_steps
from shoal.crypto.task_folder import load_task_folder
from shoal.crypto.trust import ServedTask
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.services import given_up
from shoal.services.settings import load_settings

_LOOK_S = 2.0  # between two looks at the store
_SHOWN = 8  # branches of a beginning
_MARK = "\u25cf"


def show_tree(task: str, data: Path | None, config: Path | None, *, as_json: bool) -> None:
    """What there is now. Raises CONFIG, NOT_FOUND, and MISMATCH for a damaged release."""
    releases = _of_task(task, data, config)
    found = _found(releases)
    known = _progress(task, config, releases, found)
    if as_json:
        emit_json(_json(found, known))
    else:
        console.print(_shown(found, releases, known))
    check_damage(data, config, releases[0]["task_id"])


def watch_tree(task: str, data: Path | None, config: Path | None) -> None:
    """Until Ctrl-C, or nothing more is to come. Raises as ``show_tree``, but waits for the first
    release of a task that the analyzer serves; without ``config``, of any.
    """
    said = ""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            releases, found, why = _now(task, data, config)
            known = _progress(task, config, releases, found)
            if found is None:
                first = f"nothing is released yet: {why}"
                live.update(_lines(first, known), refresh=True)
                if said != first and not console.is_terminal:
                    say(first)  # there nobody sees anything before the end
                said = first
            else:
                live.update(_shown(found, releases, known), refresh=True)
            if known.ended:
                break
            time.sleep(_LOOK_S)
    say(f"{known.why}: {_told(found)}" if known.stand is Stand.RAN_OUT else known.why)


def _now(
    task: str, data: Path | None, config: Path | None
) -> tuple[list[dict[str, Any]], WordTree | PlaceMap | None, str]:
    """Releases of the task, none so far too, what they found, and why that is nothing. Raises
    NOT_FOUND where none can come: the folder is not there, or the analyzer serves no such task.
    """
    releases = list[dict[str, Any]]()
    try:
        releases = _of_task(task, data, config)
        return releases, _found(releases), ""
    except ShoalError as error:
        if error.kind is not Kind.NOT_FOUND or (data is not None and not data.is_dir()):
            raise
        served = None if config is None else _served(task, config, releases)
        if served is not None and not isinstance(served.task.domain, Discovery):
            raise _no_discovery(task) from None
        if not releases and config is not None and served is None:
            raise ShoalError(
                Kind.NOT_FOUND,
                f"{task}: no release, and no task of {config}: give the name of one task in its "
                "tasks_dir, or the beginning of its id",
            ) from None
        return releases, None, str(error)


def _of_task(task: str, data: Path | None, config: Path | None) -> list[dict[str, Any]]:
    releases = select(read_releases(data, config), task)
    if any("discovered" not in one and not one["withheld"] for one in releases):
        raise _no_discovery(task)
    return releases


def _no_discovery(task: str) -> ShoalError:
    return ShoalError(
        Kind.CONFIG,
        f"{task} finds nothing level by level: see its releases with shoal results show {task}",
    )


def _found(releases: Sequence[Mapping[str, Any]]) -> WordTree | PlaceMap:
    """Raises NOT_FOUND."""
    if any("cells" in one.get("discovered", ()) for one in releases):
        return place_map(releases)
    return word_tree(releases)


def _told(found: WordTree | PlaceMap | None) -> str:
    """What was found, in number."""
    if isinstance(found, PlaceMap):
        return f"{len(found.found):,} of the smallest cells found"
    return f"{counted(0 if found is None else len(found.words), 'word')} found"


def _shown(
    found: WordTree | PlaceMap, releases: Sequence[Mapping[str, Any]], known: WordProgress
) -> Tree | Group:
    if isinstance(found, PlaceMap):
        last = Text("\n".join((*known.withheld, known.why)), style="dim")
        return Group(drawn_map(found, releases), last)
    return _drawn(found, releases, known)


def _progress(
    task: str,
    config: Path | None,
    releases: Sequence[Mapping[str, Any]],
    found: WordTree | PlaceMap | None,
) -> WordProgress:
    """How it stands. Without ``config`` nobody knows the task, nor what its windows are asked."""
    served, steps, gone = None, dict[int, DiscoveryStep](), dict[int, str]()
    if config is not None:
        served = _served(task, config, releases)
    if served is not None and config is not None:
        data_dir = load_settings(AnalyzerConfig, config).data_dir
        signed = read_steps(data_dir / STEPS_FOLDER, served.task, served.task_id)
        steps = {window: one.step for window, one in signed.items()}
        lines = [line for line in given_up.read(data_dir) if line.key[0] == served.task_id]
        gone = {line.window: f"it was given up: {line.reason}" for line in lines}
    released = [one["window"] for one in releases if not one["withheld"]]
    withheld = {one["window"]: one["withheld"] for one in releases if one["withheld"]}
    return progress(
        None if served is None else served.task,
        steps,
        released,
        {**{window: why for window, why in gone.items() if window not in released}, **withheld},
        time.time(),
        over=found is not None and not found.going_on,
    )


def _served(task: str, config: Path, releases: Sequence[Mapping[str, Any]]) -> ServedTask | None:
    """The signed task, by the id in its releases, or else by what was typed; None: not known."""
    settings = load_settings(AnalyzerConfig, config)
    known = load_task_folder(settings.tasks_dir, settings.authority_keys).served
    ids = {one["task_id"] for one in releases}
    chosen = [
        one
        for task_id, one in known.items()
        if (task_id.hex in ids if ids else task_id.hex.startswith(task) or one.task.name == task)
    ]
    return chosen[0] if len(chosen) == 1 else None


def _lines(first: str, known: WordProgress) -> Text:
    return Text("\n".join((first, *known.withheld, known.why)))


def _drawn(found: WordTree, releases: Sequence[Mapping[str, Any]], known: WordProgress) -> Tree:
    released = max(
        (one for one in releases if "discovered" in one), key=lambda one: int(one["window"])
    )
    privacy = released["privacy"]
    head = (
        f"{released['name']}: level {found.level} of 0 to {found.levels - 1}, window "
        f"{found.window}: {counted(len(found.words), 'word')} so far"
    )
    tree = Tree(Text(head))
    _grow(tree, found.roots)
    epsilon = up(privacy["epsilon_upper"])
    cost = f"of {released['n']:,} devices; epsilon \u2264 {epsilon} in each window"
    tree.add(Text(cost, style="dim"))
    if known.draws or found.draws:
        tree.add(Text(scale_words(known.draws or found.draws), style="dim"))
    if found.no_room:
        tree.add(Text(f"{found.no_room:,} more beginnings had no room", style="dim"))
    for line in (*known.withheld, known.why):
        tree.add(Text(line, style="dim"))
    return tree


def _grow(tree: Tree, nodes: Sequence[WordNode]) -> None:
    for node in nodes[:_SHOWN]:
        text = f"{node.label}  {node.value:,.0f} \u00b1 {(node.high - node.low) / 2:,.0f}"
        branch = tree.add(Text(f"{_MARK} {text}" if node.whole else text))
        _grow(branch, node.children)
    if len(nodes) > _SHOWN:
        tree.add(Text(f"and {len(nodes) - _SHOWN:,} more", style="dim"))


def _json(found: WordTree | PlaceMap, known: WordProgress) -> dict[str, Any]:
    stands = {
        "state": known.stand.value,
        "why": known.why,
        "withheld": list(known.withheld),
        "draws_one_of": known.draws or getattr(found, "draws", 0) or None,
    }
    if isinstance(found, PlaceMap):
        return {**stands, **map_json(found)}
    return {
        **stands,
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

"""What a discovery found so far, as a tree: beginnings of words, and the words that they became.

It is made of releases alone, as their JSON has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.errors import Kind, ShoalError
from shoal.questions.spelling import MORE


@dataclass(slots=True)
class WordNode:
    """``text``: a beginning, or a whole word; ``label``: as a person reads it. ``value``, ``low``,
    ``high``: devices that have it, with the interval of 95 %. ``children``: by devices, the most
    first.
    """

    text: str
    label: str
    value: float
    low: float
    high: float
    whole: bool
    children: list[WordNode] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WordTree:
    """``roots``: of level 0, by devices. ``words``: whole ones, and those that the last of all
    levels cut. ``level`` of ``levels``: the last one that was released; ``window``: in which it was
    asked; ``no_room``: beginnings that all levels did not follow for want of room; ``going_on``:
    those of the last level, of which the next one asks. ``draws``: windows, of which each device
    answers one alone; 0: it answers every one. Numbers are of the devices of one window then.
    """

    roots: tuple[WordNode, ...]
    words: tuple[WordNode, ...]
    level: int
    levels: int
    window: int
    no_room: int
    going_on: tuple[WordNode, ...]
    draws: int = 0

    @property
    def scale(self) -> str:
        """What the numbers are of, for people; empty where every device answers every window."""
        return scale_words(self.draws)


def scale_words(draws: int) -> str:
    """Of what the numbers of a discovery are, where each device answers one of so many windows; 0:
    it answers every one: empty.
    """
    if not draws:
        return ""
    return (
        f"Each device answers one of {draws} windows alone, so these numbers are of the devices of "
        f"one window, not of the fleet: there about {draws} times as many have a word"
    )


def word_tree(releases: Sequence[Mapping[str, Any]]) -> WordTree:
    """Of the releases of one task. Raises NOT_FOUND if none of them is a level of a discovery."""
    levels = dict[int, Mapping[str, Any]]()
    for release in sorted(releases, key=lambda one: one["window"]):
        if "whole" in release.get("discovered", ()):
            levels[release["discovered"]["level"]] = release
    if not levels:
        raise ShoalError(
            Kind.NOT_FOUND,
            "no level of a discovery is released yet: shoal results list shows what there is",
        )
    roots, words = list[WordNode](), list[WordNode]()
    open_before = dict[str, WordNode]()
    for number in sorted(levels):
        open_now = dict[str, WordNode]()
        for node in _nodes(levels[number]):
            parent = open_before.get(node.text if node.whole else node.text[:-1])
            (roots if parent is None else parent.children).append(node)
            if node.whole:
                words.append(node)
            else:
                open_now[node.text] = node
        open_before = open_now
    last = levels[max(levels)]
    going_on = tuple(open_before.values())
    if max(levels) == last["discovered"]["levels"] - 1:
        words, going_on = [*words, *going_on], ()
    _sort_all(roots)
    words.sort(key=_order)
    no_room = sum(release["discovered"]["no_room"] for release in levels.values())
    return WordTree(
        tuple(roots),
        tuple(words),
        max(levels),
        last["discovered"]["levels"],
        last["window"],
        no_room,
        going_on,
        last["discovered"].get("draws_one_of", 0),
    )


def _nodes(release: Mapping[str, Any]) -> list[WordNode]:
    rows = zip(release["estimates"], release["discovered"]["whole"], strict=False)
    return [
        WordNode(
            row["label"].removesuffix(MORE),
            row["label"],
            row["value"],
            row["ci_low"],
            row["ci_high"],
            whole,
        )
        for row, whole in rows
    ]


def _sort_all(nodes: list[WordNode]) -> None:
    nodes.sort(key=_order)
    for node in nodes:
        _sort_all(node.children)


def _order(node: WordNode) -> tuple[float, str]:
    return -node.value, node.text

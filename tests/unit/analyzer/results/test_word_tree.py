"""The tree of a discovery, of releases alone."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.results.word_tree import WordNode, word_tree
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.questions.discovery import DiscoveryLevel
from tests.worlds.words import found_in, release_of, words_world

ASKED = Discovery(first=1, longest=3, most=8)
WORLD = words_world(ASKED)
WORDS = ("cat",) * 110 + ("cow",) * 90 + ("a",) * 80 + ("theory",) * 70 + ("",) * 50


def releases() -> list[dict[str, Any]]:
    """Of all three levels; window 1 was withheld, and asked again in 2."""
    level: DiscoveryLevel | None = ASKED.level(0)
    made = list[dict[str, Any]]()
    for window in (0, 2, 3):
        assert level is not None
        prepared = found_in(WORLD, level, WORDS, window)
        assert prepared.found is not None
        made.append(to_json(decode_release(release_of(WORLD, prepared))))
        level = ASKED.after(level.number, prepared.found.beginnings)
    assert level is None
    made.append({**made[0], "window": 1, "withheld": "few", "estimates": [], "discovered": None})
    del made[-1]["discovered"]
    return made


def shape(node: WordNode) -> Any:
    return node.label, [shape(child) for child in node.children]


def test_beginnings_have_what_they_became_below_them() -> None:
    """By devices, the most first; words that the last level cut are words. Planted: children below
    the beginning of the same length -> a flat tree; words by name -> another order.
    """
    found = word_tree(releases())
    assert [shape(root) for root in found.roots] == [
        ("c\u2026", [("ca\u2026", [("cat\u2026", [])]), ("co\u2026", [("cow\u2026", [])])]),
        ("a\u2026", [("a", [])]),
        ("t\u2026", [("th\u2026", [("the\u2026", [])])]),
    ]
    assert [word.label for word in found.words] == ["cat\u2026", "cow\u2026", "a", "the\u2026"]
    assert (found.level, found.levels, found.window, found.going_on) == (2, 3, 3, ())


def test_a_discovery_that_goes_on_says_what_is_followed() -> None:
    """Planted: beginnings taken for words before the last level -> fails."""
    found = word_tree(releases()[:2])
    assert [word.label for word in found.words] == ["a"]
    assert [node.label for node in found.going_on] == ["ca\u2026", "co\u2026", "th\u2026"]


def test_without_a_level_there_is_no_tree() -> None:
    with pytest.raises(ShoalError) as refused:
        word_tree(releases()[3:])
    assert refused.value.kind is Kind.NOT_FOUND

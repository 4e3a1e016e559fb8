"""Which cell a device answers with at each level of a discovery."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import Kind, ShoalError
from shoal.questions.discovery import Discovery, DiscoveryLevel
from shoal.questions.place_paths import PlacePaths
from shoal.questions.places import Places
from shoal.questions.spelling import ANOTHER, END, SYMBOLS, is_spelling, spell
from tests.cases import for_each

TWO = Discovery(2, 6, 4)


def beginnings(*texts: str) -> list[bytes]:
    """Of words, unfinished, in order."""
    return sorted(spell(text, len(text)) for text in texts)


@for_each(
    "text, cell",
    [
        ("cat", "ca\u2026"),
        ("A", "a"),
        ("\u00e9t\u00e9", "et\u2026"),
        ("", ANOTHER),
        (" \t", ANOTHER),
    ],
)
def test_level_zero_asks_for_the_first_symbols(text: str, cell: str) -> None:
    """Planted: no answer as the cell of "a" -> fails."""
    level = TWO.level(0)
    assert level.labels[level.encode(text)] == cell


@for_each(
    "text, cell",
    [
        ("cat", "cat\u2026"),
        ("ca", "ca"),
        ("CART", "car\u2026"),
        ("dog", ANOTHER),  # not followed
        ("c", ANOTHER),  # told at level 0, whole
        (None, ANOTHER),
        ("do", "do"),
    ],
)
def test_a_later_level_asks_for_the_next_symbol_after_what_is_followed(
    text: str | None, cell: str
) -> None:
    """Planted: words that are not followed answer with the nearest beginning -> "dog" is "do…"."""
    level = TWO.level(1, beginnings("ca", "do") if text == "do" else beginnings("ba", "ca"))
    assert level.labels[level.encode(text)] == cell


def test_every_device_has_a_cell_also_for_values_that_are_no_text() -> None:
    """A device that skipped would make the number of reports depend on values."""
    level = TWO.level(1, beginnings("tr", "12"))
    for value in (None, True, 44, 4.5, float("nan"), "x" * 10_000):
        assert 0 <= level.encode(value) < level.size
    assert level.labels[level.encode(True)] == "tru\u2026"
    assert level.labels[level.encode(44)] == "##"


@for_each("first", [1, 2, 3])
def test_each_cell_that_some_word_has_is_the_cell_of_its_beginning(first: int) -> None:
    """All cells of level 0 and of a later one: a bijection. Planted: a blank taken for no spelling
    within a word -> fails.
    """
    asked = Discovery(first, 5, 2)
    followed = beginnings("cat"[:first], "dog"[:first])
    for level in (asked.level(0), asked.level(1, followed)):
        spelled = [cell for cell in range(level.size) if level.is_spelled(cell)]
        assert [level.cell_of(level.beginning(cell)) for cell in spelled] == spelled
        labels = level.labels
        assert len({labels[cell] for cell in spelled}) == len(spelled)
        assert len(spelled) >= 26 * (1 if level.number else 26 ** (first - 1))
    assert asked.level(0).size == 31 * 32 ** (first - 1) + 1


def test_short_words_have_cells_of_their_own() -> None:
    """And the numbers are those of every program: 32 symbols as digits, padded with the end.
    Planted: padded with "a" -> fails.
    """
    level = Discovery(3, 5, 2).level(0)
    assert [level.encode(text) for text in ("a", "ab", "aab", "b")] == [1_023, 63, 1, 2_047]
    texts = ("a", "aa", "aaa", "ab", "aab", "b", "")
    assert len({level.encode(text) for text in texts}) == len(texts)


@given(st.text(alphabet="ab' 1\u00e9", max_size=7), st.integers(0, 4))
def test_a_cell_tells_the_symbols_of_its_level_and_nothing_else(text: str, number: int) -> None:
    """Whatever is followed: the word's own beginning, or "another"."""
    word = TWO.word(text)
    followed = sorted(spell(text, 6)[: 1 + number] for text in ("abab'b", "a a a "))
    level = TWO.level(number, followed if number else ())
    cell = level.encode(text)
    if cell < level.size - 1:
        assert level.beginning(cell) == word[: level.depth]
    else:
        assert not word or (number and word[: level.depth - 1] not in followed)


def test_known_words_are_not_looked_for_in_any_spelling_of_them() -> None:
    """Planted: known words compared as they are typed -> "The" is found."""
    asked = Discovery(2, 6, 4, (spell("the", 6),))
    assert asked.level(0).encode("The") == asked.level(0).size - 1
    assert asked.level(0).encode("them") != asked.level(0).size - 1


def test_the_largest_level_is_the_size_of_the_question() -> None:
    assert Discovery(2, 6, 4).size == 31 * 32 + 1
    assert Discovery(2, 6, 64).size == 64 * SYMBOLS + 1
    assert Discovery(1, 1, 64).size == 32  # no later level
    assert Discovery(1, 2, 64).size == 31 * SYMBOLS + 1  # no more than there are


@for_each(
    "first, longest, most, known",
    [
        (0, 6, 4, ()),
        (4, 6, 4, ()),
        (2, 1, 4, ()),
        (2, 33, 4, ()),
        (2, 6, 0, ()),
        (2, 6, 2_048, ()),
        (2, 6, 4, (b"",)),
        (2, 6, 4, (bytes([2, 0]),)),  # unfinished
        (2, 6, 4, (bytes([2, 0, END]),) * 2),
        (2, 6, 4, (bytes([2, 40, END]),)),
    ],
)
def test_what_cannot_be_asked_is_refused(
    first: int, longest: int, most: int, known: tuple[bytes, ...]
) -> None:
    with pytest.raises(ShoalError) as refused:
        Discovery(first, longest, most, known)
    assert refused.value.kind is Kind.INVALID


@for_each(
    "number, followed",
    [
        (-1, ()),
        (5, beginnings("catsup")),
        (0, beginnings("c")),
        (1, ()),
        (1, beginnings("cat")),  # another level's
        (1, [bytes([0, END])]),  # a whole word
        (1, list(reversed(beginnings("ca", "do")))),
        (1, beginnings("ca", "ca")),
        (1, beginnings("aa", "ab", "ac", "ad", "ae")),  # one too many
        (1, [bytes([28, 0])]),  # begins with a blank
        (1, [bytes([0, 40])]),
    ],
)
def test_a_level_that_the_question_does_not_have_is_refused(
    number: int, followed: Sequence[bytes]
) -> None:
    """What somebody else says is followed is believed within these bounds alone."""
    with pytest.raises(ShoalError) as refused:
        DiscoveryLevel(TWO, number, tuple(followed))
    assert refused.value.kind is Kind.INVALID


def test_the_last_level_has_cut_words_and_all_are_spelled() -> None:
    level = TWO.level(4, beginnings("water"))
    assert level.is_last
    assert level.labels[level.encode("watering")] == "wateri\u2026"
    assert level.labels[level.encode("water")] == "water"
    assert all(is_spelling(level.beginning(cell)) for cell in range(32) if level.is_spelled(cell))


def test_maps_are_asked_of_all_devices_at_every_level() -> None:
    """In one place, for commands, task files and devices. Planted: the rule left out -> fails."""
    paths = PlacePaths(Places(0, 0, 64, 64, 1, 1), 2)
    assert Discovery(1, 3, 4, (), paths).levels == 3
    with pytest.raises(ShoalError) as refused:
        Discovery(1, 3, 4, (), paths, fresh=True)
    assert refused.value.kind is Kind.INVALID
    assert "answer once where words" in refused.value.message

"""Texts as symbols: one grammar for all devices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.questions.spelling import ALPHABET, END, SYMBOLS, is_spelling, shown, spell
from tests.cases import for_each


def test_there_are_thirty_two_symbols_and_each_is_shown_differently() -> None:
    assert SYMBOLS == 32
    assert len(set(ALPHABET)) == 31


@for_each(
    "text, expected",
    [
        ("cat", "cat"),
        ("  Don\u2019t\t stop ", "don't stop"),
        ("Na\u00efve", "naive"),  # composed
        ("Nai\u0308ve", "naive"),  # and decomposed
        ("\u00c5ngstr\u00f6m", "angstrom"),
        ("stra\u00dfe", "stra?e"),
        ("route 66", "route ##"),
        ("\u0663", "?"),  # a digit of another script
        ("a\u00a0b", "a?b"),  # no blank of ASCII
        ("\U0001f41f", "?"),  # one code point, one symbol
        ("e\u2010mail", "e-mail"),
    ],
)
def test_texts_are_folded_as_the_module_says(text: str, expected: str) -> None:
    """Values that a person would check. Planted: NFC for NFD -> "Naïve" is "na?ve"; blanks within
    left as they are -> "don't  stop"; UTF-16 units counted -> a fish has two symbols.
    """
    assert shown(spell(text, 32)) == expected


@for_each("text", ["", " \t\n", "\u0301"])
def test_what_has_no_symbol_is_no_word(text: str) -> None:
    assert spell(text, 5) == b""


def test_the_end_of_a_word_is_a_symbol_and_a_longer_one_is_cut() -> None:
    """Planted: an end after five symbols of five -> "water" is a whole word of six."""
    assert spell("cat", 5) == bytes([2, 0, 19, END])
    assert spell("water", 5) == bytes([22, 0, 19, 4, 17]) == spell("watering", 5)
    assert (shown(spell("water", 6)), shown(spell("water", 5))) == ("water", "water\u2026")


@given(st.text(max_size=12), st.integers(1, 10), st.integers(1, 10))
def test_a_spelling_is_one_and_shorter_ones_begin_longer_ones(text: str, a: int, b: int) -> None:
    """So what a device says at one level never contradicts what it said before."""
    short, long = spell(text, min(a, b)), spell(text, max(a, b))
    assert long[: len(short)] == short
    assert not short or (is_spelling(short) and len(short) <= min(a, b))


@for_each(
    "symbols",
    [b"", bytes([END]), bytes([END, 1]), bytes([1, END, 1]), bytes([28, 1]), bytes([1, 28, 28, 1])],
)
def test_what_no_text_has_is_no_spelling(symbols: bytes) -> None:
    """Nothing, an end alone, first or within, blanks first or side by side."""
    assert not is_spelling(symbols)


@for_each("symbols", [bytes([1, 28, END]), bytes([32]), bytes([255, 1])])
def test_a_blank_before_the_end_and_numbers_beyond_the_symbols_are_none(symbols: bytes) -> None:
    assert not is_spelling(symbols)

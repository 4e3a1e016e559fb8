"""Words as symbols of one small public alphabet, so that they can be looked for letter by letter.

There are 32 symbols: the letters a to z, apostrophe, hyphen, space, one for any digit, one for
whatever else, and one for a word's end. A fleet is asked for one symbol more at every level
(``shoal.questions.discovery``): 32 cells for each beginning that is followed, where the bytes of a
text would be 256. Digits and whatever else lose something: "route 66" and "route 61" are one word
here, and so are "søk" and "sæk".

*The symbols of a text*, the same on every device and in every language: its Unicode normal form
NFD; without the combining marks U+0300 to U+036F, so that "é" counts as e; A to Z as a to z; the
apostrophes U+2018 and U+2019 and the hyphens U+2010 and U+2011 as those of ASCII; runs of the six
blanks of ``answers`` as one space, none around the text; 0 to 9 as the digit; every other code
point as the other one. Nothing else is folded.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.questions.answers import BLANKS, Value, text_of

ALPHABET = "abcdefghijklmnopqrstuvwxyz'- #?"
"""The symbols 0 to 30 as they are shown: "#" is any digit, "?" anything else."""
END = len(ALPHABET)
SYMBOLS = END + 1
DIGIT, OTHER = ALPHABET.index("#"), ALPHABET.index("?")
MORE = "\u2026"
"""Shown after the beginning of a word."""
ANOTHER = "another, or none"
"""The label of a level's last cell: words that are not followed, and no word at all."""

_FOLDED = {
    **{letter: number for number, letter in enumerate(ALPHABET[: ALPHABET.index("#")])},
    **{letter.upper(): number for number, letter in enumerate(ALPHABET[:26])},
    **dict.fromkeys("0123456789", DIGIT),
    **dict.fromkeys("\u2018\u2019", ALPHABET.index("'")),
    **dict.fromkeys("\u2010\u2011", ALPHABET.index("-")),
}
_MARKS = "\u0300", "\u036f"


def spell(text: str, longest: int) -> bytes:
    """The first ``longest`` >= 1 symbols of a text, one in a byte, ``END`` after its last one if
    that is among them. Empty for a text without symbols.
    """
    if not text.isascii():
        from unicodedata import normalize  # a megabyte of tables: only where they are needed

        text = "".join(
            letter for letter in normalize("NFD", text) if not _MARKS[0] <= letter <= _MARKS[1]
        )
    words = text.translate(_SPACES).split(" ")
    folded = " ".join(word for word in words if word)[:longest]
    symbols = [_FOLDED.get(letter, OTHER) for letter in folded]
    if symbols and len(symbols) < longest:
        symbols.append(END)
    return bytes(symbols)


def is_spelling(symbols: bytes) -> bool:
    """Whether these are symbols of some text: one or more, ``END`` nowhere but last and not alone,
    no space at an end or beside another.
    """
    *before, last = symbols or b"\0"
    whole = symbols[:-1] if last == END else symbols
    return (
        bool(whole)
        and all(symbol < END for symbol in before)
        and last <= END
        and whole[0] != _SPACE
        and bytes((_SPACE, _SPACE)) not in whole
        and not (last == END and whole[-1] == _SPACE)
    )


def shown(symbols: bytes) -> str:
    """As a person reads it: "cat" for a whole word, "cat…" for the beginning of one."""
    text = "".join(ALPHABET[symbol] for symbol in symbols if symbol != END)
    return text if symbols[-1:] == bytes((END,)) else text + MORE


def readable(symbols: bytes) -> str:
    """A text that is spelled so: the one that ``shown`` shows, with 0 for any digit."""
    return shown(symbols).removesuffix(MORE).replace(ALPHABET[DIGIT], "0")


_SPACE = ALPHABET.index(" ")
_SPACES = {ord(blank): " " for blank in BLANKS}


@dataclass(frozen=True, slots=True)
class Letters:
    """The alphabet of words, as discoveries have it (``shoal.questions.discovery``)."""

    @property
    def symbols(self) -> int:
        """32."""
        return SYMBOLS

    @property
    def end(self) -> int:
        """The symbol that stands for a word's end."""
        return END

    @property
    def most_first(self) -> int:
        """Three: more are more cells than a task may have."""
        return 3

    @property
    def most_length(self) -> int:
        """Symbols of a word."""
        return 32

    @property
    def another(self) -> str:
        """The label of a level's last cell."""
        return ANOTHER

    def spelled(self, value: Value, longest: int) -> bytes:
        """The symbols of a value's text, as ``spell`` writes them."""
        text = text_of(value)
        return b"" if text is None else spell(text, longest)

    def is_spelling(self, symbols: bytes) -> bool:
        """Whether these are symbols of some text."""
        return is_spelling(symbols)

    def shown(self, symbols: bytes) -> str:
        """ "cat" for a whole word, "cat…" for the beginning of one."""
        return shown(symbols)

    def accepted(self, longest: int) -> str:
        """What values it takes, in words for an owner."""
        return f"any text, of which the first {longest} letters count"


LETTERS = Letters()

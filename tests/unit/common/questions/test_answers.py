"""The grammar of answers: the same texts and numbers in every language. Expected values are
others', or written by hand.
"""

from __future__ import annotations

import math
import struct

from shoal.entropy import SeededEntropy
from shoal.questions.answers import MOST_CHARS, Value, number_of, text_of, yes_or_no
from tests.cases import for_each

# RFC 8785, appendix B: IEEE 754 doubles (hexadecimal, big-endian) and the JSON that ECMAScript
# writes of them.
RFC_8785 = """
0000000000000000 0
8000000000000000 0
0000000000000001 5e-324
8000000000000001 -5e-324
7fefffffffffffff 1.7976931348623157e+308
ffefffffffffffff -1.7976931348623157e+308
4340000000000000 9007199254740992
c340000000000000 -9007199254740992
4430000000000000 295147905179352830000
44b52d02c7e14af5 9.999999999999997e+22
44b52d02c7e14af6 1e+23
44b52d02c7e14af7 1.0000000000000001e+23
444b1ae4d6e2ef4e 999999999999999700000
444b1ae4d6e2ef4f 999999999999999900000
444b1ae4d6e2ef50 1e+21
3eb0c6f7a0b5ed8c 9.999999999999997e-7
3eb0c6f7a0b5ed8d 0.000001
41b3de4355555553 333333333.3333332
41b3de4355555554 333333333.33333325
41b3de4355555555 333333333.3333333
41b3de4355555556 333333333.3333334
41b3de4355555557 333333333.33333343
becbf647612f3696 -0.0000033333333333333333
43143ff3c1cb0959 1424953923781206.2
"""


@for_each("line", RFC_8785.split("\n")[1:-1])
def test_the_text_of_a_double_is_ecmascripts(line: str) -> None:
    """Planted: Python's repr -> 0, 9007199254740992, 1e-7 and most others are written otherwise,
    and this fails.
    """
    bits, text = line.split()
    assert text_of(struct.unpack(">d", bytes.fromhex(bits))[0]) == text


@for_each(
    "value, text",
    [
        *(
            (4.0, "4"),
            (0.1, "0.1"),
            (1e-7, "1e-7"),
            (-1.5e-9, "-1.5e-9"),
            (100.0, "100"),
            (123456.789, "123456.789"),
            (1e-6, "0.000001"),
        ),
        *((True, "true"), (False, "false"), (0, "0"), (-12, "-12"), (10**30, "1" + "0" * 30)),
        *(
            (" a b ", "a b"),
            ("\t\n\v\f\r x", "x"),
            ("\u00a0x", "\u00a0x"),
            ("\u2003x", "\u2003x"),
            ("", ""),
            ("1_0", "1_0"),
        ),
        *((None, None), (math.nan, None), (math.inf, None), (-math.inf, None)),
        (1 << 40_000, None),
    ],
)
def test_texts(value: Value, text: str | None) -> None:
    """Planted: str.strip() without the six blanks -> U+00A0 goes too, and this fails."""
    assert text_of(value) == text


def test_texts_of_doubles_read_back() -> None:
    """Whatever the bits. Planted: a digit lost on the way -> fails."""
    words = SeededEntropy("answers").words(3_000)
    for word in words:
        (value,) = struct.unpack(">d", struct.pack(">Q", int(word)))
        if math.isfinite(value):
            assert float(text_of(value) or "") == value
            read = number_of(text_of(value))
            assert read is not None
            assert float(read) == value


@for_each(
    "text, number",
    [
        *(
            ("0", 0),
            ("-0", 0),
            ("+7", 7),
            ("007", 7),
            ("12", 12),
            (" 12\t", 12),
            ("9007199254740993", 2**53 + 1),
            ("1" + "0" * 400, 10**400),
        ),
        *(
            ("2.5", 2.5),
            ("-0.5", -0.5),
            ("1e3", 1000.0),
            ("1E-3", 0.001),
            ("1.5e+2", 150.0),
            ("0.1", 0.1),
            ("1e-400", 0.0),
        ),
        ("9007199254740993.0", 2.0**53),
    ],
)
def test_numbers_in_texts(text: str, number: float) -> None:
    """Planted: whole numbers through doubles -> 2^53 + 1 becomes 2^53, and this fails."""
    found = number_of(text)
    assert found == number
    assert type(found) is type(number)


@for_each(
    "text",
    [
        *(
            "",
            " ",
            "1_0",
            "1,5",
            ".5",
            "5.",
            "0x10",
            "1e",
            "e3",
            "--1",
            "+-1",
            "1 2",
            "inf",
            "-inf",
            "nan",
            "Infinity",
            "1e999",
            "thirty",
        ),
        *("\u0663", "\uff11", "1\u00a0", "1.2.3", "1e1.5", "1" * (MOST_CHARS + 1), "true"),
    ],
)
def test_texts_that_are_no_numbers(text: str) -> None:
    """Planted: int() and float() as they read -> "1_0", "inf" and other scripts' digits are
    numbers, and this fails.
    """
    assert number_of(text) is None


@for_each(
    "value, said",
    [("Yes", True), (" TRUE\n", True), (1.0, True), ("no", False), (0, False), ("FALSE", False)],
)
def test_yes_and_no(value: Value, said: bool) -> None:
    assert yes_or_no(value) is said


@for_each("value", ["maybe", "y", "", None, 2, 0.5, "1.0", "ye\u017f", math.nan])
def test_neither_yes_nor_no(value: Value) -> None:
    assert yes_or_no(value) is None

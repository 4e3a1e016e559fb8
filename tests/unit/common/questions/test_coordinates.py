"""Texts as microdegrees: exactly, in integers, whatever is written."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from shoal.domain import Value
from shoal.entropy import SeededEntropy, uniform_below
from shoal.errors import Kind, ShoalError
from shoal.questions.answers import MOST_CHARS
from shoal.questions.coordinates import (
    MICRO,
    coordinates_of,
    degrees,
    exact_microdegrees,
    microdegrees_of,
)
from tests.cases import for_each


def test_decimals_are_rounded_down_exactly() -> None:
    """2,000 random decimals with exponents, against Fractions. Planted: rounded to 0 -> fails."""
    entropy, kept = SeededEntropy(5), 0
    for _ in range(2_000):
        digits = [str(uniform_below(10, entropy)) for _ in range(1 + uniform_below(24, entropy))]
        at = uniform_below(len(digits), entropy)
        text = "".join(digits[: at + 1]) + (
            "." + "".join(digits[at + 1 :]) if digits[at + 1 :] else ""
        )
        text = ("-", "+", "")[uniform_below(3, entropy)] + text
        exponent = uniform_below(41, entropy) - 30
        text += ("e", "E+" if exponent >= 0 else "E")[uniform_below(2, entropy)] + str(exponent)
        exact = Fraction(text)
        if abs(exact) >= 1000:
            assert microdegrees_of(text) is None, text
        else:
            kept += 1
            assert microdegrees_of(text) == math.floor(exact * MICRO), text
    assert kept > 500


@for_each(
    "text, micro",
    [
        ("0", 0),
        ("-0", 0),
        ("-0.0000001", -1),
        ("1e-" + "9" * 900, 0),
        ("-1e-" + "9" * 900, -1),
        ("0e" + "9" * 900, 0),
        ("1e" + "9" * 900, None),
        ("999.9999999", 999_999_999),
        ("1000", None),
        ("-1000", None),
        (" 1.5\t", 1_500_000),
        ("0" * (MOST_CHARS - 1) + "7", 7_000_000),
        ("0" * MOST_CHARS + "7", None),
        *((text, None) for text in ("", "nan", "inf", "1_0", ".5", "5.", "1,5", "0x1", "٤", "--1")),
    ],
)
def test_edges(text: str, micro: int | None) -> None:
    """Planted: no bound of the magnitude -> fails."""
    assert microdegrees_of(text) == micro


@for_each(
    "value, place",
    [
        ("48.137, 11.575", (48_137_000, 11_575_000)),
        ('{"latitude": 48.137, "longitude": 11.575}', (48_137_000, 11_575_000)),
        ('{"lat": "-48.137", "lon": 1.1575e1, "x": null}', (-48_137_000, 11_575_000)),
        # the double of it is 48.300001 itself
        ('{"lat": 48.300000999999999999999999, "lon": 0}', (48_300_000, 0)),
        ("90,180", (90_000_000, 180_000_000)),
        ("-90,-180", (-90_000_000, -180_000_000)),
        *(
            (value, None)
            for value in (
                *(
                    None,
                    48,
                    48.1,
                    True,
                    "",
                    "48",
                    "48,11,5",
                    "48;11",
                    "90.000001,0",
                    "0,180.000001",
                ),
                *("{}", '{"lat": 1}', '{"lat": 1, "latitude": 1, "lon": 2}', "[1, 2]", "{", "null"),
                *('{"lat": 1, "lat": 1, "lon": 2}', '{"lat": true, "lon": 2}'),
                *('{"lat": Infinity, "lon": 2}', '{"lat": [1], "lon": 2}', "{" * 9_999),
                '{"lat": 1, "lon": 2' + " " * 20_000 + "}",
            )
        ),
    ],
)
def test_places(value: Value, place: tuple[int, int] | None) -> None:
    """Planted: a number of an object as a double -> fails."""
    assert coordinates_of(value) == place


def test_bounds_are_whole_microdegrees_and_degrees_are_written_back() -> None:
    for micro in (0, -1, 1, 48_137_000, -179_999_999, 180_000_000):
        assert exact_microdegrees(degrees(micro)) == micro
        assert exact_microdegrees(repr(micro / MICRO)) == micro
    assert [degrees(-450_000, digits) for digits in (0, 1, 2)] == ["0", "-0.5", "-0.45"]
    for text in ("48.1370001", "1e-7", "nan", "1000", ""):
        with pytest.raises(ShoalError, match="6 digits") as caught:
            exact_microdegrees(text)
        assert caught.value.kind is Kind.INVALID

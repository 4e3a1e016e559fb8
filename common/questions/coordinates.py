"""Where somebody is, as two whole numbers of microdegrees: the same on every device and in every
language, since no floating-point number is ever made.

A place is a text, in one of two forms:

* two decimals and one comma between them, latitude first: "48.137, 11.575";
* a JSON object (RFC 8259) with the members ``latitude`` and ``longitude``, or ``lat`` and ``lon``;
  each is a number, or a text that is a decimal. Other members are passed over.

*A decimal* is a number in the grammar of ``answers``: an optional sign, digits, optionally a point
and digits, optionally an exponent; at most 1,000 characters. A number in a JSON object is read as
it is written there. The decimal stands for exactly that number of degrees, and becomes the greatest
whole number of microdegrees (11 cm of latitude) that is not above it: 0.0000019 is 1, -0.0000001 is
-1, "-0" is 0.

North and east are positive. A latitude beyond 90 degrees or a longitude beyond 180 is no place.
"""

from __future__ import annotations

from shoal.errors import Kind, ShoalError
from shoal.questions.answers import BLANKS, MOST_CHARS, NUMBER, Value
from shoal.questions.json_object import members_of

MICRO = 1_000_000
"""Microdegrees of a degree."""
MOST_LATITUDE, MOST_LONGITUDE = 90 * MICRO, 180 * MICRO
_NAMES = (("latitude", "lat"), ("longitude", "lon"))


def coordinates_of(value: Value) -> tuple[int, int] | None:
    """Latitude and longitude in microdegrees, rounded down; None for what is no place."""
    if not isinstance(value, str):
        return None
    latitude, longitude = map(microdegrees_of, _decimals_of(value.strip(BLANKS)))
    if latitude is None or longitude is None:
        return None
    if not -MOST_LATITUDE <= latitude <= MOST_LATITUDE:
        return None
    return (latitude, longitude) if -MOST_LONGITUDE <= longitude <= MOST_LONGITUDE else None


def microdegrees_of(text: str) -> int | None:
    """The whole microdegrees of a decimal of degrees, rounded down; None for what is no decimal,
    and from 1,000 degrees on.
    """
    scaled = _scaled(text)
    return None if scaled is None else scaled[0]


def exact_microdegrees(text: str) -> int:
    """The microdegrees of a decimal of degrees that is a whole number of them, as the bounds of a
    map are. Raises INVALID for another one.
    """
    scaled = _scaled(text)
    if scaled is None or not scaled[1]:
        raise ShoalError(
            Kind.INVALID,
            "the bounds of a map are degrees with at most 6 digits behind the point, as 48.137",
        )
    return scaled[0]


def _scaled(text: str) -> tuple[int, bool] | None:
    """Microdegrees rounded down, and whether nothing was lost."""
    text = text.strip(BLANKS)
    match = NUMBER.fullmatch(text) if len(text) <= MOST_CHARS else None
    if match is None:
        return None
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("+-").partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return 0, True
    # The magnitude is 0.DIGITS times ten to the power of ``point``.
    point = int(exponent or 0) - len(fraction) + len(digits)
    if point > 3:
        return None
    kept = max(0, point + 6)  # digits before the point, in microdegrees
    below, exact = int(digits[:kept].ljust(kept, "0") or 0), not digits[kept:].strip("0")
    if text.startswith("-"):
        return (-below if exact else -below - 1), exact
    return below, exact


def degrees(microdegrees: int, digits: int = 6) -> str:
    """The decimal of so many microdegrees with 0 to 6 digits behind the point: the nearest one."""
    unit = 10 ** (6 - digits)
    rounded = (abs(microdegrees) + unit // 2) // unit
    whole, fraction = divmod(rounded, 10**digits)
    sign = "-" if microdegrees < 0 and rounded else ""
    return f"{sign}{whole}.{fraction:0{digits}}" if digits else f"{sign}{whole}"


def _decimals_of(text: str) -> tuple[str, str]:
    """The texts of latitude and longitude; empty ones of what is no place."""
    if text.startswith("{"):
        members = members_of(text, str)
        found = [[members[name] for name in names if name in members] for names in _NAMES]
        if all(len(each) == 1 and isinstance(each[0], str) for each in found):
            return found[0][0], found[1][0]
        return "", ""
    parts = text.split(",")
    return (parts[0], parts[1]) if len(parts) == 2 else ("", "")

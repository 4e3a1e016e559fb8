"""What an answer says, whoever wrote it down: the one grammar for texts and numbers of all domains,
on every device, in every language.

An answer is nothing, a truth value, a whole number of any size, an IEEE double, or a text. Two
devices of one fleet may be written in two languages, and what one of them calls the text of a
number ("1e-07", "True", "4.0", "1_0") must not land in another cell than what the other one calls
it. So nothing here is left to a language:

* *Blanks* are the six of ASCII: U+0009 to U+000D and U+0020. Those around a text are no part of the
  answer. No others are blanks.
* *Texts* are compared code point by code point; upper and lower case differ but where a domain says
  otherwise.
* *Numbers in texts*: an optional sign (+ or -), ASCII digits, optionally a point and digits,
  optionally e or E, an optional sign and digits; at most 1,000 characters. Without point and
  exponent it is a whole number, exactly; otherwise the nearest double (ties to even). One that is
  too large for a double is no number; nor is "inf", "nan", "1_0", "0x10", "1,5", ".5" or "5.".
* *The text of a value*: of a truth value "true" or "false"; of a whole number its decimal digits,
  with "-" before a negative one; of a double what ECMAScript's Number::toString writes (ECMA-262,
  section 6.1.6.1.20), which is also that of RFC 8785 (section 3.2.2.3): "4" of 4.0, "0.1", "1e-7",
  "1e+21". Nothing, and a number that is not finite, have no text.

docs/WIRE.md, section 4, says the same to others, with vectors.
"""

from __future__ import annotations

import math
import re

Value = bool | int | float | str | None

BLANKS = "\t\n\v\f\r "
MOST_CHARS = 1_000  # of the text of a number
# So that a whole number's text, and its number from a text, are never longer than Python converts
# in linear time.
_MOST_BITS = 3_300
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_YES, _NO = frozenset({"yes", "true", "1"}), frozenset({"no", "false", "0"})


def number_of(value: Value) -> int | float | None:
    """A finite number, or None. Whole numbers are exact, however large; a truth value is 0 or 1."""
    if isinstance(value, int):  # bool too
        return int(value)
    if isinstance(value, str):
        return _parsed(value.strip(BLANKS))
    # a plain one, of a subclass too
    return float(value) if isinstance(value, float) and math.isfinite(value) else None


def text_of(value: Value) -> str | None:
    """The canonical text, without the blanks around it; None for nothing, for what is not finite,
    and beyond 3,300 bits.
    """
    if isinstance(value, str):
        return value.strip(BLANKS)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value.bit_length() <= _MOST_BITS else None
    return _decimal(float(value)) if isinstance(value, float) and math.isfinite(value) else None


def yes_or_no(value: Value) -> bool | None:
    """True for yes, true and 1, False for no, false and 0, in any case of ASCII letters; None for
    everything else.
    """
    text = text_of(value)
    if text is None or not text.isascii():
        return None
    return True if text.lower() in _YES else False if text.lower() in _NO else None


def _parsed(text: str) -> int | float | None:
    if len(text) > MOST_CHARS:
        return None
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    if match[1] is None and match[2] is None:
        return int(text)
    number = float(text)
    return number if math.isfinite(number) else None


def _decimal(value: float) -> str:
    """ECMAScript's text. Python finds the same shortest digits, and sets the point elsewhere."""
    if value == 0.0:
        return "0"  # -0 too
    sign = "-" if value < 0.0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS times ten to the power of ``point``.
    point = int(exponent or 0) + len(whole) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        text = digits + "0" * (point - count)
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        tail = f".{digits[1:]}" if count > 1 else ""
        text = f"{digits[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return sign + text

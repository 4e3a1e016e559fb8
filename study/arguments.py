"""What an analyst gave wrongly: errors that are Python's own and ours at once, and the checks that
raise them.

Each message is one line: the argument's name, what is wrong with it, and what would be right. It
never holds a value of the data.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction

from shoal.errors import Kind, ShoalError


class ArgumentValueError(ShoalError, ValueError):
    """An argument of the right type whose value can't be. Kind CONFIG: whoever called mends it."""

    def __init__(
        self, kind: Kind = Kind.CONFIG, message: str = "", *, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(kind, message, retry_after_s=retry_after_s)


class ArgumentTypeError(ShoalError, TypeError):
    """An argument of another type than is wanted. Kind CONFIG."""

    def __init__(
        self, kind: Kind = Kind.CONFIG, message: str = "", *, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(kind, message, retry_after_s=retry_after_s)


def wrong_value(argument: str, message: str) -> ArgumentValueError:
    """The error for the value of an argument; ``message`` says what would be right."""
    return ArgumentValueError(message=f"{argument}: {message}")


def wrong_type(argument: str, message: str) -> ArgumentTypeError:
    """The error for the type of an argument; ``message`` says what would be right."""
    return ArgumentTypeError(message=f"{argument}: {message}")


class ArgumentKeyError(ShoalError, KeyError):
    """A label, a column or a task that is not there. Kind NOT_FOUND."""

    def __init__(
        self, kind: Kind = Kind.NOT_FOUND, message: str = "", *, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(kind, message, retry_after_s=retry_after_s)


def wrong_key(argument: str, message: str) -> ArgumentKeyError:
    """The error for a name that is looked up; ``message`` says what there is."""
    return ArgumentKeyError(message=f"{argument}: {message}")


@contextmanager
def about(argument: str) -> Iterator[None]:
    """What the code below refuses becomes an error about this argument, in the same words."""
    try:
        yield
    except (ArgumentValueError, ArgumentTypeError):
        raise
    except ShoalError as error:
        if error.kind not in {Kind.INVALID, Kind.CONFIG}:
            raise
        raise ArgumentValueError(error.kind, f"{argument}: {error.message}") from None


def whole(argument: str, value: object, low: int, high: int) -> int:
    """A whole number in [low, high]: of Python, of NumPy, or a float without a fraction."""
    said = f"give a whole number from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise wrong_type(argument, said)
    exact = value if isinstance(value, int) else float(value)
    if not (math.isfinite(exact) and exact == int(exact) and low <= exact <= high):
        raise wrong_value(argument, f"{said}, got {value}")
    return int(exact)


def number(argument: str, value: object, said: str) -> float:
    """A finite number. ``said``: what is wanted, for the error."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Decimal):
        raise wrong_type(argument, said)
    if not math.isfinite(value):
        raise wrong_value(argument, f"{said}, got {value}")
    return float(value)


def positive(argument: str, value: object) -> float:
    """A finite number above 0."""
    said = "give a number above 0"
    given = number(argument, value, said)
    if given <= 0.0:
        raise wrong_value(argument, f"{said}, got {given:g}")
    return given


def share(argument: str, value: object, *, zero: bool = False) -> Fraction:
    """A share of the whole, exactly as it was written: 0.9 is nine tenths, which no float is.

    Above 0 (or from 0 on, with ``zero``) and at most 1.
    """
    said = f"give a share {'from 0 to 1, as 0.1' if zero else 'above 0 and at most 1, as 0.9'}"
    written = value if isinstance(value, Fraction) else repr(number(argument, value, said))
    exact = Fraction(written)
    if not (0 <= exact <= 1 and (zero or exact > 0)):
        raise wrong_value(argument, f"{said}, got {float(exact):g}")
    return exact


def below_one(argument: str, value: object) -> Fraction:
    """A share that leaves something: from 0 to below 1, exactly as it was written."""
    given = share(argument, value, zero=True)
    if given == 1:
        raise wrong_value(argument, "give a share from 0 to below 1, as 0.1")
    return given


def delta_of(value: object) -> float:
    """The ``delta`` of a guarantee."""
    said = "give a probability above 0 and below 1, as 1e-8"
    given = number("delta", value, said)
    if not 0.0 < given < 1.0:
        raise wrong_value("delta", f"{said}, got {given:g}")
    return given

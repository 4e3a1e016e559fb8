"""Reading a device's TOML tables: keys are taken one by one, and whatever is left is a mistake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.errors import Kind, ShoalError
from shoal.storage.toml import no_such_key

_MISSING = object()
_WORDS = {
    str: "a text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


class TomlTable:
    """A TOML table whose keys are taken one by one; what is left at the end is unknown. Everything
    raises CONFIG naming the key.
    """

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self._prefix, self._values = f"{name}." if name else "", dict(values)
        self._asked: set[str] = set()  # the keys that there are, for who mistypes one

    def __contains__(self, key: str) -> bool:
        self._asked.add(key)
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def take(self, key: str, wanted: type, default: Any = _MISSING) -> Any:
        """The value of ``key``, which must be exactly of type ``wanted``; ``default`` if it is
        absent.
        """
        self._asked.add(key)
        value = self._values.pop(key, default)
        if value is _MISSING:
            raise self._absent(key)
        if value is not default and type(value) is not wanted:
            raise ShoalError(Kind.CONFIG, f"{self._prefix}{key}: must be {_WORDS[wanted]}")
        return value

    def _absent(self, key: str) -> ShoalError:
        """A required key that is not there; with one that nobody took yet and that is like it:
        probably the same, mistyped.
        """
        like = next(
            (other for other in sorted(self._values) if f'"{key}"' in no_such_key(other, [key])),
            None,
        )
        return self.bad(
            key, "required, but missing" + (f' (is "{like[:64]}" meant to be it?)' if like else "")
        )

    def number(self, key: str, default: Any = _MISSING) -> Any:
        """A float, from a whole number too; ``default`` as it is."""
        if type(self._values.get(key)) is int:
            try:
                self._values[key] = float(self._values[key])
            except OverflowError:
                raise ShoalError(Kind.CONFIG, f"{self._prefix}{key}: too large a number") from None
        return self.take(key, float, default)

    def exact_number(self, key: str) -> int | float | None:
        """A number as it was written, whole or not; None if it is absent."""
        self._asked.add(key)
        value: int | float | None = self._values.pop(key, None)
        if value is not None and type(value) not in {int, float}:
            raise ShoalError(Kind.CONFIG, f"{self._prefix}{key}: must be a number")
        return value

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of texts."""
        values = self.take(key, list, list(default))
        if not all(isinstance(value, str) for value in values):
            raise ShoalError(Kind.CONFIG, f"{self._prefix}{key}: must be a list of texts in quotes")
        return tuple(values)

    def table(self, key: str) -> TomlTable:
        """A table within this one; an empty one if it is absent."""
        return TomlTable(f"{self._prefix}{key}", self.take(key, dict, {}))

    def bad(self, key: str, why: str) -> ShoalError:
        """A CONFIG error that names the key with its table, and says why its value can't stand."""
        return ShoalError(Kind.CONFIG, f"{self._prefix}{key}: {why}")

    def end(self) -> None:
        """Raise for the first key that nobody took."""
        for key in sorted(self._values):
            raise self.bad(key[:64], no_such_key(key, self._asked))

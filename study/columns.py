"""A column of answers, whatever it is kept in: a list, a NumPy array, a column of pandas, Polars or
Arrow.

Answers are taken as Python's own values, as a device has them. What a data frame says instead of
nothing (None, NaN, NA, NaT) is a missing answer.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from shoal.arrays import NDArray, np
from shoal.questions.answers import Value
from shoal.study.arguments import wrong_type, wrong_value
from shoal.study.frames import Library

_ONE = "give one value per person: a list, an array or one column of a data frame"
_SCALARS = "give texts, numbers, truth values, or None for a missing answer"


@dataclass(frozen=True, slots=True)
class Column:
    """``values``: one per person; ``floats``: the same as float64 with NaN for a missing answer,
    where all of them are numbers anyway.
    """

    values: list[Value]
    floats: NDArray[np.float64] | None
    library: Library

    def __len__(self) -> int:
        return len(self.values) if self.floats is None else len(self.floats)


def column_of(values: object, argument: str = "values") -> Column:
    """The column. Raises an error about ``argument`` for what is none."""
    _refuse_others(values, argument)
    library = Library.of(values)
    found: Any = values
    dtype = getattr(found, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf" and dtype.itemsize <= 8:
        array = np.asarray(found)
        if dtype.kind == "f" or array.size == 0 or _exact(array):
            _not_empty(array.size, argument)
            return Column([], array.astype(np.float64), library)
    listed = _listed(found)
    _not_empty(len(listed), argument)
    return Column([_plain(value, argument) for value in listed], None, library)


def _refuse_others(values: object, argument: str) -> None:
    if isinstance(values, str | bytes):
        raise wrong_type(argument, f"one text is no column: {_ONE}")
    if isinstance(values, Mapping | set | frozenset):
        raise wrong_type(argument, f"a {type(values).__name__} is no column: {_ONE}")
    dimensions = getattr(values, "ndim", 1)
    if hasattr(values, "columns") or dimensions == 2:
        raise wrong_type(argument, f"several columns at once: {_ONE}, as frame['answer']")
    if dimensions != 1:
        raise wrong_type(argument, f"{dimensions} dimensions: {_ONE}")
    if not isinstance(values, Iterable):
        raise wrong_type(argument, f"{type(values).__name__} is no column: {_ONE}")


def _exact(array: NDArray[Any]) -> bool:
    """Whether whole numbers stay themselves as floats."""
    return int(array.max()) <= 1 << 53 and int(array.min()) >= -(1 << 53)


def _listed(values: Any) -> list[Any]:
    """As Python's own values, by the way that its library has for it."""
    for way in ("to_pylist", "to_list", "tolist"):
        if hasattr(values, way):
            listed: list[Any] = getattr(values, way)()
            return listed
    return list(values)


def _not_empty(count: int, argument: str) -> None:
    if not count:
        raise wrong_value(argument, f"it is empty: {_ONE}")


def _plain(value: Any, argument: str) -> Value:
    """The answer as a device has it. Raises for what is no answer at all."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, np.generic):
        return _plain(value.item(), argument)
    if isinstance(value, Decimal | numbers.Rational):
        return float(value)
    if type(value).__name__ in {"NAType", "NaTType"}:  # of pandas
        return None
    if isinstance(value, list | tuple | dict | bytes):
        raise wrong_type(argument, f"a {type(value).__name__} in it: {_SCALARS}")
    raise wrong_type(argument, f"a {type(value).__name__} in it: {_SCALARS}, as str(value)")

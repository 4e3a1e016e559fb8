"""Messages of the wire, changed in one field at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Change = tuple[str, Callable[[], object]]
_WHOLE = {
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_SINT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_SINT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.TYPE_ENUM: (0, (1 << 31) - 1),
}


def mutated(message: Message) -> Iterator[tuple[str, bytes]]:
    """(what was changed, the bytes) of every change, by itself: each number 0, the largest, one
    more, one less, doubled; each yes a no; each of several left out, or there twice.
    """
    count = len(list(_changes(message, "")))
    for at in range(count):
        copy = type(message)()
        copy.CopyFrom(message)
        name, change = list(_changes(copy, ""))[at]
        change()
        yield name, copy.SerializeToString(deterministic=True)


def _changes(message: Message, path: str) -> Iterator[Change]:
    for field in message.DESCRIPTOR.fields:
        name = f"{path}{field.name}"
        if field.is_repeated:
            yield from _of_several(getattr(message, field.name), field, name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            if message.HasField(field.name):
                yield from _changes(getattr(message, field.name), f"{name}.")
            else:
                yield f"{name} is there", getattr(message, field.name).SetInParent
        else:
            old = getattr(message, field.name)
            for new in _values(field, old):
                yield f"{name} = {new}", _setter(message, field.name, new)


def _setter(message: Message, name: str, value: object) -> Callable[[], object]:
    return lambda: setattr(message, name, value)


def _of_several(items: Any, field: Any, name: str) -> Iterator[Change]:
    for at, item in enumerate(items):
        yield f"{name}[{at}] left out", _left_out(items, at)
        yield f"{name}[{at}] twice", _twice(items, item)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            yield from _changes(item, f"{name}[{at}].")
        else:
            for new in _values(field, item):
                yield f"{name}[{at}] = {new}", _placer(items, at, new)


def _left_out(items: Any, at: int) -> Callable[[], object]:
    return lambda: items.__delitem__(at)


def _twice(items: Any, item: object) -> Callable[[], object]:
    return lambda: items.append(item)


def _placer(items: Any, at: int, value: object) -> Callable[[], object]:
    return lambda: items.__setitem__(at, value)


def _values(field: Any, old: Any) -> list[Any]:
    if field.type == FieldDescriptor.TYPE_BOOL:
        return [not old]
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        wild = [0.0, math.inf, math.nan, -old, 2 * old, old / 2, math.nextafter(old, math.inf)]
        return [new for new in wild if new != old]
    if field.type not in _WHOLE:
        return []
    low, high = _WHOLE[field.type]
    wild = [0, low, high, old - 1, old + 1, 2 * old]
    return sorted({new for new in wild if low <= new <= high} - {old})

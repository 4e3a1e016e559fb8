"""A value out of a JSON document: a file, or what a command or a local service said."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any, NoReturn

from shoal.clients.sources.problem import SourceError
from shoal.domain import Value
from shoal.limits import LIMITS

_INDEX = re.compile("0|[1-9][0-9]{0,9}")


def read_json_file(file: Path, pointer: str) -> Value:
    """The value at ``pointer``. Raises SourceError."""
    return value_at(_read(file), pointer)


def value_at(data: bytes, pointer: str) -> Value:
    """The value that an RFC 6901 pointer names in a JSON text; "" names the whole. Raises
    SourceError.

    A list of numbers comes back as its JSON text: that is how a vector for a sum is given. So does
    an object: that is how a record is. NaN and infinities are no JSON and are refused.
    """
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise SourceError("not a JSON text") from None
    for token in pointer.split("/")[1:]:
        value = _step(value, token.replace("~1", "/").replace("~0", "~"))
    return _plain(value)


def _step(value: Any, token: str) -> Any:
    """One token of a pointer (RFC 6901, section 4): a member's name, or an index without leading
    zeros.
    """
    if isinstance(value, dict) and token in value:
        return value[token]
    if isinstance(value, list) and _INDEX.fullmatch(token) and int(token) < len(value):
        return value[int(token)]
    raise SourceError("nothing is where the pointer points")


def _plain(value: Any) -> Value:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return json.dumps(value)
    if (
        isinstance(value, list)
        and value
        and all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    ):
        return json.dumps(value)
    raise SourceError(
        "neither a single value, an object nor a list of numbers is where the pointer points"
    )


def _no_constant(_: str) -> NoReturn:
    raise ValueError


def _read(file: Path) -> bytes:
    return read_regular(file, LIMITS.source_bytes)


def read_regular(file: Path, most: int) -> bytes:
    """A regular file of ``most`` bytes at most, whole. Opened without waiting, because a pipe
    without a writer would wait for ever. Raises SourceError.
    """
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as opened:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise SourceError("not a file")
            data = opened.read(most + 1)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or 'unreadable'}") from None
    if len(data) > most:
        raise SourceError(f"more than {most} bytes")
    return data

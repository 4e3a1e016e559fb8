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

    A list of numbers comes back as its JSON text: that is how a vector for a sum is given. NaN and
    infinities are no JSON and are refused.
    """
    try:
        found = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise SourceError("not a JSON text") from None
    for token in pointer.split("/")[1:]:
        found = _step(found, token.replace("~1", "/").replace("~0", "~"))
    return _plain(found)


def _step(found: Any, token: str) -> Any:
    """One token of a pointer (RFC 6901, section 4): a member's name, or an index without leading
    zeros.
    """
    if isinstance(found, dict) and token in found:
        return found[token]
    if isinstance(found, list) and _INDEX.fullmatch(token) and int(token) < len(found):
        return found[int(token)]
    raise SourceError("nothing is where the pointer points")


def _plain(found: Any) -> Value:
    if found is None or isinstance(found, bool | int | float | str):
        return found
    if (
        isinstance(found, list)
        and found
        and all(isinstance(one, int | float) and not isinstance(one, bool) for one in found)
    ):
        return json.dumps(found)
    raise SourceError("neither a single value nor a list of numbers is where the pointer points")


def _no_constant(_: str) -> NoReturn:
    raise ValueError


def _read(file: Path) -> bytes:
    """A regular file, whole. Opened without waiting, because a pipe without a writer would wait for
    ever.
    """
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as opened:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise SourceError("not a file")
            data = opened.read(LIMITS.source_bytes + 1)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or 'unreadable'}") from None
    if len(data) > LIMITS.source_bytes:
        raise SourceError(f"more than {LIMITS.source_bytes} bytes")
    return data

"""The members of a JSON object that is an answer: the one way in which domains read one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

MOST_CHARS = 16_384  # of an object's text


def members_of(text: object, number: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """The members of a JSON object (RFC 8259) in a text; none of anything else: of a text that is
    longer than ``MOST_CHARS``, has a member twice anywhere, or NaN or Infinity. ``number`` makes
    something of a number as it is written; otherwise it becomes an integer or a double.
    """
    if not isinstance(text, str) or len(text) > MOST_CHARS:
        return {}
    try:
        found = json.loads(
            text,
            object_pairs_hook=_once,
            parse_constant=_refused,
            parse_int=number,
            parse_float=number,
        )
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError
    return members


def _refused(_: str) -> NoReturn:
    raise ValueError

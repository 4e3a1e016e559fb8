"""The file of a release, as ``shoal results export --format release`` writes it: one JSON object.

    format      "shoal-release"
    version     1
    release     what the release says, for readers: ``shoal results --json`` without what is derived
    law         the mechanism's name and integers, as the task has them, for readers
    signed      the bytes that everything rests on, in base64: ``release``, ``release_signature``,
                ``task``, ``task_authority``, ``task_signature``, ``schedule``,
                ``schedule_signature``, ``manifest``, ``manifest_signature``; of a discovery also
                ``step`` and ``step_signature``, ``end`` and ``end_signature`` (``steps``)

What is for readers is believed nowhere: it is compared with the signed bytes. ``manifest`` and its
signature are missing where the analyzer has none (sums by secure aggregation have no manifest).
The first window of a discovery has no ``step``; the release that it ends with alone has an ``end``.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from shoal.checker.errors import UnreadableError

FORMAT, VERSION = "shoal-release", 1
_KEYS = frozenset({"format", "version", "release", "law", "error_budget", "signed"})
MOST_BYTES = 64 << 20
_MOST_VALUES = 2_000_000  # each takes a hundred bytes or so once it is read
_SHOWN = 40  # letters of what does not belong there


@dataclass(frozen=True, slots=True)
class SignedParts:
    """Bytes as they were signed; b"" where the file has none."""

    release: bytes
    release_signature: bytes
    task: bytes
    task_authority: bytes
    task_signature: bytes
    schedule: bytes
    schedule_signature: bytes
    manifest: bytes = b""
    manifest_signature: bytes = b""
    step: bytes = b""
    step_signature: bytes = b""
    end: bytes = b""
    end_signature: bytes = b""


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """``shown`` and ``law``: the parts for readers."""

    signed: SignedParts
    shown: Mapping[str, Any]
    law: Mapping[str, Any]


def read_release_file(data: bytes) -> ReleaseFile:
    """Raises UnreadableError, with what would be right."""
    if len(data) > MOST_BYTES:
        raise UnreadableError(f"larger than {MOST_BYTES >> 20} MiB: no release file is")
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > _MOST_VALUES:
        raise UnreadableError("of more values than any release has: no release file is")
    try:
        value = json.loads(data, parse_constant=_refuse, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise UnreadableError(
            "no JSON: give a file of shoal results export --format release"
        ) from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UnreadableError(
            f'no release file: "format" is not "{FORMAT}": write one with shoal results export '
            "--format release"
        )
    version = value.get("version")
    if type(version) is not int or version != VERSION:
        raise UnreadableError(
            f"version {_short(version)} is not known here: this program reads {VERSION}"
        )
    if unknown := sorted(set(value) - _KEYS):
        raise UnreadableError(f"{_short(unknown[0])} is no part of a release file")
    signed, shown, law = (value.get(name) for name in ("signed", "release", "law"))
    for name, part in (("signed", signed), ("release", shown), ("law", law)):
        if not isinstance(part, dict):
            raise UnreadableError(f'"{name}" is no object')
    assert isinstance(law, dict)  # noqa: S101 - for type checkers: just looked at
    if not isinstance(law.get("parameters") or {}, dict):
        raise UnreadableError('"law": "parameters" is no object')
    assert isinstance(signed, dict)  # noqa: S101 - for type checkers: just looked at
    parts = {field.name: _bytes(signed, field.name) for field in fields(SignedParts)}
    for field in fields(SignedParts):
        if field.default is MISSING and not parts[field.name]:
            raise UnreadableError(f'"signed" has no "{field.name}"')
    return ReleaseFile(SignedParts(**parts), shown or {}, law)


def _bytes(signed: Mapping[str, Any], name: str) -> bytes:
    text = signed.get(name) or ""
    try:
        if not isinstance(text, str):
            raise TypeError
        return base64.b64decode(text, validate=True)
    except (TypeError, binascii.Error, ValueError):
        raise UnreadableError(f'"signed": "{name}" is no base64') from None


def _short(found: object) -> str:
    """As it stands in the file, on one line and not long, without what a terminal would obey."""
    text = ascii(found)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys stand once each: of two, readers could take either."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise UnreadableError("a key stands twice in one object")
    return value


def _refuse(text: str) -> float:
    raise ValueError(text)

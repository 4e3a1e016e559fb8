"""Messages between the analyzer and a worker elsewhere, before they are sealed.

The worker runs what its analyzer tells it to: a request names a function, which only the analyzer
can have sealed. Nothing is pickled, either way: arguments are of a few types, an answer is a result
of one of three, or a typed error.
"""

from __future__ import annotations

import base64
import importlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from types import FunctionType
from typing import Any

from shoal.analyzer.batches.chunk_source import Chunk
from shoal.analyzer.batches.row_opening import ChunkResult, RowContext
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError

_SIZE = struct.Struct("!I")  # of a part: chunks are far below 4 GiB
_PART = struct.Struct("!QII")  # of a chunk that goes in parts: its number, which part, of how many
_SHOWN = 300  # characters of a worker's error message


class Ask(IntEnum):
    """What the analyzer wants."""

    LEND = 1
    TAKE_BACK = 2
    OPEN = 3  # rows that come along
    OPEN_SHARED = 4  # rows in the folder that both can read
    SIMULATE = 5  # made-up devices, see ``rehearsing``: no key, no rows


class AnswerKind(IntEnum):
    """What a worker's answer holds."""

    DONE = 1
    BYTES = 2
    YES_NO = 3
    CHUNK = 4
    REFUSED = 5  # a ShoalError
    UNREADABLE = 6  # an OSError: the shared folder


@dataclass(frozen=True, slots=True)
class SharedRows:
    """Rows of a file in the folder that the analyzer shares with its workers. ``name``: of the
    file, without a folder. No secret: they are sealed.
    """

    name: str
    row_size: int
    chunk: Chunk

    def to_bytes(self) -> bytes:
        """As JSON."""
        spans = [(rows.start, rows.stop) for rows in self.chunk]
        return json.dumps([self.name, self.row_size, spans]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> SharedRows:
        """What the analyzer sealed, so its form is not doubted."""
        name, row_size, spans = json.loads(data)
        return cls(name, row_size, [range(first, last) for first, last in spans])


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """Which part of which chunk a request has: ``at`` of ``of``, from 0. ``chunk``: a number that
    the connection has for it alone.
    """

    chunk: int
    at: int
    of: int

    def to_bytes(self) -> bytes:
        """16 bytes."""
        return _PART.pack(self.chunk, self.at, self.of)

    @classmethod
    def from_bytes(cls, data: bytes) -> ChunkPart:
        """What the analyzer sealed, so its form is not doubted."""
        return cls(*_PART.unpack(data))


def join_parts(*parts: bytes) -> bytes:
    """One byte string, of which ``split_parts`` makes the parts again."""
    return b"".join(piece for part in parts for piece in (_SIZE.pack(len(part)), part))


def split_parts(data: bytes) -> list[bytes]:
    """The inverse of ``join_parts``. Raises ValueError for what is cut short."""
    parts, at, view = [], 0, memoryview(data)
    while at < len(data):
        if at + _SIZE.size > len(data):
            raise ValueError("cut short")
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if at + size > len(data):
            raise ValueError("cut short")
        parts.append(bytes(view[at : at + size]))
        at += size
    return parts


def ask(what: Ask, *parts: bytes) -> bytes:
    """A request; see ``Ask``."""
    return bytes((what,)) + join_parts(*parts)


def asked(message: bytes) -> tuple[Ask, list[bytes]]:
    """The worker's reading of a request that its analyzer sealed."""
    return Ask(message[0]), split_parts(message[1:])


def order(work: Callable[..., object], arguments: tuple[object, ...]) -> bytes:
    """A function of a module and its first arguments; the rows are its last. Raises TypeError for
    an argument of a type that does not cross.
    """
    return json.dumps([_named(one) for one in (work, *arguments)]).encode()


def ordered(order: bytes) -> tuple[Callable[..., object], tuple[object, ...]]:
    """The inverse, in the worker."""
    work, *arguments = map(_meant, json.loads(order))
    if not callable(work):
        raise TypeError("no function was ordered")
    return work, tuple(arguments)


def _named(one: object) -> list[object]:
    if isinstance(one, RowContext):
        return ["context", _text(one.task), _text(one.info), one.row_size]
    if isinstance(one, bytes):
        return ["bytes", _text(one)]
    if isinstance(one, SuiteId):
        return ["suite", one.value]
    if isinstance(one, str):
        return ["text", one]
    if isinstance(one, FunctionType):
        return ["function", one.__module__, one.__qualname__]
    raise TypeError(f"an argument of type {type(one).__name__} does not cross")


def _meant(one: list[Any]) -> object:
    kind, *parts = one
    if kind == "context":
        return RowContext(base64.b64decode(parts[0]), base64.b64decode(parts[1]), parts[2])
    if kind == "bytes":
        return base64.b64decode(parts[0])
    if kind == "suite":
        return SuiteId(parts[0])
    if kind == "text":
        return str(parts[0])
    return getattr(importlib.import_module(parts[0]), parts[1])


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def run(order: bytes, rows: bytes, then: Callable[[object], object]) -> bytes:
    """In the worker: what was ordered, and the answer that ``then`` makes of its result. Never
    raises.
    """
    try:
        work, arguments = ordered(order)
        return answer(then(work(*arguments, rows)))
    except ShoalError as error:
        return refused(error)
    except Exception as error:  # noqa: BLE001 - told to whoever ordered it
        name = type(error).__name__
        return refused(ShoalError(Kind.INTERNAL, f"a worker failed ({name}): this is a bug"))


def refused(error: ShoalError) -> bytes:
    """The answer that raises this error at the analyzer."""
    return bytes((AnswerKind.REFUSED, error.kind.value)) + str(error).encode()


def answer(result: object) -> bytes:
    """A result of a type that may cross. Raises TypeError for any other."""
    if result is None:
        return bytes((AnswerKind.DONE,))
    if isinstance(result, bool):
        return bytes((AnswerKind.YES_NO, result))
    if isinstance(result, ChunkResult):
        return bytes((AnswerKind.CHUNK,)) + join_parts(*result)
    if isinstance(result, bytes):
        return bytes((AnswerKind.BYTES,)) + result
    raise TypeError(f"a worker's result of type {type(result).__name__} does not cross")


def answered(message: bytes) -> object:
    """The analyzer's reading of an answer: whatever a worker may have sealed.

    Raises the worker's own ShoalError, OSError if it can't read the shared folder, and MISMATCH for
    what is no answer.
    """
    try:
        kind, body = AnswerKind(message[0]), message[1:]
        if kind is AnswerKind.DONE and not body:
            return None
        if kind is AnswerKind.YES_NO and len(body) == 1:
            return bool(body[0])
        if kind is AnswerKind.BYTES:
            return body
        if kind is AnswerKind.CHUNK:
            tally, marks, prefixes = split_parts(body)
            return ChunkResult(tally, marks, prefixes)
        if kind is AnswerKind.REFUSED:
            raise ShoalError(Kind(body[0]), _shown(body[1:]))
        if kind is AnswerKind.UNREADABLE:
            raise OSError("the shared folder can't be read there")
    except (ValueError, IndexError):
        pass
    raise ShoalError(Kind.MISMATCH, "its answer has another form than this version's")


def _shown(text: bytes) -> str:
    said = text.decode("utf-8", "replace")[:_SHOWN]
    return "".join(letter if letter.isprintable() else "?" for letter in said)

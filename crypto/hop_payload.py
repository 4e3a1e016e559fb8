"""What a hop layer holds, written without protobuf, and read without it where its bytes lie as
every encoder writes them.

``HopPayload`` has fields of fixed lengths, and canonical proto3 puts them in one order: so a few
comparisons and slices say the same as the codec, in a third of its time. Anything else, however
slight, is left to the codec: this reader never refuses, it only does not know. A writer has no
choice to make: its bytes are those of the codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from shoal.limits import LIMITS

# tags of HopPayload's fields with the lengths that they have in every frame
_TASK = b"\x0a\x20"
_WINDOW = 0x15  # fixed32; left out for window 0
_ACK_KEY = b"\x1a\x20"
_ANALYZER_KEY = b"\x22\x08"
_ADMISSION = 0x2A  # left out where it is empty
_SEALED = 0x32
_MORE = 0x80  # of a varint: another byte follows


class HopFields(NamedTuple):
    """The fields of a ``HopContent``, raw, each of its right length.

    ``task_id`` 32 bytes, ``window`` 0 to 2^32 - 1, ``ack_key`` 32, ``analyzer_key_id`` 8;
    ``sealed``: 1 to ``LIMITS.messages`` messages of one length above 0.
    """

    task_id: bytes
    window: int
    ack_key: bytes
    analyzer_key_id: bytes
    admission: bytes
    sealed: tuple[bytes, ...]

    def __repr__(self) -> str:
        """Without a key, a proof or what was sealed: none of them prints."""
        return f"<HopFields of {len(self.sealed)} messages to window {self.window}>"


class HopWriter:
    """Writes canonical ``HopPayload``s of one task, window and analyzer key: 32 bytes, [0, 2^32), 8
    bytes, which are for the caller to check.
    """

    __slots__ = ("_head", "_middle")

    def __init__(self, task_id: bytes, window: int, analyzer_key_id: bytes) -> None:
        named = bytes((_WINDOW,)) + window.to_bytes(4, "little") if window else b""
        self._head = _TASK + task_id + named + _ACK_KEY
        self._middle = _ANALYZER_KEY + analyzer_key_id

    def write(self, ack_key: bytes, admission: bytes, sealed: Sequence[bytes]) -> bytes:
        """The payload. ``ack_key``: 32 bytes; ``sealed``: messages of one length above 0."""
        parts = [self._head, ack_key, self._middle]
        if admission:
            parts += (_tagged(_ADMISSION, len(admission)), admission)
        tag = _tagged(_SEALED, len(sealed[0]))
        for message in sealed:
            parts += (tag, message)
        return b"".join(parts)

    def around(self, message_size: int) -> tuple[bytes, bytes]:
        """What stands before and behind the ack key of every payload with one message of so many
        bytes and no admission; the message is the rest.
        """
        return self._head, self._middle + _tagged(_SEALED, message_size)


def sealed_field_size(message_size: int) -> int:
    """Bytes of a payload that one sealed message of so many bytes takes."""
    return len(_tagged(_SEALED, message_size)) + message_size


@lru_cache(maxsize=256)
def _tagged(tag: int, length: int) -> bytes:
    """What stands before a field of so many bytes: its tag, and the length as a varint."""
    varint = bytearray((tag,))
    while length >= _MORE:
        varint.append(length & 0x7F | _MORE)
        length >>= 7
    varint.append(length)
    return bytes(varint)


def read_canonical(payload: bytes) -> HopFields | None:
    """The fields of a canonical ``HopPayload`` that every check of ``HopContent`` lets pass; None:
    ask the codec, which may read it all the same.
    """
    try:
        return _read(payload)
    except IndexError:  # it ends too soon
        return None


def _read(payload: bytes) -> HopFields | None:
    if payload[:2] != _TASK:
        return None
    window, at = 0, 34
    if payload[34] == _WINDOW:
        window, at = int.from_bytes(payload[35:39], "little"), 39
    if payload[at : at + 2] != _ACK_KEY or payload[at + 34 : at + 36] != _ANALYZER_KEY:
        return None
    task_id, ack_key = payload[2:34], payload[at + 2 : at + 34]
    analyzer_key_id = payload[at + 36 : at + 44]
    at += 44
    admission, total = b"", len(payload)
    if payload[at] == _ADMISSION:
        start, at = _span(payload, at)
        admission = payload[start:at]
    if payload[at] != _SEALED:
        return None
    start, end = _span(payload, at)
    if end == total:
        return HopFields(
            task_id, window, ack_key, analyzer_key_id, admission, (payload[start:end],)
        )
    # Several messages of one length have one prefix, and follow one another to the end.
    prefix, step = payload[at:start], end - at
    places = range(at, total, step)
    if len(places) > LIMITS.messages or places[-1] + step != total:
        return None
    if any(payload[place : place + len(prefix)] != prefix for place in places):
        return None
    sealed = tuple(payload[place + len(prefix) : place + step] for place in places)
    return HopFields(task_id, window, ack_key, analyzer_key_id, admission, sealed)


def _span(payload: bytes, at: int) -> tuple[int, int]:
    """Where the bytes of the field whose tag is at ``at`` begin and end. Raises IndexError where
    they are none, reach beyond the end, or their length is not written in the fewest bytes, two at
    most.
    """
    length, start = payload[at + 1], at + 2
    if length & _MORE:
        more, start = payload[at + 2], at + 3
        if more & _MORE or not more:
            raise IndexError
        length = length & ~_MORE | more << 7
    if not length or start + length > len(payload):
        raise IndexError
    return start, start + length

"""What the database holds of reports: blocks of many, encrypted by a key that never gets there.

A block of an inbox is what one commit group brought to one window, in storage key order, in two
parts that are encrypted apart, so that keys can be read without the messages: ``KEYS``, one for
each report, and ``ROWS``. Where a report may have several messages, ``ROWS`` begins with how many
each has, u16be. A block of a batch is some rows of it in delivered order: ``BATCH``.

    part = nonce(12, random) || AES-256-GCM(key of the purpose, what it holds; associated data =
           "shoal/v1/block" || part's number || task id || u32be(window) || u32be(emptied) ||
           place || u32be(count))

``place`` says where it lies: the writer's id and its number for an inbox, the fence and the
part's number for a batch. ``emptied``: how often the open window's reports had been deleted; 0 for
a batch. A block that was moved, cut, swapped with another, or kept from before does not open.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum, unique

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.shuffler.core import WindowId

_NONCE = 12  # bytes
_DOMAIN = b"shoal/v1/block"
OVERHEAD = _NONCE + 16  # bytes that a part has more than what it holds


@unique
class Part(IntEnum):
    """Part of the associated data: never reuse a number."""

    KEYS = 1
    ROWS = 2
    BATCH = 3


class BlockCipher:
    """Seals and opens the blocks of one window under one key."""

    def __init__(
        self, key: bytes, window: WindowId, entropy: Entropy = SYSTEM, emptied: int = 0
    ) -> None:
        """``key``: 32 bytes. ``emptied``: how often the window was emptied before."""
        self._aead, self._entropy = AESGCM(key), entropy
        self._window = window.task_id.raw + struct.pack(">II", window.window, emptied)

    def __repr__(self) -> str:
        return "<BlockCipher>"

    def seal(self, part: Part, place: bytes, count: int, data: bytes) -> bytes:
        """``count``: reports in ``data``, or rows of a batch."""
        nonce = self._entropy.bytes(_NONCE)
        return nonce + self._aead.encrypt(nonce, data, self._bound(part, place, count))

    def open(self, part: Part, place: bytes, count: int, block: bytes) -> bytes | None:
        """None: it is not what was sealed for this place."""
        if len(block) < OVERHEAD:
            return None
        try:
            bound = self._bound(part, place, count)
            return self._aead.decrypt(block[:_NONCE], block[_NONCE:], bound)
        except InvalidTag:
            return None

    def _bound(self, part: Part, place: bytes, count: int) -> bytes:
        return b"".join((_DOMAIN, bytes((part,)), self._window, place, struct.pack(">I", count)))


def inbox_place(writer: bytes, number: int) -> bytes:
    """Of a block of an inbox: whose it is, and the how many-th of that writer (from 1)."""
    return writer + struct.pack(">Q", number)


def batch_place(fence: int, part: int) -> bytes:
    """Of a block of a batch: written under which claim, and the how many-th (from 0)."""
    return struct.pack(">QQ", fence, part)


def with_sizes(sizes: Sequence[int], rows: bytes) -> bytes:
    """What ``ROWS`` holds of reports with several messages."""
    return struct.pack(f">{len(sizes)}H", *sizes) + rows


def parted(body: bytes, count: int, row_size: int) -> tuple[tuple[int, ...], bytes]:
    """The other way round, of ``count`` reports. Raises INTERNAL for what was not written so."""
    end = 2 * count
    sizes = struct.unpack(f">{count}H", body[:end]) if len(body) >= end else ()
    if len(body) != end + sum(sizes) * row_size or not all(sizes):
        raise ShoalError(Kind.INTERNAL, "an inbox has reports of a wrong size")
    return sizes, body[end:]

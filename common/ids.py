"""Ids are small frozen types, never bare bytes in a signature: a task id can't be passed where a
key id is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from shoal.digests import sha256
from shoal.errors import Kind, ShoalError


@dataclass(frozen=True, slots=True, order=True)
class _Id:
    """Fixed-length bytes with a hex form. Public: never a secret."""

    raw: bytes
    SIZE: ClassVar[int] = 0
    WHAT: ClassVar[str] = "id"

    def __post_init__(self) -> None:
        if not isinstance(self.raw, bytes) or len(self.raw) != self.SIZE:
            raise ShoalError(Kind.INVALID, f"a {self.WHAT} is {self.SIZE} bytes long")

    @classmethod
    def parse(cls, text: str) -> Self:
        """From hex digits. Raises INVALID."""
        try:
            return cls(bytes.fromhex(text))
        except ValueError:
            raise ShoalError(Kind.INVALID, f"a {cls.WHAT} is {cls.SIZE * 2} hex digits") from None

    @property
    def hex(self) -> str:
        return self.raw.hex()

    @property
    def short(self) -> str:
        """Eight hex digits, enough for a log line or a table."""
        return self.raw.hex()[:8]

    def __str__(self) -> str:
        return self.hex


class TaskId(_Id):
    """SHA-256("shoal/v1/task" || 0x00 || task bytes)."""

    __slots__ = ()
    SIZE = 32
    WHAT = "task id"

    @classmethod
    def of(cls, task_bytes: bytes) -> TaskId:
        """SHA-256("shoal/v1/task" || 0x00 || bytes) of a task's serialized bytes."""
        return cls(sha256(b"shoal/v1/task\x00" + task_bytes))


class KeyId(_Id):
    """The first 8 bytes of SHA-256(public key configuration)."""

    __slots__ = ()
    SIZE = 8
    WHAT = "key id"

    @classmethod
    def of(cls, config: bytes) -> KeyId:
        """The first 8 bytes of SHA-256 of a public key configuration."""
        return cls(sha256(config)[:8])


class Digest(_Id):
    """A SHA-256 value: of a manifest, a schedule, the rows of a batch, a frame."""

    __slots__ = ()
    SIZE = 32
    WHAT = "SHA-256 digest"

    @classmethod
    def of(cls, data: bytes) -> Digest:
        """SHA-256 of the bytes."""
        return cls(sha256(data))


class StorageKey(_Id):
    """HMAC-SHA256(secret of the task's window, SHA-256(sealed))[:16]: identity and place of a
    sealed report at the shuffler.
    """

    __slots__ = ()
    SIZE = 16
    WHAT = "storage key"

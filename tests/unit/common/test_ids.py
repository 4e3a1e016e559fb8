"""Ids are fixed-length, typed, public and hashable; anything else is refused in one line."""

from __future__ import annotations

import hashlib
import pickle

import pytest

from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, StorageKey, TaskId
from tests.cases import for_each

TYPES = [(TaskId, 32), (KeyId, 8), (Digest, 32), (StorageKey, 16)]
IdType = type[TaskId] | type[KeyId] | type[Digest] | type[StorageKey]


@for_each("cls, size", TYPES)
def test_length(cls: IdType, size: int) -> None:
    """Planted: dropping the length check -> this fails."""
    assert cls(bytes(size)).raw == bytes(size)
    for wrong in (b"", bytes(size - 1), bytes(size + 1)):
        with pytest.raises(ShoalError) as caught:
            cls(wrong)
        assert caught.value.kind is Kind.INVALID
        assert str(size) in caught.value.message


@for_each("wrong", ["00" * 8, bytearray(8), memoryview(bytes(8)), None, 8])
def test_only_bytes(wrong: object) -> None:
    """A mutable or foreign buffer would make an id that changes under its hash."""
    with pytest.raises(ShoalError):
        KeyId(wrong)  # type: ignore[arg-type]  # that is the point


@for_each("cls, size", TYPES)
def test_text_form_round_trips(cls: IdType, size: int) -> None:
    one = cls(bytes(range(size)))
    assert cls.parse(str(one)) == one
    assert one.hex == bytes(range(size)).hex()
    assert one.short == one.hex[:8]
    assert hash(cls.parse(one.hex)) == hash(one)
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 - ids go to worker processes


@for_each("text", ["", "zz" * 8, "00" * 7, "00" * 9, "0x" + "00" * 8, "é" * 16])
def test_bad_text(text: str) -> None:
    with pytest.raises(ShoalError) as caught:
        KeyId.parse(text)
    assert caught.value.kind is Kind.INVALID


def test_types_are_not_interchangeable() -> None:
    """A digest and a task id of the same bytes are different things, and don't compare equal."""
    task: object = TaskId(bytes(32))
    assert task != Digest(bytes(32))


def test_definitions() -> None:
    """The labels and lengths of docs/WIRE.md. Planted: leaving the zero byte out of the task label
    -> this fails.
    """
    assert TaskId.of(b"abc").raw == hashlib.sha256(b"shoal/v1/task" + b"\0" + b"abc").digest()
    assert KeyId.of(b"abc").raw == hashlib.sha256(b"abc").digest()[:8]
    assert Digest.of(b"abc").raw == hashlib.sha256(b"abc").digest()


def test_order_is_that_of_the_bytes() -> None:
    """Sorted storage keys are the permutation: the order must be the bytes' own."""
    keys = [StorageKey(bytes([i]) + bytes(15)) for i in (255, 0, 128)]
    assert [key.raw[0] for key in sorted(keys)] == [0, 128, 255]

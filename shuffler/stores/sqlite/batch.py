"""A sealed batch on disk: the distinct sealed messages in storage key order, and checksums of them.

A flat file rather than a second SQLite table keyed by the storage key: no key survives sealing (so
nothing joins a delivered row to an inbox row that a disk image might hold), the file is written
once, front to back, and delivery resumes at any row by multiplication. Rows have a fixed width;
after every 64 of them, and after the last ones, stand the first 16 bytes of SHA-256 over the
group's number and rows; at the end the number of rows, their size and SHA-256 (the manifest's),
under a checksum of their own. So a group is verified whenever it is read, and says which rows a
damaged disk took.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.services.process import fsync_folder
from shoal.shuffler.stores.sqlite import disk
from shoal.shuffler.stores.store import SealedRows

GROUP = 64  # rows under one checksum: 13 KiB of the smallest reports
_TEMPORARY = ".tmp"
_BUFFER = 1 << 20  # bytes
_CHECK = 16  # bytes
_END = struct.Struct(">8sQI32s")  # magic, rows, row size, SHA-256 of the rows
_MAGIC = b"SHOALBAT"


def write(path: Path, blocks: Iterable[bytes | memoryview], row_size: int) -> SealedRows:
    """Write the rows under a temporary name, make them durable, then give them their name. May be
    repeated after a crash.

    ``blocks``: whole rows one after the other, any number of them in each. That each row is of
    ``row_size`` is for who makes the blocks: here only their sum is seen.

    Raises OSError, and INTERNAL for a block that is not of whole rows. A failure leaves no
    unfinished file: on a full disk it would keep the space that the next attempt wants.
    """
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        sealed = _write(temporary, blocks, row_size)
        failpoints.hit("seal.rename")
        temporary.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    failpoints.hit("seal.folder")
    fsync_folder(path.parent)
    return sealed


def _write(temporary: Path, blocks: Iterable[bytes | memoryview], row_size: int) -> SealedRows:
    digest, groups = hashlib.sha256(), 0
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(handle, "wb", buffering=_BUFFER) as file:
        failpoints.hit("seal.write")
        length = 0
        for group in _regrouped(blocks, row_size):
            file.write(group)
            file.write(_check(groups, group))
            digest.update(group)
            groups, length = groups + 1, length + len(group)
        rows = length // row_size
        last = _END.pack(_MAGIC, rows, row_size, digest.digest())
        file.write(last + hashlib.sha256(last).digest()[:_CHECK])
        failpoints.hit("seal.flush")
        file.flush()
        os.fsync(file.fileno())
    return SealedRows(rows, row_size, Digest(digest.digest()), reports=rows)


def _regrouped(blocks: Iterable[bytes | memoryview], row_size: int) -> Iterator[bytes | memoryview]:
    """The same rows, ``GROUP`` at a time; the last ones may be fewer. Raises INTERNAL for a part of
    a row.
    """
    size, rest = GROUP * row_size, b""
    for block in blocks:
        view = memoryview(block)
        if len(view) % row_size:
            raise ShoalError(Kind.INTERNAL, "a batch is to have a row of a wrong size")
        begin = min(size - len(rest), len(view)) if rest else 0
        rest += view[:begin]
        if len(rest) == size:
            yield rest
            rest = b""
        end = len(view) - (len(view) - begin) % size
        yield from (view[at : at + size] for at in range(begin, end, size))
        rest += view[end:]
    if rest:
        yield rest


def _check(number: int, data: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(number.to_bytes(8, "big"))
    digest.update(data)
    return digest.digest()[:_CHECK]


def read(path: Path, total: int, row_size: int, first: int, count: int) -> bytes:
    """Rows [first, first + count) of ``total``, verified. Raises OSError; MISMATCH if one of their
    groups is damaged.
    """
    begin, end = first // GROUP, -(-(first + count) // GROUP)
    pieces = list(_groups(path, total, row_size, begin, end))
    if any(piece is None for piece in pieces):
        raise ShoalError(Kind.MISMATCH, "rows of the batch are damaged on disk")
    data = b"".join(piece for piece in pieces if piece is not None)
    skip = (first - begin * GROUP) * row_size
    return data[skip : skip + count * row_size]


def _groups(path: Path, total: int, row_size: int, begin: int, end: int) -> Iterator[bytes | None]:
    """Groups [begin, end) of a batch of ``total`` rows, None for each that is damaged or missing.
    Raises OSError.
    """
    size = GROUP * row_size + _CHECK
    at_once = max(1, _BUFFER // size)
    with path.open("rb") as file:
        for first in range(begin, end, at_once):
            last = min(end, first + at_once)
            block = os.pread(file.fileno(), (last - first) * size, first * size)
            for number in range(first, last):
                length = min(GROUP, total - number * GROUP) * row_size
                at = (number - first) * size
                data, check = block[at : at + length], block[at + length : at + length + _CHECK]
                yield data if len(data) == length and check == _check(number, data) else None


def survey(path: Path) -> SealedRows | None:
    """What the file says of itself; None if its end is missing or damaged. Raises OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        tail = os.pread(file.fileno(), _END.size + _CHECK, max(0, size - _END.size - _CHECK))
    end = tail[: _END.size]
    if len(tail) < _END.size + _CHECK or hashlib.sha256(end).digest()[:_CHECK] != tail[_END.size :]:
        return None
    magic, rows, row_size, digest = _END.unpack(end)
    return (
        SealedRows(rows, row_size, Digest(digest), reports=rows)
        if magic == _MAGIC and size == file_size(rows, row_size)
        else None
    )


def file_size(rows: int, row_size: int) -> int:
    """Bytes of a batch's file."""
    return rows * row_size + -(-rows // GROUP) * _CHECK + _END.size + _CHECK


def intact(path: Path, sealed: SealedRows) -> bool:
    """Whether every row is there, and they are those of ``rows_hash``. Reads the whole file. Raises
    OSError; gone is False.
    """
    digest = hashlib.sha256()
    try:
        for data in _groups(path, sealed.rows, sealed.row_size, 0, -(-sealed.rows // GROUP)):
            if data is None:
                return False
            digest.update(data)
    except FileNotFoundError:
        return False
    return digest.digest() == sealed.rows_hash.raw


def mend(path: Path, sealed: SealedRows) -> SealedRows:
    """Write the file anew with the groups that are intact; ``sealed``: what it was. May be repeated
    after a crash. Raises OSError.
    """
    row_size = sealed.row_size

    def rows() -> Iterator[bytes]:
        for data in _groups(path, sealed.rows, row_size, 0, -(-sealed.rows // GROUP)):
            if data is not None:
                yield data

    return write(path, rows(), row_size)


def destroy(path: Path) -> None:
    """Unlink the file and an unfinished one, durably. What the disk's blocks still hold is the file
    system's matter.
    """
    for place in (path.with_name(path.name + _TEMPORARY), path):
        failpoints.hit("batch.unlink")
        disk.unlink(place)
    failpoints.hit("batch.unlinked")
    fsync_folder(path.parent)  # also if it was gone: a crash may have come before this

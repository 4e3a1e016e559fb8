"""Long arrays of numbers as files, in segments with a hash each: written once, and never trusted
when they are read.

Such a file is written and read one segment at a time, however long it is. Who reads it brings the
hashes from elsewhere: from a signed release, or from a row under a digest. A segment that is not
what was written is refused with a line that names the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.services.whole_files import whole_file

HASH_SIZE = 32  # bytes of SHA-256
_NPY_ALIGN = 64  # bytes


def npy_header(dtype: str, length: int, shape: tuple[int, ...] | None = None) -> bytes:
    """What stands before the numbers in a file of NumPy's format 1.0 (numpy.lib.format), for an
    array of one dimension, or of a ``shape`` that holds as many, in row-major order.
    """
    sides = (length,) if shape is None else shape
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {sides!r}, }}"
    before = 10  # magic, version, length of the rest
    padding = -(before + len(text) + 1) % _NPY_ALIGN
    rest = text.encode() + b" " * padding + b"\n"
    return b"\x93NUMPY\x01\x00" + len(rest).to_bytes(2, "little") + rest


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """``dtype``: numpy's name of one number, as "<i8"; ``length`` numbers; ``segment`` of them at a
    time. ``npy``: with the header of NumPy's format.
    """

    dtype: str
    length: int
    segment: int
    npy: bool = False

    @property
    def header(self) -> bytes:
        """What stands before the first number."""
        return npy_header(self.dtype, self.length) if self.npy else b""

    @property
    def count(self) -> int:
        """Segments."""
        return -(-self.length // self.segment)

    @property
    def file_size(self) -> int:
        """Bytes."""
        return len(self.header) + self.length * np.dtype(self.dtype).itemsize

    def span(self, number: int) -> slice:
        """The numbers of a segment."""
        start = number * self.segment
        return slice(start, min(start + self.segment, self.length))


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """A file of that form, whose segments have these hashes, 32 bytes each. ``restore``: what to do
    about a damaged one, in words.
    """

    path: Path
    form: ArrayForm
    hashes: bytes
    restore: str = "restore it from a copy"

    def segment(self, number: int) -> NDArray[Any]:
        """The numbers of a segment, as they were written. Raises MISMATCH, with the file's name,
        for a file that is not there, has another length, or another content.
        """
        form = self.form
        span, width = form.span(number), np.dtype(form.dtype).itemsize
        wanted = self.hashes[number * HASH_SIZE : (number + 1) * HASH_SIZE]
        try:
            with self.path.open("rb") as file:
                header = file.read(len(form.header))
                file.seek(len(form.header) + span.start * width)
                data = file.read((span.stop - span.start) * width)
                size = file.seek(0, 2)
        except OSError as error:
            why = error.strerror or "unreadable"
            raise ShoalError(Kind.MISMATCH, f"{self.path}: {why}: {self.restore}") from None
        if size != form.file_size or header != form.header:
            raise self._damaged(f"it is not an array of {form.length:,} numbers {form.dtype}")
        if hashlib.sha256(data).digest() != wanted:
            raise self._damaged(f"numbers {span.start:,} to {span.stop - 1:,} are not what was")
        return np.frombuffer(data, form.dtype)

    def segments(self) -> Iterator[NDArray[Any]]:
        """All of them, in order; raises as ``segment``."""
        return (self.segment(number) for number in range(self.form.count))

    def check(self) -> None:
        """Raises as ``segment``, for any of them."""
        for _ in self.segments():
            pass

    def _damaged(self, what: str) -> ShoalError:
        said = what if what.startswith("it is") else f"{what} written"
        return ShoalError(Kind.MISMATCH, f"{self.path} is damaged: {said}: {self.restore}")


def write_array(path: Path, form: ArrayForm, parts: Iterable[NDArray[Any]], point: str) -> bytes:
    """Write the file, whole or not at all; the hashes of its segments. ``parts``: the numbers of
    each segment, in order. ``point``: the name of the failpoints of its steps. Raises OSError.
    """
    hashes = bytearray()
    with whole_file(path, point) as file:
        file.write(form.header)
        for part in parts:
            data = np.ascontiguousarray(part, dtype=form.dtype).data.cast("B")
            file.write(data)
            hashes += hashlib.sha256(data).digest()
    return bytes(hashes)

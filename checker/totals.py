"""The array of a long vector: that the release says of it what the task says, and that the file
beside the release is the array that was signed. The file is read one segment at a time.

The file is of NumPy's format 1.0 (numpy.lib.format): magic, version, u16le length of a text, the
text, then the numbers: 64-bit two's complement, little-endian.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal.checker.chain import Chain
from shoal.checker.findings import Outcome, Statement
from shoal.protos import release_pb2, task_pb2

_WIDTH, _HASH = 8, 32  # bytes of a number, and of SHA-256
_DTYPE = "<i8"
_MOST_SEGMENT = 1 << 20  # numbers that are held at a time
_MOST_FIRST = 8
_NORM = 1e-6  # relative error of the norm: floats are added in another order here


def shown_array(release: release_pb2.Release) -> dict[str, Any] | None:
    """What the part for readers is to say of it."""
    if release.withheld or not release.HasField("array"):
        return None
    told = release.array
    return {
        "file": array_name(release),
        "dtype": told.dtype,
        "length": told.length,
        "segment": told.segment,
        "sha256": told.segments.hex(),
        "clip": told.clip,
        "grid": told.grid,
        "stderr": told.stderr,
        "reach": told.reach,
        "norm": told.norm,
        "first": [number * told.clip / told.grid for number in told.first] if told.grid else [],
        **({"layout": layout} if (layout := [*map(_named, told.layout)]) else {}),
    }


def _named(array: task_pb2.NamedArray) -> str:
    return f"{array.name}[{','.join(map(str, array.shape))}]"


def array_name(release: release_pb2.Release) -> str:
    """Of the file beside the release."""
    return f"{release.task_id.hex()}-{release.window}.npy"


def totals(chain: Chain, folder: Path | None) -> Iterator[Statement]:
    """Statements of a release with an array, and of a task that wants one; none of others.
    ``folder``: where the file of the release lies; None: unknown.
    """
    release, task = chain.release, chain.task
    wanted = task.pairwise.segment_words > 0 and not release.withheld
    if not (wanted or release.HasField("array")):
        return
    told, vector = release.array, task.domain.vector
    terms = (
        wanted and not release.estimates,
        told.dtype == _DTYPE,
        told.length == vector.dimension,
        1 <= told.segment <= _MOST_SEGMENT,
        told.segment > 0 and len(told.segments) == _HASH * -(-told.length // told.segment),
        (told.clip, told.grid) == (vector.clip, vector.grid),
        [*map(_named, told.layout)] == [*map(_named, vector.layout)],
        0 <= told.stderr <= told.reach < math.inf,
        len(told.first) == min(_MOST_FIRST, told.length),
    )
    sound = all(terms)
    why = (
        "length, layout, clip and grid compared"
        if sound
        else "length, layout, clip, grid or segments differ"
    )
    outcome = Outcome.HOLDS if sound else Outcome.WRONG
    yield Statement("its totals are one array, as the task has it", outcome, why)
    if sound:
        yield _file(release, folder)


def _file(release: release_pb2.Release, folder: Path | None) -> Statement:
    what, name = "the array is what was signed", array_name(release)
    if folder is None or not (folder / name).is_file():
        return Statement(what, Outcome.OPEN, f"{name} does not lie beside the release file")
    try:
        with (folder / name).open("rb") as file:
            wrong = _compared(file, release.array)
    except OSError as error:
        return Statement(what, Outcome.OPEN, f"{name}: {error.strerror or 'unreadable'}")
    if wrong:
        return Statement(what, Outcome.WRONG, f"{name}: {wrong}")
    return Statement(what, Outcome.HOLDS, f"{release.array.length:,} numbers, every segment hashed")


def _compared(file: Any, told: release_pb2.TotalsArray) -> str:
    """What is wrong with the file; "": nothing."""
    begin = file.read(10)
    text = file.read(int.from_bytes(begin[8:10], "little"))
    wanted = f"{{'descr': '{told.dtype}', 'fortran_order': False, 'shape': ({told.length},), }}"
    if begin[:8] != b"\x93NUMPY\x01\x00" or text.decode("latin-1").rstrip() != wanted:
        return f"it is no array of {told.length:,} numbers {told.dtype}"
    squares, left, first = 0.0, told.length, list[int]()
    for start in range(0, len(told.segments), _HASH):
        count = min(told.segment, left)
        data = file.read(count * _WIDTH)
        wanted_hash = told.segments[start : start + _HASH]
        if len(data) != count * _WIDTH or hashlib.sha256(data).digest() != wanted_hash:
            begins = told.length - left
            return f"numbers {begins:,} to {begins + count - 1:,} are not what was signed"
        numbers = struct.unpack(f"<{count}q", data)
        first += numbers[: _MOST_FIRST - len(first)]
        squares += math.fsum(number * number for number in map(float, numbers))
        left -= count
    if file.read(1):
        return "there are more bytes than numbers"
    norm = math.sqrt(squares) / told.grid * told.clip
    if first != list(told.first):
        return "its first numbers are not what the release says"
    if not math.isclose(norm, told.norm, rel_tol=_NORM):
        return f"its norm is {norm:.9g}, the release says {told.norm:.9g}"
    return ""

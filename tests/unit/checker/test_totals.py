"""The array of a long vector in a file that was not written by us."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from shoal.checker.chain import Chain
from shoal.checker.findings import Outcome
from shoal.checker.totals import array_name, totals
from shoal.protos import release_pb2, task_pb2
from tests.cases import for_each

NUMBERS = (3, -4, 0, 12)


def pair(name: str) -> task_pb2.NamedArray:
    return task_pb2.NamedArray(name=name, shape=[2])


def chain_of(
    data: bytes, folder: Path, signed: Sequence[str] = (), asked: Sequence[str] = ()
) -> Chain:
    """A release of four numbers in two segments, whose hashes are those of ``data``. Its named
    arrays, of two numbers each, and its task's.
    """
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }\n"
    begin = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    array = release_pb2.TotalsArray(
        dtype="<i8",
        length=4,
        segment=2,
        segments=b"".join(hashlib.sha256(data[at : at + 16]).digest() for at in (0, 16)),
        clip=2.0,
        grid=2,
        stderr=1.0,
        reach=1.96,
        norm=13.0,
        first=NUMBERS,
        layout=map(pair, signed),
    )
    release = release_pb2.Release(task_id=bytes(32), array=array)
    (folder / array_name(release)).write_bytes(begin + data)
    vector = task_pb2.Vector(dimension=4, clip=2.0, grid=2, layout=map(pair, asked))
    task = task_pb2.Task(
        domain=task_pb2.Domain(vector=vector), pairwise=task_pb2.Pairwise(segment_words=2)
    )
    return cast("Chain", SimpleNamespace(release=release, task=task))


@for_each(
    "cut, outcome",
    [(0, Outcome.HOLDS), (1, Outcome.WRONG), (8, Outcome.WRONG), (16, Outcome.WRONG)],
)
def test_a_segment_that_was_signed_too_short_is_wrong(
    cut: int, outcome: Outcome, tmp_path: Path
) -> None:
    """Whoever signs may hash what is no array: it is told, and stops nothing. Planted: the length
    of a segment not looked at -> struct.error, fails.
    """
    data = struct.pack("<4q", *NUMBERS)
    chain = chain_of(data[: len(data) - cut], tmp_path)
    assert [one.outcome for one in totals(chain, tmp_path)][-1] is outcome


@for_each(
    "signed, holds",
    [(("weight", "bias"), True), (("bias", "weight"), False), (("weight",), False), ((), False)],
)
def test_arrays_are_named_as_the_task_names_them(
    signed: tuple[str, ...], holds: bool, tmp_path: Path
) -> None:
    """In its order, and all of them. Planted: names compared as sets, or not at all -> fails."""
    data = struct.pack("<4q", *NUMBERS)
    first = next(totals(chain_of(data, tmp_path, signed, ("weight", "bias")), tmp_path))
    assert first.outcome is (Outcome.HOLDS if holds else Outcome.WRONG)

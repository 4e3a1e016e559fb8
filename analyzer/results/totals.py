"""The totals of a long vector: one array beside the signed release, which says what it is.

The array stands in the folder ``arrays`` of the analyzer's data, in NumPy's own format: numbers of
64 bits in grid steps. A number times clip / grid is a total in the task's unit. The noise has the
same law in every coordinate, so one standard error and one interval width stand for all.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.protos import release_pb2
from shoal.questions.domain_codec import decode_layout, encode_layout
from shoal.questions.layout import NamedShape, named_shape, spans
from shoal.services.whole_files import whole_file
from shoal.storage.array_files import ArrayFile, ArrayForm, npy_header, write_array
from shoal.storage.released_arrays import DTYPE, array_name

FOLDER = "arrays"
_MOST_NAMED = 6  # arrays that people are told the names of
MOST_FIRST = 8  # numbers that stand in the release itself


def write_totals(
    path: Path,
    dimension: int,
    parts: Iterable[NDArray[np.int64]],
    *,
    clip: float,
    grid: int,
    stderr: float,
    reach: float,
    layout: Sequence[NamedShape] = (),
) -> release_pb2.TotalsArray:
    """Write the array; what the release says of it. ``parts``: int64, the totals in grid steps, of
    ``LIMITS.array_segment`` coordinates at a time. ``stderr``, ``reach``: in the task's unit.
    Raises OSError; then nothing is there.
    """
    form = ArrayForm(DTYPE, dimension, min(LIMITS.array_segment, dimension), npy=True)
    message = release_pb2.TotalsArray(
        dtype=DTYPE,
        length=dimension,
        segment=form.segment,
        clip=clip,
        grid=grid,
        stderr=stderr,
        reach=reach,
        layout=encode_layout(layout),
    )
    squares = 0.0

    def watched() -> Iterator[NDArray[np.int64]]:
        nonlocal squares
        for part in parts:
            squares += squared(part)
            if len(message.first) < MOST_FIRST:
                message.first.extend(part[: MOST_FIRST - len(message.first)].tolist())
            yield part

    path.parent.mkdir(mode=0o700, exist_ok=True)
    message.segments = write_array(path, form, watched(), "analyzer.totals")
    message.norm = math.sqrt(squares) / grid * clip
    return message


def squared(part: NDArray[Any]) -> float:
    """Sum of the squares of int64[n], as a float: relative error at most n 2^-52."""
    numbers = part.astype(np.float64)
    return float(numbers @ numbers)


def array_json(release: release_pb2.Release) -> dict[str, Any] | None:
    """What a release says of its array, for machines; None: it has none. ``first``: the first
    totals, in the task's unit, as ``norm``.
    """
    if release.withheld or not release.HasField("array"):
        return None
    told = release.array
    return {
        "file": array_name(TaskId(release.task_id), release.window),
        "dtype": told.dtype,
        "length": told.length,
        "segment": told.segment,
        "sha256": told.segments.hex(),
        "clip": told.clip,
        "grid": told.grid,
        "stderr": told.stderr,
        "reach": told.reach,
        "norm": told.norm,
        "first": [number * told.clip / told.grid for number in told.first],
        **({"layout": layout} if (layout := layout_json(told)) else {}),
    }


def layout_json(told: release_pb2.TotalsArray) -> list[str]:
    """The named arrays of a release, as ``layer1.weight[256,64]``."""
    return [str(one) for one in decode_layout(told.layout)]


def layout_of_json(told: dict[str, Any]) -> tuple[NamedShape, ...]:
    """Of a release in the shape of ``array_json``; () where it has none. Raises INVALID."""
    return tuple(map(named_shape, told.get("layout", ())))


def array_of_json(path: Path, told: dict[str, Any]) -> ArrayFile:
    """The file of a release in the shape of ``array_json``."""
    form = ArrayForm(told["dtype"], told["length"], told["segment"], npy=True)
    return ArrayFile(path, form, bytes.fromhex(told["sha256"]))


def array_words(told: dict[str, Any]) -> list[tuple[str, str]]:
    """What people are told of an array (``array_json``): a heading and its words, one per row."""
    first = ", ".join(f"{value:,.6g}" for value in told["first"])
    more = ", ..." if told["length"] > len(told["first"]) else ""
    return [
        ("totals", f"{told['length']:,}, in one array: {told['file']}"),
        *_layout_words(told),
        ("norm", f"{told['norm']:,.6g} (Euclidean, noise included)"),
        ("first", first + more),
        ("standard error", f"{told['stderr']:,.6g} of each total"),
        ("95 % interval", f"each total, plus and minus {told['reach']:,.6g}"),
    ]


def _layout_words(told: dict[str, Any]) -> list[tuple[str, str]]:
    named = told.get("layout", [])
    if not named:
        return []
    more = f", ... ({len(named):,} in all)" if len(named) > _MOST_NAMED else ""
    return [("arrays", ", ".join(named[:_MOST_NAMED]) + more)]


def copy_checked(source: ArrayFile, path: Path) -> None:
    """Write the array anew as a file that was not there, every segment checked. Raises MISMATCH for
    a damaged one, OSError; nothing is left then.
    """
    with whole_file(path) as file:
        file.write(source.form.header)
        for part in source.segments():
            file.write(part.data)


def write_arrow(source: ArrayFile, path: Path, told: dict[str, Any], about: dict[str, str]) -> None:
    """Write the array as an Arrow IPC file: the numbers (``steps``, int64) and the totals
    (``value``, float64), a record batch per segment, with what the release says in its metadata.
    Raises as ``copy_checked``; wants pyarrow, and raises ModuleNotFoundError without it.
    """
    import pyarrow

    told_too = ("clip", "grid", "stderr", "reach", "norm", "sha256", "segment")
    metadata = {**about, **{name: str(told[name]) for name in told_too}}
    if "layout" in told:
        metadata["layout"] = json.dumps(told["layout"])
    fields = [("steps", pyarrow.int64()), ("value", pyarrow.float64())]
    schema = pyarrow.schema(fields, metadata=metadata)
    scale = told["clip"] / told["grid"]
    with whole_file(path) as file, pyarrow.ipc.new_file(file, schema) as writer:
        for part in source.segments():
            columns = [pyarrow.array(part), pyarrow.array(part * scale)]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))


def write_npz(source: ArrayFile, path: Path, told: dict[str, Any]) -> None:
    """Write the named arrays of a release, each in its shape, as a file that ``numpy.load`` reads
    by name: totals in the task's unit, float64. One segment is in memory at a time. Raises as
    ``copy_checked``; INVALID where the release names no arrays.
    """
    layout, scale = layout_of_json(told), told["clip"] / told["grid"]
    if not layout:
        raise ShoalError(
            Kind.INVALID, "the task names no arrays (layout): write all totals by --format npy"
        )
    with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for one, span in zip(layout, spans(layout).values(), strict=True):
            with archive.open(f"{one.name}.npy", "w", force_zip64=True) as member:
                member.write(npy_header("<f8", one.size, one.shape))
                for number in range(span.start // source.form.segment, source.form.count):
                    held = source.form.span(number)
                    if held.start >= span.stop:
                        break
                    cut = slice(max(span.start - held.start, 0), span.stop - held.start)
                    member.write((source.segment(number)[cut] * scale).astype("<f8").data)

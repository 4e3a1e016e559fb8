"""What a worker's answer for a chunk must be, as far as that can be seen without opening its rows.

A worker that was taken over, or counts by other code, is found where it contradicts itself or the
question: rows, marks, nonces and counts must fit one another. One that holds the key and makes up a
tally that fits can't be found here (docs/THREAT_MODEL.md).
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.analyzer.batches.chunk_source import Chunk
from shoal.analyzer.batches.row_opening import BAD_VALUE, GOOD, PREFIX_SIZE, ChunkResult
from shoal.arrays import NDArray, np
from shoal.crypto.envelope import NONCE_SIZE
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally


def rows_of(chunk: Chunk) -> int:
    """How many rows a chunk has."""
    return sum(map(len, chunk))


def check_opened(
    nothing: Tally, result: ChunkResult, chunk: Chunk, *, all_good: bool = False
) -> None:
    """A mark per row, a nonce's beginning and a place in the tally for each good row, a tally that
    adds to ``nothing``, the task's of no rows. ``all_good``: these rows were good before. Raises
    MISMATCH.
    """
    cells = nothing.counts.size
    if not isinstance(result, ChunkResult):
        raise _mismatch("another kind of result than was asked for")
    marks = np.frombuffer(result.marks, dtype=np.uint8)
    if marks.size != rows_of(chunk):
        raise _mismatch(f"{marks.size} rows judged of a range of {rows_of(chunk)}")
    if marks.size and marks.max() > BAD_VALUE:
        raise _mismatch("a row judged as there is no way to")
    good = int(np.count_nonzero(marks == GOOD))
    if len(result.prefixes) != good * PREFIX_SIZE:
        raise _mismatch(f"{len(result.prefixes) // PREFIX_SIZE} nonces for {good} good rows")
    try:
        tally = Tally.from_bytes(result.tally)
    except ShoalError as error:
        raise _mismatch(str(error).partition(":")[0]) from None
    if tally.rows != good:
        raise _mismatch(f"a tally of {tally.rows} rows where {good} are good")
    if tally.counts.size != cells:
        raise _mismatch(f"a tally of {tally.counts.size} cells where the task has {cells}")
    if tally.weight != nothing.weight:
        raise _mismatch(f"a tally of weight {tally.weight} where a report weighs {nothing.weight}")
    if all_good and good != marks.size:
        raise _mismatch("rows rejected that were good before")


def nonce_check(
    rows: NDArray[np.int64], prefixes: NDArray[np.uint64]
) -> Callable[[bytes, Chunk], None]:
    """A check of whole nonces: ``prefixes`` are their beginnings as told before, by row; ``rows``
    ascend. It raises MISMATCH.
    """

    def check(result: bytes, chunk: Chunk) -> None:
        if not isinstance(result, bytes) or len(result) != rows_of(chunk) * NONCE_SIZE:
            raise _mismatch(f"not the nonces of {rows_of(chunk)} rows")
        told = np.frombuffer(result, dtype=np.uint64)[:: NONCE_SIZE // PREFIX_SIZE]
        asked = np.fromiter((row for span in chunk for row in span), dtype=np.int64)
        if not np.array_equal(told, prefixes[np.searchsorted(rows, asked)]):
            raise _mismatch("nonces that begin otherwise than they did before")

    return check


def _mismatch(what: str) -> ShoalError:
    return ShoalError(Kind.MISMATCH, f"its answer for a range of rows does not fit: {what}")

"""What a worker does with sealed rows: open them, judge every one, tally the good ones.

A worker opens a chunk of rows into one fixed-width matrix and returns the tally, a mark per row
and, for the good rows, the first eight bytes of the nonce. Tallies add, so nothing else has to come
back: no report ever leaves a worker. Every function here is pure and can be run anywhere; what it
needs crosses as arguments, the key as a ticket that is redeemed here (``key_delivery``).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from shoal import codec
from shoal.analyzer.batches.key_delivery import Redeem
from shoal.arrays import NDArray, np
from shoal.crypto.envelope import NONCE_SIZE, report_info
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.suites import SuiteId
from shoal.errors import ShoalError
from shoal.ids import KeyId, TaskId
from shoal.mechanisms import Tally
from shoal.mechanisms.several.registry import AnyMechanism, create_any
from shoal.task import Task

GOOD, NOT_OPENABLE, OTHER_LENGTH, BAD_VALUE = range(4)  # marks: one per row
PREFIX_SIZE = 8  # bytes of a nonce that come back for a good row


@dataclass(frozen=True, slots=True)
class RowContext:
    """What opening the rows of one batch takes besides the key. No secret.

    ``task``: a serialized Task; ``info``: what a report is bound to (``envelope.report_info``);
    ``row_size``: bytes of a sealed row.
    """

    task: bytes
    info: bytes
    row_size: int

    @classmethod
    def of(
        cls, task: Task, task_id: TaskId, window: int, key_id: KeyId, row_size: int
    ) -> RowContext:
        """Of the rows of one window that were sealed for the analyzer key ``key_id``."""
        return cls(codec.encode_task(task), report_info(task_id, window, key_id), row_size)


class ChunkResult(NamedTuple):
    """``marks``: u8 per row, 0 = good. ``prefixes``: u64 per good row, in row order."""

    tally: bytes
    marks: bytes
    prefixes: bytes


def open_chunk(context: RowContext, redeem: Redeem, ticket: bytes, rows: bytes) -> ChunkResult:
    """Open, judge and tally whole rows. Nothing about a row can make it raise."""
    mechanism, marks, matrix = _open_rows(context, redeem(ticket), rows)
    good = matrix[marks == GOOD]
    prefixes = np.ascontiguousarray(good[:, :PREFIX_SIZE]).tobytes()
    return ChunkResult(
        mechanism.tally(np.ascontiguousarray(good[:, NONCE_SIZE:])).to_bytes(),
        marks.tobytes(),
        prefixes,
    )


class JoinedChunk:
    """Results of ``open_chunk`` for parts of one chunk, in their order, as one."""

    def __init__(self) -> None:
        self.parts = 0
        self._tally: Tally | None = None
        self._marks, self._prefixes = bytearray(), bytearray()

    def add(self, part: ChunkResult) -> None:
        """The result of the next part. Raises INVALID for tallies of different tasks."""
        tally = Tally.from_bytes(part.tally)
        self._tally = tally if self._tally is None else self._tally + tally
        self._marks += part.marks
        self._prefixes += part.prefixes
        self.parts += 1

    def result(self) -> ChunkResult:
        """That of all rows so far opened at once, bit for bit. There was a part."""
        assert self._tally is not None  # noqa: S101 - see above
        return ChunkResult(self._tally.to_bytes(), bytes(self._marks), bytes(self._prefixes))


def open_nonces(context: RowContext, redeem: Redeem, ticket: bytes, rows: bytes) -> bytes:
    """The whole nonces of rows that are known to be good, one after the other."""
    _, _, matrix = _open_rows(context, redeem(ticket), rows)
    return np.ascontiguousarray(matrix[:, :NONCE_SIZE]).tobytes()


def empty_tally(context: RowContext) -> Tally:
    """The tally of no rows at all."""
    _, mechanism = _prepare(context.task)
    return mechanism.tally(np.empty((0, mechanism.report_size), dtype=np.uint8))


def _open_rows(
    context: RowContext, secret: bytes, rows: bytes
) -> tuple[AnyMechanism, NDArray[np.uint8], NDArray[np.uint8]]:
    """(mechanism, marks uint8[n], plaintexts uint8[n, nonce + report]); a row that does not open is
    all zeros.
    """
    suite, mechanism = _prepare(context.task)
    # Made for each chunk, in 0.2 ms, so that nothing of it stays.
    key = HpkePrivateKey.from_raw_secret(suite, secret)
    info, row_size = context.info, context.row_size
    width = NONCE_SIZE + mechanism.report_size
    count = len(rows) // row_size
    marks, plaintexts = bytearray(count), bytearray(count * width)
    for i in range(count):
        try:
            # envelope.open_report without its check of the width, which is below
            plaintext = key.open(rows[i * row_size : (i + 1) * row_size], info)
        except ShoalError:
            marks[i] = NOT_OPENABLE
            continue
        if len(plaintext) != width:
            marks[i] = OTHER_LENGTH
            continue
        plaintexts[i * width : (i + 1) * width] = plaintext
    judged = np.frombuffer(marks, dtype=np.uint8)
    matrix = np.frombuffer(plaintexts, dtype=np.uint8).reshape(count, width)
    judged[(judged == GOOD) & ~mechanism.valid(matrix[:, NONCE_SIZE:])] = BAD_VALUE
    return mechanism, judged, matrix


@functools.lru_cache(maxsize=2)
def _prepare(task: bytes) -> tuple[SuiteId, AnyMechanism]:
    parsed = codec.decode_task(task)
    return SuiteId.of(parsed.suite), create_any(parsed.mechanism, parsed.domain)

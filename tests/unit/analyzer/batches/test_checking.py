"""Whole nonces that a worker tells, against their beginnings as told before."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.analyzer.batches.checking import nonce_check
from shoal.analyzer.batches.chunk_source import Chunk
from shoal.errors import Kind, ShoalError
from tests.cases import for_each

NONCES = [bytes([row]) * 16 for row in (2, 5, 9)]
ROWS = np.array([2, 5, 9], dtype=np.int64)
PREFIXES = np.frombuffer(b"".join(nonce[:8] for nonce in NONCES), dtype=np.uint64)
LAST: Chunk = [range(5, 6), range(9, 10)]

LIES: list[tuple[str, object, Chunk]] = [
    ("one too few", NONCES[1], LAST),
    ("one too many", b"".join(NONCES), LAST),
    ("a torn one", (NONCES[1] + NONCES[2])[:-1], LAST),
    ("another order", NONCES[2] + NONCES[1], LAST),
    ("of another row", NONCES[0] + NONCES[2], LAST),
    ("another beginning", NONCES[1] + b"\0" + NONCES[2][1:], LAST),
    ("another type", bytearray(NONCES[1] + NONCES[2]), LAST),
]


@for_each(("name", "lie", "chunk"), LIES)
def test_nonces_that_begin_otherwise_are_a_mismatch(name: str, lie: object, chunk: Chunk) -> None:
    """Planted: the length not looked at, the beginnings not compared, those of all rows compared
    whatever the chunk, bytes not asked for -> each fails.
    """
    check = nonce_check(ROWS, PREFIXES)
    check(NONCES[1] + NONCES[2], LAST)
    check(b"".join(NONCES), [range(2, 3), *LAST])
    check(NONCES[0][:8] + bytes(8), [range(2, 3)])  # what comes after was not told before
    with pytest.raises(ShoalError) as caught:
        check(lie, chunk)  # type: ignore[arg-type] # what a worker may send
    assert caught.value.kind is Kind.MISMATCH, name

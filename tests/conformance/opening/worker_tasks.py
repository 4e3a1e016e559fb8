"""What the suites of opening have workers do, and a source of rows in memory."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from shoal.analyzer.batches.chunk_source import Chunk, ChunkSource
from shoal.analyzer.batches.executor import Executor
from shoal.analyzer.batches.key_delivery import Redeem
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError

ATTEMPTS = 20  # how often a batch is opened again before workers that died count as gone
WIDTH = 5


class Rows:
    """A source in memory that counts what is read of it, and breaks at row ``broken``."""

    def __init__(self, count: int, broken: int | None = None) -> None:
        self.data = [i.to_bytes(WIDTH, "big") for i in range(count)]
        self.broken, self.reads = broken, 0

    @property
    def rows(self) -> int:
        return len(self.data)

    @property
    def row_size(self) -> int:
        return WIDTH

    def read(self, rows: range) -> bytes:
        self.reads += 1
        if self.broken is not None and self.broken in rows:
            raise OSError("planted")
        return b"".join(self.data[row] for row in rows)


# --- what workers are asked to do -----------------------------------------------------------------


def echo(word: bytes, rows: bytes) -> bytes:
    return word + rows


def raise_invalid(rows: bytes) -> bytes:
    raise ShoalError(Kind.INVALID, "planted")


def die(rows: bytes) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return rows


def die_once(mark: str, rows: bytes) -> bytes:
    """Kill the worker that meets the chunk of row 6 first."""
    if (6).to_bytes(WIDTH, "big") in rows and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return rows


def redeemed_key_id(suite: SuiteId, redeem: Redeem, ticket: bytes, rows: bytes) -> bytes:
    return HpkePrivateKey.from_raw_secret(suite, redeem(ticket)).config.key_id.raw


def hold_key(redeem: Redeem, ticket: bytes, mark: str, rows: bytes) -> bytes:
    """Have the key until the file ``mark`` is there; ``mark``.pid says who has it."""
    key = redeem(ticket)
    Path(f"{mark}.pid").write_text(str(os.getpid()))
    for _ in range(ATTEMPTS * 100):
        if Path(mark).exists():
            return bytes([len(key)])
        time.sleep(0.02)
    raise AssertionError("nobody said that the key can go")


def writes_to(rows: bytes) -> bytes:
    """The folders in which this process writes files that have no other place."""
    return f"{os.getcwd()}\0{tempfile.gettempdir()}".encode()


def keeps(digest: bytes, rows: bytes) -> bool:
    """Whether this process refers to bytes with that SHA-256: from a cache, a module, an object."""
    gc.collect()
    return any(
        type(one) is bytes and len(one) == 32 and hashlib.sha256(one).digest() == digest
        for holder in gc.get_objects()
        for one in gc.get_referents(holder)
    )


async def results(
    executor: Executor,
    work: Callable[..., bytes],
    arguments: tuple[object, ...],
    source: ChunkSource,
    chunks: list[Chunk],
) -> list[bytes]:
    async with aclosing(executor.over_chunks(work, arguments, source, chunks)) as found:
        return [result async for result in found]


async def alive(executor: Executor) -> None:
    """Until workers that were killed are there again."""
    for _ in range(ATTEMPTS):
        try:
            await results(executor, echo, (b"",), Rows(4), single_rows(4))
        except ShoalError as error:
            if error.kind is not Kind.UNAVAILABLE:
                raise
        else:
            return
    raise AssertionError("the workers did not come back")


def single_rows(count: int) -> list[Chunk]:
    return [(range(row, row + 1),) for row in range(count)]


def files_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())

"""A deployment to measure: keys, certificates, one signed task, and what devices would send to it,
sealed beforehand.

Made with the demo's own code: one k-RR task over seven cells whose reports take one byte, so sealed
rows are as short, and the cost per byte as visible, as they get. Sealing goes to several processes,
before any clock runs.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from shoal import codec
from shoal.crypto.envelope import ACK_KEY_SIZE, HopContent, seal_frame, seal_report
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.keyfiles import load_hpke_key
from shoal.crypto.suites import parse_config
from shoal.crypto.trust import serve_task
from shoal.entropy import SYSTEM
from shoal.ids import TaskId
from shoal.mechanisms import create
from shoal.protos import submit_pb2
from shoal.services.workers import WorkerPool
from shoal.shuffler.core import row_size

if TYPE_CHECKING:
    from shoal.cli.demo.processes import Process

T = TypeVar("T")
WINDOW = 0
_CHUNK = 5_000  # reports that one process seals at a time


@dataclass(frozen=True, slots=True)
class Recipe:
    """The public parts of a task, as sealing processes get them."""

    task: bytes
    analyzer_key: bytes
    hop_key: bytes
    row_size: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """Frames and the keys of their receipts."""

    frames: tuple[bytes, ...]
    ack_keys: tuple[bytes, ...]

    def requests(self) -> list[bytes]:
        """Serialized SubmitRequests."""
        return [submit_pb2.SubmitRequest(frame=frame).SerializeToString() for frame in self.frames]

    def batches(self, size: int) -> list[bytes]:
        """Serialized SubmitBatchRequests of ``size`` frames, the last may be shorter."""
        return [
            submit_pb2.SubmitBatchRequest(frames=self.frames[i : i + size]).SerializeToString()
            for i in range(0, len(self.frames), size)
        ]


class Site:
    """``reports``: both min_batch and max_batch of the task's single window, so the window closes
    with the last of them.
    """

    def __init__(self, folder: Path, reports: int) -> None:
        # here, because every process of a benchmark loads this module, and the memory of those that
        # play a service is measured: the command would be 10 MB of it
        from shoal.cli.demo.survey import questions
        from shoal.cli.demo.workspace import build

        folder.mkdir(parents=True)
        self.folder, self.reports = folder, reports
        self.workspace = build(folder, (questions()[1],), reports)
        self.pair = self.workspace.pairs[0]
        self.served = serve_task(
            self.pair.signed_task, self.pair.signed_schedule, {self.workspace.authority}
        )
        self.recipe = Recipe(
            codec.encode_task(self.pair.task),
            self.served.keys.analyzer_keys[WINDOW].raw,
            self.served.keys.hop_keys[WINDOW].raw,
            row_size(self.pair.task),
        )
        # Loaded now: the services delete their key files once a window is over.
        self.analyzer_key = self._key("analyzer", self.recipe.analyzer_key)
        self.hop_key = self._key("shuffler", self.recipe.hop_key)
        self._rows: Path | None = None

    def _key(self, role: str, config: bytes) -> HpkePrivateKey:
        return load_hpke_key(self.folder / role / "keys" / f"{parse_config(config).key_id.hex}.key")

    @property
    def address(self) -> str:
        """Where the shuffler serves."""
        return self.pair.task.shuffler_address

    @property
    def ca(self) -> bytes:
        """The authority of the shuffler's certificate, PEM."""
        return self.pair.task.shuffler_ca

    def shuffler(self, workers: int | None = None) -> Process:
        """``workers``: processes that open frames; None leaves it to the shuffler, as everything
        that the demo tunes for itself.
        """
        config = self.workspace.shuffler_config
        kept = [
            line
            for line in config.read_text().splitlines()
            if not line.startswith(("open_workers", "commit_ms"))
        ]
        own = [] if workers is None else [f"open_workers = {workers}"]
        config.write_text("\n".join([*own, *kept]) + "\n")
        return self._process("shuffler")

    def analyzer(self) -> Process:
        """The analyzer's process, not started."""
        return self._process("analyzer")

    def _process(self, role: str) -> Process:
        from shoal.cli.demo.processes import Process

        made = self.workspace
        if role == "shuffler":
            return Process(role, made.shuffler_config, made.shuffler_admin)
        return Process(role, made.analyzer_config, made.analyzer_admin)

    def rows(self, pool: WorkerPool) -> Path:
        """A file of ``reports`` sealed rows, each a different report, as the analyzer would hold
        it. Made once.
        """
        if self._rows is None:
            path = self.folder / "rows.bin"
            with path.open("wb") as file:
                for chunk in _map(pool, seal_rows, self.recipe, self.reports):
                    file.write(chunk)
            self._rows = path
        return self._rows

    def frames(self, pool: WorkerPool, count: int) -> Sealed:
        """Frames around random bytes of a sealed row's length: the shuffler, which opens the hop
        layer alone, can't tell.
        """
        frames: list[bytes] = []
        ack_keys: list[bytes] = []
        for part in _map(pool, seal_random_frames, self.recipe, count):
            frames.extend(part.frames)
            ack_keys.extend(part.ack_keys)
        return Sealed(tuple(frames), tuple(ack_keys))


def started(*services: Process) -> None:
    """Start services and wait until they are ready."""

    async def ready() -> None:
        for service in services:
            await service.ready()

    for service in services:
        service.start()
    asyncio.run(ready())


def _map(
    pool: WorkerPool, work: Callable[[Recipe, int], T], recipe: Recipe, count: int
) -> Iterator[T]:
    """``work`` over ``count`` reports in chunks, results in order, a few chunks per process under
    way.
    """
    sizes = deque(min(_CHUNK, count - i) for i in range(0, count, _CHUNK))
    under_way: deque[Future[T]] = deque()
    while sizes or under_way:
        while sizes and len(under_way) < 2 * pool.processes:
            under_way.append(pool.submit(work, recipe, sizes.popleft()))
        yield under_way.popleft().result()


# --- in sealing processes -------------------------------------------------------------------------


def seal_rows(recipe: Recipe, count: int) -> bytes:
    """``count`` sealed reports, one after the other."""
    task, task_id, config = (
        codec.decode_task(recipe.task),
        TaskId.of(recipe.task),
        parse_config(recipe.analyzer_key),
    )
    mechanism = create(task.mechanism, task.domain)
    values = np.arange(count, dtype=np.int64) % task.domain.size
    reports = mechanism.randomize(values, SYSTEM)[:, 0, :]
    return b"".join(
        seal_report(config, task_id, WINDOW, os.urandom(16), report.tobytes()) for report in reports
    )


def seal_random_frames(recipe: Recipe, count: int) -> Sealed:
    """Frames with random bytes for reports; ``count`` of them."""
    return seal_frames(recipe, [os.urandom(recipe.row_size) for _ in range(count)])


def seal_frames(recipe: Recipe, rows: Sequence[bytes]) -> Sealed:
    """A frame around each sealed row."""
    task_id, hop, analyzer = (
        TaskId.of(recipe.task),
        parse_config(recipe.hop_key),
        parse_config(recipe.analyzer_key),
    )
    ack_keys = tuple(os.urandom(ACK_KEY_SIZE) for _ in rows)
    frames = tuple(
        seal_frame(hop, HopContent(task_id, WINDOW, ack_key, analyzer.key_id, b"", (row,)))
        for row, ack_key in zip(rows, ack_keys, strict=True)
    )
    return Sealed(frames, ack_keys)

"""The analyzer's roles for the warm process of ``shuffler_child``: a batch's whole life without
sockets, or the real service.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from shoal import failpoints, log
from shoal.analyzer.batches import processing
from shoal.analyzer.batches.executor import ProcessExecutor
from shoal.analyzer.batches.ingest import Ingest
from shoal.analyzer.batches.key_delivery import InMemoryDelivery
from shoal.analyzer.batches.processing import Processor
from shoal.analyzer.batches.shredding import Shredder
from shoal.analyzer.batches.spool import Spools
from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.service import SPOOL_FOLDER, serve
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.backoff import Backoff
from shoal.clocks.clock import FakeClock
from shoal.crypto.keyfiles import load_signing_key
from shoal.errors import Kind, ShoalError
from shoal.protos import delivery_pb2
from shoal.rpc.call import Call
from shoal.services.process import DataFolder
from shoal.services.settings import load_settings
from shoal.services.workers import WorkerPool
from tests.faults.shuffler_child import main

T = TypeVar("T")
STEP = 12  # rows per chunk
# offers before "life" gives up: half a minute, far more than opening and certifying takes
ROUNDS = 20_000


class HerePool(WorkerPool):
    """Opens in this process: a crash then costs milliseconds. Workers and their deaths have tests
    of their own.
    """

    def __init__(self) -> None:
        self.processes = 1

    def submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(work(*arguments))
        return done


async def life(folder: Path) -> None:
    """Everything from the first offer to the acknowledgement, as the shuffler does it: offer again
    after every failure.

    ``offer.bin``: a SignedManifest; ``rows.bin``: its rows; the acknowledgement goes to
    ``ack.bin``.
    """
    config = load_settings(AnalyzerConfig, folder / "analyzer.toml")
    plan = json.loads((folder / "plan.json").read_text())
    offer, rows = (folder / "offer.bin").read_bytes(), (folder / "rows.bin").read_bytes()
    processing._AGAIN = Backoff(0.001, 0.001)  # no waiting between attempts
    with DataFolder(config.data_dir) as data:
        spool = data / SPOOL_FOLDER
        spool.mkdir(exist_ok=True)
        store, keys, signing_key = (
            AnalyzerStore(data / FILE_NAME),
            KeyFolder(config.keys_dir),
            load_signing_key(config.signing_key),
        )
        tasks = AnalyzerTasks(config.tasks_dir, config.authority_keys, signing_key.public)
        clock = FakeClock(plan["now"])
        spools = Spools(spool)
        shredder = Shredder(store=store, tasks=tasks, keys=keys, spools=spools, clock=clock)
        processor = Processor(
            store=store,
            tasks=tasks,
            keys=keys,
            spools=spools,
            executor=ProcessExecutor(HerePool()),
            delivery=InMemoryDelivery(),
            signing_key=signing_key,
            shredder=shredder,
        )
        ingest = Ingest(
            store=store,
            tasks=tasks,
            keys=keys,
            spools=spools,
            clock=clock,
            complete=processor.add,
            clean=processor.clean,
        )
        await processor.resume()
        running = asyncio.create_task(processor.run())
        ack = await _push(ingest, offer, rows, plan["row_size"])
        # the release is on disk and acknowledged before its last steps are taken
        while processor.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        running.cancel()
        (folder / "ack.bin").write_bytes(ack)
        store.close()


async def _push(ingest: Ingest, offer: bytes, rows: bytes, row_size: int) -> bytes:
    manifest_hash = bytes.fromhex(_hash(offer))
    call: Call = None  # type: ignore[assignment]  # these handlers don't look at it
    for _ in range(ROUNDS):
        try:
            reply = delivery_pb2.OfferReply.FromString(await ingest.offer(offer, call))
            if reply.state == delivery_pb2.BATCH_STATE_DONE:
                return reply.ack.SerializeToString()
            if reply.state == delivery_pb2.BATCH_STATE_RECEIVING:
                await ingest.deliver(
                    _chunks(manifest_hash, rows, row_size, reply.received_rows), call
                )
        except OSError:
            # an armed point outside of the disk's own calls: INTERNAL on the wire, and tried again
            pass
        except ShoalError as error:
            if error.kind not in {Kind.OVERLOADED, Kind.UNAVAILABLE}:
                raise
        await asyncio.sleep(0.001)
    raise AssertionError("not done")


def _hash(offer: bytes) -> str:
    import hashlib

    return hashlib.sha256(delivery_pb2.SignedManifest.FromString(offer).manifest).hexdigest()


async def _chunks(
    manifest_hash: bytes, rows: bytes, row_size: int, first: int
) -> AsyncIterator[bytes]:
    for at in range(first, len(rows) // row_size, STEP):
        part = rows[at * row_size : (at + STEP) * row_size]
        yield delivery_pb2.Chunk(
            manifest_hash=manifest_hash, first_row=at, rows=part
        ).SerializeToString()


def recorded(folder: Path) -> None:
    """``life``, and which points it passed how often, as ``passed.json``."""
    passed = failpoints.record(True)
    asyncio.run(life(folder))
    (folder / "passed.json").write_text(json.dumps(dict(passed)))


def service(folder: Path) -> None:
    log.configure("info")
    serve(load_settings(AnalyzerConfig, folder / "analyzer.toml"))


if __name__ == "__main__":
    log.configure("error")
    main({"life": lambda folder: asyncio.run(life(folder)), "record": recorded, "serve": service})

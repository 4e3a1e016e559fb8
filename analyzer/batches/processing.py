"""One batch after another: open, tally, release in one transaction, then delete what could open it
again.

A crash anywhere is harmless: until the transaction the batch is PROCESSING and is opened again;
after it the batch is DONE and only the deletions are made again. Whatever fails is tried again with
growing pauses; the batch waits, it is never lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from shoal.analyzer.batches.chunk_source import FileSource
from shoal.analyzer.batches.executor import Executor
from shoal.analyzer.batches.key_delivery import KeyDelivery
from shoal.analyzer.batches.opening import open_batch
from shoal.analyzer.batches.row_opening import RowContext
from shoal.analyzer.batches.shredding import Shredder
from shoal.analyzer.batches.spool import Spools, intact
from shoal.analyzer.core import (
    WITHHELD_GIVEN_UP,
    WITHHELD_RETENTION,
    Batch,
    BatchState,
)
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.results.release import Prepared, conclude, prepare, prepare_expired
from shoal.analyzer.store import AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.backoff import Backoff
from shoal.codec import Manifest
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.questions.discovery import DiscoveryLevel
from shoal.services.conditions import Condition
from shoal.services.given_up import GivenUpWindows
from shoal.services.tracing import NO_TRACES, Tracer

log = get_log("analyzer")
# between two attempts at a batch: one queue of one process, so without jitter
_AGAIN = Backoff(LIMITS.release_retry_first_s, LIMITS.release_retry_most_s)
_SWEEP_S = 60.0  # between two looks at the tasks' retention
_LOOK_S = 2.0  # between two looks at what operators gave up
_CANNOT_DELETE = "rows or the key of a window that is over can't be deleted"


LevelOf = Callable[[ServedTask, Manifest], DiscoveryLevel | None]


def no_level(_: ServedTask, __: Manifest) -> None:
    """Of tasks that are no discoveries."""


class Processor:
    """``run`` works until cancelled; ``add`` puts a PROCESSING batch into its queue."""

    def __init__(
        self,
        *,
        store: AnalyzerStore,
        tasks: AnalyzerTasks,
        keys: KeyFolder,
        spools: Spools,
        executor: Executor,
        delivery: KeyDelivery,
        signing_key: SigningKey,
        shredder: Shredder,
        given_up: GivenUpWindows | None = None,
        tracer: Tracer = NO_TRACES,
        level: LevelOf = no_level,
    ) -> None:
        """``level``: what a batch of a discovery answers; raises ShoalError where that is not known
        yet.
        """
        self._given_up, self._tracer, self._level = given_up, tracer, level
        self._sweep_now = False  # a window was given up, and heard of beside the sweep
        self._store, self._tasks, self._keys, self._spools, self._shredder = (
            store,
            tasks,
            keys,
            spools,
            shredder,
        )
        self._executor, self._delivery, self._signing_key = executor, delivery, signing_key
        self._waiting: deque[Batch] = deque()
        self._arrived = asyncio.Event()
        self._failing: dict[Digest, Batch] = {}  # tried, and not released yet

    def conditions(self) -> Iterator[Condition]:
        """The batches that can't be finished, for ``Conditions.watch``."""
        for batch in list(self._failing.values()):
            # ``MissingKeys`` says what to do about it
            if not self._tasks.serves(batch.manifest.task_id):
                continue
            window, task = batch.manifest.window, batch.manifest.task_id.short
            yield Condition(
                "stuck",
                f"{task}/{window}",
                f"window {window} of task {task} can't be released yet: see the log",
            )

    @property
    def trouble(self) -> str | None:
        """The first of them, or None."""
        return next((condition.message for condition in self.conditions()), None)

    @property
    def waiting(self) -> int:
        """Batches that are complete and not released yet."""
        return len(self._waiting)

    def add(self, batch: Batch) -> None:
        """A batch that is in the queue, or at hand, is not added again."""
        if all(batch.manifest_hash != waiting.manifest_hash for waiting in self._waiting):
            self._waiting.append(batch)
            self._arrived.set()

    async def resume(self) -> None:
        """After a start: queue what was PROCESSING, and finish the deletions of what is DONE or
        beyond its retention.
        """
        for batch in await asyncio.to_thread(self._store.batches):
            if batch.state is BatchState.PROCESSING:
                self.add(batch)
            elif batch.state is BatchState.DONE:
                with contextlib.suppress(
                    ShoalError
                ):  # it is in the log, and tried again before every acknowledgement
                    await self.clean(batch)

        await self._sweep()

    async def sweep_forever(self) -> None:
        """Hold the tasks' retention, and do what operators gave up, until cancelled."""
        while True:
            await self._until_sweep()
            # whatever it was, retention is held at the next sweep
            try:
                await self._sweep()
            except Exception as error:  # noqa: BLE001
                log.error(
                    "the tasks' retention could not be looked at: will be tried again", error=error
                )

    async def _until_sweep(self) -> None:
        """``_SWEEP_S``, or until an operator gives a window up."""
        for _ in range(round(_SWEEP_S / _LOOK_S)):
            await asyncio.sleep(_LOOK_S)
            told = self._given_up is not None and self._given_up.look()
            if told or self._sweep_now:
                self._sweep_now = False
                return

    async def _sweep(self) -> None:
        for batch in await asyncio.to_thread(self._store.batches):
            if batch.state is BatchState.PROCESSING and self._shredder.expired(batch):
                # its end must wait for no offer that may never come, and for no pause
                self._failing.pop(batch.manifest_hash, None)
                self.add(batch)
                self._arrived.set()
        try:
            await asyncio.to_thread(self._shredder.sweep)
        except (ShoalError, OSError) as error:
            log.error(_CANNOT_DELETE, error=error)

    async def run(self) -> None:
        """A batch that fails goes to the back of the queue, and waits there; one that was not tried
        yet waits for none of those.
        """
        failures = 0
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            batch = self._fresh() or self._waiting[0]
            # whatever it was, the batch stays and the others go on
            try:
                await self.process(batch)
            except Exception as error:  # noqa: BLE001
                self._failing[batch.manifest_hash] = batch
                log.error(
                    "a batch can't be released yet",
                    task=batch.manifest.task_id,
                    window=batch.manifest.window,
                    error=error,
                )
                failures += 1
                self._waiting.remove(batch)
                self._waiting.append(batch)
                await self._pause(_AGAIN.length(failures))
            else:
                self._failing.pop(batch.manifest_hash, None)
                failures = 0
                self._waiting.remove(batch)

    def _fresh(self) -> Batch | None:
        """The first that was not tried yet."""
        return next((one for one in self._waiting if one.manifest_hash not in self._failing), None)

    async def _pause(self, length_s: float) -> None:
        """Before the next try of what fails; no longer than until another one is there."""
        if self._fresh() is None:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), length_s)

    async def process(self, batch: Batch) -> None:
        """Bring one PROCESSING batch to its end, or back to RECEIVING if its rows are gone. Raises
        ShoalError, OSError: try again.
        """
        manifest = batch.manifest
        path = self._spools.path(batch.manifest_hash)
        current = await asyncio.to_thread(self._store.batch, batch.manifest_hash)
        if current is not None and current.state is BatchState.PROCESSING:
            expired, level = self._shredder.expired(batch), None
            if not expired:  # before a long file is read: it may be held for weeks
                level = await asyncio.to_thread(self._level_of, manifest)
            if expired:
                await self._expire(batch)
            elif not await asyncio.to_thread(intact, path, manifest):
                log.error(
                    "the rows of a batch are gone or damaged: they come again",
                    task=manifest.task_id,
                    window=manifest.window,
                )
                await asyncio.to_thread(self._spools.delete, batch.manifest_hash)
                await asyncio.to_thread(
                    self._store.move,
                    batch.manifest_hash,
                    BatchState.PROCESSING,
                    BatchState.RECEIVING,
                )
                return
            else:
                with self._tracer.span("open", manifest.task_id, manifest.window):
                    prepared = await self._open(batch, path, level)
                hit("analyzer.batch.opened")
                async with self._no_new_words():
                    if self._shredder.is_given_up(batch):  # while it was opened
                        await self._expire(batch)
                    else:
                        await self._finish(prepared)
        await self.clean(batch)

    @contextlib.asynccontextmanager
    async def _no_new_words(self) -> AsyncIterator[None]:
        """What operators gave up is known, and nobody gives more up until a release is on disk:
        whoever asks then is told that there is nothing to give up.
        """
        if self._given_up is None:
            yield
            return
        with contextlib.ExitStack() as stack:
            await asyncio.to_thread(stack.enter_context, self._given_up.held())
            if self._given_up.look():
                self._sweep_now = True
            yield

    async def _expire(self, batch: Batch) -> None:
        """Rows that could not be opened in time are not kept for another try: their key would have
        to be kept as well.
        """
        served = self._tasks.get(batch.manifest.task_id)
        why = WITHHELD_GIVEN_UP if self._shredder.is_given_up(batch) else WITHHELD_RETENTION
        await self._finish(await asyncio.to_thread(prepare_expired, served, batch, why))

    async def _finish(self, prepared: Prepared) -> None:
        given_up = await asyncio.to_thread(self._uncounted, prepared.batch)
        manifest = prepared.batch.manifest
        await asyncio.to_thread(self._keys.begin_release, manifest.analyzer_key_id)
        with self._tracer.span("release", manifest.task_id, manifest.window):
            done = await asyncio.to_thread(
                self._store.finish,
                prepared.batch,
                lambda earlier: conclude(prepared, earlier, self._signing_key, given_up),
            )
        hit("analyzer.batch.done")
        if done:
            _report(prepared)

    def _uncounted(self, batch: Batch) -> list[int]:
        """Other windows of its task that were given up, and not published before."""
        task_id, window = batch.manifest.task_id, batch.manifest.window
        lines = [] if self._given_up is None else self._given_up.of(task_id)
        return [
            line.window
            for line in lines
            if line.window != window and not self._is_published(task_id, line.window)
        ]

    def _is_published(self, task_id: TaskId, window: int) -> bool:
        try:
            return self._store.tally(task_id, window) is not None
        except ShoalError:  # damaged: there was one
            return True

    def _level_of(self, manifest: Manifest) -> DiscoveryLevel | None:
        return self._level(self._tasks.get(manifest.task_id), manifest)

    async def _open(self, batch: Batch, path: Path, level: DiscoveryLevel | None) -> Prepared:
        manifest = batch.manifest
        served = self._tasks.get(manifest.task_id)
        key = await asyncio.to_thread(self._keys.load, manifest.analyzer_key_id)
        context = RowContext.of(
            served.task, served.task_id, manifest.window, key.config.key_id, manifest.row_size
        )
        with FileSource(path, manifest.row_size) as source:
            opened = await open_batch(
                source, context, key, self._executor, self._delivery, path.parent
            )
        return await asyncio.to_thread(prepare, served, batch, opened, level)

    async def clean(self, batch: Batch) -> None:
        """Delete what could open a DONE batch again; only then is it acknowledged. Raises
        UNAVAILABLE if that can't be done.
        """
        try:
            await asyncio.to_thread(self._shredder.released, batch)
        except (ShoalError, OSError) as error:
            log.error(
                _CANNOT_DELETE,
                task=batch.manifest.task_id,
                window=batch.manifest.window,
                error=error,
            )
            raise ShoalError(
                Kind.UNAVAILABLE,
                "the analyzer can't delete what it released: its operator finds the reason in its "
                "log",
            ) from None


def _report(prepared: Prepared) -> None:
    manifest = prepared.batch.manifest
    log.info(
        "window withheld" if prepared.withheld else "window released",
        task=manifest.task_id,
        window=manifest.window,
        n=prepared.n,
        rejected=sum(prepared.opened.rejected.values()),
        epsilon_upper=prepared.guarantee.epsilon_upper,
        reason=prepared.withheld,
    )

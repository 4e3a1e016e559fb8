"""Carries the rules out: looks at the clock once a second, closes what is due, seals, delivers,
shreds, retires keys.

``tick`` starts what is to be done now and returns; slow work (sealing, delivering) runs beside it,
one task per window. A failure is logged and tried again with jittered backoff, at a later tick;
nothing is given up but by retention, or by an operator's word (``GivenUpWindows``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from shoal.clocks.backoff import Backoff
from shoal.clocks.clock import SureClock
from shoal.crypto.trust import ServedTask
from shoal.entropy import Entropy, uniform
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.services.complaints import Complaints
from shoal.services.given_up import GivenUpWindows
from shoal.services.tracing import NO_TRACES, Tracer
from shoal.shuffler import core
from shoal.shuffler.core import WindowEvent, WindowId, WindowState
from shoal.shuffler.reports.egress import Asked, Delivery, make_manifest, nothing_asked
from shoal.shuffler.reports.noise import AddedNoise
from shoal.shuffler.stores.claims import CLAIM_S, Claim, HeldClaims, OwnerId, StaleClaimError
from shoal.shuffler.stores.store import SealedRows, Store, WindowRecord, record_of
from shoal.shuffler.tasks import ShufflerTasks

log = get_log("shuffler")
TICK_S = 1.0
_POLL_S = LIMITS.deliver_poll_s  # while the analyzer works on a batch
# between attempts: an analyzer that comes back is found within five minutes
_RETRY = Backoff(2.0 * LIMITS.retry_first_s, LIMITS.deliver_retry_most_s)
_SEALS = 1  # windows sealed at a time: sorting wants the disk


@dataclass(slots=True)
class _Pending:
    """When a window's work is tried next, when it may be delivered (steady seconds: a clock that
    jumps puts nothing off), how often it failed. In memory only: a start draws anew.
    """

    at: float
    deliver_at: float | None = None
    failures: int = 0
    last: Kind | None = None


async def _nothing() -> None:
    return None


class Lifecycle:
    """``forget_keys`` is awaited after hop keys were deleted: worker processes may hold copies.
    ``owner``: whose claims on windows these are; another one for every start.
    """

    def __init__(
        self,
        tasks: ShufflerTasks,
        store: Store,
        delivery: Delivery,
        clock: SureClock,
        entropy: Entropy,
        delivery_delay_max_s: float,
        forget_keys: Callable[[], Awaitable[None]] = _nothing,
        owner: OwnerId | None = None,
        given_up: GivenUpWindows | None = None,
        tracer: Tracer = NO_TRACES,
        noise: AddedNoise | None = None,
        asked: Asked = nothing_asked,
    ) -> None:
        self._noise, self._asked, self._given_up = noise or AddedNoise(), asked, given_up
        self._tasks, self._store, self._delivery, self._tracer = tasks, store, delivery, tracer
        self._held = HeldClaims(store, owner or OwnerId.draw())
        self._clock, self._entropy, self._delay, self._forget_keys = (
            clock,
            entropy,
            delivery_delay_max_s,
            forget_keys,
        )
        self._working: dict[WindowId, asyncio.Task[None]] = {}
        self._attempts: dict[WindowId, asyncio.Timeout] = {}  # deliveries under way
        self._unclosed = Complaints(log, "a window could not be closed: will be tried again")
        self._unrecorded = Complaints(
            log, "empty windows could not be recorded: will be tried again"
        )
        self._ticking = asyncio.Lock()
        self._sealing = asyncio.Semaphore(_SEALS)
        # Everything that a crash may have interrupted is to be done again.
        now = clock.steady()
        self._pending = {
            window: _Pending(now)
            for window, record in store.records().items()
            if core.resume(record.state)
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Tick until ``stop``; then let what writes end."""
        while not stop.is_set():
            try:
                await self.tick()
            except ShoalError as error:
                log.error("a tick failed", error=error)
            except Exception as error:  # noqa: BLE001 - the clock must go on
                log.error("a tick failed unexpectedly", error=error)
            try:
                await asyncio.wait_for(stop.wait(), TICK_S)
            except TimeoutError:
                continue
        await self.stop()

    async def stop(self) -> None:
        """Cancel deliveries (the next start resumes them), wait for what writes, and leave the
        windows to others.
        """
        for window, task in self._working.items():
            record = self._store.record(window)
            if record is not None and record.state is WindowState.DELIVERING:
                task.cancel()
        await self.settle()
        await self._held.release_all()

    async def settle(self) -> None:
        """Wait for the work that the last tick began."""
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    def trouble(self) -> dict[WindowId, tuple[Kind, int]]:
        """Windows whose work fails, with the last kind and how often in a row: for status and
        readiness.
        """
        return {
            window: (pending.last, pending.failures)
            for window, pending in self._pending.items()
            if pending.last is not None
        }

    # --- one tick ---------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Close what is due, delete keys that are over, begin the work whose time has come. One
        tick at a time.

        What fails for one window, or for the keys, is logged and tried again by the next tick; the
        rest goes on.
        """
        async with self._ticking:
            await self._tick()

    async def _tick(self) -> None:
        await self._held.renew(self._clock.steady(), self._taken_over)
        if self._given_up is not None:
            self._given_up.look()
        await self._close_due(self._clock.decide())
        now = self._clock.steady()
        try:
            if self._tasks.retire():
                await self._forget_keys()
        except ShoalError as error:
            log.error("a hop key could not be deleted: will be tried again", error=error)
        for window, pending in list(self._pending.items()):
            record = self._store.record(window)
            # without its task nothing is known of it: a condition says so
            if record is None or window.task_id not in self._tasks.served:
                continue
            if record.state is WindowState.SHREDDED and window not in self._working:
                del self._pending[window]  # by another shuffler
                continue
            ended = self._ended(window, record)
            if window in self._working:
                attempt = self._attempts.pop(window, None) if ended else None
                if attempt is not None:  # a slow analyzer may take hours: retention ends it
                    attempt.reschedule(asyncio.get_running_loop().time())
            elif ended or now >= pending.at:
                task = asyncio.create_task(
                    self._guard(window, pending, self._work(window, pending))
                )
                self._working[window] = task

    def _taken_over(self, window: WindowId) -> None:
        """Leave the window at once, whatever its work is at."""
        if window in self._working:
            self._working[window].cancel()

    async def _close_due(self, now: float | None) -> None:
        """``now`` None: the clock is disputed. Only what is full, or given up, closes then,
        whenever it began by whatever clock.
        """
        empty: list[WindowId] = []
        held = self._held_open() if now is None else list(self._tasks.running(now))
        due = {
            window: served
            for served, window in held
            # summed in rounds: the round driver decides its windows
            if served.task.pairwise is None
            and not self._follow(window)
            and core.due(served.task, window.window, now, self._store.distinct(window))
        }
        for window, served in {**due, **dict(self._abandoned(now))}.items():
            record = self._store.record(window)
            if record is None:
                empty.append(window)
                continue
            if self._follow(window):
                continue
            try:
                await self._close(served, window)
            except (
                ShoalError
            ) as error:  # for example a full disk: closing another window may be what frees it
                self._unclosed.failed(window, error, task=window.task_id, window=window.window)
            else:
                self._unclosed.ended(window, task=window.task_id, window=window.window)
        if empty:
            try:
                await self._lapse(empty)
            except ShoalError as error:
                self._unrecorded.failed("", error, windows=len(empty))
            else:
                self._unrecorded.ended("")

    def _follow(self, window: WindowId) -> bool:
        """Whether somebody else closed the window: another shuffler of the task, or whoever had it
        before. It takes nothing more here, and goes on here if that one does not.
        """
        record = self._store.record(window)
        if record is None or record.state is WindowState.OPEN:
            return False
        self._tasks.decided(window)
        if core.resume(record.state):
            self._pending.setdefault(window, _Pending(self._clock.steady()))
        return True

    def _held_open(self) -> list[tuple[ServedTask, WindowId]]:
        """Windows that hold something: a look at all that may have begun by any clock would cost
        too much each second.
        """
        return [
            (self._tasks.served[window.task_id], window)
            for window, record in self._store.records().items()
            if record.state is WindowState.OPEN and window.task_id in self._tasks.served
        ]

    def _abandoned(self, now: float | None) -> Iterator[tuple[WindowId, ServedTask]]:
        """Windows that an operator gave up and that may still take reports, begun or not."""
        for task_id, number in self._given_up or ():
            served = self._tasks.served.get(task_id)
            if served is None or number >= served.task.windows.count:
                continue
            window, plan = WindowId(task_id, number), served.task.windows
            # from its beginning on a window of rounds is the driver's
            ours = served.task.pairwise is None or (
                now is not None and now < plan.start_of(number) - plan.skew_s
            )
            if ours and not self._tasks.is_decided(window):
                yield window, served

    async def _lapse(self, empty: list[WindowId]) -> None:
        claims = [claim for window in empty if (claim := await self._held.get(window)) is not None]
        try:
            await self._store.lapse(claims)
        finally:  # also of a claim that was stale: the next tick asks anew
            for claim in claims:
                await self._held.release(claim.window)
        for claim in claims:
            record = self._store.record(claim.window)
            if record is not None and record.state is not WindowState.OPEN:
                self._tasks.decided(claim.window)

    async def _close(self, served: ServedTask, window: WindowId) -> None:
        claim = await self._held.get(window)
        if claim is None:
            return
        try:
            await self._store.close_intake(claim)
        except StaleClaimError:
            self._held.forget(window)
            raise
        except ShoalError:
            if self._over(served, window):  # not even this fits on the disk: see _expire
                held = self._store.distinct(window)
                await self._store.shred(claim)
                log.error(
                    "retention ended: the reports of a window that can't be closed are deleted",
                    task=window.task_id,
                    window=window.window,
                    n=held,
                )
            raise
        self._tasks.decided(window)
        self._pending[window] = _Pending(self._clock.steady())
        log.info("window closed", task=window.task_id, window=window.window)

    async def _guard(
        self, window: WindowId, pending: _Pending, work: Coroutine[Any, Any, None]
    ) -> None:
        """Run a window's work; a failure postpones it with full jitter, doubling."""
        try:
            await work
            pending.failures, pending.last = 0, None
        except (ShoalError, OSError) as error:
            if isinstance(error, StaleClaimError):
                self._held.forget(window)
            elif isinstance(error, ShoalError) and error.kind in (Kind.KEY_FILE, Kind.CONFIG):
                await self._held.leave(window)  # another shuffler of the task may do it
            pending.failures += 1
            pending.last = error.kind if isinstance(error, ShoalError) else Kind.INTERNAL
            asked = error.retry_after_s if isinstance(error, ShoalError) else 0.0
            pending.at = self._clock.steady() + _RETRY.pause(pending.failures, self._entropy, asked)
            log.warning(
                "will be tried again",
                task=window.task_id,
                window=window.window,
                attempt=pending.failures,
                error=error,
            )
        except Exception as error:  # noqa: BLE001 - a bug in one window must not stop the others
            pending.failures, pending.last, pending.at = (
                pending.failures + 1,
                Kind.INTERNAL,
                self._clock.steady() + _RETRY.most_s,
            )
            log.error("unexpected failure", task=window.task_id, window=window.window, error=error)
        finally:
            self._working.pop(window, None)

    # --- the work of one window -------------------------------------------------------------------

    def _ended(self, window: WindowId, record: WindowRecord) -> bool:
        """Whether the task's retention forbids to hold this window's reports any longer, or an
        operator gave them up.
        """
        return core.possible(record.state, WindowEvent.EXPIRED) and self._over(
            self._tasks.served[window.task_id], window
        )

    def _is_given_up(self, window: WindowId) -> bool:
        return (window.task_id, window.window) in (self._given_up or ())

    def _over(self, served: ServedTask, window: WindowId) -> bool:
        if self._is_given_up(window):
            return True
        now = self._clock.decide()
        return now is not None and core.expired(served.task, window.window, now)

    async def _work(self, window: WindowId, pending: _Pending) -> None:
        """Go on from the window's durable state until it is SHREDDED or something has to be waited
        for.
        """
        served = self._tasks.served[window.task_id]
        claim = await self._held.get(window)
        if claim is None:  # its owner may die
            pending.at = self._clock.steady() + CLAIM_S
            return
        while True:
            record = record_of(self._store, window)
            if self._ended(window, record):
                await self._expire(served, claim, record)
                continue
            match record.state:
                case WindowState.CLOSING:
                    with self._tracer.span("seal", window.task_id, window.window):
                        await self._seal(served, claim)
                case WindowState.SEALED | WindowState.DELIVERING:
                    if not await self._deliver(served, claim, pending, record):
                        return
                case WindowState.ACKNOWLEDGED | WindowState.WITHHELD | WindowState.EXPIRED:
                    with self._tracer.span("shred", window.task_id, window.window):
                        await self._store.shred(claim)
                        await self._advance(claim, WindowEvent.SHREDDED)
                    log.info(
                        "window shredded",
                        task=window.task_id,
                        window=window.window,
                        state=record.state,
                    )
                case _:
                    self._pending.pop(window, None)
                    await self._held.release(window)
                    return

    async def _expire(self, served: ServedTask, claim: Claim, record: WindowRecord) -> None:
        """The promise to owners goes before the reports: they are deleted, whatever kept them."""
        window = claim.window
        reports: int | None = record.reports
        if record.state is WindowState.CLOSING:
            try:
                reports = await self._store.held(window)
            except ShoalError:
                reports = None  # what can't be counted is deleted all the same
        log.error(
            "the window's reports are deleted: an operator gave it up"
            if self._is_given_up(window)
            else "the window's reports are deleted: retention ended before the analyzer's word",
            task=window.task_id,
            window=window.window,
            state=record.state.name,
            n=reports,
        )
        try:
            await self._advance(claim, WindowEvent.EXPIRED, reports=reports or 0)
        except ShoalError:
            # The disk has no room even for this word. Before sealing it may come after the deed: an
            # inbox that is gone is an empty one. A batch that is gone would look like a loss to the
            # next start, and has to wait for the word.
            if record.state is WindowState.CLOSING:
                await self._store.shred(claim)
            raise

    async def _advance(
        self,
        claim: Claim,
        event: WindowEvent,
        sealed: SealedRows | None = None,
        reports: int = 0,
        manifest: bytes = b"",
    ) -> None:
        record = record_of(self._store, claim.window)
        after, _ = core.step(record.state, event)
        await self._store.advance(claim, record.state, after, sealed, reports, manifest)
        self._noise.forget(claim.window)  # it is in the batch, or gone with it

    async def _seal(self, served: ServedTask, claim: Claim) -> None:
        window = claim.window
        async with self._sealing:
            # decided below by reports alone: what is withheld is shredded with its noise
            sealed = await self._store.seal(claim, await self._noise.of(served, window))
        reports = sealed.reports
        enough = (event := core.verdict(reports, served.task.min_batch)) is WindowEvent.ENOUGH
        manifest = make_manifest(served, window, sealed, self._asked) if enough else b""
        await self._advance(claim, event, sealed, reports, manifest)
        log.info(
            "window sealed" if manifest else "window withheld",
            task=window.task_id,
            window=window.window,
            n=reports,
        )

    async def _mend(self, served: ServedTask, claim: Claim, record: WindowRecord) -> bool:
        """Whether the batch was damaged: then it is now what is left of it, with a manifest that
        says so, or withheld.
        """
        sealed = await self._store.mend(claim)
        if sealed is None:
            return False
        reports = sealed.reports
        if core.verdict(reports, served.task.min_batch) is WindowEvent.TOO_FEW:
            await self._advance(claim, WindowEvent.TOO_FEW, sealed, reports)
        else:
            manifest = make_manifest(served, claim.window, sealed, self._asked)
            await self._store.advance(claim, record.state, record.state, sealed, reports, manifest)
        return True

    async def _deliver(
        self, served: ServedTask, claim: Claim, pending: _Pending, record: WindowRecord
    ) -> bool:
        """True: look at the window's state again, it is ACKNOWLEDGED or mended, or its retention
        has ended; False: come back at ``pending.at``.
        """
        window = claim.window
        await self._store.destroy_inbox(claim)
        now = self._clock.steady()
        # when a batch arrives says nothing about when its last report did
        if pending.deliver_at is None:
            pending.deliver_at = now + self._delay * uniform(self._entropy)
        if now < pending.deliver_at:
            pending.at = pending.deliver_at
            return False
        if await self._mend(served, claim, record):
            return True
        if record.state is WindowState.SEALED:
            await self._advance(claim, WindowEvent.OFFERED)
        bound = asyncio.timeout(None)
        try:
            async with bound:
                self._attempts[window] = (
                    # ``tick`` ends it when retention does, by the clock that decides everything
                    # else
                    bound
                )
                with self._tracer.span("deliver", window.task_id, window.window):
                    acknowledged = await self._delivery.attempt(served, window, record)
        except TimeoutError:
            if bound.expired():
                return True
            raise
        finally:
            self._attempts.pop(window, None)
        if not acknowledged:
            pending.at = now + _POLL_S
            return False
        await self._advance(claim, WindowEvent.ACKNOWLEDGED)
        log.info("batch acknowledged", task=window.task_id, window=window.window, rows=record.rows)
        return True

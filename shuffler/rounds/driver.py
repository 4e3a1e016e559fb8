"""Rounds of every open window that is summed by secure aggregation, window by window.

One asyncio task per window, of the shuffler that has claimed it. When a window is over and its last
round has ended, the analyzer is asked to release it until it says that it has; then the window is
decided here too: its hop key and the memory of who answered are destroyed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Container

from shoal.clocks.backoff import Backoff
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.secagg import Mode
from shoal.services.given_up import TaskWindow
from shoal.shuffler import core
from shoal.shuffler.core import WindowId
from shoal.shuffler.rounds.parts import RoundParts
from shoal.shuffler.rounds.singles import Singles
from shoal.shuffler.rounds.window import WindowRounds
from shoal.shuffler.stores.claims import Claim, HeldClaims, StaleClaimError
from shoal.shuffler.stores.rounds import AnsweredDevices
from shoal.shuffler.tasks import ShufflerTasks

log = get_log("shuffler")
# between two attempts to finish a window
_FINISH = Backoff(LIMITS.finish_retry_first_s, LIMITS.finish_retry_most_s, least=0.5)


class RoundDriver:
    """All windows of rounds. ``decide`` records a window that is finished, durably; ``tasks`` is
    told after it. ``held``: this shuffler's claims of windows of rounds. ``given_up``: windows that
    an operator gave up: once they are over, the analyzer is not asked for them.
    """

    def __init__(
        self,
        tasks: ShufflerTasks,
        parts: RoundParts,
        admissions: AnsweredDevices,
        singles: Singles,
        decide: Callable[[Claim], Awaitable[None]],
        held: HeldClaims,
        given_up: Container[TaskWindow] = (),
    ) -> None:
        self._given_up = given_up
        self._tasks, self._parts, self._admissions, self._decide = tasks, parts, admissions, decide
        self._singles, self._held = singles, held
        self._elsewhere: set[WindowId] = set()  # open windows that another shuffler works on
        self._windows: dict[WindowId, WindowRounds] = {}
        self._running: dict[WindowId, asyncio.Task[None]] = {}
        # rounds of finished windows by task (short id) and how they ended
        self.ended: dict[str, Counter[str]] = {}
        # devices that broke rounds of finished windows, by task (short id)
        self._blamed: Counter[str] = Counter()
        # windows that the analyzer won't finish, though it answers: attempts
        self.failing: Counter[WindowId] = Counter()

    def window(self, window: WindowId) -> WindowRounds | None:
        """The rounds of a window that goes on."""
        return self._windows.get(window)

    def is_elsewhere(self, window: WindowId) -> bool:
        """Whether another shuffler works on this window, as far as is known here."""
        return window in self._elsewhere

    def counts(self) -> dict[str, tuple[Counter[str], Counter[str]]]:
        """Per task (short id): rounds under way by phase, and rounds that ended since the start, by
        how. Never how many devices.
        """
        counts = {task: (Counter[str](), Counter(ended)) for task, ended in self.ended.items()}
        for window, rounds in self._windows.items():
            phases, ended = counts.setdefault(window.task_id.short, (Counter(), Counter()))
            phases.update(rounds.phases())
            ended.update(rounds.ended)
        return counts

    def blamed(self) -> Counter[str]:
        """Per task (short id): devices that were proven to have broken a round since the start,
        counted once per window.
        """
        blamed = Counter(self._blamed)
        for window, rounds in self._windows.items():
            blamed[window.task_id.short] += rounds.blamed
        return blamed

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop``; then every open round is aborted."""
        while not stop.is_set():
            try:
                await self.tick()
            except Exception as error:  # noqa: BLE001 - the clock must go on
                log.error("a tick of the rounds failed unexpectedly", error=error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._parts.tick_s)
        await self.stop()

    async def stop(self) -> None:
        """Cancel the rounds that go on, and give their windows back."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        await self._held.release_all()  # also of a task that was cancelled before it began

    async def tick(self) -> None:
        """Keep the claims of the windows that go on, and begin those whose time has come. One tick
        at a time.
        """
        await self._held.renew(self._parts.clock.steady(), self._taken_over)
        sure, now = self._parts.clock.decide(), self._parts.clock.letting()
        if now is None:
            return
        elsewhere = set[WindowId]()
        for served, window in list(self._tasks.running(now)):
            if served.task.pairwise is None or window in self._running:
                continue
            if sure is None and now >= served.task.windows.deadline_of(window.window):
                continue  # it would only be ended
            claim = await self._held.get(window)
            if claim is None:
                elsewhere.add(window)
                continue
            # asked when it is ours: it may have ended while this waited for the claim
            if self._tasks.is_decided(window):
                self._tasks.decided(window)
                await self._held.release(window)
                continue
            self._begin(served, claim)
        self._elsewhere = elsewhere

    def _begin(self, served: ServedTask, claim: Claim) -> None:
        window = claim.window
        rounds = WindowRounds(served, claim, self._parts, self._admissions)
        self._windows[window] = rounds
        self._running[window] = task = asyncio.create_task(self._run(served, rounds))
        # not at the end of the task's own code: cancelled before its first step, that never runs
        task.add_done_callback(lambda _task: self._ended(rounds))

    def _ended(self, rounds: WindowRounds) -> None:
        window = rounds.window
        del self._windows[window], self._running[window]
        self.ended.setdefault(window.task_id.short, Counter()).update(rounds.ended)
        self._blamed[window.task_id.short] += rounds.blamed

    def _taken_over(self, window: WindowId) -> None:
        """Leave the window at once: its rounds are aborted."""
        if window in self._running:
            self._running[window].cancel()

    async def _run(self, served: ServedTask, rounds: WindowRounds) -> None:
        window = rounds.window
        # a bug in one window must not stop the others; the next tick begins it anew
        try:
            await rounds.run()
            if rounds.terms.plan.mode is Mode.HELPER:
                await self._until_done(served, window, lambda: self._concluded(rounds))
            await self._finish(served, rounds.claim)
        except StaleClaimError:
            log.warning("a window was taken over", task=window.task_id, window=window.window)
        except Exception as error:  # noqa: BLE001
            log.error("unexpected failure", task=window.task_id, window=window.window, error=error)
            await asyncio.sleep(_FINISH.first_s)
        finally:
            await self._held.release(window)

    async def _concluded(self, rounds: WindowRounds) -> bool:
        """Helper mode: whether the analyzer has the window's sum, or there is none for good."""
        reason = await self._singles.conclude(
            rounds.claim, rounds.terms, self._parts.collection.stream
        )
        if reason:
            log.info(
                "round aborted",
                task=rounds.window.task_id,
                window=rounds.window.window,
                reason=reason,
            )
        rounds.ended[reason or "done"] += 1
        return True

    async def _finish(self, served: ServedTask, claim: Claim) -> None:
        """Ask the analyzer to release until it has, or the task's retention is over; then decide
        the window here.
        """
        window = claim.window
        damaged, summed = await self._singles.fate(window)
        await self._until_done(
            served, window, lambda: self._parts.collection.finish(window, damaged, summed)
        )
        await self._admissions.forget(claim)
        await self._singles.forget(claim)
        await self._decide(claim)
        log.info("window of rounds finished", task=window.task_id, window=window.window)

    async def _until_done(
        self, served: ServedTask, window: WindowId, attempt_once: Callable[[], Awaitable[bool]]
    ) -> None:
        """Ask the analyzer until it has done its part, the task's retention is over, or an operator
        gave the window up.
        """
        attempt = 0
        while not self._lost(served, window):
            try:
                if await attempt_once():
                    break
                failure: ShoalError | None = None
            except StaleClaimError:
                raise
            except ShoalError as error:
                if error.kind is Kind.WINDOW_CLOSED:
                    break
                failure = error
            attempt += 1
            if failure is None or failure.kind is not Kind.UNAVAILABLE:
                self.failing[window] = attempt
            log.warning(
                "window not finished yet",
                task=window.task_id,
                window=window.window,
                attempt=attempt,
                error=failure,
            )
            asked = failure.retry_after_s if failure is not None else 0.0
            await asyncio.sleep(_FINISH.pause(attempt, self._parts.entropy, asked))
        else:
            log.error(
                "retention ended, or the window was given up, before the analyzer finished it",
                task=window.task_id,
                window=window.window,
            )
        self.failing.pop(window, None)

    def _lost(self, served: ServedTask, window: WindowId) -> bool:
        if (window.task_id, window.window) in self._given_up:
            return True
        now = self._parts.clock.decide()
        return now is not None and core.expired(served.task, window.window, now)

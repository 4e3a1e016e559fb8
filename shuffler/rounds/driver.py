"""Rounds of every open window that is summed by secure aggregation: opened when devices ask, driven
to their end, window by window.

One asyncio task per window, one per round. A cohort that takes no more devices makes room for the
next, so several rounds of a window may be under way. When a window is over and its last round has
ended, the analyzer is asked to release it until it says that it has; then the window is decided
here too: its hop key and the memory of who answered are destroyed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from shoal.clocks.clock import Moment, SureClock
from shoal.crypto.secagg.coordinator import GUILTY, Coordinator, countersign, open_request
from shoal.crypto.secagg.records import NONCE_SIZE, Reason
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import ServedTask
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from shoal.shuffler import core
from shoal.shuffler.core import WindowId
from shoal.shuffler.rounds.collection import Collection
from shoal.shuffler.rounds.live_round import TICK_S, GaveUpError, LiveRound, ask, fraction
from shoal.shuffler.rounds.singles import Singles
from shoal.shuffler.stores.sqlite.admissions import Admissions
from shoal.shuffler.tasks import TaskBook

log = get_log("shuffler")
MOST_ROUNDS = 16  # of one window under way at once: each may hold cohort_max vectors on disk
_KEPT_ROUNDS = 1_000  # ended ones of a window whose devices still get told how they ended ...
_KEPT_SEATS = 50_000  # ... and as many devices of theirs at most: a seat is about 2 KiB
_NONE_WAIT_MS = 1_000  # while a round is being opened
_OPEN_PATIENCE_S = LIMITS.ask_patience_s
_LONELY_PAUSE_S = LIMITS.lonely_most_s
# rounds of a window that a device may leave unfinished before it gets no more seats in it
MOST_LEFT = 3
# between two attempts to finish a window
_FINISH_PAUSE_S, _LONGEST_PAUSE_S = LIMITS.finish_retry_first_s, LIMITS.finish_retry_most_s


class WindowRounds:
    """The rounds of one window."""

    def __init__(
        self,
        served: ServedTask,
        window: WindowId,
        *,
        collection: Collection,
        admissions: Admissions,
        signing_key: SigningKey,
        folder: Path,
        clock: SureClock,
        entropy: Entropy,
        tick_s: float,
    ) -> None:
        self.served, self.window, self.terms = (
            served,
            window,
            RoundTerms.served(served, window.window),
        )
        self._collection, self.admissions, self._signing_key, self._folder = (
            collection,
            admissions,
            signing_key,
            folder,
        )
        self._clock, self._entropy, self._tick_s = clock, entropy, tick_s
        self._rounds: list[tuple[LiveRound, asyncio.Task[None]]] = []  # under way
        self._ended: list[LiveRound] = []
        self._sessions: dict[bytes, LiveRound] = {}
        # device key -> its last round and session
        self._seats: dict[bytes, tuple[LiveRound, bytes]] = {}
        self._joining: LiveRound | None = None
        # rounds that a device left unfinished, by device key
        self._left: Counter[bytes] = Counter()
        self._blamed: set[bytes] = set()  # devices that were proven to have broken a round
        # rounds in a row that too few joined; when (steady) the next one may open
        self._lonely, self._not_before = 0, -math.inf
        self._woken = asyncio.Event()
        self._wanted = False
        self.ended: Counter[str] = Counter()  # rounds by how they ended: "done", or the reason

    # --- what devices' steps ask ------------------------------------------------------------------

    @property
    def _deadline(self) -> float:
        return self.served.task.windows.deadline_of(self.window.window)

    def opens_rounds(self, now: float) -> bool:
        """Whether a round that begins now can end within the window."""
        plan = self.served.task.windows
        return (
            plan.start_of(self.window.window) - plan.skew_s
            <= now
            <= self._deadline - self.terms.plan.seconds
        )

    def opens_now(self, now: float) -> bool:
        """Whether a round that somebody asked for may begin."""
        return self.opens_rounds(now) and self._clock.steady() >= self._not_before

    def takes_singles(self, now: float) -> bool:
        """Helper mode: whether the window takes vectors now."""
        plan = self.served.task.windows
        return plan.start_of(self.window.window) - plan.skew_s <= now < self._deadline

    def invite(self) -> pairwise_pb2.Answer:
        """To Ask: the offer that takes devices, or when to ask again. Raises TOO_EARLY,
        WINDOW_CLOSED; UNAVAILABLE for a disputed clock, by which no round is opened.
        """
        if self._joining is not None:
            answer = self._joining.coordinator.invite(self._joining.now())
            if answer.phase == pairwise_pb2.PHASE_JOIN:
                return answer
        plan, moment = self.served.task.windows, Moment.of(self._clock)
        with moment.refusing():
            if moment.now < plan.start_of(self.window.window) - plan.skew_s:
                raise ShoalError(
                    Kind.TOO_EARLY, "the window has not begun: ask when it has, and check the clock"
                )
            if not self.opens_rounds(moment.now):
                raise ShoalError(
                    Kind.WINDOW_CLOSED, "the window opens no more rounds: wait for the next window"
                )
        self._wanted = True
        self._woken.set()
        return pairwise_pb2.Answer(phase=pairwise_pb2.PHASE_NONE, wait_ms=_NONE_WAIT_MS)

    def find(self, session: bytes) -> LiveRound | None:
        """The round in which this session has a seat, under way or ended."""
        return self._sessions.get(session)

    async def join(self, session: bytes, join: pairwise_pb2.Join) -> LiveRound:
        """A seat, if this device has not answered the window and has no seat elsewhere.

        Raises CONFLICT (answered; another session), FORBIDDEN (it broke a round), TOO_EARLY (a seat
        in a round under way; too many rounds left), NOT_FOUND (no such offer), and what
        ``Coordinator.join`` raises.
        """
        held = self._sessions.get(session)
        if held is not None:
            held.coordinator.join(session, join, held.now())  # the same again, or a CONFLICT
            return held
        live = self._joining
        if live is None or live.coordinator.offer_id.raw != join.offer_id:
            raise ShoalError(
                Kind.NOT_FOUND, "this round is not open any more: ask for the next one"
            )
        device_key = live.coordinator.identify(join, live.now())
        if await asyncio.to_thread(self.admissions.answered, self.window, device_key):
            raise ShoalError(
                Kind.CONFLICT,
                "this device has answered the window before: a window is answered once",
            )
        if device_key in self._blamed:
            raise ShoalError(Kind.FORBIDDEN, GUILTY)
        if self._seated_elsewhere(device_key, live):
            raise ShoalError(
                Kind.TOO_EARLY,
                "this device has a seat in a round that goes on: try again when it has ended",
            )
        # a few that join and fall silent could end every round of the window
        if self._left[device_key] >= MOST_LEFT:
            raise ShoalError(
                Kind.TOO_EARLY,
                f"this device left {MOST_LEFT} rounds of this window unfinished: wait for the next "
                "window",
            )
        live.coordinator.join(session, join, live.now())
        live.devices[session] = device_key
        self._sessions[session], self._seats[device_key] = live, (live, session)
        return live

    def blame(self, device_key: bytes) -> None:
        """This device was proven to have broken a round: no seat in this window any more. Forgotten
        with the window.
        """
        self._blamed.add(device_key)
        log.warning(
            "a device broke a round and was left out",
            task=self.window.task_id,
            window=self.window.window,
        )

    @property
    def blamed(self) -> int:
        """Devices that were proven to have broken a round of this window."""
        return len(self._blamed)

    def _seated_elsewhere(self, device_key: bytes, here: LiveRound) -> bool:
        """A device that lost its seat before its vector was complete is free again."""
        live, session = self._seats.get(device_key, (None, b""))
        if live is None or live is here or live.coordinator.ended:
            return False
        return live.coordinator.answer(session, live.now()).kind != Kind.WINDOW_CLOSED.value

    def phases(self) -> Counter[str]:
        """Rounds under way, by phase."""
        return Counter(
            pairwise_pb2.Phase.Name(live.coordinator.phase).removeprefix("PHASE_")
            for live, _ in self._rounds
        )

    # --- the window's task ------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the window is over and its last round has ended. Cancelled: every round is
        aborted.
        """
        try:
            while True:
                self._woken.clear()
                self._reap()
                now = self._clock.decide()  # None: rounds go on, and the window does not end
                if (
                    now is not None
                    and not self._rounds
                    and not self.opens_rounds(now)
                    and now >= self._deadline
                ):
                    return
                now = self._clock.letting()  # None: none is opened
                if now is not None and self._wanted and self.opens_now(now):
                    await self._open(now)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), self._tick_s)
        finally:
            await self._stop_rounds()

    async def _stop_rounds(self) -> None:
        for _, task in self._rounds:
            task.cancel()
        await asyncio.gather(*(task for _, task in self._rounds), return_exceptions=True)

    def _reap(self) -> None:
        """Put ended rounds aside: their devices may still ask how they ended."""
        for live, task in list(self._rounds):
            if task.done():
                self._rounds.remove((live, task))
                reason = live.coordinator.reason
                self.ended[reason.value if reason else "done"] += 1
                self._lonely = self._lonely + 1 if reason is Reason.TOO_FEW_JOINED else 0
                self._not_before = self._clock.steady() + lonely_pause(
                    self._lonely, self.terms.plan.join_s
                )
                self._left.update(live.devices[session] for session in live.coordinator.left)
                self._ended.append(live)
        while (
            len(self._ended) > _KEPT_ROUNDS
            or sum(len(live.devices) for live in self._ended) > _KEPT_SEATS
        ):
            old = self._ended.pop(0)
            for session, device_key in old.devices.items():
                self._sessions.pop(session, None)
                if self._seats.get(device_key, (None, b""))[0] is old:
                    del self._seats[device_key]

    async def _open(self, now: float) -> None:
        """An offer, unless one takes devices already. Failures are in the log; devices ask
        again.
        """
        joining = self._joining
        if (
            joining is not None
            and joining.coordinator.invite(joining.now()).phase == pairwise_pb2.PHASE_JOIN
        ):
            self._wanted = False
            return
        if len(self._rounds) >= MOST_ROUNDS or self.terms.plan.mode is Mode.HELPER:
            return
        nonce = self._entropy.bytes(NONCE_SIZE)
        request = open_request(self.terms, nonce)
        asked = self._clock.steady()
        try:
            reply = await ask(
                lambda: self._collection.open(request),
                self.window,
                self._clock,
                self._entropy,
                asked + _OPEN_PATIENCE_S,
                "OpenRound",
            )
            offer = countersign(self.terms, nonce, reply, self._signing_key)
            begins = now + self._clock.steady() - asked
            coordinator = Coordinator(
                self.terms, offer, nonce, self._signing_key, self._entropy, begins
            )
            live = LiveRound(
                self.terms,
                coordinator,
                self._folder,
                self._collection,
                self._clock,
                self._entropy,
                self._tick_s,
                begins,
            )
        except GaveUpError as error:
            log.error(
                "no round can be opened",
                task=self.window.task_id,
                window=self.window.window,
                reason=error.reason.value,
            )
            self._wanted = False
            return
        except ShoalError as error:
            log.error(
                "no round can be opened",
                task=self.window.task_id,
                window=self.window.window,
                error=error,
            )
            self._wanted = False
            return
        self._joining, self._wanted = live, False
        task = asyncio.create_task(live.run())
        task.add_done_callback(lambda _: self._woken.set())
        self._rounds.append((live, task))


def lonely_pause(lonely: int, join_s: int) -> float:
    """Seconds without a round after so many in a row that too few joined: 0, join_s, 3 join_s, ...
    up to ten minutes.

    A few devices that are left over in a long window would otherwise open and end a round every
    join_s until it is over.
    """
    return min(join_s * (2.0 ** min(max(lonely - 1, 0), 20) - 1), _LONELY_PAUSE_S)


class RoundDriver:
    """All windows of rounds. ``decide`` records a window that is finished, durably; ``book`` is
    told after it.
    """

    def __init__(
        self,
        book: TaskBook,
        admissions: Admissions,
        collection: Collection,
        singles: Singles,
        signing_key: SigningKey,
        folder: Path,
        clock: SureClock,
        entropy: Entropy,
        decide: Callable[[WindowId], Awaitable[None]],
        tick_s: float = TICK_S,
    ) -> None:
        self._book, self._admissions, self._collection, self._signing_key = (
            book,
            admissions,
            collection,
            signing_key,
        )
        self._folder, self._clock, self._entropy, self._decide, self._tick_s = (
            folder,
            clock,
            entropy,
            decide,
            tick_s,
        )
        self._singles = singles
        self._windows: dict[WindowId, WindowRounds] = {}
        self._tasks: dict[WindowId, asyncio.Task[None]] = {}
        # rounds of finished windows by task (short id) and how they ended
        self.ended: dict[str, Counter[str]] = {}
        # devices that broke rounds of finished windows, by task (short id)
        self._blamed: Counter[str] = Counter()
        # windows that the analyzer won't finish, though it answers: attempts
        self.failing: Counter[WindowId] = Counter()

    def window(self, window: WindowId) -> WindowRounds | None:
        """The rounds of a window that goes on."""
        return self._windows.get(window)

    def counts(self) -> dict[str, tuple[Counter[str], Counter[str]]]:
        """Per task (short id): rounds under way by phase, and rounds that ended since the start, by
        how. Never how many devices.
        """
        found = {task: (Counter[str](), Counter(ended)) for task, ended in self.ended.items()}
        for window, rounds in self._windows.items():
            phases, ended = found.setdefault(window.task_id.short, (Counter(), Counter()))
            phases.update(rounds.phases())
            ended.update(rounds.ended)
        return found

    def blamed(self) -> Counter[str]:
        """Per task (short id): devices that were proven to have broken a round since the start,
        counted once per window.
        """
        found = Counter(self._blamed)
        for window, rounds in self._windows.items():
            found[window.task_id.short] += rounds.blamed
        return found

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop``; then every open round is aborted."""
        while not stop.is_set():
            try:
                self.tick()
            except Exception as error:  # noqa: BLE001 - the clock must go on
                log.error("a tick of the rounds failed unexpectedly", error=error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._tick_s)
        await self.stop()

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def tick(self) -> None:
        """Begin the windows whose time has come."""
        sure, now = self._clock.decide(), self._clock.letting()
        if now is None:
            return
        for served, window in list(self._book.running(now)):
            if sure is None and now >= served.task.windows.deadline_of(window.window):
                continue  # it would only be ended
            if served.task.pairwise is not None and window not in self._tasks:
                self._windows[window] = WindowRounds(
                    served,
                    window,
                    collection=self._collection,
                    admissions=self._admissions,
                    signing_key=self._signing_key,
                    folder=self._folder,
                    clock=self._clock,
                    entropy=self._entropy,
                    tick_s=self._tick_s,
                )
                self._tasks[window] = asyncio.create_task(self._run(served, window))

    async def _run(self, served: ServedTask, window: WindowId) -> None:
        rounds = self._windows[window]
        # a bug in one window must not stop the others; the next tick begins it anew
        try:
            await rounds.run()
            if rounds.terms.plan.mode is Mode.HELPER:
                await self._until_done(served, window, lambda: self._concluded(rounds))
            await self._finish(served, window)
        except Exception as error:  # noqa: BLE001
            log.error("unexpected failure", task=window.task_id, window=window.window, error=error)
            await asyncio.sleep(_FINISH_PAUSE_S)
        finally:
            del self._windows[window], self._tasks[window]
            self.ended.setdefault(window.task_id.short, Counter()).update(rounds.ended)
            self._blamed[window.task_id.short] += rounds.blamed

    async def _concluded(self, rounds: WindowRounds) -> bool:
        """Helper mode: whether the analyzer has the window's sum, or there is none for good."""
        reason = await self._singles.conclude(rounds.terms, self._collection.stream)
        if reason:
            log.info(
                "round aborted",
                task=rounds.window.task_id,
                window=rounds.window.window,
                reason=reason,
            )
        rounds.ended[reason or "done"] += 1
        return True

    async def _finish(self, served: ServedTask, window: WindowId) -> None:
        """Ask the analyzer to release until it has, or the task's retention is over; then decide
        the window here.
        """
        damaged, summed = await self._singles.fate(window)
        await self._until_done(
            served, window, lambda: self._collection.finish(window, damaged, summed)
        )
        await asyncio.to_thread(self._admissions.forget, window)
        await asyncio.to_thread(self._singles.forget, window)
        await self._decide(window)
        log.info("window of rounds finished", task=window.task_id, window=window.window)

    async def _until_done(
        self, served: ServedTask, window: WindowId, attempt_once: Callable[[], Awaitable[bool]]
    ) -> None:
        """Ask the analyzer until it has done its part, or the task's retention is over."""
        pause, attempt = _FINISH_PAUSE_S, 0
        while (now := self._clock.decide()) is None or not core.expired(
            served.task, window.window, now
        ):
            try:
                if await attempt_once():
                    break
                failure: ShoalError | None = None
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
            asked = (
                min(failure.retry_after_s, LIMITS.retry_after_most_s)
                if failure is not None
                else 0.0
            )
            await asyncio.sleep(max(pause * (0.5 + fraction(self._entropy) / 2), asked))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        else:
            log.error(
                "retention ended before the analyzer finished the window",
                task=window.task_id,
                window=window.window,
            )
        self.failing.pop(window, None)

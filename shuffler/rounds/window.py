"""The rounds of one window that is summed by secure aggregation: opened when devices ask, driven to
their end.

A cohort that takes no more devices makes room for the next, so several rounds of a window may be
under way, each an asyncio task of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable

from shoal.clocks.clock import Moment, SureClock
from shoal.crypto.secagg.records import NONCE_SIZE, Reason
from shoal.crypto.secagg.shuffler.coordinator import Coordinator
from shoal.crypto.secagg.shuffler.opening import countersign, open_request
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode
from shoal.shuffler.rounds.live_round import GaveUpError, LiveRound, ask
from shoal.shuffler.rounds.parts import RoundParts
from shoal.shuffler.rounds.seats import Seats
from shoal.shuffler.stores.claims import Claim, StaleClaimError
from shoal.shuffler.stores.rounds import AnsweredDevices

log = get_log("shuffler")
MOST_ROUNDS = 16  # of one window under way at once: each may hold cohort_max vectors on disk
_NONE_WAIT_MS = 1_000  # while a round is being opened
_OPEN_PATIENCE_S = LIMITS.ask_patience_s
_LONELY_PAUSE_S = LIMITS.lonely_most_s


def lonely_pause(lonely: int, join_s: int) -> float:
    """Seconds without a round after so many in a row that too few joined: 0, join_s, 3 join_s, ...
    up to ten minutes.

    A few devices that are left over in a long window would otherwise open and end a round every
    join_s until it is over.
    """
    return min(join_s * (2.0 ** min(max(lonely - 1, 0), 20) - 1), _LONELY_PAUSE_S)


class Pace:
    """How soon a window opens its next round: later with every one in a row that too few joined."""

    def __init__(self, join_s: int, clock: SureClock) -> None:
        self._join_s, self._clock = join_s, clock
        self._lonely = 0  # rounds in a row that too few joined
        self._not_before = -math.inf  # steady seconds

    def ready(self) -> bool:
        """Whether a round that somebody asked for may begin now."""
        return self._clock.steady() >= self._not_before

    def ended(self, reason: Reason | None) -> None:
        """A round ended; ``reason``: None where it gave a sum."""
        self._lonely = self._lonely + 1 if reason is Reason.TOO_FEW_JOINED else 0
        self._not_before = self._clock.steady() + lonely_pause(self._lonely, self._join_s)


class WindowRounds:
    """The rounds of one window, of the shuffler that has its ``claim``."""

    def __init__(
        self, served: ServedTask, claim: Claim, parts: RoundParts, admissions: AnsweredDevices
    ) -> None:
        self.served, self.claim, self._admissions = served, claim, admissions
        self.window = claim.window
        self.terms = RoundTerms.served(served, self.window.window)
        self.ended: Counter[str] = Counter()  # rounds by how they ended: "done", or the reason
        self._parts, self._seats = parts, Seats()
        self._pace = Pace(self.terms.plan.join_s, parts.clock)
        self._under_way: dict[LiveRound, asyncio.Task[None]] = {}
        self._joining: LiveRound | None = None  # the round that takes devices, or took them last
        self._wanted = False  # a device asked, and there is no round that takes it
        self._woken = asyncio.Event()

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
        return self.opens_rounds(now) and self._pace.ready()

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
        plan, moment = self.served.task.windows, Moment.of(self._parts.clock)
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
        return self._seats.find(session)

    async def join(
        self,
        session: bytes,
        join: pairwise_pb2.Join,
        check: Callable[[bytes], None] = lambda _: None,
    ) -> LiveRound:
        """A seat, if this device has not answered the window and has no seat elsewhere.

        ``check`` looks at the device's key once its signature verified, and may raise.

        Raises CONFLICT (answered; another session), FORBIDDEN (it broke a round), TOO_EARLY (a seat
        in a round under way; too many rounds left), NOT_FOUND (no such offer), and what
        ``Coordinator.join`` raises.
        """
        held = self._seats.find(session)
        if held is not None:
            held.coordinator.join(session, join, held.now())  # the same again, or a CONFLICT
            return held
        live = self._joining
        if live is None or live.coordinator.offer_id.raw != join.offer_id:
            raise ShoalError(
                Kind.NOT_FOUND, "this round is not open any more: ask for the next one"
            )
        device_key = live.coordinator.identify(join, live.now())
        check(device_key)
        if await self._admissions.answered(self.window, device_key):
            raise ShoalError(
                Kind.CONFLICT,
                "this device has answered the window before: a window is answered once",
            )
        self._seats.check(device_key, live)
        live.coordinator.join(session, join, live.now())
        self._seats.take(session, device_key, live)
        return live

    async def remember(self, device_key: bytes) -> None:
        """This device's vector is complete: durable on return, until then say nothing to it. Raises
        ABORTED (restarted) if another shuffler has taken the window over: this round ends.
        """
        try:
            await self._admissions.remember(self.claim, device_key)
        except StaleClaimError:
            raise Reason.RESTARTED.error from None

    def blame(self, device_key: bytes) -> None:
        """This device was proven to have broken a round: no seat in this window any more. Forgotten
        with the window.
        """
        self._seats.convict(device_key)
        log.warning(
            "a device broke a round and was left out",
            task=self.window.task_id,
            window=self.window.window,
        )

    @property
    def blamed(self) -> int:
        """Devices that were proven to have broken a round of this window."""
        return self._seats.guilty

    def phases(self) -> Counter[str]:
        """Rounds under way, by phase."""
        return Counter(
            pairwise_pb2.Phase.Name(live.coordinator.phase).removeprefix("PHASE_")
            for live in self._under_way
        )

    # --- the window's task ------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the window is over and its last round has ended. Cancelled: every round is
        aborted.
        """
        try:
            while True:
                self._woken.clear()
                self._put_ended_aside()
                now = self._parts.clock.decide()  # None: rounds go on, and the window does not end
                if (
                    now is not None
                    and not self._under_way
                    and not self.opens_rounds(now)
                    and now >= self._deadline
                ):
                    return
                now = self._parts.clock.letting()  # None: none is opened
                if now is not None and self._wanted and self.opens_now(now):
                    await self._open(now)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), self._parts.tick_s)
        finally:
            await self._stop_rounds()

    async def _stop_rounds(self) -> None:
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    def _put_ended_aside(self) -> None:
        for live in [live for live, task in self._under_way.items() if task.done()]:
            del self._under_way[live]
            reason = live.coordinator.reason
            self.ended[reason.value if reason else "done"] += 1
            self._pace.ended(reason)
            self._seats.end(live)

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
        if len(self._under_way) >= MOST_ROUNDS or self.terms.plan.mode is Mode.HELPER:
            return
        self._wanted = False
        try:
            live = await self._offered(now)
        except GaveUpError as error:
            self._wanted = False  # who asked meanwhile asks again
            self._not_opened(reason=error.reason.value)
            return
        except ShoalError as error:
            self._wanted = False
            self._not_opened(error=error)
            return
        self._joining = live
        self._under_way[live] = task = asyncio.create_task(live.run())
        task.add_done_callback(lambda _: self._woken.set())

    async def _offered(self, now: float) -> LiveRound:
        """A round that the analyzer opened and both signed. Raises GaveUpError; ShoalError for an
        offer that can't be signed, or a disk that takes no uploads.
        """
        parts, nonce = self._parts, self._parts.entropy.bytes(NONCE_SIZE)
        request = open_request(self.terms, nonce)
        asked = parts.clock.steady()
        reply = await ask(
            lambda: parts.collection.open(request),
            self.window,
            parts.clock,
            parts.entropy,
            asked + _OPEN_PATIENCE_S,
            "OpenRound",
        )
        offer = countersign(self.terms, nonce, reply, parts.signing_key)
        begins = now + parts.clock.steady() - asked
        coordinator = Coordinator(
            self.terms, offer, nonce, parts.signing_key, parts.entropy, begins
        )
        return LiveRound(self.terms, coordinator, parts, begins)

    def _not_opened(self, **why: ShoalError | str) -> None:
        log.error(
            "no round can be opened", task=self.window.task_id, window=self.window.window, **why
        )

"""shoal.v1.Rounds: one step of one device, sealed both ways.

Bytes in, bytes out. Nothing here knows who calls: a device is a session and, where it takes a seat,
a certificate. A frame that can't be opened is refused as a call; every other refusal is an Answer,
sealed like any other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

from shoal import codec
from shoal.clocks.clock import UNKNOWN_TIME, Moment, SureClock
from shoal.crypto.admission.revocation import revoked
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.secagg.exchange import open_request, request_key_id, seal_reply
from shoal.crypto.secagg.records import Reason
from shoal.crypto.secagg.shuffler.phases import refusal
from shoal.crypto.secagg.terms import SESSION_SIZE
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.limits import KIB, LIMITS
from shoal.log import get_log
from shoal.protos import pairwise_pb2
from shoal.rpc.call import Call
from shoal.rpc.server import Method, Service
from shoal.secagg import Mode
from shoal.shuffler.core import WindowId
from shoal.shuffler.revocations import Revocations
from shoal.shuffler.rounds.driver import RoundDriver
from shoal.shuffler.rounds.live_round import LiveRound
from shoal.shuffler.rounds.singles import Singles
from shoal.shuffler.rounds.window import WindowRounds
from shoal.shuffler.tasks import ShufflerTasks

log = get_log("shuffler")
SERVICE = "shoal.v1.Rounds"
# by helper mode: refused while a window is paused; who is further goes on
_FIRST_STEPS = {False: {"ask"}, True: {"poll"}}
_IN_THREAD = 16 * KIB  # bytes of a frame from which opening it leaves the event loop


class RoundsIngress:
    """The service's handler. ``refused`` counts refusals by kind, for metrics."""

    def __init__(
        self,
        tasks: ShufflerTasks,
        driver: RoundDriver,
        singles: Singles,
        clock: SureClock,
        entropy: Entropy = SYSTEM,
        paused: Callable[[WindowId], bool] = lambda _: False,
        revocations: Revocations | None = None,
    ) -> None:
        self._paused, self._revocations = paused, revocations
        self._tasks, self._driver, self._singles, self._clock, self._entropy = (
            tasks,
            driver,
            singles,
            clock,
            entropy,
        )
        self.refused: Counter[Kind] = Counter()

    def service(self) -> Service:
        """Anybody may call: a seat is a matter of the certificate inside the frame, never of the
        connection.
        """
        return Service(
            SERVICE, {"Exchange": Method(LIMITS.exchange_bytes + KIB, handler=self.exchange)}
        )

    async def exchange(self, request: bytes, call: Call) -> bytes:
        """ExchangeRequest -> ExchangeReply. Raises INVALID, OVERSIZE, UNKNOWN_KEY, WINDOW_CLOSED
        for a frame that can't be opened.
        """
        try:
            frame = codec.parse(pairwise_pb2.ExchangeRequest, request, "exchange").frame
            key_id = request_key_id(frame)
            step, reply_key = await _open(self._hop_key(key_id), frame)
        except ShoalError as error:
            self.refused[error.kind] += 1
            raise
        try:
            answer = await self._answer(step, key_id)
        except ShoalError as error:
            self.refused[error.kind] += 1
            answer = refusal(error)
        return pairwise_pb2.ExchangeReply(
            sealed=seal_reply(reply_key, answer.SerializeToString(), self._entropy)
        ).SerializeToString()

    def _hop_key(self, key_id: KeyId) -> HpkePrivateKey:
        key = self._tasks.keys.get(key_id)
        if key is not None:
            return key
        if self._tasks.over(key_id):
            raise ShoalError(
                Kind.WINDOW_CLOSED, "the windows of this key are over: drop the answer"
            )
        raise ShoalError(
            Kind.UNKNOWN_KEY,
            "this shuffler does not hold the key that the step is sealed for: fetch the key "
            "schedule again",
        )

    # --- steps ------------------------------------------------------------------------------------

    async def _answer(self, data: bytes, key_id: KeyId) -> pairwise_pb2.Answer:
        step = codec.parse(pairwise_pb2.Step, data, "step")
        # a Join is kept with its seat: a device must not fill memory with what nobody reads
        step.DiscardUnknownFields()
        if len(step.session) != SESSION_SIZE:
            raise ShoalError(Kind.INVALID, f"a session is {SESSION_SIZE} random bytes")
        rounds = self._rounds_of(step, key_id)
        if rounds.terms.plan.mode is Mode.HELPER:
            moment = Moment.of(self._clock)
            with moment.refusing():
                return await self._singles.step(
                    rounds.terms,
                    step,
                    moment.now,
                    open_=rounds.takes_singles(moment.now),
                    check=partial(self._check_revoked, rounds),
                )
        match step.WhichOneof("step"):
            case "ask":
                return rounds.invite()
            case "join":
                live = await rounds.join(
                    step.session, step.join, partial(self._check_revoked, rounds)
                )
            case "poll" | "shares" | "check" | "upload" | "endorse" | "unmask":
                live = self._seat(rounds, step.session)
                await self._step(rounds, live, step)
            case _:
                raise ShoalError(Kind.INVALID, "a step of a round that this version does not know")
        live.wake()
        return live.coordinator.answer(step.session, live.now(), live.spool.received(step.session))

    def _check_revoked(self, rounds: WindowRounds, device: bytes) -> None:
        """``device``: verified, with its own signature. Raises UNAUTHENTICATED, UNAVAILABLE."""
        key = rounds.terms.enrolment_key
        if self._revocations is not None and device in self._revocations.revoked(key):
            raise revoked()

    def _rounds_of(self, step: pairwise_pb2.Step, key_id: KeyId) -> WindowRounds:
        """Raises UNKNOWN_TASK, INVALID, UNKNOWN_KEY, TOO_EARLY, WINDOW_CLOSED."""
        served = self._tasks.served.get(TaskId(step.task_id))
        if served is None:
            raise ShoalError(
                Kind.UNKNOWN_TASK,
                "this shuffler does not serve the task: refresh the task, or ask where it is "
                "served",
            )
        plan, windows = served.task.pairwise, served.task.windows
        if plan is None:
            raise ShoalError(Kind.INVALID, "this task is not summed in rounds: submit reports")
        if step.window >= windows.count:
            raise ShoalError(
                Kind.INVALID, f"the task has windows 0 to {windows.count - 1}: read the task again"
            )
        if key_id != served.keys.hop_keys[step.window].key_id:
            raise ShoalError(
                Kind.UNKNOWN_KEY,
                "sealed for a key that the schedule does not name for this window: fetch the "
                "schedule",
            )
        window = WindowId(served.task_id, step.window)
        if (
            self._paused(window)
            and step.WhichOneof("step") in _FIRST_STEPS[plan.mode is Mode.HELPER]
        ):
            raise ShoalError(
                Kind.UNAVAILABLE,
                "the analyzer can't open this window now: try again later, its operator knows",
            )
        rounds = self._driver.window(window)
        if rounds is None and self._driver.is_elsewhere(window):
            raise ShoalError(
                Kind.UNAVAILABLE, "another shuffler works on this window: try again later"
            )
        if rounds is None:
            if self._sure() < windows.deadline_of(step.window):
                raise ShoalError(
                    Kind.TOO_EARLY, "the window has not begun: ask when it has, and check the clock"
                )
            raise ShoalError(Kind.WINDOW_CLOSED, "the window is over: drop the answer")
        return rounds

    def _sure(self) -> float:
        """Raises UNAVAILABLE while the clock is disputed: a device must not take its word that a
        window is over.
        """
        now = self._clock.decide()
        if now is None:
            raise ShoalError(Kind.UNAVAILABLE, UNKNOWN_TIME)
        return now

    def _seat(self, rounds: WindowRounds, session: bytes) -> LiveRound:
        live = rounds.find(session)
        if live is None:  # seats live in memory: whoever really had one lost it with a restart
            raise Reason.RESTARTED.error
        return live

    async def _step(self, rounds: WindowRounds, live: LiveRound, step: pairwise_pb2.Step) -> None:
        coordinator, session, now = live.coordinator, step.session, live.now()
        # a repeated last step is told how the round ended, not that it comes too late
        if coordinator.ended:
            return
        match step.WhichOneof("step"):
            case "shares":
                coordinator.shares(session, step.shares, now)
            case "check":
                if coordinator.check(session, step.check, now) is not None:
                    await self._judge(rounds, live, session, step.check)
            case "upload":
                await self._upload(rounds, live, session, step.upload)
            case "endorse":
                coordinator.endorse(session, step.endorse, now)
            case "unmask":
                coordinator.unmask(session, step.unmask, now)

    async def _judge(
        self, rounds: WindowRounds, live: LiveRound, session: bytes, check: pairwise_pb2.Check
    ) -> None:
        """Of a dealer and the device that complains about it, one is guilty: it loses its seat, and
        gets no other in this window.

        One after the other, and looked at again in its turn: of all the neighbours of one bad
        dealer the first is enough.
        """
        async with live.judging:
            dispute = live.coordinator.check(session, check, live.now())
            if dispute is None:
                return
            guilty = await asyncio.to_thread(
                dispute.dealer_is_guilty, check.complaint.shared, check.complaint.proof
            )
            loser = live.coordinator.judged(session, dispute, dealer_is_guilty=guilty)
            if loser is not None:
                rounds.blame(live.devices[loser])

    async def _upload(
        self, rounds: WindowRounds, live: LiveRound, session: bytes, upload: pairwise_pb2.Upload
    ) -> None:
        """Keep a chunk. Once the vector is complete the device has answered the window: durably,
        before it or the round hears of it.
        """
        if not live.coordinator.expects_upload(session, live.now()):
            return
        held = await asyncio.to_thread(
            live.spool.write, session, upload.offset, upload.total, upload.chunk
        )
        digest = live.spool.complete(session)
        if held == upload.total and digest is not None:
            await rounds.remember(live.devices[session])
            live.coordinator.uploaded(session, digest, live.now())


async def _open(key: HpkePrivateKey, frame: bytes) -> tuple[bytes, bytes]:
    if len(frame) < _IN_THREAD:
        return open_request(key, frame)
    return await asyncio.to_thread(open_request, key, frame)

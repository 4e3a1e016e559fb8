"""The agent's part in sums by secure aggregation: from an owner's vector to the outcome of a round.

Unlike a report, a vector can't wait in a queue: a round wants this device to be there until it
ends, and its keys live in memory alone. So ``report`` returns when the window's round is over for
this device, and only what was answered is kept on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shoal.arrays import NDArray, np
from shoal.clients.core import Assignment, ReportState, window_at
from shoal.clients.device_clock import Unhurried
from shoal.clients.memory.rounds_ledger import Answered, RoundStanding, SqliteLedger
from shoal.clients.rounds.exchange import RoundLine, Sleep
from shoal.clients.rounds.participation import Ledger, RoundOutcome, RoundState, take_part
from shoal.clients.rounds.single import send_single
from shoal.clients.settings.config import AgentConfig
from shoal.clients.transports.rounds_transport import GrpcRoundTransport, RoundTransport
from shoal.clients.vectors import VectorValue, read_vector
from shoal.clocks.backoff import Backoff
from shoal.clocks.clock import DeviceClock
from shoal.crypto.admission.enrolment import DeviceIdentity
from shoal.crypto.secagg.device.machine import DeviceRound, DeviceState
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.secagg.words import narrow
from shoal.domain import Vector
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.mechanisms.noise.registry import create_noise
from shoal.mechanisms.quantize import quantize
from shoal.secagg import Mode
from shoal.task import Task

log = get_log("agent")
RoundTransportFactory = Callable[[Task, bool], RoundTransport]  # task, insecure
TellOwner = Callable[[str], None]  # one line for the owner who waits
ChargeRound = Callable[
    [int], object
]  # a window, durably and once; raises if the budget does not pay
Charged = Callable[[int], bool]  # whether a window was charged before

NO_ROUND = Digest(bytes(32))  # of a window that was charged, in a round that nothing is known of
# between two rounds that ended without a sum
_NEXT_ROUND = Backoff(1.0, LIMITS.round_retry_most_s, least=0.75, largest=1.25)
TAKEN = "taken for the sum of its window"
_STATES = {
    RoundStanding.MASKED: ReportState.UNKNOWN,
    RoundStanding.COUNTED: ReportState.ACKED,
    RoundStanding.ABORTED: ReportState.REFUSED,
    RoundStanding.LOST: ReportState.UNKNOWN,
}
_WORDS = {
    RoundStanding.MASKED: (
        "the round is under way in another program, or this device lost it in a restart"
    ),
    RoundStanding.COUNTED: TAKEN,
    RoundStanding.ABORTED: (
        "the round ended without a sum: nothing of it is counted, and the window is answered"
    ),
    RoundStanding.LOST: "this device lost sight of the round: its vector is in the sum, or not",
}


# What an owner who waits is told, once for each. A round takes minutes, and a window may have to
# wait for devices.
_STAGES = {
    DeviceState.JOINED: "this device has a seat: waiting for others to join",
    DeviceState.SHARED: "the round has begun: waiting for what the others share",
    DeviceState.MASKED: (
        "the masked vector is being sent: the window is answered now, whatever becomes of the round"
    ),
    DeviceState.RELEASED: "waiting for the sum",
}


def nobody(_: str) -> None:
    """Nobody waits to be told."""


def grpc_round_transport(task: Task, insecure: bool) -> RoundTransport:
    """The default way to a task's shuffler."""
    return GrpcRoundTransport(task.shuffler_address, task.shuffler_ca, insecure=insecure)


class _Charged:
    """A ledger of rounds that charges a window before it is answered: only then may the first byte
    of a vector leave.

    The other way round a crash between the two would leave a vector that nobody paid for. This way
    it leaves a charge without a vector.
    """

    def __init__(self, ledger: Ledger, charge: ChargeRound) -> None:
        self._ledger, self._charge = ledger, charge

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        self._charge(window)
        self._ledger.masked(task_id, window, round_id, sealed)

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        self._ledger.released(task_id, window, round_id, commit)

    def settle(
        self, task_id: TaskId, window: int, standing: RoundStanding, kind: Kind | None = None
    ) -> None:
        self._ledger.settle(task_id, window, standing, kind)

    def find(self, task_id: TaskId, window: int) -> Answered | None:
        return self._ledger.find(task_id, window)


class RoundsAgent:
    """For the event loop that uses it. ``sleep``: tests shorten it."""

    def __init__(
        self,
        config: AgentConfig,
        clock: DeviceClock,
        entropy: Entropy,
        transports: RoundTransportFactory = grpc_round_transport,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Raises CONFIG if the ledger can't be opened."""
        self._config, self._clock, self._entropy, self._make_transport, self._sleep = (
            config,
            clock,
            entropy,
            transports,
            sleep,
        )
        self._ledger = SqliteLedger(config.ledger)
        self._transports: dict[tuple[str, bytes], RoundTransport] = {}
        self._locks: dict[tuple[TaskId, int], asyncio.Lock] = {}

    async def report(
        self,
        assignment: Assignment,
        identity: DeviceIdentity,
        value: VectorValue,
        charge: ChargeRound,
        tell: TellOwner = nobody,
        charged: Charged = lambda _: False,
        only: int | None = None,
    ) -> tuple[int, Answered | RoundOutcome, bool]:
        """Take part in rounds of the current window until one has this device's vector, or the
        window is over.

        Returns the window, where its answer stands, and whether this call made it. A round that
        ends before the vector was made leaves the window open: the next one is tried, with the same
        quantized and noised vector. ``tell`` hears once of each stage, and of trouble on the way.
        ``charge`` is called in a thread, before the masked vector may leave. ``only``: the window
        that the value is of, None: any. Raises TOO_EARLY, WINDOW_CLOSED by the clock, and where
        another window is open than ``only``; INVALID for a vector that does not fit, OVERLOADED
        (disk): nothing is sent then.

        A window that was ``charged`` and is not in the ledger of rounds is answered: that file was
        lost, or set back, or this device died between the two. The ledger gets the entry that it
        misses.
        """
        task = assignment.task
        window = window_at(task.name, task.windows, self._clock.now())
        if only is not None and only != window:
            raise ShoalError(
                Kind.WINDOW_CLOSED,
                f"task {task.name}: window {window} is open, and this value is of window {only}",
            )
        key = (assignment.task_id, window)
        async with self._locks.setdefault(key, asyncio.Lock()):
            known = await asyncio.to_thread(self._ledger.find, *key) or await asyncio.to_thread(
                self._missed, *key, charged
            )
            if known is not None:
                return window, known, False
            vector = await asyncio.to_thread(ready, task, value, self._entropy)
            return (
                window,
                await self._answer(
                    assignment,
                    identity,
                    window,
                    vector,
                    _Charged(self._ledger, charge),
                    _once(tell),
                ),
                True,
            )

    def _missed(self, task_id: TaskId, window: int, charged: Charged) -> Answered | None:
        if not charged(window):
            return None
        self._ledger.masked(task_id, window, NO_ROUND, NO_ROUND)
        self._ledger.settle(task_id, window, RoundStanding.LOST)
        return self._ledger.find(task_id, window)

    async def _answer(
        self,
        assignment: Assignment,
        identity: DeviceIdentity,
        window: int,
        vector: NDArray[Any],
        ledger: Ledger,
        tell: TellOwner,
    ) -> RoundOutcome:
        task = assignment.task
        terms = RoundTerms.of(task, assignment.task_id, assignment.keys, window)
        line = RoundLine(
            assignment.keys.hop_keys[window],
            self._transport(task),
            Unhurried(
                self._clock
            ),  # a round that is under way is not given up, with its charge, by one reading
            float(task.windows.deadline_of(window)),
            self._entropy,
            self._sleep,
            self._config.deadline_s,
            lambda error: tell(f"no answer from the shuffler yet ({error.message}): trying again"),
        )
        if terms.plan.mode is Mode.HELPER:
            return await send_single(terms, identity, vector, ledger, line)
        until = datetime.fromtimestamp(line.deadline, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        tell(f"waiting for a round, until {until} at most")
        failed, last = 0, ""
        while True:
            outcome = await take_part(
                terms, identity, vector, ledger, line, lambda device: _stage(device, tell)
            )
            # A seat that was lost by being late is as good as a round that ended: nothing left this
            # device.
            again = (
                outcome.state is RoundState.ABORTED
                and not outcome.charged
                and outcome.kind in {Kind.ABORTED, Kind.WINDOW_CLOSED}
            )
            if not again:
                break
            failed, last = failed + 1, outcome.message
            tell(f"{last}; the next ones are tried, until {until} at most")
            log.info(
                "round ended without a sum: the next one is tried",
                task=assignment.task_id,
                window=window,
            )
            # A shuffler that opens and aborts rounds as fast as it can must not keep a device busy.
            await self._sleep(_NEXT_ROUND.pause(failed, self._entropy))
        # the last round's reason is what the owner wants to know
        if failed and outcome.state is RoundState.NONE:
            tried = "1 round" if failed == 1 else f"{failed} rounds"
            return replace(
                outcome,
                message=f"{outcome.message}; {tried} ended without a sum, the last of them: {last}",
            )
        return outcome

    async def answers(self) -> list[Answered]:
        """Every window that this device has answered in a round."""
        return await asyncio.to_thread(self._ledger.answers)

    def _transport(self, task: Task) -> RoundTransport:
        address = (task.shuffler_address, task.shuffler_ca)
        if address not in self._transports:
            self._transports[address] = self._make_transport(task, self._config.insecure)
        return self._transports[address]

    async def close(self) -> None:
        """Close every transport that was opened. Idempotent."""
        for transport in self._transports.values():
            await transport.close()
        await asyncio.to_thread(self._ledger.close)


def _once(tell: TellOwner) -> TellOwner:
    """Passes each line on once: rounds that fail for hours say so once."""
    told: set[str] = set()

    def pass_on(text: str) -> None:
        if text not in told:
            told.add(text)
            tell(text)

    return pass_on


def _stage(device: DeviceRound, tell: TellOwner) -> None:
    text = _STAGES.get(device.state)
    if text is not None:
        tell(text)


def standing_of(entry: Answered | RoundOutcome) -> tuple[ReportState, Kind | None, str]:
    """How the agent shows it: state, kind and one line."""
    if isinstance(entry, Answered):
        return _STATES[entry.standing], entry.kind, _WORDS[entry.standing]
    if entry.state is RoundState.COUNTED:
        return ReportState.ACKED, None, TAKEN
    state = ReportState.UNKNOWN if entry.state is RoundState.LOST else ReportState.REFUSED
    return state, entry.kind, entry.message


def noisy(task: Task, value: VectorValue, entropy: Entropy) -> NDArray[np.int64]:
    """int64[d]: the vector clipped and rounded to the grid, plus this device's share of the noise.
    Raises INVALID.

    The value leaves no trace in the result but through clipping, rounding and noise.
    """
    if not isinstance(task.domain, Vector):
        raise ShoalError(Kind.INVALID, f"task {task.name} is not summed by secure aggregation")
    noise = create_noise(task.mechanism)
    # what making its table takes is given back before there is a vector
    noise.add_to(np.zeros(0, np.int64), entropy)
    vector = quantize(read_vector(value), task.domain, entropy).vector
    noise.add_to(vector, entropy)
    return vector


def ready(task: Task, value: VectorValue, entropy: Entropy) -> NDArray[Any]:
    """``noisy``, as a round takes it: of a task with segments words of its width, in the memory
    that the integers had.
    """
    plan = task.pairwise
    if plan is None or not plan.segmented:
        return noisy(task, value, entropy)
    return narrow(noisy(task, value, entropy), plan.word_bits)

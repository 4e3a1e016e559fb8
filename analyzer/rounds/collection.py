"""shoal.v1.Collection: the analyzer's side of rounds of secure aggregation.

The shuffler opens rounds here, delivers masked vectors, and brings the shares that open their sum.
Everything of a round but its sum lives in memory: a restart forgets open rounds, and their next
call is NOT_FOUND. A sum is on disk before its round is said to be done. Every call may be repeated.
See protos/pairwise.proto.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from shoal import codec
from shoal.analyzer.core import retention_over
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.results.release import decode_release
from shoal.analyzer.rounds.singles import SingleCollection
from shoal.analyzer.rounds.sums import Conclude, StoredSum, SumStore
from shoal.analyzer.store import AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import UNKNOWN_TIME, Moment, SureClock
from shoal.crypto.secagg.analyzer.collector import Collector
from shoal.crypto.secagg.records import NONCE_SIZE, Reason
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import ServedTask
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.limits import KIB, LIMITS, MIB
from shoal.log import get_log
from shoal.protos import pairwise_pb2
from shoal.rpc.call import Call
from shoal.rpc.server import Method, Service
from shoal.secagg import Mode

log = get_log("analyzer")
SERVICE = "shoal.v1.Collection"
MOST_OPEN = 64  # rounds at once: each holds a running sum, and the shares of its devices
_SWEEP_S = 60.0
_OVER = "the window is over: no round is opened in it any more"
# of silence, and two rounds: then a round is forgotten that its shuffler did not end
_FORGET_S = 600.0
_MOST_KEPT = 1_024  # ended rounds whose answers are remembered: about 0.5 MiB each of a large one
_START_BYTES = LIMITS.cohort * 96 + 4 * KIB
_COMMIT_BYTES = LIMITS.cohort * (32 + 1 + 4) + 4 * KIB
_UNMASK_BYTES = 2 * MIB  # shares of many devices: the shuffler sends about 1 MiB at a time
_CHUNK_BYTES = LIMITS.chunk_bytes + KIB
_AT_ONCE = 4 * MIB  # of vectors that are opened in one go
_MOST_VECTORS = 1 << 40  # of a window, as the shuffler counts them
_UNKNOWN = "this analyzer knows no such round: it restarted, or the round is long over"
T = TypeVar("T")


class ConcludeSums(Protocol):
    """How the sums of a window become its release: ``sum_release.conclude_sums``."""

    def __call__(
        self,
        served: ServedTask,
        window: int,
        sums: Sequence[StoredSum],
        aborted: Mapping[str, int],
        earlier: Sequence[Spending],
        key: SigningKey,
        damaged: int,
    ) -> WindowOutcome: ...


@dataclass(slots=True)
class _Round:
    collector: Collector
    served: ServedTask
    window: int
    touched: float  # steady seconds of the last call
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # calls of one round don't overlap
    stored: bool = False
    counted: bool = False

    @property
    def open(self) -> bool:
        return not self.stored and self.collector.reason is None

    @property
    def patience(self) -> float:
        """Seconds without a call after which the shuffler has given the round up, and its word was
        lost.
        """
        plan = self.served.task.pairwise
        return _FORGET_S + 2 * (plan.seconds if plan else 0)


class CollectionService:
    """``shred`` deletes what could open vectors of a released window; it blocks, may be repeated
    and raises KEY_FILE or OSError.
    """

    def __init__(
        self,
        *,
        store: AnalyzerStore,
        tasks: AnalyzerTasks,
        keys: KeyFolder,
        signing_key: SigningKey,
        conclude: ConcludeSums,
        shred: Callable[[TaskId, int], None],
        clock: SureClock,
        entropy: Entropy = SYSTEM,
    ) -> None:
        self._store, self._sums, self._tasks, self._keys = store, SumStore(store), tasks, keys
        self._signing_key, self._conclude, self._shred, self._clock, self._entropy = (
            signing_key,
            conclude,
            shred,
            clock,
            entropy,
        )
        self._singles = SingleCollection(self._sums, keys, self._window)
        self._offers: dict[tuple[TaskId, int, bytes], _Round] = {}
        self._by_offer: dict[bytes, _Round] = {}
        self._by_round: dict[bytes, _Round] = {}
        self._opening, self._finishing = asyncio.Lock(), asyncio.Lock()
        self.ended: Counter[str] = Counter()  # rounds by how they ended: "done", or the reason

    def service(self, peers: frozenset[str] | None) -> Service:
        """``peers``: names of the shufflers' client certificates; None (anybody) is for a loopback
        server without TLS in tests.
        """
        methods = {
            "OpenRound": Method(KIB, handler=self.open_round),
            "StartRound": Method(_START_BYTES, handler=self.start_round),
            "DeliverVectors": Method(_CHUNK_BYTES, stream_handler=self.deliver_vectors),
            "CommitRound": Method(_COMMIT_BYTES, handler=self.commit_round),
            "UnmaskRound": Method(
                _UNMASK_BYTES, handler=self.unmask_round, longest_s=LIMITS.longest_stream_s
            ),
            "EndRound": Method(KIB, handler=self.end_round),
            "FinishWindow": Method(
                KIB, handler=self.finish_window, longest_s=LIMITS.longest_stream_s
            ),
            "DeliverSingles": Method(_CHUNK_BYTES, stream_handler=self._singles.deliver),
            "SumSingles": Method(_CHUNK_BYTES, stream_handler=self._singles.sum),
        }
        return Service(SERVICE, methods, peers)

    def counts(self) -> dict[str, int]:
        """Open rounds, and those that ended since the start by how: for status and metrics."""
        return {"open": self.open_rounds, **dict(sorted(self.ended.items()))}

    @property
    def open_rounds(self) -> int:
        """Rounds that go on, or whose end nobody has told us."""
        return sum(one.open for one in self._by_offer.values())

    # --- a round, step by step --------------------------------------------------------------------

    async def open_round(self, request: bytes, call: Call) -> bytes:
        """OpenRoundRequest -> OpenRoundReply.

        Raises INVALID, UNKNOWN_TASK, TOO_EARLY, WINDOW_CLOSED, OVERLOADED (too many rounds),
        UNAVAILABLE (the key can't be read, the clock is disputed).
        """
        message = codec.parse(pairwise_pb2.OpenRoundRequest, request, "opening of a round")
        served, window = await self._window(message.task_id, message.window)
        key = (served.task_id, window, message.shuffler_commitment)
        async with self._opening:
            known = self._offers.get(key)
            if known is None:
                known = await self._open(served, window, message.shuffler_commitment)
                self._offers[key] = self._by_offer[known.collector.offer_id.raw] = known
        return known.collector.offered.SerializeToString()

    async def _open(self, served: ServedTask, window: int, commitment: bytes) -> _Round:
        moment, plan = Moment.of(self._clock), served.task.windows
        if served.task.pairwise is not None and served.task.pairwise.mode is Mode.HELPER:
            raise ShoalError(Kind.INVALID, "this task is summed in helper mode: it has no rounds")
        with moment.refusing():
            if moment.now < plan.start_of(window) - plan.skew_s:
                raise ShoalError(
                    Kind.TOO_EARLY,
                    "the window has not begun: open rounds when it has, and check the clock",
                )
            if moment.now >= plan.deadline_of(window) + plan.skew_s:
                raise ShoalError(Kind.WINDOW_CLOSED, _OVER)
        if await asyncio.to_thread(self._store.released, served.task_id, window):
            raise ShoalError(Kind.WINDOW_CLOSED, _OVER)
        await self._drop_forgotten()
        if self.open_rounds >= MOST_OPEN:
            raise ShoalError(
                Kind.OVERLOADED, f"{MOST_OPEN} rounds are open: try again when one has ended"
            )
        terms = RoundTerms.served(served, window)
        try:
            hpke_key = await asyncio.to_thread(self._keys.load, terms.analyzer_config.key_id)
        except ShoalError as error:
            log.error(
                "a window's key can't be read", task=served.task_id, window=window, error=error
            )
            raise ShoalError(
                Kind.UNAVAILABLE,
                f"the analyzer can't read its key for window {window}: its operator finds the "
                "reason in its log",
            ) from None
        collector = Collector(
            terms, hpke_key, self._signing_key, self._entropy.bytes(NONCE_SIZE), commitment
        )
        log.info("round opened", task=served.task_id, window=window)
        return _Round(collector, served, window, self._clock.steady())

    async def start_round(self, request: bytes, call: Call) -> bytes:
        """StartRoundRequest -> StartRoundReply. Raises NOT_FOUND (nothing opened since a restart),
        and what ``Collector.start`` does.
        """
        message = codec.parse(pairwise_pb2.StartRoundRequest, request, "start of a round")
        one = self._known(self._by_offer, message.offer_id)
        reply = await self._do(one, lambda: one.collector.start(message))
        if one.collector.round_id is not None:
            self._by_round[one.collector.round_id.raw] = one
        return reply.SerializeToString()

    async def deliver_vectors(self, messages: AsyncIterator[bytes], call: Call) -> bytes:
        """A stream of VectorChunk of one round, from the beginning of any row on -> VectorsReply:
        all unusable rows so far.

        Rows that were taken stay, also those before a chunk that is refused. Raises INVALID,
        NOT_FOUND, ABORTED, CONFLICT.
        """
        one: _Round | None = None
        round_id, at, buffer = b"", 0, bytearray()
        async for message in messages:
            chunk = codec.parse(pairwise_pb2.VectorChunk, message, "chunk")
            if one is None:
                one, round_id, at = (
                    self._known(self._by_round, chunk.round_id),
                    chunk.round_id,
                    chunk.offset,
                )
                if at % one.collector.row_bytes:
                    raise ShoalError(Kind.INVALID, "chunk: a delivery begins with a row")
            if chunk.round_id != round_id or chunk.offset != at + len(buffer):
                raise ShoalError(
                    Kind.INVALID,
                    "chunk: of another round, or with a gap: use one call per round, and send it "
                    "in order",
                )
            if not chunk.data or len(chunk.data) > LIMITS.chunk_bytes:
                raise ShoalError(Kind.INVALID, f"chunk: 1 to {LIMITS.chunk_bytes} bytes")
            buffer += chunk.data
            if len(buffer) >= max(_AT_ONCE, one.collector.row_bytes):
                at += await self._take(one, at, buffer)
        if one is None:
            raise ShoalError(Kind.INVALID, "delivery: no chunk came")
        await self._take(one, at, buffer)
        if buffer:
            raise ShoalError(Kind.INVALID, "delivery: it ends in the middle of a row")
        hit("analyzer.rounds.delivered")
        return pairwise_pb2.VectorsReply(unusable=one.collector.unusable).SerializeToString()

    async def _take(self, one: _Round, at: int, buffer: bytearray) -> int:
        """Hand the whole rows at the buffer's beginning over; returns their bytes."""
        size = one.collector.row_bytes
        count = len(buffer) // size
        if count:
            rows = [bytes(buffer[i * size : (i + 1) * size]) for i in range(count)]
            await self._do(one, lambda: one.collector.add_vectors(rows, at // size))
            del buffer[: count * size]
        return count * size

    async def commit_round(self, request: bytes, call: Call) -> bytes:
        """CommitRoundRequest -> CommitRoundReply. Raises NOT_FOUND, and what ``Collector.commit``
        does.
        """
        message = codec.parse(pairwise_pb2.CommitRoundRequest, request, "commit of a round")
        # The record names its round; it is parsed, and checked, by the collector.
        round_id = codec.parse(pairwise_pb2.Commit, message.commit, "commit").round_id
        one = self._known(self._by_round, round_id)
        return (await self._do(one, lambda: one.collector.commit(message))).SerializeToString()

    async def unmask_round(self, request: bytes, call: Call) -> bytes:
        """UnmaskRoundRequest -> UnmaskRoundReply; ``done`` when the sum is on disk. Raises
        NOT_FOUND, INVALID, OVERLOADED (disk).
        """
        message = codec.parse(pairwise_pb2.UnmaskRoundRequest, request, "shares of a round")
        round_id = Digest(message.round_id)
        if round_id.raw not in self._by_round and await asyncio.to_thread(
            self._sums.holds, round_id
        ):
            # finished before a restart
            return pairwise_pb2.UnmaskRoundReply(done=True).SerializeToString()
        one = self._known(self._by_round, round_id.raw)
        reply = await self._do(one, lambda: self._unmask(one, message))
        return reply.SerializeToString()

    def _unmask(
        self, one: _Round, message: pairwise_pb2.UnmaskRoundRequest
    ) -> pairwise_pb2.UnmaskRoundReply:
        """In a thread: the arithmetic, then the disk, and only then the answer."""
        reply = one.collector.unmask(message)
        result, round_id = one.collector.result, one.collector.round_id
        if result is not None and round_id is not None and not one.stored:
            hit("analyzer.rounds.unmasked")
            self._sums.add(
                one.served.task_id, one.window, StoredSum(round_id, result.survivors, result.vector)
            )
            one.stored = True
            self.ended["done"] += 1
            one.collector.forget()
            log.info(
                "round summed",
                task=one.served.task_id,
                window=one.window,
                n=result.survivors,
                rejected=len(reply.blamed),
            )
        return reply

    async def end_round(self, request: bytes, call: Call) -> bytes:
        """EndRoundRequest -> EndRoundReply: the shuffler gave the round up. An unknown or ended
        round is fine.
        """
        message = codec.parse(pairwise_pb2.EndRoundRequest, request, "end of a round")
        one = self._by_offer.get(message.offer_id)
        if one is not None:
            await self._abort(one, Reason.of(message.reason))
        return pairwise_pb2.EndRoundReply().SerializeToString()

    # --- windows ----------------------------------------------------------------------------------

    async def finish_window(self, request: bytes, call: Call) -> bytes:
        """FinishWindowRequest -> FinishWindowReply: nothing more will come, release what is there.

        Raises INVALID, UNKNOWN_TASK, TOO_EARLY (before the window's deadline), OVERLOADED (disk),
        UNAVAILABLE (keys can't be deleted).
        """
        message = codec.parse(pairwise_pb2.FinishWindowRequest, request, "end of a window")
        served, window = await self._window(message.task_id, message.window)
        if self._sure() < served.task.windows.deadline_of(window) - served.task.windows.skew_s:
            raise ShoalError(
                Kind.TOO_EARLY, f"window {window} still takes devices: finish it when it is over"
            )
        if max(message.damaged, message.summed) > _MOST_VECTORS:
            raise ShoalError(
                Kind.INVALID,
                f"end of a window: at most {_MOST_VECTORS} vectors are damaged, or in sums",
            )
        await self.finish(served, window, message.damaged, message.summed)
        return pairwise_pb2.FinishWindowReply(released=True).SerializeToString()

    async def finish(
        self, served: ServedTask, window: int, damaged: int = 0, summed: int = 0
    ) -> None:
        """Release a window once, abort what is open of it, and delete what could open its vectors.
        May be repeated.

        ``damaged``: acknowledged vectors that the shuffler lost. ``summed``: devices in this
        window's sums, as far as it knows.
        """
        async with self._finishing:
            for one in [
                one
                for one in self._by_offer.values()
                if (one.served.task_id, one.window) == (served.task_id, window)
            ]:
                await self._abort(one, Reason.WINDOW_OVER)
                self._drop(one)
            least = served.task.pairwise.survivors_min if served.task.pairwise else 0
            concluding = self._concluding(served, window, damaged, summed)
            fresh = await asyncio.to_thread(
                self._sums.finish, served.task_id, window, concluding, least
            )
            if fresh:
                log.info("window of rounds finished", task=served.task_id, window=window)
            try:
                await asyncio.to_thread(self._shred, served.task_id, window)
            except (ShoalError, OSError) as error:
                log.error(
                    "the key of a window that is over can't be deleted",
                    task=served.task_id,
                    window=window,
                    error=error,
                )
                raise ShoalError(
                    Kind.UNAVAILABLE,
                    "the analyzer can't delete what it released: its operator finds the reason in "
                    "its log",
                ) from None

    def _concluding(self, served: ServedTask, window: int, damaged: int, summed: int) -> Conclude:
        def conclude(
            sums: Sequence[StoredSum],
            aborted: Mapping[str, int],
            earlier: list[Spending],
            lost: int,
        ) -> tuple[WindowOutcome, bool]:
            """Sums whose row is gone are missed by what the shuffler knows; a damaged one is told
            by its head too.
            """
            here = max(lost, summed - sum(one.survivors for one in sums))
            if here:
                log.error(
                    "devices of sums are lost", task=served.task_id, window=window, count=here
                )
            outcome = self._conclude(
                served, window, sums, aborted, earlier, self._signing_key, damaged + here
            )
            return outcome, not decode_release(outcome.release).withheld

        return conclude

    async def sweep_forever(self) -> None:
        """``sweep`` once a minute, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            # whatever it was, retention is held at the next sweep
            try:
                await self.sweep()
            except Exception as error:  # noqa: BLE001
                log.error("rounds could not be swept: will be tried again", error=error)

    async def sweep(self) -> None:
        """Abort rounds that the shuffler has forgotten, and release windows with sums whose end it
        never said before retention.
        """
        await self._drop_forgotten()
        now = self._clock.decide()
        if now is None:
            return
        for task_id, window in sorted(await asyncio.to_thread(self._sums.unreleased)):
            if not self._tasks.serves(task_id):  # a condition says so
                continue
            served = self._tasks.get(task_id)
            if retention_over(served.task, window, now):
                await self.finish(served, window)

    async def stop(self) -> None:
        """Abort what is open: its keys are gone with this process."""
        for one in list(self._by_offer.values()):
            await self._abort(one, Reason.RESTARTED)

    # --- helpers ----------------------------------------------------------------------------------

    def _sure(self) -> float:
        """Unix seconds. Raises UNAVAILABLE while the clock is disputed: no window is opened,
        refused or released by it then.
        """
        now = self._clock.decide()
        if now is None:
            raise ShoalError(Kind.UNAVAILABLE, UNKNOWN_TIME)
        return now

    async def _window(self, task_id: bytes, window: int) -> tuple[ServedTask, int]:
        served = await asyncio.to_thread(self._tasks.get, TaskId(task_id))
        if served.task.pairwise is None:
            raise ShoalError(Kind.INVALID, "this task is not summed in rounds: deliver its batches")
        if not 0 <= window < served.task.windows.count:
            raise ShoalError(
                Kind.INVALID, f"the task has windows 0 to {served.task.windows.count - 1}"
            )
        return served, window

    def _known(self, rounds: Mapping[bytes, _Round], name: bytes) -> _Round:
        one = rounds.get(name)
        if one is None:
            raise ShoalError(Kind.NOT_FOUND, _UNKNOWN)
        one.touched = self._clock.steady()
        return one

    async def _do(self, one: _Round, work: Callable[[], T]) -> T:
        """Run a step of a round in a thread, after the one before; the caller going away doesn't
        stop it half way.
        """

        async def step() -> T:
            async with one.lock:
                try:
                    return await asyncio.to_thread(work)
                finally:
                    await self._count(one)

        task = asyncio.create_task(step())
        task.add_done_callback(_seen)
        return await asyncio.shield(task)

    async def _abort(self, one: _Round, reason: Reason) -> None:
        async with one.lock:
            if not one.stored:
                one.collector.abort(reason)
            await self._count(one)

    async def _count(self, one: _Round) -> None:
        """Once per round that ended without a sum."""
        reason = one.collector.reason
        if one.counted or one.stored or reason is None:
            return
        one.counted = True
        self.ended[reason.value] += 1
        log.info("round aborted", task=one.served.task_id, window=one.window, reason=reason.value)
        try:
            await asyncio.to_thread(
                self._sums.aborted, one.served.task_id, one.window, reason.value
            )
        except ShoalError as error:
            log.error(
                "an aborted round could not be counted",
                task=one.served.task_id,
                window=one.window,
                error=error,
            )

    async def _drop_forgotten(self) -> None:
        now = self._clock.steady()
        for one in list(self._by_offer.values()):
            if one.open and now >= one.touched + one.patience:
                await self._abort(one, Reason.OTHER)
                # unmasked, but its sum could not be stored: it can't be aborted, and must not keep
                # its place for ever
                if one.open:
                    self._drop(one)
        ended = [one for one in self._by_offer.values() if not one.open]
        for one in ended[: max(0, len(ended) - _MOST_KEPT)]:
            self._drop(one)

    def _drop(self, one: _Round) -> None:
        self._by_offer.pop(one.collector.offer_id.raw, None)
        if one.collector.round_id is not None:
            self._by_round.pop(one.collector.round_id.raw, None)
        for key in [key for key, held in self._offers.items() if held is one]:
            del self._offers[key]


def _seen(task: asyncio.Task[T]) -> None:
    """A failure whose caller has gone is in nobody's way."""
    if not task.cancelled():
        task.exception()

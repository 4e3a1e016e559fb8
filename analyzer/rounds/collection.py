"""shoal.v1.Collection: the analyzer's side of rounds of secure aggregation.

The shuffler opens rounds here, delivers masked vectors, and brings the shares that open their sum.
Everything of a round but its sum lives in memory: a restart forgets open rounds, and their next
call is NOT_FOUND. A sum is on disk before its round is said to be done. Every call may be repeated.
See protos/pairwise.proto.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

from shoal import codec
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.rounds.open_rounds import OpenRound, OpenRounds
from shoal.analyzer.rounds.singles import SingleCollection
from shoal.analyzer.rounds.sums import SumStore
from shoal.analyzer.rounds.window_ends import ConcludeSums, WindowEnds
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
_OVER = "the window is over: no round is opened in it any more"
_START_BYTES = LIMITS.cohort * 96 + 4 * KIB
_COMMIT_BYTES = LIMITS.cohort * (32 + 1 + 4) + 4 * KIB
_UNMASK_BYTES = 2 * MIB  # shares of many devices: the shuffler sends about 1 MiB at a time
_CHUNK_BYTES = LIMITS.chunk_bytes + KIB
_MOST_VECTORS = 1 << 40  # of a window, as the shuffler counts them


class CollectionService:
    """Handlers of the service, for the event loop that calls them.

    ``shred`` deletes what could open vectors of a released window; it blocks, may be repeated
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
        self._signing_key, self._clock, self._entropy = signing_key, clock, entropy
        self._sums.drop_files()
        self._rounds = OpenRounds(self._sums, clock)
        self._ends = WindowEnds(
            self._rounds, self._sums, tasks, keys, signing_key, conclude, shred, clock
        )
        self._singles = SingleCollection(self._sums, keys, self._window)
        self._opening = asyncio.Lock()

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

    @property
    def ended(self) -> Counter[str]:
        """Rounds that ended since the start, by how: "done", or the reason."""
        return self._rounds.ended

    @property
    def open_rounds(self) -> int:
        """Rounds that go on, or whose end nobody has told us."""
        return self._rounds.going_on

    def counts(self) -> dict[str, int]:
        """Open rounds, and those that ended since the start by how: for status and metrics."""
        return {"open": self.open_rounds, **dict(sorted(self.ended.items()))}

    # --- a round, step by step --------------------------------------------------------------------

    async def open_round(self, request: bytes, call: Call) -> bytes:
        """OpenRoundRequest -> OpenRoundReply.

        Raises INVALID, UNKNOWN_TASK, TOO_EARLY, WINDOW_CLOSED, OVERLOADED (too many rounds),
        UNAVAILABLE (the key can't be read, the clock is disputed).
        """
        message = codec.parse(pairwise_pb2.OpenRoundRequest, request, "opening of a round")
        served, window = await self._window(message.task_id, message.window)
        opening = (served.task_id, window, message.shuffler_commitment)
        async with self._opening:
            open_round = self._rounds.opened_by(opening)
            if open_round is None:
                open_round = await self._open(served, window, message.shuffler_commitment)
                self._rounds.add(opening, open_round)
        return open_round.collector.offered.SerializeToString()

    async def _open(self, served: ServedTask, window: int, commitment: bytes) -> OpenRound:
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
        await self._rounds.make_room()
        terms = RoundTerms.served(served, window)
        hpke_key = await asyncio.to_thread(
            self._keys.load_for, terms.analyzer_config.key_id, served.task_id, window
        )
        collector = Collector(
            terms, hpke_key, self._signing_key, self._entropy.bytes(NONCE_SIZE), commitment
        )
        log.info("round opened", task=served.task_id, window=window)
        return OpenRound(collector, served, window, self._clock.steady())

    async def start_round(self, request: bytes, call: Call) -> bytes:
        """StartRoundRequest -> StartRoundReply. Raises NOT_FOUND (nothing opened since a restart),
        and what ``Collector.start`` does.
        """
        message = codec.parse(pairwise_pb2.StartRoundRequest, request, "start of a round")
        open_round = self._rounds.by_offer(message.offer_id)
        reply = await self._rounds.step(open_round, lambda: open_round.collector.start(message))
        self._rounds.name_started(open_round)
        return reply.SerializeToString()

    async def deliver_vectors(self, messages: AsyncIterator[bytes], call: Call) -> bytes:
        """A stream of VectorChunk of one round, from the beginning of any row on -> VectorsReply:
        all unusable rows so far.

        Rows that were taken stay, also those before a chunk that is refused. Raises INVALID,
        NOT_FOUND, ABORTED, CONFLICT.
        """
        open_round: OpenRound | None = None
        round_id, at, buffer = b"", 0, bytearray()
        async for message in messages:
            chunk = codec.parse(pairwise_pb2.VectorChunk, message, "chunk")
            if open_round is None:
                open_round, round_id, at = (
                    self._rounds.by_round(chunk.round_id),
                    chunk.round_id,
                    chunk.offset,
                )
                if at % open_round.collector.row_bytes:
                    raise ShoalError(Kind.INVALID, "chunk: a delivery begins with a row")
            if chunk.round_id != round_id or chunk.offset != at + len(buffer):
                raise ShoalError(
                    Kind.INVALID,
                    "chunk: of another round, or with a gap: use one call per round, and send it "
                    "in order",
                )
            if not chunk.data or len(chunk.data) > LIMITS.chunk_bytes:
                raise ShoalError(Kind.INVALID, f"chunk: 1 to {LIMITS.chunk_bytes} bytes")
            hit("analyzer.rounds.chunk")
            buffer += chunk.data
            if len(buffer) >= open_round.collector.bytes_at_once:
                at += await self._take(open_round, at, buffer)
        if open_round is None:
            raise ShoalError(Kind.INVALID, "delivery: no chunk came")
        at += await self._take(open_round, at, buffer)
        if buffer or at % open_round.collector.row_bytes:
            raise ShoalError(Kind.INVALID, "delivery: it ends in the middle of a row")
        hit("analyzer.rounds.delivered")
        return pairwise_pb2.VectorsReply(unusable=open_round.collector.unusable).SerializeToString()

    async def _take(self, open_round: OpenRound, at: int, buffer: bytearray) -> int:
        """Hand the whole rows at the buffer's beginning over, or all of it where rows have
        segments; returns their bytes.
        """
        if open_round.collector.terms.plan.segmented:
            if not buffer:
                return 0
            data = bytes(buffer)
            buffer.clear()
            await self._rounds.step(open_round, lambda: open_round.collector.feed(data, at))
            return len(data)
        size = open_round.collector.row_bytes
        count = len(buffer) // size
        if count:
            rows = [bytes(buffer[i * size : (i + 1) * size]) for i in range(count)]
            await self._rounds.step(
                open_round, lambda: open_round.collector.add_vectors(rows, at // size)
            )
            del buffer[: count * size]
        return count * size

    async def commit_round(self, request: bytes, call: Call) -> bytes:
        """CommitRoundRequest -> CommitRoundReply. Raises NOT_FOUND, and what ``Collector.commit``
        does.
        """
        message = codec.parse(pairwise_pb2.CommitRoundRequest, request, "commit of a round")
        # The record names its round; it is parsed, and checked, by the collector.
        round_id = codec.parse(pairwise_pb2.Commit, message.commit, "commit").round_id
        open_round = self._rounds.by_round(round_id)
        reply = await self._rounds.step(open_round, lambda: open_round.collector.commit(message))
        return reply.SerializeToString()

    async def unmask_round(self, request: bytes, call: Call) -> bytes:
        """UnmaskRoundRequest -> UnmaskRoundReply; ``done`` when the sum is on disk. Raises
        NOT_FOUND, INVALID, OVERLOADED (disk).
        """
        message = codec.parse(pairwise_pb2.UnmaskRoundRequest, request, "shares of a round")
        round_id = Digest(message.round_id)
        if not self._rounds.started(round_id) and await asyncio.to_thread(
            self._sums.holds, round_id
        ):
            # finished before a restart
            return pairwise_pb2.UnmaskRoundReply(done=True).SerializeToString()
        open_round = self._rounds.by_round(round_id.raw)
        reply = await self._rounds.step(
            open_round, lambda: self._rounds.unmask(open_round, message)
        )
        return reply.SerializeToString()

    async def end_round(self, request: bytes, call: Call) -> bytes:
        """EndRoundRequest -> EndRoundReply: the shuffler gave the round up. An unknown or ended
        round is fine.
        """
        message = codec.parse(pairwise_pb2.EndRoundRequest, request, "end of a round")
        await self._rounds.end(message.offer_id, Reason.of(message.reason))
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
        await self._ends.end(served, window, message.damaged, message.summed)
        return pairwise_pb2.FinishWindowReply(released=True).SerializeToString()

    async def sweep_forever(self) -> None:
        """As ``WindowEnds.sweep_forever``."""
        await self._ends.sweep_forever()

    async def stop(self) -> None:
        """Abort what is open: its keys are gone with this process."""
        await self._rounds.stop()

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

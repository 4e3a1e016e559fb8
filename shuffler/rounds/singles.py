"""Helper mode at the shuffler: uploads and seeds come in; at the window's end the rows go out, then
the sum of exactly their pads.

No round, no neighbours, no second visit. Nothing of an upload is kept before its device has proven,
with the first chunk, that it is admitted; a device has one upload at a time in a window. A
submission is acknowledged once it is on disk, and may be repeated. The order in which the analyzer
gets the vectors is drawn anew for every delivery; the set is closed before the first one, and fixed
once (``stores.rounds``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from shoal import codec
from shoal.crypto.secagg.single import check_single, check_upload, sum_pads
from shoal.crypto.secagg.terms import SESSION_SIZE, RoundTerms
from shoal.entropy import SYSTEM, Entropy, shuffled
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.protos import pairwise_pb2
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.claims import Claim
from shoal.shuffler.stores.rounds import SingleVectors, StoredVector, VerifiedVector

log = get_log("shuffler")
# what an upload costs beside its bytes: else many of one byte each would fill the memory
_SESSION_BYTES = 1024
_PAUSE_S = 5.0  # that a device is asked to wait while there is no room for its vector
_TEXTS = {
    Kind.CONFLICT: "this device has another vector in this window: a vector is sealed once",
    Kind.WINDOW_CLOSED: "the window is over: drop the vector",
    Kind.WINDOW_FULL: (
        "the window holds as many vectors as its sum is made for: wait for the next window"
    ),
    Kind.INTERNAL: "the vector could not be stored: try again later",
}
# Streams messages to the analyzer's method of that name and returns the reply's bytes.
StreamToAnalyzer = Callable[[str, AsyncIterator[bytes]], Awaitable[bytes]]


@dataclass(slots=True)
class _Upload:
    window: WindowId
    device: bytes = field(repr=False)
    data: bytearray = field(repr=False)
    begun: float

    @property
    def cost(self) -> int:
        return _SESSION_BYTES + len(self.data)


class Singles:
    """For one event loop."""

    def __init__(self, store: SingleVectors, entropy: Entropy = SYSTEM) -> None:
        self._store, self._entropy = store, entropy
        self._uploads: dict[bytes, _Upload] = {}
        self._sessions: dict[tuple[WindowId, bytes], bytes] = {}  # of a device's upload
        self._summed: dict[WindowId, int] = {}  # vectors of windows whose sum the analyzer has
        self._staged = 0

    async def step(
        self,
        terms: RoundTerms,
        step: pairwise_pb2.Step,
        now: float,
        *,
        open_: bool,
        check: Callable[[bytes], None] = lambda _: None,
    ) -> pairwise_pb2.Answer:
        """Upload or Single of one session; ``open_``: the window still takes submissions. ``check``
        looks at the device's key once its signature verified, and may raise.

        Raises INVALID, OVERSIZE, CONFLICT, UNAUTHENTICATED, WINDOW_CLOSED, OVERLOADED; state
        unchanged then.
        """
        if not open_:
            raise ShoalError(Kind.WINDOW_CLOSED, _TEXTS[Kind.WINDOW_CLOSED])
        if len(step.session) != SESSION_SIZE:
            raise ShoalError(Kind.INVALID, f"a session is {SESSION_SIZE} random bytes")
        window = WindowId(terms.task_id, terms.window)
        match step.WhichOneof("step"):
            case "upload":
                received = await self._upload(terms, window, step.session, step.upload, now, check)
                return pairwise_pb2.Answer(phase=pairwise_pb2.PHASE_MASK, received=received)
            case "single":
                await self._single(terms, window, step.session, step.single, now, check)
                return pairwise_pb2.Answer(
                    phase=pairwise_pb2.PHASE_DONE, received=terms.sealed_vector_bytes
                )
            case "ask" | "poll":
                upload = self._uploads.get(step.session)
                return pairwise_pb2.Answer(
                    phase=pairwise_pb2.PHASE_MASK, received=len(upload.data) if upload else 0
                )
        raise ShoalError(
            Kind.INVALID, "this task is in helper mode: upload the vector, then send its seed"
        )

    async def _upload(
        self,
        terms: RoundTerms,
        window: WindowId,
        session: bytes,
        chunk: pairwise_pb2.Upload,
        now: float,
        check: Callable[[bytes], None],
    ) -> int:
        if chunk.total != terms.sealed_vector_bytes:
            raise ShoalError(
                Kind.INVALID,
                f"a sealed vector of this task is {terms.sealed_vector_bytes} bytes long",
            )
        if len(chunk.chunk) > LIMITS.upload_bytes:
            raise ShoalError(
                Kind.OVERSIZE, f"a chunk of a vector is at most {LIMITS.upload_bytes} bytes long"
            )
        device = b""
        if session not in self._uploads:
            if chunk.offset:
                raise ShoalError(
                    Kind.INVALID,
                    "a chunk of a vector goes on from the 0 bytes that are held, and ends with it",
                )
            device = await asyncio.to_thread(check_upload, terms, chunk, now)
            check(device)
        upload = self._uploads.get(session)
        if upload and device and upload.device != device:
            raise ShoalError(Kind.CONFLICT, "this session belongs to another device")
        held = upload.data if upload else bytearray()
        if (
            not chunk.chunk
            or chunk.offset > len(held)
            or chunk.offset + len(chunk.chunk) > chunk.total
        ):
            raise ShoalError(
                Kind.INVALID,
                f"a chunk of a vector goes on from the {len(held)} bytes that are held, and ends "
                "with it",
            )
        if upload and upload.window != window:
            raise ShoalError(Kind.CONFLICT, "this session belongs to another window")
        known = held[chunk.offset : chunk.offset + len(chunk.chunk)]
        if known != chunk.chunk[: len(known)]:
            raise ShoalError(
                Kind.CONFLICT,
                "these bytes of the vector came before, and were others: a vector is sealed once",
            )
        fresh = chunk.chunk[len(known) :]
        cost = len(fresh) + (0 if upload else _SESSION_BYTES)
        if upload is None and (older := self._sessions.get((window, device))) is not None:
            self._forget(older)
        if self._staged + cost > LIMITS.staged_bytes:
            self._drop_slow(now - terms.plan.mask_s, session)
            if self._staged + cost > LIMITS.staged_bytes:
                raise ShoalError(
                    Kind.OVERLOADED,
                    "too many vectors are on their way: try again later",
                    retry_after_s=_PAUSE_S,
                )
        if upload is None:
            upload = self._uploads[session] = _Upload(window, device, bytearray(), now)
            self._sessions[window, device] = session
        upload.data += fresh
        self._staged += cost
        return len(upload.data)

    def _drop_slow(self, before: float, but: bytes) -> None:
        """Uploads that began before and are not complete yet. That they go on does not help: a byte
        now and then would hold the memory.
        """
        for session in [
            session
            for session, upload in self._uploads.items()
            if upload.begun < before and session != but
        ]:
            self._forget(session)

    def _forget(self, session: bytes) -> None:
        upload = self._uploads.pop(session, None)
        if upload is not None:
            self._staged -= upload.cost
            del self._sessions[upload.window, upload.device]

    async def _single(
        self,
        terms: RoundTerms,
        window: WindowId,
        session: bytes,
        single: pairwise_pb2.Single,
        now: float,
        check: Callable[[bytes], None],
    ) -> None:
        upload = self._uploads.get(session)
        sealed = bytes(upload.data) if upload and upload.window == window else b""
        device = await asyncio.to_thread(check_single, terms, single, sealed, now)
        check(device)
        kind = await self._store.add(
            VerifiedVector(window, terms.plan.cohort_max, device, sealed, single.seed)
        )
        if kind is not None:
            if kind is Kind.WINDOW_CLOSED:
                self._forget(session)
            raise ShoalError(kind, _TEXTS[kind])
        # A device that did not hear of it finds nothing held, uploads again and is told the same:
        # the store knows the vector's digest.
        self._forget(session)

    async def forget(self, claim: Claim) -> None:
        """The window is over and released: destroy what is kept of it. May be repeated. Raises
        StaleClaimError.
        """
        await self._store.forget(claim)
        self._summed.pop(claim.window, None)

    # --- the end of a window ----------------------------------------------------------------------

    async def conclude(self, claim: Claim, terms: RoundTerms, send: StreamToAnalyzer) -> str:
        """Deliver a window that is over. "": the analyzer has the sum on disk, or there was
        nothing; otherwise why there is none.

        May be repeated until it returns, also after a restart. Raises what the analyzer answers
        when it is away, or contradicts itself; StaleClaimError if another shuffler has taken the
        window over: no pad is given then.
        """
        window = claim.window
        for session in [
            session for session, upload in self._uploads.items() if upload.window == window
        ]:
            self._forget(session)
        # Before anything is shown: the clock that ended the window may step back, and a vector may
        # be on its way still.
        await self._store.take_no_more(claim)
        if not await self._store.is_fixed(window):
            await self._store.leave_out_damaged(claim, terms.sealed_vector_bytes)
        rows = await self._store.rows(window)
        if len(rows) < terms.plan.survivors_min:
            return "too few vectors came" if rows else ""
        order = shuffled(rows, self._entropy)
        reply = codec.parse(
            pairwise_pb2.VectorsReply,
            await send("DeliverSingles", self._vectors(terms, window, order)),
            "reply",
        )
        unusable = set(reply.unusable)
        if not unusable <= set(range(len(order))):
            raise ShoalError(Kind.MISMATCH, "the analyzer names rows that it was not given")
        used = [row for index, row in enumerate(order) if index not in unusable]
        if await self._store.is_fixed(window):
            if unusable:
                raise ShoalError(
                    Kind.CONFLICT,
                    "the analyzer refuses rows that it took before: no other set of rows is summed",
                )
        # survivors_min alone would let an analyzer refuse the honest rows of a large window until
        # one is left among corrupt ones.
        elif len(used) < terms.survivors(len(rows)):
            return "too few vectors came"
        else:
            await self._store.fix(claim, rows, [order[index].place for index in sorted(unusable)])
        pads = await asyncio.to_thread(sum_pads, terms, [row.seed for row in used])
        done = codec.parse(
            pairwise_pb2.UnmaskRoundReply,
            await send("SumSingles", _pads(terms, pads, len(used))),
            "reply",
        )
        if done.done:
            self._summed[window] = len(used)
        return done.reason if not done.done else ""

    async def fate(self, window: WindowId) -> tuple[int, int]:
        """After ``conclude``: acknowledged vectors that this disk lost or changed, and how many are
        in the analyzer's sum.
        """
        return await self._store.missing(window), self._summed.get(window, 0)

    async def _vectors(
        self, terms: RoundTerms, window: WindowId, rows: list[StoredVector]
    ) -> AsyncIterator[bytes]:
        pending, offset, size = bytearray(), 0, terms.sealed_vector_bytes

        def chunk(data: bytes) -> bytes:
            message = pairwise_pb2.SinglesChunk(
                task_id=terms.task_id.raw,
                window=terms.window,
                offset=offset,
                rows=len(rows),
                data=data,
            )
            return message.SerializeToString()

        for row in rows:
            sealed = await self._store.read(window, row.place, size)
            # damaged since the set of rows was decided: no other one is summed
            if Digest.of(sealed).raw != row.digest:
                raise ShoalError(
                    Kind.MISMATCH,
                    "a vector of a decided sum is damaged on disk: restore the file of vectors "
                    "from a copy",
                )
            pending += sealed
            while len(pending) >= LIMITS.upload_bytes:
                yield chunk(bytes(pending[: LIMITS.upload_bytes]))
                offset += LIMITS.upload_bytes
                del pending[: LIMITS.upload_bytes]
        if pending:
            yield chunk(bytes(pending))


async def _pads(terms: RoundTerms, pads: bytes, devices: int) -> AsyncIterator[bytes]:
    for offset in range(0, len(pads), LIMITS.upload_bytes):
        data = pads[offset : offset + LIMITS.upload_bytes]
        message = pairwise_pb2.PadsChunk(
            task_id=terms.task_id.raw,
            window=terms.window,
            offset=offset,
            devices=devices,
            data=data,
        )
        yield message.SerializeToString()

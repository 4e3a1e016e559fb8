"""One round at the analyzer, without clock, socket or disk: starts it once, adds up masked vectors,
commits once, unmasks.

The analyzer keeps one vector, not one per device: rows are opened and added at once. Of vectors in
segments it holds the row that is coming, too. It starts one
list of seats and signs one commit per round, whatever the shuffler asks: two commits could open
what lies between them. It never learns whose row is whose.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.arrays import NDArray, np
from shoal.crypto.hpke import HpkePrivateKey, open_sealed
from shoal.crypto.secagg import records, words
from shoal.crypto.secagg.analyzer.delivered import DeliveredRows
from shoal.crypto.secagg.analyzer.unmasking import (
    CollectedShares,
    Committed,
    RoundSum,
    remove_masks,
)
from shoal.crypto.secagg.exchange import shares_info, vector_info
from shoal.crypto.secagg.pads import WORD, zeros
from shoal.crypto.secagg.parameters import GraphParameters
from shoal.crypto.secagg.records import Commit, Offer, Reason, Start, Status
from shoal.crypto.secagg.ring import Ring, decode_seats, graph_seed
from shoal.crypto.secagg.segments import OpenedRow
from shoal.crypto.secagg.shares import COMMITMENT_SIZE, decode_bundle
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.protos import pairwise_pb2

_IN_ORDER = "rows are delivered in order, without a gap"
POSITION_SIZE = 4  # bytes: in front of each sealed bundle, where the shuffler had it from


@dataclass(slots=True, repr=False)
class _Begun:
    """What lives from the start to the end of a round. Does not print: it has the sum."""

    request: bytes
    reply: pairwise_pb2.StartRoundReply
    round_id: Digest
    graph: GraphParameters
    pad_keys: tuple[bytes, ...]  # by position
    total: NDArray[np.unsignedinteger[Any]]
    delivered: DeliveredRows
    opened: OpenedRow | None = None  # of vectors in segments: the row that is coming
    commit: tuple[bytes, pairwise_pb2.CommitRoundReply] | None = None
    collected: CollectedShares | None = None


class Collector:
    """One round. Every call may be repeated with the same bytes and then says the same; other bytes
    are refused as CONFLICT.

    Calls of one round must not overlap (``add_vectors`` and ``unmask`` are heavy: run them in a
    thread, under a lock of the round). Errors leave the state as it was, but for ABORTED. Every
    call of a round that was aborted raises ABORTED with the reason, except ``unmask``, which says
    it in its reply.
    """

    offered: pairwise_pb2.OpenRoundReply  # to OpenRound
    offer_id: Digest
    reason: Reason | None  # why it was aborted
    result: RoundSum | None  # once unmasked: store it, then send the reply, then ``forget``

    def __init__(
        self,
        terms: RoundTerms,
        hpke_key: HpkePrivateKey,
        signing_key: SigningKey,
        nonce: bytes,
        shuffler_commitment: bytes,
    ) -> None:
        """``nonce``: 32 random bytes of the analyzer, secret until ``start``. Raises INVALID,
        MISMATCH (not the window's key).
        """
        if hpke_key.config.key_id != terms.analyzer_config.key_id:
            raise ShoalError(
                Kind.MISMATCH,
                "the analyzer's key is not the one of this window in the task's schedule: load "
                "that one",
            )
        own = records.nonce_commitment(nonce)
        offer = Offer(
            terms.task_id,
            terms.window,
            terms.analyzer_config.key_id,
            terms.schedule_hash,
            shuffler_commitment,
            own,
        ).encode()
        self.terms = terms
        self.offered = pairwise_pb2.OpenRoundReply(
            offer=offer, analyzer_signature=signing_key.sign(SigningContext.ROUND_OFFER, offer)
        )
        self.offer_id = records.offer_id(offer)
        self.reason, self.result = None, None
        self._hpke_key, self._key, self._nonce, self._shuffler_commitment = (
            hpke_key,
            signing_key,
            nonce,
            shuffler_commitment,
        )
        self._begun: _Begun | None = None
        self._done: pairwise_pb2.UnmaskRoundReply | None = None
        self._blamed: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"<Collector of offer {self.offer_id.short}>"

    @property
    def round_id(self) -> Digest | None:
        """Once started."""
        return None if self._begun is None else self._begun.round_id

    @property
    def seats(self) -> int:
        """Devices of the round, once started."""
        return 0 if self._begun is None else len(self._begun.pad_keys)

    @property
    def ended(self) -> bool:
        """Unmasked or aborted."""
        return self.reason is not None or self._done is not None

    def start(self, request: pairwise_pb2.StartRoundRequest) -> pairwise_pb2.StartRoundReply:
        """Lay the ring over the shuffler's list, reveal the nonce and sign; once.

        Raises INVALID, MISMATCH (offer, nonce and commitment, number of devices), CONFLICT (another
        list was started), ABORTED.
        """
        self._not_aborted()
        # the first two have fixed lengths, or are refused below
        said = request.offer_id + request.shuffler_nonce + request.seats
        if self._begun is not None:
            if self._begun.request != said:
                raise ShoalError(
                    Kind.CONFLICT,
                    "this round was started with another list of devices: open another round",
                )
            return self._begun.reply
        _match(request.offer_id == self.offer_id.raw, "this offer is not the one to be started")
        committed = records.nonce_commitment(request.shuffler_nonce)
        _match(
            hmac.compare_digest(committed, self._shuffler_commitment),
            "the shuffler's nonce is not what it committed to",
        )
        seats, plan = decode_seats(request.seats), self.terms.plan
        _match(
            plan.cohort_min <= len(seats) <= plan.cohort_max,
            f"a round of this task has {plan.cohort_min} to {plan.cohort_max} devices",
        )
        graph, list_hash = self.terms.parameters(len(seats)), Digest.of(request.seats)
        ring = Ring(
            graph_seed(self.offer_id, list_hash, request.shuffler_nonce, self._nonce), seats
        )
        start = Start(
            self.offer_id,
            len(seats),
            Digest(ring.root),
            request.shuffler_nonce,
            self._nonce,
            list_hash,
        ).encode()
        reply = pairwise_pb2.StartRoundReply(
            start=start, analyzer_signature=self._key.sign(SigningContext.ROUND_START, start)
        )
        total = zeros(self.terms.dimension + plan.check_words, WORD[plan.word_bits])
        self._begun = _Begun(
            said,
            reply,
            records.round_id(start),
            graph,
            tuple(seat.pad_key for seat in ring.order),
            total,
            DeliveredRows(len(seats)),
        )
        return reply

    @property
    def row_bytes(self) -> int:
        """Of one sealed vector."""
        return self.terms.sealed_vector_bytes

    @property
    def bytes_at_once(self) -> int:
        """Of a delivery, that are worth handing over: whole rows, or anything in segments."""
        if self.terms.plan.segmented:
            return 1
        return max(LIMITS.vectors_bytes, self.row_bytes)

    @property
    def rows(self) -> int:
        """Delivered until now, usable or not."""
        return 0 if self._begun is None else len(self._begun.delivered.digests)

    @property
    def unusable(self) -> tuple[int, ...]:
        """Indexes of delivered rows that do not open, have a wrong length, or were in the delivery
        before.
        """
        return () if self._begun is None else tuple(self._begun.delivered.unusable)

    def add_vectors(self, rows: Iterable[bytes], start: int = 0) -> tuple[int, ...]:
        """Open sealed rows number ``start``, ``start`` + 1, ... and add them up at once; returns
        ``unusable``.

        Rows below ``self.rows`` were added before (a repeated delivery): they are compared with
        what came then, and skipped. A row that was delivered under another number is unusable:
        added twice, its vector would count double. Raises TOO_EARLY, INVALID (a gap, more rows than
        devices), CONFLICT (another row under that number, a new row after the commit), ABORTED.
        Rows before the one that raises stay added.
        """
        self._not_aborted()
        begun = self._running()
        _require(0 <= start <= len(begun.delivered.digests), _IN_ORDER)
        info = vector_info(begun.round_id, self.terms.analyzer_config.key_id)
        for index, row in enumerate(rows, start):
            if self.terms.plan.segmented:
                _require(len(row) == self.row_bytes, f"a sealed row has {self.row_bytes} bytes")
                self.feed(row, index * self.row_bytes)
                continue
            digest = hashlib.sha256(row).digest()
            if not begun.delivered.known(index, digest):
                begun.delivered.check_room(index, closed=begun.commit is not None)
                usable = digest not in begun.delivered.seen and self._add(begun, row, info)
                begun.delivered.note(index, digest, usable=usable)
        return tuple(begun.delivered.unusable)

    def feed(self, data: bytes | memoryview, offset: int) -> None:
        """The same, of a task whose vectors are sealed in segments: bytes of the delivery from
        ``offset`` on, which is the beginning of a row, or where the bytes before ended.

        Memory: the sum, and the row that is coming; it is added once all of it has opened.
        """
        self._not_aborted()
        begun, view = self._running(), memoryview(data)
        index, inside = divmod(offset, self.row_bytes)
        row = begun.opened
        if row is None:
            row = begun.opened = OpenedRow(
                self.terms.plan, self.terms.dimension, self._hpke_key, begun.round_id
            )
        if inside:
            _require((row.number, row.at) == (index, inside), _IN_ORDER)
        else:
            self._begin(begun, row, index)
        while view:
            view = view[row.feed(view) :]
            if not row.complete:
                continue
            digest = row.digest
            if not begun.delivered.known(row.number, digest):
                opened = None if digest in begun.delivered.seen else row.words
                if opened is not None:
                    begun.total += opened
                begun.delivered.note(row.number, digest, usable=opened is not None)
            if view:
                self._begin(begun, row, row.number + 1)

    def _begin(self, begun: _Begun, row: OpenedRow, index: int) -> None:
        _require(0 <= index <= len(begun.delivered.digests), _IN_ORDER)
        known = index < len(begun.delivered.digests)
        if not known:
            begun.delivered.check_room(index, closed=begun.commit is not None)
        row.begin(index, known=known)

    def commit(self, request: pairwise_pb2.CommitRoundRequest) -> pairwise_pb2.CommitRoundReply:
        """Sign who is in the sum: as many as usable rows came; once.

        Raises TOO_EARLY, BAD_SIGNATURE, INVALID, MISMATCH (round, counts, rows left out), CONFLICT
        (another commit was signed), ABORTED (with fewer than must survive the round ends).
        """
        self._not_aborted()
        begun = self._running()
        said = request.SerializeToString(deterministic=True)
        if begun.commit is not None:
            if begun.commit[0] != said:
                raise ShoalError(
                    Kind.CONFLICT,
                    "another commit of this round was signed: there is one per round, for ever",
                )
            return begun.commit[1]
        verify(
            self.terms.shuffler_key,
            SigningContext.ROUND_COMMIT,
            request.commit,
            request.shuffler_signature,
        )
        commit, size = Commit.decode(request.commit), len(begun.pad_keys)
        _match(commit.round_id == begun.round_id, "the commit is of another round")
        _match(
            len(commit.statuses) == size,
            f"the commit speaks of {len(commit.statuses)} devices, the round has {size}",
        )
        _match(
            list(request.left_out) == begun.delivered.unusable,
            "the rows left out are not the unusable ones",
        )
        _match(
            commit.alive == len(begun.delivered.digests) - len(begun.delivered.unusable),
            "the commit counts other vectors than were delivered",
        )
        _require(
            len(request.commitments) == size * COMMITMENT_SIZE,
            f"commitments are {COMMITMENT_SIZE} bytes for each device",
        )
        commitments = tuple(
            request.commitments[start : start + COMMITMENT_SIZE]
            for start in range(0, len(request.commitments), COMMITMENT_SIZE)
        )
        shared = [status != Status.NEVER_SHARED for status in commit.statuses]
        _require(
            # Seeds that are put together are checked against these: without one a wrong seed would
            # pass.
            shared == [any(commitment) for commitment in commitments],
            "who shared has a commitment, and nobody else",
        )
        if commit.alive < self.terms.survivors(size):
            self.abort(Reason.TOO_FEW_VECTORS)
            raise Reason.TOO_FEW_VECTORS.error
        reply = pairwise_pb2.CommitRoundReply(
            analyzer_signature=self._key.sign(SigningContext.ROUND_COMMIT, request.commit)
        )
        begun.commit = (said, reply)
        begun.opened = None
        begun.collected = CollectedShares(
            Committed(begun.round_id, begun.graph, begun.pad_keys, commitments, commit.statuses)
        )
        return reply

    def unmask(self, request: pairwise_pb2.UnmaskRoundRequest) -> pairwise_pb2.UnmaskRoundReply:
        """Take bundles; with ``last`` put the sum together.

        Each bundle is u32be position || sealed; one that does not open is its position's fault.
        ``done`` in the reply: ``result`` holds the sum, and must be on disk before the reply is
        sent. A reason: the round is aborted for good. Raises TOO_EARLY, MISMATCH, INVALID.
        """
        if self.reason is not None:
            return pairwise_pb2.UnmaskRoundReply(reason=self.reason.value, blamed=self._blamed)
        if self._done is not None:
            return self._done
        begun = self._running()
        _match(request.round_id == begun.round_id.raw, "the shares are of another round")
        collected = begun.collected
        if collected is None:
            raise ShoalError(
                Kind.TOO_EARLY, "nobody has signed yet who is in the sum: commit first"
            )
        self._take(collected, request.bundles)
        if not request.last:
            return pairwise_pb2.UnmaskRoundReply(blamed=sorted(collected.blamed))
        try:
            total, begun.total = begun.total, begun.total[:0].copy()
            self.result = self._sum(total, collected)
        except ShoalError as error:
            self._blamed = tuple(sorted(collected.blamed))
            self.abort(Reason.behind(error))
            return self.unmask(request)
        self._done = pairwise_pb2.UnmaskRoundReply(done=True, blamed=self.result.blamed)
        self._erase()
        return self._done

    def abort(self, reason: Reason) -> None:
        """End the round without a sum and forget everything secret. Nothing happens to an ended
        round.
        """
        if not self.ended:
            self.reason = reason
            self._erase()

    def forget(self) -> None:
        """Drop the result of an ended round. What was said stays said: repeated calls get their
        answers.
        """
        if self.ended:
            self.result = None

    # --- inside -----------------------------------------------------------------------------------

    def _add(self, begun: _Begun, row: bytes, info: bytes) -> bool:
        try:
            plaintext = open_sealed(self._hpke_key, row, info)
        except ShoalError:
            return False
        # Another length fits no word of the sum; cut or padded it would spoil all of them.
        if len(plaintext) != self.terms.vector_bytes:
            return False
        # At once: of single vectors, masked as they are, nothing is kept that could be unmasked
        # later.
        begun.total += np.frombuffer(plaintext, begun.total.dtype)
        return True

    def _take(self, collected: CollectedShares, bundles: Sequence[bytes]) -> None:
        info = shares_info(collected.committed.round_id, self.terms.analyzer_config.key_id)
        _require(
            all(len(sealed) > POSITION_SIZE for sealed in bundles),
            "sealed shares come after the position that they are from",
        )
        for sealed in bundles:
            position = int.from_bytes(sealed[:POSITION_SIZE], "big")
            if position in collected.answered:
                continue
            try:
                bundle = decode_bundle(
                    open_sealed(self._hpke_key, sealed[POSITION_SIZE:], info),
                    collected.committed.graph.neighbours,
                )
            except ShoalError:
                collected.refuse(position)
            else:
                collected.add(position, bundle)

    def _sum(self, total: NDArray[np.unsignedinteger[Any]], collected: CollectedShares) -> RoundSum:
        """Raises ABORTED. ``total`` is used up."""
        secrets, survivors, dimension = (
            collected.recover(),
            collected.committed.statuses.count(Status.ALIVE),
            self.terms.dimension,
        )
        try:
            remove_masks(total, collected.committed, secrets)
        except ShoalError:  # a pad key of small order, which no honest shuffler seats
            raise Reason.WRONG_SHARES.error from None
        constants = words.check_constants(
            collected.committed.round_id.raw, self.terms.plan.word_bits
        )
        if not words.verify_checks(total, survivors, constants):
            raise Reason.WRONG_SUM.error
        if self.terms.plan.segmented:  # a long vector stays where it is
            vector = total[:dimension].view(f"<i{total.dtype.itemsize}")
        else:
            vector = words.decode_signed(total[:dimension])
            total.fill(0)
        return RoundSum(vector, survivors, tuple(sorted(collected.blamed)))

    def _erase(self) -> None:
        """Vectors, shares and the nonce go; what was started and committed stays, to be said
        again.
        """
        self._nonce = b""
        if self._begun is not None:
            self._begun.total.fill(0)
            # an ended round is remembered for long: not with a vector
            self._begun.total = self._begun.total[:0].copy()
            if self._begun.opened is not None:
                self._begun.opened.erase()
            self._begun.opened = self._begun.collected = None

    def _running(self) -> _Begun:
        if self._begun is None:
            raise ShoalError(Kind.TOO_EARLY, "the round has not been started: start it first")
        return self._begun

    def _not_aborted(self) -> None:
        if self.reason is not None:
            raise self.reason.error


def _match(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.MISMATCH, message)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, message)

"""One round at the analyzer, without clock, socket or disk: starts it once, adds up masked vectors, commits once, unmasks."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.secagg.records import Reason
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.secagg.unmasking import RoundSum
from shoal.crypto.signing import SigningKey
from shoal.ids import Digest
from shoal.protos import pairwise_pb2


class Collector:
    """One round. Every call may be repeated with the same bytes and then says the same; other bytes are refused as CONFLICT.

    Calls of one round must not overlap (``add_vectors`` and ``unmask`` are heavy: run them in a thread, under a lock of the round).
    Every call of an ended round raises ABORTED with the reason, but ``unmask``, which says it in its reply.
    """

    def __init__(
        self, terms: RoundTerms, hpke_key: HpkePrivateKey, signing_key: SigningKey, nonce: bytes, shuffler_commitment: bytes
    ) -> None:
        """``nonce``: 32 random bytes of the analyzer, secret until ``start``. Raises INVALID."""
        raise NotImplementedError

    offered: pairwise_pb2.OpenRoundReply  # to OpenRound
    offer_id: Digest
    round_id: Digest | None  # once started
    reason: Reason | None  # why it was aborted
    result: RoundSum | None  # once unmasked: store it, then reply, then ``forget``

    def start(self, request: pairwise_pb2.StartRoundRequest) -> pairwise_pb2.StartRoundReply:
        """Raises INVALID, MISMATCH (nonce and commitment), CONFLICT (another list was started), ABORTED."""
        raise NotImplementedError

    @property
    def row_bytes(self) -> int:
        """Of one sealed vector."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """Delivered until now, usable or not."""
        raise NotImplementedError

    @property
    def unusable(self) -> tuple[int, ...]:
        """Indexes of delivered rows that do not open, have a wrong length, or were delivered twice."""
        raise NotImplementedError

    def add_vectors(self, rows: Iterable[bytes], first: int = 0) -> tuple[int, ...]:
        """Open sealed rows number ``first``, ``first`` + 1, ... and add them up at once; returns ``unusable``.

        Rows below ``self.rows`` were added before (a repeated delivery): they are compared with what came then, and skipped.
        Raises INVALID (a gap, more rows than devices), CONFLICT (another row under that number, rows after the commit), ABORTED.
        """
        raise NotImplementedError

    def commit(self, request: pairwise_pb2.CommitRoundRequest) -> pairwise_pb2.CommitRoundReply:
        """Raises BAD_SIGNATURE, INVALID, MISMATCH (count), CONFLICT (another commit was signed), ABORTED (and ends the round: too few)."""
        raise NotImplementedError

    def unmask(self, request: pairwise_pb2.UnmaskRoundRequest) -> pairwise_pb2.UnmaskRoundReply:
        """Take bundles; with ``last`` reconstruct. ``done``: ``result`` holds the sum. A reason: the round is aborted for good."""
        raise NotImplementedError

    def abort(self, reason: Reason) -> None:
        """End the round without a sum and forget everything secret. Nothing happens to an ended round."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop vectors, shares, keys and the result. What was said stays said: repeated calls get their answers."""
        raise NotImplementedError

"""One round at the shuffler, without clock, socket or disk: who has a seat, who shared, whose vector came, who answered."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.crypto.secagg.records import Reason
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningKey
from shoal.entropy import Entropy
from shoal.errors import ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2


@dataclass(frozen=True, slots=True)
class AskStart:
    """Call StartRound; give the reply to ``Coordinator.started``."""

    request: pairwise_pb2.StartRoundRequest


@dataclass(frozen=True, slots=True)
class Deliver:
    """Stream the complete uploads of these sessions, in this order (random; the same at every attempt), to DeliverVectors;
    give the reply to ``delivered``."""

    rows: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class AskCommit:
    """Call CommitRound; give the reply to ``committed``."""

    request: pairwise_pb2.CommitRoundRequest


@dataclass(frozen=True, slots=True)
class AskUnmask:
    """Call UnmaskRound with each request in order (each at most about 1 MiB; the last one has ``last``); give the last reply to
    ``unmasked``. A reply with a reason before the last one goes to ``unmasked`` at once."""

    requests: tuple[pairwise_pb2.UnmaskRoundRequest, ...]


@dataclass(frozen=True, slots=True)
class End:
    """Call EndRound, best effort; forget every upload of the round. Nothing is awaited."""

    reason: Reason


Effect = AskStart | Deliver | AskCommit | AskUnmask | End


def open_request(terms: RoundTerms, nonce: bytes) -> pairwise_pb2.OpenRoundRequest:
    """What OpenRound is called with. ``nonce``: 32 random bytes of the shuffler, secret until StartRound."""
    raise NotImplementedError


def countersign(terms: RoundTerms, nonce: bytes, reply: pairwise_pb2.OpenRoundReply, signing_key: SigningKey) -> pairwise_pb2.SignedOffer:
    """The offer with both signatures, once the analyzer's signature and every field are checked. Raises BAD_SIGNATURE, INVALID, MISMATCH."""
    raise NotImplementedError


class Coordinator:
    """One round. Every method may be called again with the same bytes: the second call changes nothing.

    The driver calls ``tick`` at least about once a second and after every device's step, does what the effects say (each may be
    repeated until it is answered), and answers every step of a device with ``answer``. When it gives up it calls ``failed``.
    Methods of devices raise, with unchanged state: NOT_FOUND (unknown session), INVALID (malformed), WINDOW_CLOSED (late),
    TOO_EARLY (before its phase), CONFLICT (contradicts what that seat sent before), ABORTED (the round has ended without a sum).
    """

    def __init__(
        self, terms: RoundTerms, offer: pairwise_pb2.SignedOffer, nonce: bytes, signing_key: SigningKey, entropy: Entropy, now: float
    ) -> None:
        """``offer`` from ``countersign``. The join phase begins ``now`` (Unix seconds)."""
        raise NotImplementedError

    @property
    def phase(self) -> pairwise_pb2.Phase.ValueType:
        """As devices see it: JOIN, SHARE, MASK, ENDORSE, UNMASK, DONE, ABORTED."""
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        """DONE or ABORTED."""
        raise NotImplementedError

    reason: Reason | None  # why it was aborted
    offer: pairwise_pb2.SignedOffer
    offer_id: Digest
    round_id: Digest | None  # from SHARE on
    blamed: tuple[int, ...]  # positions, after DONE or an abort by the analyzer

    def deadline(self) -> float | None:
        """When the present phase ends at the latest; None while the analyzer is asked, and at the end."""
        raise NotImplementedError

    def counts(self) -> dict[str, int]:
        """For logs and metrics: joined, shared, uploaded, alive, endorsed, answered."""
        raise NotImplementedError

    # --- steps of devices ---------------------------------------------------------------------------------------------

    def invite(self, now: float) -> pairwise_pb2.Answer:
        """To Ask: the offer while the round takes devices; else phase NONE."""
        raise NotImplementedError

    def identify(self, join: pairwise_pb2.Join, now: float) -> bytes:
        """The device key of a Join for this round, certificate and signature verified; changes nothing.

        Raises INVALID, UNAUTHENTICATED (certificate), BAD_SIGNATURE, NOT_FOUND (another offer).
        """
        raise NotImplementedError

    def join(self, session: bytes, join: pairwise_pb2.Join, now: float) -> bytes:
        """Take a seat; returns the device key (the driver remembers it: one admission per device and window).

        Raises what ``identify`` raises, CONFLICT (the device has a seat under another session, the session another Join, a key is
        in use), WINDOW_CLOSED.
        """
        raise NotImplementedError

    def shares(self, session: bytes, message: pairwise_pb2.Shares, now: float) -> None:
        raise NotImplementedError

    def expects_upload(self, session: bytes, now: float) -> bool:
        """True if this seat's vector is wanted now; False if it is complete. Raises like every step (WINDOW_CLOSED when late).

        Call it before a chunk is kept.
        """
        raise NotImplementedError

    def uploaded(self, session: bytes, digest: Digest, now: float) -> None:
        """The seat's upload is complete, ``terms.sealed_vector_bytes`` long, and has this SHA-256. The caller keeps the bytes."""
        raise NotImplementedError

    def endorse(self, session: bytes, message: pairwise_pb2.Endorse, now: float) -> None:
        raise NotImplementedError

    def unmask(self, session: bytes, message: pairwise_pb2.Unmask, now: float) -> None:
        raise NotImplementedError

    def answer(self, session: bytes, now: float, received: int = 0) -> pairwise_pb2.Answer:
        """What Poll, and every other step of this seat, is answered with. ``received``: bytes held of an incomplete upload.

        An aborted round is answered with phase ABORTED, kind ABORTED and the reason. Raises NOT_FOUND.
        """
        raise NotImplementedError

    # --- time, and the analyzer's answers ------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Effect]:
        """Go on if the phase is complete or over. Returns what to do, once per change."""
        raise NotImplementedError

    def started(self, reply: pairwise_pb2.StartRoundReply, now: float) -> list[Effect]:
        """The analyzer's start, checked against the shuffler's own computation. A wrong one aborts (DISAGREE)."""
        raise NotImplementedError

    def delivered(self, reply: pairwise_pb2.VectorsReply, now: float) -> list[Effect]:
        raise NotImplementedError

    def committed(self, reply: pairwise_pb2.CommitRoundReply, now: float) -> list[Effect]:
        raise NotImplementedError

    def unmasked(self, reply: pairwise_pb2.UnmaskRoundReply, now: float) -> list[Effect]:
        raise NotImplementedError

    def failed(self, reason: Reason) -> list[Effect]:
        """Give up: [End(reason)], or nothing if the round has ended already."""
        raise NotImplementedError


def refusal(error: ShoalError) -> pairwise_pb2.Answer:
    """The Answer that tells a device why its step was refused: kind and line, nothing else."""
    raise NotImplementedError

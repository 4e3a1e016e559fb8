"""What devices do in a round at the shuffler: each step of a seat, checked against the phase and
against what that seat sent before.

Nothing here ends a phase or speaks to the analyzer: ``coordinator`` does. A step is taken whole or
refused with unchanged state, and may be repeated with the same bytes, because a network loses
answers.
"""

from __future__ import annotations

from shoal.crypto.secagg import records
from shoal.crypto.secagg.complaints import Dispute, dealt_bytes
from shoal.crypto.secagg.records import Reason
from shoal.crypto.secagg.shares import CIPHERTEXT_SIZE, COMMITMENT_SIZE, bundle_size
from shoal.crypto.secagg.shuffler.phases import (
    PHASE,
    WAIT_MOST_MS,
    WITH_DEVICES,
    Stage,
    refusal,
    wait_ms,
)
from shoal.crypto.secagg.shuffler.seating import Member, Seating
from shoal.crypto.secagg.shuffler.turns import (
    GUILTY,
    add_next_step,
    check_in_round,
    check_repeated,
    check_stage,
    why_lost,
)
from shoal.crypto.secagg.terms import SESSION_SIZE, RoundTerms
from shoal.crypto.signing import SigningContext, verify
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2


class DeviceSteps:
    """The half of a round that devices talk to. Every step may be called again with the same bytes:
    the second call changes nothing.

    Times are Unix seconds. Steps raise, with unchanged state: NOT_FOUND (unknown session), INVALID
    (malformed), FORBIDDEN (it broke the round), WINDOW_CLOSED (late, or not in the round any more),
    TOO_EARLY (before its phase), CONFLICT (contradicts what that seat sent before), ABORTED (the
    round has ended without a sum).
    """

    reason: Reason | None  # why it was aborted
    offer: pairwise_pb2.SignedOffer
    offer_id: Digest
    round_id: Digest | None  # from SHARE on
    # sessions that broke the round: of proven bad shares, or of a false complaint
    guilty: set[bytes]

    def __init__(self, terms: RoundTerms, offer: pairwise_pb2.SignedOffer, now: float) -> None:
        """``offer`` from ``opening.countersign``. The join phase begins ``now``."""
        self.terms, self.offer = terms, offer
        self.offer_id = records.offer_id(offer.offer)
        self.reason, self.round_id, self.guilty = None, None, set()
        self._seating = Seating(terms, self.offer_id)
        self._start = self._commit = pairwise_pb2.SignedRecord()
        self._stage, self._deadline = Stage.JOIN, now + terms.plan.join_s

    @property
    def phase(self) -> pairwise_pb2.Phase.ValueType:
        """As devices see it: JOIN, SHARE, MASK, ENDORSE, UNMASK, DONE, ABORTED."""
        return PHASE[self._stage]

    @property
    def ended(self) -> bool:
        """DONE or ABORTED."""
        return self._stage in (Stage.DONE, Stage.ABORTED)

    def deadline(self) -> float | None:
        """When the present phase is over at the latest; None while the analyzer is asked, and at
        the end.
        """
        return self._deadline if self._stage in WITH_DEVICES else None

    def counts(self) -> dict[str, int]:
        """For logs and metrics: how many seats have come how far. After the end: the seats and the
        vectors that were taken.
        """
        seats = self._seating
        return {
            "joined": len(seats),
            "shared": sum(m.shares is not None for m in seats),
            "checked": sum(m.checked for m in seats),
            "uploaded": sum(m.upload is not None for m in seats),
            "alive": sum(m.alive for m in seats),
            "endorsed": sum(m.endorsement is not None for m in seats),
            "answered": sum(m.bundle is not None for m in seats),
        }

    def invite(self, now: float) -> pairwise_pb2.Answer:
        """To Ask: the offer while the round takes devices; else phase NONE and when to ask
        again.
        """
        if not self._takes_devices(now):
            return pairwise_pb2.Answer(phase=pairwise_pb2.PHASE_NONE, wait_ms=WAIT_MOST_MS)
        return pairwise_pb2.Answer(phase=pairwise_pb2.PHASE_JOIN, offer=self.offer)

    def identify(self, join: pairwise_pb2.Join, now: float) -> bytes:
        """The device key of a Join for this round, certificate and signature verified; changes
        nothing.

        Raises NOT_FOUND (another round's offer), INVALID, UNAUTHENTICATED (certificate),
        BAD_SIGNATURE.
        """
        return self._seating.identify(join, now)

    def join(self, session: bytes, join: pairwise_pb2.Join, now: float) -> bytes:
        """Take a seat; returns the device key (the driver remembers it: one admission per device
        and window).

        Raises what ``identify`` raises, CONFLICT (the device has a seat under another session, the
        session another Join, a one-time key is in use), WINDOW_CLOSED (ask for the next round),
        ABORTED.
        """
        self._not_aborted()
        _require(len(session) == SESSION_SIZE, f"a session is {SESSION_SIZE} random bytes")
        held = self._seating.members.get(session)
        if held is not None:
            check_repeated(held.join, join, "join")
            return held.device_key
        if not self._takes_devices(now):
            raise ShoalError(
                Kind.WINDOW_CLOSED, "this round takes no more devices: ask for the next one"
            )
        return self._seating.take(session, join, now)

    def shares(self, session: bytes, message: pairwise_pb2.Shares, now: float) -> None:
        """A ciphertext for each neighbour in ring order, and the commitment to the self mask's
        seed. Raises BAD_SIGNATURE too.
        """
        member = self._member(session)
        shares = (message.ciphertexts, message.commitment, message.signature)
        if member.shares is not None:
            check_repeated(member.shares, shares, "list of shares")
            return
        self._must_be(Stage.SHARE, now)
        count = self._seating.graph.neighbours
        _require(
            len(shares[0]) == count * CIPHERTEXT_SIZE,
            f"in this round a device sends {count} shares of {CIPHERTEXT_SIZE} bytes",
        )
        _require(
            len(shares[1]) == COMMITMENT_SIZE and any(shares[1]), "a commitment is a SHA-256 digest"
        )
        # Kept with its signature: who is accused of bad shares can't say that they were not its
        # own.
        signed = dealt_bytes(self._started_id, member.position, shares[1], shares[0])
        verify(member.device_key, SigningContext.ROUND_SHARES, signed, shares[2])
        member.shares = shares

    def check(self, session: bytes, message: pairwise_pb2.Check, now: float) -> Dispute | None:
        """The device can use all that was dealt to it; or a complaint. Without evidence it asks for
        what the neighbour signed.

        Returns what is to be judged, if there is evidence: give what ``Dispute.dealer_is_guilty``,
        which takes long, says to ``judged``.
        """
        member, complaint = self._member(session), message.complaint
        if member.checked and not message.HasField("complaint"):
            return None
        self._must_be(Stage.CHECK, now)
        self._has_part(member)
        if not message.HasField("complaint"):
            member.checked, member.suspect = True, None
            return None
        # What the shuffler holds is compared, not what the complainer says that it got.
        dispute = self._seating.dispute(self._started_id, member, complaint.position)
        member.suspect = None if complaint.shared else complaint.position
        return dispute if complaint.shared else None

    def judged(self, session: bytes, dispute: Dispute, *, dealer_is_guilty: bool) -> bytes | None:
        """The verdict over a complaint of this seat: who is guilty loses its seat. Returns its
        session; None if it has lost it before.

        After the phase, or the round, nothing happens any more: others may have masked with the
        pads of who would go.
        """
        if self._stage is not Stage.CHECK:
            return None
        loser = (
            self._seating.order[dispute.dealer]
            if dealer_is_guilty
            else self._seating.members[session]
        )
        if loser.shares is None:
            return None
        # as if it had never shared: its neighbours mask without its pads
        loser.leave()
        self.guilty.add(loser.session)
        return loser.session

    def expects_upload(self, session: bytes, now: float) -> bool:
        """True if this seat's vector is wanted now; False if it has come. Raises like every step.
        Ask before a chunk is kept.
        """
        member = self._member(session)
        if member.upload is not None:
            return False
        self._must_be(Stage.MASK, now)
        self._has_part(member)
        return True

    def uploaded(self, session: bytes, digest: Digest, now: float) -> None:
        """The seat's upload is complete, ``terms.sealed_vector_bytes`` long, and has this SHA-256.
        The caller keeps the bytes.

        A late one is refused (WINDOW_CLOSED), and the caller drops it: once the pads of a device
        that counts as lost are known, its own mask alone stands before its vector.
        """
        if self.expects_upload(session, now):
            self._member(session).upload = digest
        else:
            check_repeated(self._member(session).upload, digest, "vector")

    def endorse(self, session: bytes, message: pairwise_pb2.Endorse, now: float) -> None:
        """Strict mode: the device's own signature over the commit. Raises BAD_SIGNATURE too."""
        member = self._member(session)
        if member.endorsement is not None:
            check_repeated(member.endorsement, message.signature, "endorsement")
            return
        self._must_be(Stage.ENDORSE, now)
        self._has_part(member)
        verify(
            member.device_key, SigningContext.ROUND_ENDORSE, self._commit.record, message.signature
        )
        member.endorsement = message.signature

    def unmask(self, session: bytes, message: pairwise_pb2.Unmask, now: float) -> None:
        """The shares that the device holds of its neighbours, sealed for the analyzer: of one
        length for every device.
        """
        member = self._member(session)
        if member.bundle is not None:
            check_repeated(member.bundle, message.sealed, "bundle of shares")
            return
        self._must_be(Stage.UNMASK, now)
        self._has_part(member)
        # One length for all: how many neighbours were lost must not show to who sees ciphertexts.
        size = (
            bundle_size(self._seating.graph.neighbours) + self.terms.analyzer_config.suite.overhead
        )
        _require(
            len(message.sealed) == size,
            f"the sealed shares of a device are {size} bytes long in this round",
        )
        member.bundle = message.sealed

    def answer(self, session: bytes, now: float, received: int = 0) -> pairwise_pb2.Answer:
        """What Poll, and every other step of this seat, is answered with. ``received``: bytes held
        of an incomplete upload.

        An aborted round is answered with phase ABORTED, kind ABORTED and the reason; a seat that
        was too late for a phase with kind WINDOW_CLOSED. Raises NOT_FOUND.
        """
        member, stage = self._known(session), self._stage
        if stage is Stage.ABORTED:
            return refusal(self._error)
        answer = pairwise_pb2.Answer(phase=self.phase)
        if stage is Stage.DONE:
            return answer
        answer.wait_ms = wait_ms(session, stage, self.terms.plan, self._deadline - now)
        answer.received = received if member.upload is None else self.terms.sealed_vector_bytes
        lateness = why_lost(member, stage)
        if session in self.guilty:
            answer.kind, answer.reason = Kind.FORBIDDEN.value, GUILTY
        elif lateness:
            answer.kind, answer.reason = Kind.WINDOW_CLOSED.value, lateness
        else:
            add_next_step(answer, stage, member, self._seating, self._start, self._commit)
        return answer

    @property
    def _started_id(self) -> Digest:
        if self.round_id is None:
            raise ShoalError(
                Kind.TOO_EARLY, "the round has not begun: poll, and do what the answer says"
            )
        return self.round_id

    def _takes_devices(self, now: float) -> bool:
        return (
            self._stage is Stage.JOIN
            and now < self._deadline
            and len(self._seating) < self.terms.plan.cohort_max
        )

    @property
    def _error(self) -> ShoalError:
        return (self.reason or Reason.OTHER).error

    def _not_aborted(self) -> None:
        if self._stage is Stage.ABORTED:
            raise self._error

    def _known(self, session: bytes) -> Member:
        member = self._seating.members.get(session)
        if member is None:
            raise ShoalError(
                Kind.NOT_FOUND,
                "no seat of that session in this round: drop the round, ask for another",
            )
        return member

    def _member(self, session: bytes) -> Member:
        member = self._known(session)
        self._not_aborted()
        return member

    def _must_be(self, stage: Stage, now: float) -> None:
        check_stage(self._stage, stage, over=now >= self._deadline)

    def _has_part(self, member: Member) -> None:
        check_in_round(member, self._stage, self.guilty)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, message)

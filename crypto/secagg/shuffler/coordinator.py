"""One round at the shuffler, without clock, socket or disk: who has a seat, who shared, whose
vector came, who answered.

The states, each with what ends it (``tick`` looks; times are the plan's)::

    JOIN      cohort_max seats, or join_s; fewer than cohort_min abort      -> STARTING
    StartRound at the analyzer
    SHARE     all have shared, or share_s; fewer than must survive abort    -> CHECK
    CHECK     all who shared can use what was dealt to them, or share_s
    -> MASK; the same minimum
    MASK      all who shared have uploaded, or mask_s; the same minimum
    -> DELIVERING DeliverVectors, then COMMITTING CommitRound
    ENDORSE   (strict mode) all alive have signed the commit, or half of unmask_s
    UNMASK    all alive have answered, or unmask_s (strict mode: the other half of it)
    -> SUMMING UnmaskRound -> DONE

Who does not check in time, is found to have dealt what does not open, or says so falsely of another
is left out before anybody masks, as if it had never shared. ABORTED can follow on each state. A
round begins once and ends once; nothing of it is ever used again.

What the shuffler cannot do here, even if this code were changed: the analyzer starts one list of
seats and signs one commit per round, devices answer one commit, and every device recomputes ring,
neighbours and parameters by itself.
"""

from __future__ import annotations

import math

from shoal.crypto.secagg import records
from shoal.crypto.secagg.complaints import Dispute, dealt_bytes
from shoal.crypto.secagg.records import Commit, Offer, Reason, Start, Status
from shoal.crypto.secagg.ring import Ring, encode_seats, graph_seed
from shoal.crypto.secagg.shares import CIPHERTEXT_SIZE, COMMITMENT_SIZE, bundle_size
from shoal.crypto.secagg.shuffler.effects import (
    AskCommit,
    AskStart,
    AskUnmask,
    Deliver,
    Effect,
    End,
)
from shoal.crypto.secagg.shuffler.phases import (
    PHASE,
    WAIT_MOST_MS,
    WITH_DEVICES,
    Stage,
    refusal,
    wait_ms,
)
from shoal.crypto.secagg.shuffler.seating import Member, Seating
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.entropy import Entropy, shuffled
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode

SESSION_SIZE = 16  # bytes
POSITION_SIZE = 4  # bytes: in front of each bundle for the analyzer, where it came from
REQUEST_BYTES = 1 << 20  # of bundles in one UnmaskRound request
GUILTY = (
    "this device broke the round, by shares that do not open or by a false complaint: it has no "
    "seat in this window any more"
)


def open_request(terms: RoundTerms, nonce: bytes) -> pairwise_pb2.OpenRoundRequest:
    """What OpenRound is called with. ``nonce``: 32 random bytes of the shuffler, secret until
    StartRound. Raises INVALID.
    """
    return pairwise_pb2.OpenRoundRequest(
        task_id=terms.task_id.raw,
        window=terms.window,
        shuffler_commitment=records.nonce_commitment(nonce),
    )


def countersign(
    terms: RoundTerms, nonce: bytes, reply: pairwise_pb2.OpenRoundReply, signing_key: SigningKey
) -> pairwise_pb2.SignedOffer:
    """The offer with both signatures, once the analyzer's signature and every field have been
    checked.

    Raises BAD_SIGNATURE, INVALID, MISMATCH. An analyzer that hands back the shuffler's own
    commitment would reveal the shuffler's nonce as its own, without having chosen one: MISMATCH
    too.
    """
    verify(terms.analyzer_key, SigningContext.ROUND_OFFER, reply.offer, reply.analyzer_signature)
    offer = Offer.decode(reply.offer)
    own = records.nonce_commitment(nonce)
    expected = Offer(
        terms.task_id,
        terms.window,
        terms.analyzer_config.key_id,
        terms.schedule_hash,
        own,
        offer.analyzer_commitment,
    )
    if offer != expected or offer.analyzer_commitment == own:
        raise ShoalError(
            Kind.MISMATCH,
            "the analyzer offers another round than was asked for: compare task and key schedule "
            "of both",
        )
    return pairwise_pb2.SignedOffer(
        offer=reply.offer,
        shuffler_signature=signing_key.sign(SigningContext.ROUND_OFFER, reply.offer),
        analyzer_signature=reply.analyzer_signature,
    )


class Coordinator:
    """One round. Every method may be called again with the same bytes: the second call changes
    nothing.

    The driver calls ``tick`` at least about once a second and after every device's step, does what
    the effects say (each may be repeated until it is answered), and answers every step of a device
    with ``answer``. When it gives up it calls ``failed``: an analyzer that does not answer is the
    one thing that no deadline here ends. Times are Unix seconds. Steps of devices raise, with
    unchanged state: NOT_FOUND (unknown session), INVALID (malformed), FORBIDDEN (it broke the
    round), WINDOW_CLOSED (late, or not in the round any more), TOO_EARLY (before its phase),
    CONFLICT (contradicts what that seat sent before), ABORTED (the round has ended without a sum).
    """

    reason: Reason | None  # why it was aborted
    offer: pairwise_pb2.SignedOffer
    offer_id: Digest
    round_id: Digest | None  # from SHARE on
    blamed: tuple[int, ...]  # positions, once the analyzer has unmasked or given up
    # sessions that broke the round: of proven bad shares, or of a false complaint
    guilty: set[bytes]
    left: frozenset[bytes]  # at the end: sessions that took a seat and let a phase pass

    def __init__(
        self,
        terms: RoundTerms,
        offer: pairwise_pb2.SignedOffer,
        nonce: bytes,
        signing_key: SigningKey,
        entropy: Entropy,
        now: float,
    ) -> None:
        """``offer`` from ``countersign``. The join phase begins ``now``."""
        self.terms, self.offer = terms, offer
        self.offer_id = records.offer_id(offer.offer)
        self.reason, self.round_id, self.blamed, self.guilty, self.left = (
            None,
            None,
            (),
            set(),
            frozenset(),
        )
        self._nonce, self._key, self._entropy = nonce, signing_key, entropy
        self._analyzer_commitment = Offer.decode(offer.offer).analyzer_commitment
        self._seating = Seating(terms, self.offer_id)
        self._start = self._commit = pairwise_pb2.SignedRecord()
        self._rows: tuple[bytes, ...] = ()
        self._state, self._deadline = Stage.JOIN, now + terms.plan.join_s

    @property
    def phase(self) -> pairwise_pb2.Phase.ValueType:
        """As devices see it: JOIN, SHARE, MASK, ENDORSE, UNMASK, DONE, ABORTED."""
        return PHASE[self._state]

    @property
    def ended(self) -> bool:
        """DONE or ABORTED."""
        return self._state in (Stage.DONE, Stage.ABORTED)

    def deadline(self) -> float | None:
        """When the present phase is over at the latest; None while the analyzer is asked, and at
        the end.
        """
        return self._deadline if self._state in WITH_DEVICES else None

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

    # --- steps of devices -------------------------------------------------------------------------

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
            _same(held.join, join, "join")
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
            _same(member.shares, shares, "list of shares")
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
        dispute = self._seating.dispute(self._started_id, member, complaint.position)
        member.suspect = None if complaint.shared else complaint.position
        return dispute if complaint.shared else None

    def judged(self, session: bytes, dispute: Dispute, *, dealer_is_guilty: bool) -> bytes | None:
        """The verdict over a complaint of this seat: who is guilty loses its seat. Returns its
        session; None if it has lost it before.

        After the phase, or the round, nothing happens any more: others may have masked with the
        pads of who would go.
        """
        if self._state is not Stage.CHECK:
            return None
        loser = (
            self._seating.order[dispute.dealer]
            if dealer_is_guilty
            else self._seating.members[session]
        )
        if loser.shares is None:
            return None
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
            _same(self._member(session).upload, digest, "vector")

    def endorse(self, session: bytes, message: pairwise_pb2.Endorse, now: float) -> None:
        """Strict mode: the device's own signature over the commit. Raises BAD_SIGNATURE too."""
        member = self._member(session)
        if member.endorsement is not None:
            _same(member.endorsement, message.signature, "endorsement")
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
            _same(member.bundle, message.sealed, "bundle of shares")
            return
        self._must_be(Stage.UNMASK, now)
        self._has_part(member)
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
        member, state = self._known(session), self._state
        if state is Stage.ABORTED:
            return refusal(self._error)
        answer = pairwise_pb2.Answer(phase=self.phase)
        if state is Stage.DONE:
            return answer
        answer.wait_ms = wait_ms(session, self._state, self.terms.plan, self._deadline - now)
        answer.received = received if member.upload is None else self.terms.sealed_vector_bytes
        late = self._late(member)
        if session in self.guilty:
            answer.kind, answer.reason = Kind.FORBIDDEN.value, GUILTY
        elif late:
            answer.kind, answer.reason = Kind.WINDOW_CLOSED.value, late
        elif state is Stage.SHARE and member.shares is None:
            answer.started.CopyFrom(self._seating.started_for(member, self._start))
        elif state is Stage.CHECK and (dealt := self._seating.dealt_by(member.suspect)) is not None:
            answer.dealt.CopyFrom(dealt)
        elif (state is Stage.CHECK and not member.checked) or (
            state is Stage.MASK and member.upload is None
        ):
            answer.roster.CopyFrom(self._seating.roster_for(member))
        elif state is Stage.ENDORSE and member.endorsement is None:
            answer.commit.CopyFrom(self._commit)
        elif state is Stage.UNMASK and member.bundle is None:
            answer.commit.CopyFrom(self._commit)
            answer.endorsements.extend(self._seating.endorsements_for(member))
        return answer

    # --- time, and the analyzer's answers ---------------------------------------------------------

    def tick(self, now: float) -> list[Effect]:
        """Go on if the phase is complete or over. Returns what to do, once per change."""
        seats, plan, over = self._seating, self.terms.plan, now >= self._deadline
        match self._state:
            case Stage.JOIN if over or len(seats) >= plan.cohort_max:
                return (
                    self._ask_start()
                    if len(seats) >= plan.cohort_min
                    else self.failed(Reason.TOO_FEW_JOINED)
                )
            case Stage.SHARE if over or all(m.shares for m in seats):
                return self._with_who_shared(Stage.CHECK, now + plan.share_s)
            case Stage.CHECK if over or all(m.checked for m in seats if m.shares):
                for member in seats:
                    if not member.checked:
                        member.leave()
                return self._with_who_shared(Stage.MASK, now + plan.mask_s)
            case Stage.MASK if over or all(m.upload for m in seats if m.shares):
                return self._deliver()
            case Stage.ENDORSE if over or all(m.endorsement for m in seats if m.alive):
                if sum(m.endorsement is not None for m in seats) < seats.graph.threshold:
                    return self.failed(Reason.TOO_FEW_ENDORSED)
                self._enter(Stage.UNMASK, now + plan.unmask_s / 2)
            case Stage.UNMASK if over or all(m.bundle for m in seats if m.alive):
                return self._ask_unmask()
        return []

    def started(self, reply: pairwise_pb2.StartRoundReply, now: float) -> list[Effect]:
        """The analyzer's start, compared with the shuffler's own computation. A wrong one ends the
        round (DISAGREE).
        """
        if self._state is not Stage.STARTING:
            return []
        seats = self._seating.seats()
        try:
            verify(
                self.terms.analyzer_key,
                SigningContext.ROUND_START,
                reply.start,
                reply.analyzer_signature,
            )
            start = Start.decode(reply.start)
            list_hash = Digest.of(encode_seats(seats))
            ring = Ring(
                graph_seed(self.offer_id, list_hash, self._nonce, start.analyzer_nonce), seats
            )
            expected = Start(
                self.offer_id,
                len(seats),
                Digest(ring.root),
                self._nonce,
                start.analyzer_nonce,
                list_hash,
            )
            _require(start == expected, "the start is not of the round that was asked for")
            _require(
                records.nonce_commitment(start.analyzer_nonce) == self._analyzer_commitment,
                "the nonce is not that of the offer",
            )
        except ShoalError:
            return self.failed(Reason.DISAGREE)
        self._seating.lay(ring, self.terms.parameters(len(seats)))
        self.round_id = records.round_id(reply.start)
        self._start = self._signed(
            SigningContext.ROUND_START, reply.start, reply.analyzer_signature
        )
        self._enter(Stage.SHARE, now + self.terms.plan.share_s)
        return []

    def delivered(self, reply: pairwise_pb2.VectorsReply, now: float) -> list[Effect]:
        """Which rows the analyzer could not use: they count as lost. The commit is made of the
        rest, once.
        """
        if self._state is not Stage.DELIVERING or self.round_id is None:
            return []
        unusable = set(reply.unusable)
        if len(unusable) != len(reply.unusable) or not unusable <= set(range(len(self._rows))):
            return self.failed(Reason.DISAGREE)
        for member in self._seating:
            member.status = Status.NEVER_SHARED if member.shares is None else Status.DROPPED
        for index, session in enumerate(self._rows):
            if index not in unusable:
                self._seating.members[session].status = Status.ALIVE
        commit = Commit(self.round_id, self._seating.statuses)
        if commit.alive < self.terms.survivors(len(self._seating)):
            return self.failed(Reason.TOO_FEW_VECTORS)
        self._commit = self._signed(SigningContext.ROUND_COMMIT, commit.encode(), b"")
        self._enter(Stage.COMMITTING)
        request = pairwise_pb2.CommitRoundRequest(
            commit=self._commit.record,
            shuffler_signature=self._commit.shuffler_signature,
            left_out=sorted(unusable),
            commitments=self._seating.commitments,
        )
        return [AskCommit(request)]

    def committed(self, reply: pairwise_pb2.CommitRoundReply, now: float) -> list[Effect]:
        """The analyzer's signature over the commit. Devices see the commit from now on, and not
        before.
        """
        if self._state is not Stage.COMMITTING:
            return []
        try:
            verify(
                self.terms.analyzer_key,
                SigningContext.ROUND_COMMIT,
                self._commit.record,
                reply.analyzer_signature,
            )
        except ShoalError:
            return self.failed(Reason.DISAGREE)
        self._commit.analyzer_signature = reply.analyzer_signature
        plan = self.terms.plan
        # the plan has no time of its own for it: both halves together are unmask_s
        if plan.mode is Mode.STRICT:
            self._enter(Stage.ENDORSE, now + plan.unmask_s / 2)
        else:
            self._enter(Stage.UNMASK, now + plan.unmask_s)
        return []

    def unmasked(self, reply: pairwise_pb2.UnmaskRoundReply, now: float) -> list[Effect]:
        """The end: the sum is on the analyzer's disk, or why there is none."""
        if self._state is not Stage.SUMMING:
            return []
        self.blamed = tuple(
            sorted({position for position in reply.blamed if position < len(self._seating)})
        )
        if not reply.done and not reply.reason:
            return self.failed(Reason.DISAGREE)
        self.reason = None if reply.done else Reason.of(reply.reason)
        self._end(Stage.DONE if reply.done else Stage.ABORTED)
        return []

    def failed(self, reason: Reason) -> list[Effect]:
        """Give up: [End(reason)], or nothing if the round has ended already."""
        if self.ended:
            return []
        self.reason = reason
        self._end(Stage.ABORTED)
        return [End(reason)]

    # --- inside -----------------------------------------------------------------------------------

    def _enter(self, state: Stage, deadline: float = math.inf) -> None:
        self._state, self._deadline = state, deadline

    def _with_who_shared(self, state: Stage, deadline: float) -> list[Effect]:
        """Go on with them, if they are enough."""
        if sum(m.shares is not None for m in self._seating) < self.terms.survivors(
            len(self._seating)
        ):
            return self.failed(Reason.TOO_FEW_SHARED)
        self._enter(state, deadline)
        return []

    @property
    def _started_id(self) -> Digest:
        if self.round_id is None:
            raise ShoalError(
                Kind.TOO_EARLY, "the round has not begun: poll, and do what the answer says"
            )
        return self.round_id

    def _end(self, state: Stage) -> None:
        """Nothing of the round is kept but who had a seat, so that polls are answered, and who left
        it.
        """
        self.left = self._seating.unfinished(self._state, self.reason)
        self._enter(state)
        self._seating.clear()
        self._nonce, self._rows = b"", ()

    def _ask_start(self) -> list[Effect]:
        seats = self._seating.seats()
        try:
            self.terms.parameters(len(seats))
        except ShoalError:  # never for a task that passed lint: it looks at every cohort
            return self.failed(Reason.OTHER)
        self._enter(Stage.STARTING)
        return [
            AskStart(
                pairwise_pb2.StartRoundRequest(
                    offer_id=self.offer_id.raw,
                    shuffler_nonce=self._nonce,
                    seats=encode_seats(seats),
                )
            )
        ]

    def _deliver(self) -> list[Effect]:
        rows = [member.session for member in self._seating if member.upload is not None]
        if len(rows) < self.terms.survivors(len(self._seating)):
            return self.failed(Reason.TOO_FEW_VECTORS)
        self._rows = tuple(shuffled(rows, self._entropy))
        self._enter(Stage.DELIVERING)
        return [Deliver(self._rows)]

    def _ask_unmask(self) -> list[Effect]:
        answered = [
            m.position.to_bytes(POSITION_SIZE, "big") + m.bundle
            for m in self._seating
            if m.bundle is not None
        ]
        bundles = shuffled(answered, self._entropy)
        if len(bundles) < self._seating.graph.threshold or self.round_id is None:
            return self.failed(Reason.TOO_FEW_SHARES)
        self._enter(Stage.SUMMING)
        each = max(1, REQUEST_BYTES // len(bundles[0]))
        groups = [bundles[first : first + each] for first in range(0, len(bundles), each)]
        requests = [
            pairwise_pb2.UnmaskRoundRequest(round_id=self.round_id.raw, bundles=group)
            for group in groups
        ]
        requests[-1].last = True
        return [AskUnmask(tuple(requests))]

    def _signed(
        self, context: SigningContext, record: bytes, analyzer: bytes
    ) -> pairwise_pb2.SignedRecord:
        own = self._key.sign(context, record)
        return pairwise_pb2.SignedRecord(
            record=record, shuffler_signature=own, analyzer_signature=analyzer
        )

    def _takes_devices(self, now: float) -> bool:
        return (
            self._state is Stage.JOIN
            and now < self._deadline
            and len(self._seating) < self.terms.plan.cohort_max
        )

    @property
    def _error(self) -> ShoalError:
        return (self.reason or Reason.OTHER).error

    def _not_aborted(self) -> None:
        if self._state is Stage.ABORTED:
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

    def _must_be(self, state: Stage, now: float) -> None:
        if self._state.value < state.value:
            raise ShoalError(
                Kind.TOO_EARLY,
                "the round has not come to that step: poll, and do what the answer says",
            )
        if self._state is not state or now >= self._deadline:
            raise ShoalError(
                Kind.WINDOW_CLOSED,
                "too late for that step of the round: the device counts as lost in it",
            )

    def _has_part(self, member: Member) -> None:
        if member.session in self.guilty:
            raise ShoalError(Kind.FORBIDDEN, GUILTY)
        late = self._late(member)
        if late:
            raise ShoalError(Kind.WINDOW_CLOSED, late)

    def _late(self, member: Member) -> str:
        """Why this seat has no part in the present phase, or ""."""
        for since, came, what in (
            (
                Stage.CHECK,
                member.shares is not None,
                "shares, or its check of the others' shares, did not come in time",
            ),
            (Stage.DELIVERING, member.upload is not None, "vector did not come in time"),
            (Stage.ENDORSE, member.alive, "vector could not be opened by the analyzer"),
        ):
            if self._state.value >= since.value and not came:
                return f"this device's {what}: it counts as lost in the round"
        return ""


def _same(held: object, new: object, what: str) -> None:
    if held != new:
        raise ShoalError(
            Kind.CONFLICT,
            f"this seat sent another {what} before: send the same bytes again, never others",
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, message)

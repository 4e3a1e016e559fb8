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
from shoal.crypto.secagg.records import Commit, Offer, Reason, Status
from shoal.crypto.secagg.shuffler.analyzer_calls import (
    check_start,
    commit_request,
    positioned_bundles,
    start_request,
    unmask_requests,
)
from shoal.crypto.secagg.shuffler.device_steps import DeviceSteps
from shoal.crypto.secagg.shuffler.effects import (
    AskCommit,
    AskStart,
    AskUnmask,
    Deliver,
    Effect,
    End,
)
from shoal.crypto.secagg.shuffler.phases import Stage
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext, SigningKey, hasten, verify
from shoal.entropy import Entropy, shuffled
from shoal.errors import ShoalError
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode


class Coordinator(DeviceSteps):
    """One round: the steps of devices (``DeviceSteps``), the clock and the analyzer's answers.

    The driver calls ``tick`` at least about once a second and after every device's step, does what
    the effects say (each may be repeated until it is answered), and answers every step of a device
    with ``answer``. When it gives up it calls ``failed``: an analyzer that does not answer is the
    one thing that no deadline here ends. The analyzer's answers, too, may come twice: the second
    one changes nothing.
    """

    blamed: tuple[int, ...]  # positions, once the analyzer has unmasked or given up
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
        """``offer`` from ``opening.countersign``, ``nonce`` the 32 bytes that it commits to. The
        join phase begins ``now``, Unix seconds.
        """
        hasten()  # two signatures per device that joins will be verified
        super().__init__(terms, offer, now)
        self.blamed, self.left = (), frozenset()
        self._nonce, self._key, self._entropy = nonce, signing_key, entropy
        self._analyzer_commitment = Offer.decode(offer.offer).analyzer_commitment
        self._rows: tuple[bytes, ...] = ()

    def tick(self, now: float) -> list[Effect]:
        """Go on if the phase is complete or over. Returns what to do, once per change."""
        seats, plan, over = self._seating, self.terms.plan, now >= self._deadline
        match self._stage:
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
        if self._stage is not Stage.STARTING:
            return []
        seats = self._seating.seats()
        try:
            ring = check_start(
                self.terms, self.offer_id, self._nonce, self._analyzer_commitment, seats, reply
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
        if self._stage is not Stage.DELIVERING or self.round_id is None:
            return []
        unusable = set(reply.unusable)
        if len(unusable) != len(reply.unusable) or not unusable <= set(range(len(self._rows))):
            return self.failed(Reason.DISAGREE)
        # Three statuses, and each device exactly one: with two, both of its shares could be asked
        # for.
        for member in self._seating:
            member.status = Status.NEVER_SHARED if member.shares is None else Status.DROPPED
        for index, session in enumerate(self._rows):
            if index not in unusable:
                self._seating.members[session].status = Status.ALIVE
        commit = Commit(self.round_id, self._seating.statuses)
        # Too little noise would be in the sum: no device would endorse or unmask it anyway.
        if commit.alive < self.terms.survivors(len(self._seating)):
            return self.failed(Reason.TOO_FEW_VECTORS)
        self._commit = self._signed(SigningContext.ROUND_COMMIT, commit.encode(), b"")
        self._enter(Stage.COMMITTING)
        return [AskCommit(commit_request(self._commit, unusable, self._seating))]

    def committed(self, reply: pairwise_pb2.CommitRoundReply, now: float) -> list[Effect]:
        """The analyzer's signature over the commit. Devices see the commit from now on, and not
        before.
        """
        if self._stage is not Stage.COMMITTING:
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
        if self._stage is not Stage.SUMMING:
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

    def _enter(self, stage: Stage, deadline: float = math.inf) -> None:
        self._stage, self._deadline = stage, deadline

    def _with_who_shared(self, stage: Stage, deadline: float) -> list[Effect]:
        """Go on with them, if they are enough."""
        if sum(m.shares is not None for m in self._seating) < self.terms.survivors(
            len(self._seating)
        ):
            return self.failed(Reason.TOO_FEW_SHARED)
        self._enter(stage, deadline)
        return []

    def _end(self, stage: Stage) -> None:
        """Nothing of the round is kept but who had a seat, so that polls are answered, and who left
        it.
        """
        self.left = self._seating.unfinished(self._stage, self.reason)
        self._enter(stage)
        self._seating.clear()
        self._nonce, self._rows = b"", ()

    def _ask_start(self) -> list[Effect]:
        seats = self._seating.seats()
        try:
            self.terms.parameters(len(seats))
        except ShoalError:  # never for a task that passed lint: it looks at every cohort
            return self.failed(Reason.OTHER)
        self._enter(Stage.STARTING)
        return [AskStart(start_request(self.offer_id, self._nonce, seats))]

    def _deliver(self) -> list[Effect]:
        rows = [member.session for member in self._seating if member.upload is not None]
        if len(rows) < self.terms.survivors(len(self._seating)):
            return self.failed(Reason.TOO_FEW_VECTORS)
        # In the order of arrival, rows would tell the analyzer which vector is whose.
        self._rows = tuple(shuffled(rows, self._entropy))
        self._enter(Stage.DELIVERING)
        return [Deliver(self._rows)]

    def _ask_unmask(self) -> list[Effect]:
        bundles = positioned_bundles(self._seating, self._entropy)
        if len(bundles) < self._seating.graph.threshold or self.round_id is None:
            return self.failed(Reason.TOO_FEW_SHARES)
        self._enter(Stage.SUMMING)
        return [AskUnmask(unmask_requests(self.round_id, bundles))]

    def _signed(
        self, context: SigningContext, record: bytes, analyzer: bytes
    ) -> pairwise_pb2.SignedRecord:
        own = self._key.sign(context, record)
        return pairwise_pb2.SignedRecord(
            record=record, shuffler_signature=own, analyzer_signature=analyzer
        )

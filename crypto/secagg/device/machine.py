"""A device's part in one round of secure aggregation: join, share, check, mask, (endorse,) unmask.
No I/O but the ledger; no clock.

Every step checks everything that it is told before it answers, in a fixed order
(``checks``). A check that fails ends the round for good: ``state`` is ABORTED, ``reason``
says why in one line, every key is dropped and a ``ShoalError`` is raised. What the caller of this
class got wrong itself (a step out of order, a vector of a wrong shape) is raised too, but changes
nothing.

A step may be repeated: the same input gives the identical bytes again, kept in memory, however
often a network loses them. The same step with another input is a CONFLICT and ends the round: two
different vectors under the same pads would show their difference, and shares for two survivor sets
could open a single vector.

Shares are opened before anything is masked: a device that can't use what a neighbour dealt to it
says so while that neighbour can still be left out (``check``, ``complain``), and masks nothing
while its roster holds such a ciphertext.

What Python can wipe and what it cannot: keys are dropped as soon as they are not needed any more
(the private pad key when the shares are made, the private share key, pads and seed when the vector
is masked, the neighbours' shares when they are sent). OpenSSL overwrites the private keys that it
holds when their handles die. Python's own bytes are immutable: their memory is given back, not
overwritten, so that a core dump or swap taken later may still show it. Nothing of a round is ever
written to disk by this module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum, unique
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from google.protobuf.message import Message

from shoal.arrays import NDArray, np
from shoal.crypto import hpke
from shoal.crypto.admission.enrolment import DeviceIdentity, verify_certificate
from shoal.crypto.secagg import shares
from shoal.crypto.secagg.complaints import Dispute
from shoal.crypto.secagg.device import checks
from shoal.crypto.secagg.device.checks import OwnKeys
from shoal.crypto.secagg.device.dealing import deal, open_dealt
from shoal.crypto.secagg.device.ledger import RoundLedger
from shoal.crypto.secagg.device.masking import (
    held_shares,
    seal_masked,
    share_to_release,
)
from shoal.crypto.secagg.device.secrets import (
    AfterJoin,
    AfterMask,
    AfterShare,
    BeforeJoin,
    RoundSecret,
)
from shoal.crypto.secagg.exchange import shares_info
from shoal.crypto.secagg.terms import SESSION_SIZE, RoundTerms
from shoal.crypto.signing import SigningContext, hasten
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode


@unique
class DeviceState(Enum):
    """Where a device stands in its round. ENDORSED exists in strict mode alone."""

    NEW = "new"
    JOINED = "joined"
    SHARED = "shared"
    MASKED = "masked"
    ENDORSED = "endorsed"
    RELEASED = "released"
    ENDED = "ended"
    ABORTED = "aborted"


M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=RoundSecret)


class DeviceRound(RoundSecret):
    """One device's part in one round. Keys in memory only; never printed, pickled or copied. For
    one thread at a time.

    ``session``: 16 random bytes that name the seat; device and shuffler alone know them.
    ``charged``: True from the moment on when the ledger is asked to write MASKED; the window's
    privacy budget then counts as spent, whatever becomes of the round.
    """

    __slots__ = (
        "_answers",
        "_entropy",
        "_identity",
        "_known",
        "_terms",
        "charged",
        "reason",
        "round_id",
        "session",
        "state",
    )

    session: bytes
    state: DeviceState
    reason: str
    round_id: Digest | None
    charged: bool

    def __init__(
        self, terms: RoundTerms, identity: DeviceIdentity, entropy: Entropy = SYSTEM
    ) -> None:
        """Raises INVALID for a task in helper mode: it has no rounds."""
        if terms.plan.mode is Mode.HELPER:
            raise ShoalError(
                Kind.INVALID, "a task in helper mode has no rounds: send a single masked vector"
            )
        hasten()  # two signatures per neighbour will be verified
        self._terms = terms
        self._identity = identity
        self._entropy = entropy
        self._known: RoundSecret | None = BeforeJoin()
        # step -> hash of its input, what was answered
        self._answers: dict[str, tuple[bytes, bytes]] = {}
        self.session = entropy.bytes(SESSION_SIZE)
        self.state = DeviceState.NEW
        self.reason = ""
        self.round_id = None
        self.charged = False

    def __repr__(self) -> str:
        return f"<DeviceRound of window {self._terms.window}: {self.state.value}>"

    def join(self, offer: pairwise_pb2.SignedOffer, now: float) -> pairwise_pb2.Join:
        """NEW -> JOINED: two fresh X25519 keys, signed for this offer. ``now``: Unix seconds.

        Raises what ``checks.check_offer`` raises, and UNAUTHENTICATED if this device's own
        certificate is not valid now.
        """
        asked = _digest(offer.offer)
        if (repeated := self._answered("join", asked)) is not None:
            return pairwise_pb2.Join.FromString(repeated)
        self._expect("join", BeforeJoin)
        with self._guard():
            offered = checks.check_offer(self._terms, offer)
            verify_certificate(
                self._identity.certificate, self._terms.enrolment_key, now, remember=True
            )
            pad, share = (
                X25519PrivateKey.from_private_bytes(self._entropy.bytes(32)) for _ in range(2)
            )
            own = OwnKeys(
                self._identity.key.public,
                pad.public_key().public_bytes_raw(),
                share.public_key().public_bytes_raw(),
            )
            signed = checks.round_keys(offered.offer_id, own.pad_key, own.share_key)
            answer = pairwise_pb2.Join(
                offer_id=offered.offer_id.raw,
                certificate=self._identity.certificate,
                pad_key=own.pad_key,
                share_key=own.share_key,
                signature=self._identity.key.sign(SigningContext.ROUND_KEYS, signed),
            )
            return self._enter(
                DeviceState.JOINED, AfterJoin(offered, own, pad, share), "join", asked, answer
            )

    def share(self, started: pairwise_pb2.Started, now: float) -> pairwise_pb2.Shares:
        """JOINED -> SHARED: shares of the pad key and of the self mask's seed, one ciphertext per
        neighbour; ``round_id`` is set.

        Both agreements with every neighbour are made here, once, and the private pad key forgotten:
        a neighbour's key that does not work ends the round before anything is sent. All of it is
        signed: nobody can put bytes in this device's mouth. ``now``: Unix seconds. Raises what
        ``checks.check_started`` raises, and INVALID for an X25519 key of low order.
        """
        asked = _digest(started.SerializeToString(deterministic=True))
        if (repeated := self._answered("share", asked)) is not None:
            return pairwise_pb2.Shares.FromString(repeated)
        joined = self._expect("share", AfterJoin)
        with self._guard():
            circle = checks.check_started(self._terms, joined.offered, joined.own, started, now)
            known, answer = deal(joined, circle, self._identity, self._entropy)
            self.round_id = circle.round_id
            return self._enter(DeviceState.SHARED, known, "share", asked, answer)

    def check(self, roster: pairwise_pb2.Roster) -> pairwise_pb2.Check:
        """In SHARED: open what every neighbour dealt. An empty Check, or the first neighbour whose
        ciphertext is of no use.

        Nothing is revealed, and any roster may be looked at. Raises what
        ``checks.check_roster`` raises, and ABORTED if a neighbour is still there that
        evidence was given against: a shuffler that hears no complaint must not keep a device
        proving.
        """
        shared = self._expect("check", AfterShare)
        with self._guard():
            ciphertexts = checks.check_roster(shared.circle, roster)
            for key, ciphertext, peer in zip(
                shared.inbound, ciphertexts, shared.circle.peers, strict=True
            ):
                if ciphertext and open_dealt(key, ciphertext, shared.circle, peer.position) is None:
                    if peer.position in shared.accused:
                        raise ShoalError(
                            Kind.ABORTED,
                            "the shuffler keeps a neighbour whose shares do not open: the round is "
                            "given up",
                        )
                    self._known = replace(shared, suspect=(peer, ciphertext))
                    return pairwise_pb2.Check(
                        complaint=pairwise_pb2.Complaint(position=peer.position)
                    )
            return pairwise_pb2.Check()

    def complain(self, dealt: pairwise_pb2.Shares) -> pairwise_pb2.Check:
        """In SHARED, after ``check`` found a neighbour out: the evidence against it. ``dealt``:
        what it signed.

        The secret that this device and that neighbour share is given away, and a proof that it is
        that one: it opens the two ciphertexts between them and nothing else. So the neighbour must
        have signed the very bytes that did not open: BAD_SIGNATURE or CONFLICT otherwise, for then
        the shuffler put them there, and wants the share of an honest neighbour. Some 20 ms of CPU.
        """
        shared = self._expect("complain", AfterShare)
        with self._guard():
            if shared.suspect is None:
                raise ShoalError(
                    Kind.CONFLICT,
                    "the shuffler answers a complaint that this device did not make: the round is "
                    "given up",
                )
            (peer, ciphertext), circle = shared.suspect, shared.circle
            checks.check_dealt(circle, peer, ciphertext, dealt)
            dispute = Dispute(
                circle.round_id,
                peer.position,
                peer.share_key,
                circle.position,
                shared.own.share_key,
                ciphertext,
            )
            agreed, proof = dispute.prove(shared.share_private, self._entropy)
            self._known = replace(shared, suspect=None, accused=shared.accused | {peer.position})
            return pairwise_pb2.Check(
                complaint=pairwise_pb2.Complaint(position=peer.position, shared=agreed, proof=proof)
            )

    def mask(self, roster: pairwise_pb2.Roster, vector: NDArray[Any], ledger: RoundLedger) -> bytes:
        """SHARED -> MASKED. ``vector``: int64[d], the quantized vector plus this device's noise
        share, in grid steps; or its words (``words.narrow``), of a task with segments.

        The vector with its check words, masked and sealed for the analyzer:
        ``terms.sealed_vector_bytes`` bytes to upload. The ledger entry is durable before anything
        is returned; if the ledger refuses or fails, nothing is returned and the round is given up.
        INVALID for a vector of another shape or type (nothing changes). Otherwise raises what
        ``checks.check_roster`` and the ledger raise, and ABORTED, uncharged, if the roster
        holds a ciphertext that does not open.
        """
        if not self._terms.takes(vector):
            raise ShoalError(
                Kind.INVALID, f"a vector of this task is int64[{self._terms.dimension}]"
            )
        asked = _digest(
            roster.SerializeToString(deterministic=True), np.ascontiguousarray(vector).data
        )
        if (repeated := self._answered("mask", asked)) is not None:
            return repeated
        shared = self._expect("mask", AfterShare)
        circle = shared.circle
        with self._guard():
            ciphertexts = checks.check_roster(circle, roster)
            held = held_shares(shared, ciphertexts)
            sealed = seal_masked(self._terms, shared, ciphertexts, vector, self._entropy)
            self.charged = True
            ledger.masked(
                self._terms.task_id, self._terms.window, circle.round_id, Digest.of(sealed)
            )
            self._known = AfterMask(circle, tuple(map(bool, ciphertexts)), held)
            self.state = DeviceState.MASKED
            self._answers["mask"] = (asked, sealed)
            return sealed

    def endorse(self, commit: pairwise_pb2.SignedRecord) -> pairwise_pb2.Endorse:
        """MASKED -> ENDORSED, in strict mode alone (INVALID otherwise): this device's signature
        over the commit that it saw.

        Raises what ``checks.check_commit`` raises; CONFLICT for a second, different commit.
        """
        if self._terms.plan.mode is not Mode.STRICT:
            raise ShoalError(Kind.INVALID, "commits are endorsed in strict mode alone")
        asked = _digest(commit.record)
        if (repeated := self._answered("endorse", asked)) is not None:
            return pairwise_pb2.Endorse.FromString(repeated)
        after = self._expect("endorse", AfterMask)
        with self._guard():
            checked = checks.check_commit(self._terms, after.circle, after.shared, commit)
            answer = pairwise_pb2.Endorse(
                signature=self._identity.key.sign(SigningContext.ROUND_ENDORSE, commit.record)
            )
            return self._enter(
                DeviceState.ENDORSED,
                AfterMask(after.circle, after.shared, after.held, checked),
                "endorse",
                asked,
                answer,
            )

    def unmask(
        self,
        commit: pairwise_pb2.SignedRecord,
        endorsements: Sequence[pairwise_pb2.Endorsement],
        ledger: RoundLedger,
    ) -> pairwise_pb2.Unmask:
        """MASKED or ENDORSED -> RELEASED: of each neighbour one share or none, sealed for the
        analyzer.

        In the sum: of its self mask's seed. Shared, but not in the sum: of its pad key. Anything
        else, or no share held: none. Never both of one neighbour, and one commit per round: both
        together would open its vector. The ledger entry is durable before anything is returned.
        Outside strict mode ``endorsements`` are ignored; in strict mode a device that was too late
        to endorse the commit itself may act on the endorsements of its neighbours. Raises what
        ``checks.check_commit``, ``check_endorsements`` and the ledger raise; CONFLICT for a
        second, different commit.
        """
        asked = _digest(commit.record)
        strict = self._terms.plan.mode is Mode.STRICT
        if strict:
            self._answered("endorse", asked)
        if (repeated := self._answered("unmask", asked)) is not None:
            return pairwise_pb2.Unmask.FromString(repeated)
        after = self._expect("unmask", AfterMask)
        circle = after.circle
        with self._guard():
            checked = after.commit or checks.check_commit(self._terms, circle, after.shared, commit)
            if strict:
                checks.check_endorsements(circle, checked, commit.record, endorsements)
            items = [
                share_to_release(checked.statuses[peer.position], pair)
                for peer, pair in zip(circle.peers, after.held, strict=True)
            ]
            config = self._terms.analyzer_config
            bundle = shares.encode_bundle(circle.position, items)
            answer = pairwise_pb2.Unmask(
                sealed=hpke.seal(config, bundle, shares_info(circle.round_id, config.key_id))
            )
            ledger.released(self._terms.task_id, self._terms.window, circle.round_id, Digest(asked))
            return self._enter(DeviceState.RELEASED, None, "unmask", asked, answer)

    def end(self) -> None:
        """The round is over as far as this device is concerned: drop all keys and answers. After an
        abort: nothing.
        """
        self._close(DeviceState.ENDED, "")

    def abort(self, reason: str) -> None:
        """Give the round up (a deadline, a refusal, a shutdown): drop all keys and answers.

        The first reason stays; after end(): nothing.
        """
        self._close(DeviceState.ABORTED, reason)

    def _close(self, state: DeviceState, reason: str) -> None:
        self._known = None
        self._answers.clear()
        if self.state not in {DeviceState.ENDED, DeviceState.ABORTED}:
            self.state = state
            self.reason = reason

    def _answered(self, step: str, asked: bytes) -> bytes | None:
        """What was answered to this step before, if it asked the same. Aborts and raises CONFLICT
        if it asked something else.
        """
        before, repeated = self._answers.get(step, (asked, None))
        if before != asked:
            with self._guard():
                raise ShoalError(Kind.CONFLICT, _SECOND[step])
        return repeated

    def _expect(self, step: str, known: type[S]) -> S:
        """What is known before this step. Raises ABORTED or INTERNAL if it is not this step's turn;
        nothing changes.
        """
        if self.state is DeviceState.ABORTED:
            raise ShoalError(Kind.ABORTED, f"this round was given up: {self.reason}")
        if not isinstance(self._known, known):
            raise ShoalError(
                Kind.INTERNAL,
                f"the step {step} has no place where this device's round is {self.state.value}",
            )
        return self._known

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Whatever fails inside ends the round."""
        try:
            yield
        except ShoalError as error:
            self.abort(error.message)
            raise
        except BaseException:  # a bug, a full disk, an interrupt: nobody knows how far it came
            self.abort("something failed on the device")
            raise

    def _enter(
        self, state: DeviceState, known: RoundSecret | None, step: str, asked: bytes, answer: M
    ) -> M:
        self._known = known
        self.state = state
        self._answers[step] = (asked, answer.SerializeToString(deterministic=True))
        return answer


_SECOND = {
    "join": "a second, different offer for one round",
    "share": "a second, different start of one round: neighbours would differ",
    "mask": "a second vector or roster under the same pads: their difference would show",
    "endorse": "a second, different commit: two survivor sets",
    "unmask": "a second, different commit: two survivor sets",
}


def _digest(*parts: bytes | memoryview) -> bytes:
    state = hashlib.sha256()
    for part in parts:
        state.update(part)
    return state.digest()

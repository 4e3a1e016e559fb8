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
from dataclasses import dataclass, replace
from enum import Enum, unique
from typing import NoReturn, Protocol, TypeVar

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from google.protobuf.message import Message

from shoal.arrays import NDArray, np
from shoal.crypto import hpke
from shoal.crypto.admission.enrolment import DeviceIdentity, verify_certificate
from shoal.crypto.secagg import complaints, pads, shares, words
from shoal.crypto.secagg.complaints import Dispute
from shoal.crypto.secagg.device import checks
from shoal.crypto.secagg.device.checks import CheckedOffer, Circle, OwnKeys, Peer
from shoal.crypto.secagg.exchange import shares_info, vector_info
from shoal.crypto.secagg.primitives import shamir
from shoal.crypto.secagg.records import Commit, Status
from shoal.crypto.secagg.shares import Item, ShareKind, SharePair
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode

SESSION_SIZE = 16  # bytes


class RoundLedger(Protocol):
    """A device's durable memory of what it has answered. It outlives the round, the process and a
    power cut.
    """

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        """Write down that this window is answered in this round by the vector whose sealed bytes
        have this SHA-256.

        Durable on return. Raises CONFLICT if the window was answered already, in whatever round.
        """
        ...

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        """Write down that shares were given for the commit record with this SHA-256.

        Durable on return. Raises CONFLICT if another commit of this round was answered.
        """
        ...


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


class _Secret:
    """What is known between two steps. It never shows itself and never leaves the process."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a device's round holds one-time keys: it is not pickled or copied")


class _New(_Secret):
    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Joined(_Secret):
    offered: CheckedOffer
    own: OwnKeys
    pad: X25519PrivateKey
    share: X25519PrivateKey


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Shared(_Secret):
    """``pads``: one stream key and sign per neighbour; ``inbound``: the keys of the neighbours'
    ciphertexts; ``self_pad``: of b.

    ``suspect``: the neighbour whose ciphertext, beside it, does not open. ``accused``: positions
    that evidence was given against.
    """

    circle: Circle
    own: OwnKeys
    share: X25519PrivateKey
    pads: tuple[tuple[bytes, int], ...]
    inbound: tuple[bytes, ...]
    self_pad: bytes
    suspect: tuple[Peer, bytes] | None = None
    accused: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Masked(_Secret):
    """``shared``: who did, as the roster said; ``held``: the neighbours' shares, None of those who
    did not share.
    """

    circle: Circle
    shared: tuple[bool, ...]
    held: tuple[SharePair | None, ...]
    commit: Commit | None = None  # endorsed already


M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=_Secret)


class DeviceRound(_Secret):
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
        "_stage",
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
        self._terms = terms
        self._identity = identity
        self._entropy = entropy
        self._stage: _Secret | None = _New()
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
        if (said := self._said("join", asked)) is not None:
            return pairwise_pb2.Join.FromString(said)
        self._expect("join", _New)
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
                DeviceState.JOINED, _Joined(offered, own, pad, share), "join", asked, answer
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
        if (said := self._said("share", asked)) is not None:
            return pairwise_pb2.Shares.FromString(said)
        stage = self._expect("share", _Joined)
        with self._guard():
            circle = checks.check_started(self._terms, stage.offered, stage.own, started, now)
            seed = self._entropy.bytes(32)
            points = [peer.position + 1 for peer in circle.peers]
            b = shamir.split(seed, circle.threshold, points, self._entropy)
            s = shamir.split(stage.pad.private_bytes_raw(), circle.threshold, points, self._entropy)
            streams, inbound, ciphertexts = [], [], []
            for peer, *pair in zip(circle.peers, b, s, strict=True):
                agreed = pads.agree(stage.pad, peer.pad_key)
                stream = pads.pair_stream_key(
                    agreed, circle.round_id, stage.own.pad_key, peer.pad_key
                )
                streams.append((stream, pads.sign_of(stage.own.pad_key, peer.pad_key)))
                agreed = pads.agree(stage.share, peer.share_key)
                outbound = shares.share_key(
                    agreed, circle.round_id, stage.own.share_key, peer.share_key
                )
                inbound.append(
                    shares.share_key(agreed, circle.round_id, peer.share_key, stage.own.share_key)
                )
                ciphertexts.append(
                    shares.seal_shares(
                        outbound, SharePair(*pair), circle.round_id, circle.position, peer.position
                    )
                )
            dealt, promise = (
                b"".join(ciphertexts),
                shares.commitment(circle.round_id, stage.own.pad_key, seed),
            )
            signed = complaints.dealt_bytes(circle.round_id, circle.position, promise, dealt)
            signature = self._identity.key.sign(SigningContext.ROUND_SHARES, signed)
            answer = pairwise_pb2.Shares(ciphertexts=dealt, commitment=promise, signature=signature)
            self_pad = pads.self_stream_key(seed, circle.round_id, stage.own.pad_key)
            self.round_id = circle.round_id
            shared = _Shared(
                circle, stage.own, stage.share, tuple(streams), tuple(inbound), self_pad
            )
            return self._enter(DeviceState.SHARED, shared, "share", asked, answer)

    def check(self, roster: pairwise_pb2.Roster) -> pairwise_pb2.Check:
        """In SHARED: open what every neighbour dealt. An empty Check, or the first neighbour whose
        ciphertext is of no use.

        Nothing is revealed, and any roster may be looked at. Raises what
        ``checks.check_roster`` raises, and ABORTED if a neighbour is still there that
        evidence was given against: a shuffler that hears no complaint must not keep a device
        proving.
        """
        stage = self._expect("check", _Shared)
        with self._guard():
            ciphertexts = checks.check_roster(stage.circle, roster)
            for key, ciphertext, peer in zip(
                stage.inbound, ciphertexts, stage.circle.peers, strict=True
            ):
                if ciphertext and _open(key, ciphertext, stage.circle, peer.position) is None:
                    if peer.position in stage.accused:
                        raise ShoalError(
                            Kind.ABORTED,
                            "the shuffler keeps a neighbour whose shares do not open: the round is "
                            "given up",
                        )
                    self._stage = replace(stage, suspect=(peer, ciphertext))
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
        stage = self._expect("complain", _Shared)
        with self._guard():
            if stage.suspect is None:
                raise ShoalError(
                    Kind.CONFLICT,
                    "the shuffler answers a complaint that this device did not make: the round is "
                    "given up",
                )
            (peer, ciphertext), circle = stage.suspect, stage.circle
            checks.check_dealt(circle, peer, ciphertext, dealt)
            dispute = Dispute(
                circle.round_id,
                peer.position,
                peer.share_key,
                circle.position,
                stage.own.share_key,
                ciphertext,
            )
            shared, proof = dispute.prove(stage.share, self._entropy)
            self._stage = replace(stage, suspect=None, accused=stage.accused | {peer.position})
            return pairwise_pb2.Check(
                complaint=pairwise_pb2.Complaint(position=peer.position, shared=shared, proof=proof)
            )

    def mask(
        self, roster: pairwise_pb2.Roster, vector: NDArray[np.int64], ledger: RoundLedger
    ) -> bytes:
        """SHARED -> MASKED. ``vector``: int64[d], the quantized vector plus this device's noise
        share, in grid steps.

        The vector with its check words, masked and sealed for the analyzer:
        ``terms.sealed_vector_bytes`` bytes to upload. The ledger entry is durable before anything
        is returned; if the ledger refuses or fails, nothing is returned and the round is given up.
        INVALID for a vector of another shape or type (nothing changes). Otherwise raises what
        ``checks.check_roster`` and the ledger raise, and ABORTED, uncharged, if the roster
        holds a ciphertext that does not open.
        """
        if vector.dtype != np.int64 or vector.shape != (self._terms.dimension,):
            raise ShoalError(
                Kind.INVALID, f"a vector of this task is int64[{self._terms.dimension}]"
            )
        asked = _digest(
            roster.SerializeToString(deterministic=True), np.ascontiguousarray(vector).data
        )
        if (said := self._said("mask", asked)) is not None:
            return said
        stage = self._expect("mask", _Shared)
        circle, bits = stage.circle, self._terms.plan.word_bits
        masked = words.append_checks(vector, words.check_constants(circle.round_id.raw, bits), bits)
        with self._guard():
            ciphertexts = checks.check_roster(circle, roster)
            held = tuple(
                _open(key, ciphertext, circle, peer.position) if ciphertext else None
                for key, ciphertext, peer in zip(
                    stage.inbound, ciphertexts, circle.peers, strict=True
                )
            )
            if any(
                ciphertext and pair is None
                for ciphertext, pair in zip(ciphertexts, held, strict=True)
            ):
                raise ShoalError(
                    Kind.ABORTED,
                    "what a neighbour shared does not open: the round is given up, and nothing was "
                    "sent",
                )
            pads.apply(masked, stage.self_pad, 1)
            for (stream, sign), ciphertext in zip(stage.pads, ciphertexts, strict=True):
                if ciphertext:
                    pads.apply(masked, stream, sign)
            config = self._terms.analyzer_config
            sealed = hpke.seal(
                config, masked.tobytes(), vector_info(circle.round_id, config.key_id)
            )
            self.charged = True
            ledger.masked(
                self._terms.task_id, self._terms.window, circle.round_id, Digest.of(sealed)
            )
            self._stage = _Masked(circle, tuple(map(bool, ciphertexts)), held)
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
        if (said := self._said("endorse", asked)) is not None:
            return pairwise_pb2.Endorse.FromString(said)
        stage = self._expect("endorse", _Masked)
        with self._guard():
            checked = checks.check_commit(self._terms, stage.circle, stage.shared, commit)
            answer = pairwise_pb2.Endorse(
                signature=self._identity.key.sign(SigningContext.ROUND_ENDORSE, commit.record)
            )
            return self._enter(
                DeviceState.ENDORSED,
                _Masked(stage.circle, stage.shared, stage.held, checked),
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
            self._said("endorse", asked)
        if (said := self._said("unmask", asked)) is not None:
            return pairwise_pb2.Unmask.FromString(said)
        stage = self._expect("unmask", _Masked)
        circle = stage.circle
        with self._guard():
            checked = stage.commit or checks.check_commit(self._terms, circle, stage.shared, commit)
            if strict:
                checks.check_endorsements(circle, checked, commit.record, endorsements)
            items = [
                _release(checked.statuses[peer.position], pair)
                for peer, pair in zip(circle.peers, stage.held, strict=True)
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
        self._stage = None
        self._answers.clear()
        if self.state not in {DeviceState.ENDED, DeviceState.ABORTED}:
            self.state = state
            self.reason = reason

    def _said(self, step: str, asked: bytes) -> bytes | None:
        """What was answered to this step before, if it asked the same. Aborts and raises CONFLICT
        if it asked something else.
        """
        before, said = self._answers.get(step, (asked, None))
        if before != asked:
            with self._guard():
                raise ShoalError(Kind.CONFLICT, _SECOND[step])
        return said

    def _expect(self, step: str, stage: type[S]) -> S:
        """What is known before this step. Raises ABORTED or INTERNAL if it is not this step's turn;
        nothing changes.
        """
        if self.state is DeviceState.ABORTED:
            raise ShoalError(Kind.ABORTED, f"this round was given up: {self.reason}")
        if not isinstance(self._stage, stage):
            raise ShoalError(
                Kind.INTERNAL,
                f"the step {step} has no place where this device's round is {self.state.value}",
            )
        return self._stage

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
        self, state: DeviceState, stage: _Secret | None, step: str, asked: bytes, answer: M
    ) -> M:
        self._stage = stage
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


def _open(key: bytes, ciphertext: bytes, circle: Circle, sender: int) -> SharePair | None:
    """The neighbour's shares; None if they do not open, or are none."""
    try:
        return shares.open_shares(key, ciphertext, circle.round_id, sender, circle.position)
    except ShoalError:
        return None


def _release(status: int, pair: SharePair | None) -> Item:
    """The one share of a neighbour that its status allows."""
    if pair is None or status == Status.NEVER_SHARED:
        return ShareKind.NONE, b""
    return (ShareKind.SELF_SEED, pair.b) if status == Status.ALIVE else (ShareKind.PAD_KEY, pair.s)

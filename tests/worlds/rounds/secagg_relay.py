"""An honest shuffler and analyzer for tests of a single device's machine: they lay the ring, relay,
sign whatever a test wants signed, and take a sum apart naively. Real coordinators and collectors
are tested elsewhere; here nothing refuses anything, so that a device meets every forgery that two
corrupt servers could make.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from shoal.clients.memory import rounds_ledger
from shoal.crypto.admission.enrolment import DeviceCertificate, DeviceIdentity, issue
from shoal.crypto.hpke import HpkePrivateKey, open_sealed
from shoal.crypto.secagg import pads, words
from shoal.crypto.secagg.device.machine import DeviceRound, DeviceState
from shoal.crypto.secagg.exchange import shares_info, vector_info
from shoal.crypto.secagg.parameters import GraphParameters
from shoal.crypto.secagg.primitives import merkle, shamir
from shoal.crypto.secagg.records import (
    Commit,
    Offer,
    Start,
    Status,
    nonce_commitment,
    offer_id,
    round_id,
)
from shoal.crypto.secagg.ring import Seat, graph_seed, neighbour_positions, seat_of, tag
from shoal.crypto.secagg.shares import CIPHERTEXT_SIZE, ShareBundle, ShareKind, decode_bundle
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext, SigningKey
from shoal.crypto.suites import SuiteId
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.protos import pairwise_pb2
from shoal.secagg import Mode, PairwisePlan

NOW = 1_800_000_000.0
DIMENSION = 5


class MemoryLedger(rounds_ledger.MemoryLedger):
    """The device's own, and what was written, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[str, TaskId, int, Digest, Digest]] = []

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        super().masked(task_id, window, round_id, sealed)
        self.entries.append(("masked", task_id, window, round_id, sealed))

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        super().released(task_id, window, round_id, commit)
        self.entries.append(("released", task_id, window, round_id, commit))


@dataclass(frozen=True, slots=True)
class FixedGraph(RoundTerms):
    """Terms with neighbours and threshold set by the test: small rings that are not complete, which
    no real plan has.
    """

    graph: GraphParameters = field(kw_only=True)

    def parameters(self, devices: int) -> GraphParameters:
        return self.graph


def signing_key(name: str) -> SigningKey:
    return SigningKey(
        Ed25519PrivateKey.from_private_bytes(SeededEntropy(f"signing {name}").bytes(32))
    )


def analyzer_key() -> HpkePrivateKey:
    return HpkePrivateKey(SuiteId.X25519_AES128, SeededEntropy("analyzer").bytes(32))


def identity(
    name: object, root: SigningKey | None = None, until: float = NOW + 1000
) -> DeviceIdentity:
    key = signing_key(f"device {name}")
    return DeviceIdentity(
        key, issue(root or signing_key("root"), key.public, int(NOW - 1000), int(until))
    )


def make_terms(
    n: int,
    *,
    graph: GraphParameters | None = None,
    mode: Mode = Mode.DEFAULT,
    dimension: int = DIMENSION,
    bits: int = 32,
    lost: int = 0,
) -> RoundTerms:
    """For rounds of exactly ``n`` devices, of which ``lost`` may drop out."""
    plan = PairwisePlan(
        mode=mode,
        cohort_min=n,
        cohort_max=n,
        survivors_min=max(2, n - lost),
        dropout_ppm=-(-lost * 1_000_000 // n),
        word_bits=bits,
    )
    terms = RoundTerms(
        task_id=TaskId(bytes([7]) * 32),
        window=3,
        plan=plan,
        honest_fraction_ppm=900_000,
        dimension=dimension,
        shuffler_key=signing_key("shuffler").public,
        analyzer_key=signing_key("analyzer").public,
        enrolment_key=signing_key("root").public,
        analyzer_config=analyzer_key().config,
        schedule_hash=Digest(bytes([9]) * 32),
    )
    if graph is None:
        return terms
    named = {name: getattr(terms, name) for name in RoundTerms.__slots__}
    return FixedGraph(**named, graph=graph)


SPARSE = GraphParameters(neighbours=4, threshold=2, complete=False)


class AnyRing:
    """Seats in whatever order, even one that no honest server would sign, and its proofs."""

    def __init__(self, order: Sequence[Seat]) -> None:
        self.order = tuple(order)
        self._tree = merkle.Tree([one.leaf for one in order])
        self.root = self._tree.root

    def proof(self, position: int, k: int) -> list[bytes]:
        n = len(self.order)
        return self._tree.range_proof(*((0, n) if k >= n - 1 else ((position - k // 2) % n, k + 1)))


class Relay:
    """Shuffler and analyzer of one round, with ``n`` devices that take part honestly. Devices are
    named by position once it has begun.
    """

    def __init__(self, terms: RoundTerms, n: int, seed: object = 0) -> None:
        self.terms = terms
        self.entropy = SeededEntropy(f"relay {seed}")
        self.nonces = (self.entropy.bytes(32), self.entropy.bytes(32))
        self.commitments = (nonce_commitment(self.nonces[0]), nonce_commitment(self.nonces[1]))
        self.devices = [
            DeviceRound(terms, identity(i), SeededEntropy(f"device {seed} {i}")) for i in range(n)
        ]
        self.ledgers = [MemoryLedger() for _ in range(n)]
        self.joins: list[pairwise_pb2.Join] = []
        self.shared: dict[int, pairwise_pb2.Shares] = {}
        self.sealed: dict[int, bytes] = {}
        self.vectors: dict[int, NDArray[np.int64]] = {}

    # --- records ----------------------------------------------------------------------------------

    def offer_record(self) -> Offer:
        terms = self.terms
        return Offer(
            terms.task_id,
            terms.window,
            terms.analyzer_config.key_id,
            terms.schedule_hash,
            *self.commitments,
        )

    def offer(self, record: Offer | None = None) -> pairwise_pb2.SignedOffer:
        data = (record or self.offer_record()).encode()
        signed = sign(SigningContext.ROUND_OFFER, data)
        return pairwise_pb2.SignedOffer(
            offer=data,
            shuffler_signature=signed.shuffler_signature,
            analyzer_signature=signed.analyzer_signature,
        )

    @property
    def offer_id(self) -> Digest:
        return offer_id(self.offer_record().encode())

    def seat(self, join: pairwise_pb2.Join) -> Seat:
        return Seat(seat_of(self.offer_id, device_key(join)), join.pad_key, join.share_key)

    def lay(self, joins: Sequence[pairwise_pb2.Join], order: Sequence[int] | None = None) -> None:
        """The ring of these joins (of the devices, in their order), by tags, or in the ``order``
        that a corrupt server likes.
        """
        seats = [self.seat(join) for join in joins]
        list_hash = Digest.of(b"".join(sorted(one.leaf for one in seats)))
        seed = graph_seed(self.offer_id, list_hash, *self.nonces)
        if order is None:
            order = sorted(range(len(seats)), key=lambda i: tag(seed, seats[i].seat))
        self.ring = AnyRing([seats[i] for i in order])
        self.joins = [joins[i] for i in order]
        self.devices = [self.devices[i] for i in order]
        self.start_record = Start(
            self.offer_id, len(seats), Digest(self.ring.root), *self.nonces, list_hash
        )

    def started(self, position: int, record: Start | None = None) -> pairwise_pb2.Started:
        k = self.terms.parameters(len(self.joins)).neighbours
        return pairwise_pb2.Started(
            start=sign(SigningContext.ROUND_START, (record or self.start_record).encode()),
            position=position,
            neighbours=[neighbour(self.joins[p]) for p in self.peers(position)],
            proof=self.ring.proof(position, k),
        )

    def roster(self, position: int) -> pairwise_pb2.Roster:
        return pairwise_pb2.Roster(
            ciphertexts=[self.ciphertext(p, position) for p in self.peers(position)]
        )

    def ciphertext(self, sender: int, receiver: int) -> bytes:
        if sender not in self.shared:
            return b""
        start = self.peers(sender).index(receiver) * CIPHERTEXT_SIZE
        return self.shared[sender].ciphertexts[start : start + CIPHERTEXT_SIZE]

    def peers(self, position: int) -> tuple[int, ...]:
        n = len(self.joins)
        return neighbour_positions(n, self.terms.parameters(n).neighbours, position)

    @property
    def round_id(self) -> Digest:
        return round_id(self.start_record.encode())

    def statuses(self) -> bytes:
        """As an honest shuffler and analyzer see them."""
        return bytes(
            Status.NEVER_SHARED
            if p not in self.shared
            else Status.ALIVE
            if p in self.sealed
            else Status.DROPPED
            for p in range(len(self.joins))
        )

    def commit(self, statuses: bytes | None = None) -> pairwise_pb2.SignedRecord:
        data = Commit(self.round_id, self.statuses() if statuses is None else statuses).encode()
        return sign(SigningContext.ROUND_COMMIT, data)

    def endorsements(
        self, position: int, commit: pairwise_pb2.SignedRecord
    ) -> list[pairwise_pb2.Endorsement]:
        return [
            pairwise_pb2.Endorsement(
                position=p, signature=self.devices[p].endorse(commit).signature
            )
            for p in self.peers(position)
            if p in self.sealed
        ]

    # --- steps of everybody -----------------------------------------------------------------------

    def join(self) -> None:
        """Everybody has joined and the ring is laid: devices are named by position from here on."""
        self.lay([device.join(self.offer(), NOW) for device in self.devices])

    def share(self, without: Collection[int] = ()) -> None:
        """Everybody has shared but those without, who are lost."""
        self.join()
        self.shared = {
            p: device.share(self.started(p), NOW)
            for p, device in enumerate(self.devices)
            if p not in without
        }

    def mask(self, without: Collection[int] = (), never: Collection[int] = ()) -> None:
        """Everybody has masked but those without, who shared, and those who never did."""
        self.share(without=never)
        for position in self.shared:
            if position not in without:
                self.sealed[position] = self.mask_one(position)

    def mask_one(self, position: int) -> bytes:
        self.vectors[position] = vector_of(position, self.terms.dimension)
        return self.devices[position].mask(
            self.roster(position), self.vectors[position], self.ledgers[position]
        )

    def unmask(self, without: Collection[int] = ()) -> dict[int, bytes]:
        """Sealed bundles of everybody who is in the sum but those without."""
        commit = self.commit()
        strict = self.terms.plan.mode is Mode.STRICT
        if strict:
            for p in self.sealed:
                self.devices[p].endorse(commit)
        bundles = {}
        for p in self.sealed:
            if p not in without:
                endorsements = self.endorsements(p, commit) if strict else []
                bundles[p] = self.devices[p].unmask(commit, endorsements, self.ledgers[p]).sealed
        return bundles

    # --- at the analyzer --------------------------------------------------------------------------

    def open_bundle(self, position: int, sealed: bytes) -> ShareBundle:
        info = shares_info(self.round_id, self.terms.analyzer_config.key_id)
        return decode_bundle(open_sealed(analyzer_key(), sealed, info), len(self.peers(position)))

    def open_vector(self, sealed: bytes) -> NDArray[np.unsignedinteger]:
        info = vector_info(self.round_id, self.terms.analyzer_config.key_id)
        return np.frombuffer(
            open_sealed(analyzer_key(), sealed, info), pads.WORD[self.terms.plan.word_bits]
        ).copy()

    def sum(self, bundles: dict[int, bytes]) -> NDArray[np.int64]:
        """The sum of the vectors in the commit, from scratch. Raises INVALID if the check words are
        wrong.
        """
        total = np.sum(
            [self.open_vector(row) for row in self.sealed.values()],
            axis=0,
            dtype=pads.WORD[self.terms.plan.word_bits],
        )
        threshold = self.terms.parameters(len(self.joins)).threshold
        held: dict[tuple[int, ShareKind], dict[int, bytes]] = {}
        for position, sealed in bundles.items():
            for peer, (kind, share) in zip(
                self.peers(position), self.open_bundle(position, sealed).items, strict=True
            ):
                held.setdefault((peer, kind), {})[position + 1] = share
        for position in self.shared:
            kind = ShareKind.SELF_SEED if position in self.sealed else ShareKind.PAD_KEY
            found = held[position, kind]
            secret = shamir.combine(dict(sorted(found.items())[:threshold]))
            own = self.joins[position].pad_key
            if kind is ShareKind.SELF_SEED:
                pads.apply(total, pads.self_stream_key(secret, self.round_id, own), -1)
                continue
            private = X25519PrivateKey.from_private_bytes(secret)
            for peer in self.peers(position):
                if peer in self.sealed:
                    other = self.joins[peer].pad_key
                    stream = pads.pair_stream_key(
                        pads.agree(private, other), self.round_id, own, other
                    )
                    pads.apply(total, stream, -pads.sign_of(other, own))
        constants = words.check_constants(self.round_id.raw, self.terms.plan.word_bits)
        if not words.verify_checks(total, len(self.sealed), constants):
            raise ShoalError(Kind.INVALID, "the sum does not check")
        return words.decode_signed(total[: self.terms.dimension])

    def expected(self) -> NDArray[np.int64]:
        return np.array(sum(self.vectors[p] for p in self.sealed), np.int64)


def sign(context: SigningContext, data: bytes) -> pairwise_pb2.SignedRecord:
    """Both signatures, over whatever it is."""
    return pairwise_pb2.SignedRecord(
        record=data,
        shuffler_signature=signing_key("shuffler").sign(context, data),
        analyzer_signature=signing_key("analyzer").sign(context, data),
    )


def neighbour(join: pairwise_pb2.Join) -> pairwise_pb2.Neighbour:
    return pairwise_pb2.Neighbour(
        certificate=join.certificate,
        pad_key=join.pad_key,
        share_key=join.share_key,
        signature=join.signature,
    )


def device_key(join: pairwise_pb2.Join) -> bytes:
    return DeviceCertificate.decode(
        pairwise_pb2.SignedCertificate.FromString(join.certificate).certificate
    ).device_key


def vector_of(position: int, dimension: int) -> NDArray[np.int64]:
    values: NDArray[np.int64] = (
        np.arange(dimension, dtype=np.int64) * 31 + position * 1009
    ) % 501 - 250
    return values


def one_time_key(name: object) -> bytes:
    return (
        X25519PrivateKey.from_private_bytes(SeededEntropy(f"key {name}").bytes(32))
        .public_key()
        .public_bytes_raw()
    )


def make_join(
    offer: Digest,
    name: object,
    *,
    who: DeviceIdentity | None = None,
    pad_key: bytes = b"",
    share_key: bytes = b"",
    signature: bytes = b"",
) -> pairwise_pb2.Join:
    """A join as a device would send it, or with any part forged."""
    who = who or identity(name)
    pad_key, share_key = (
        pad_key or one_time_key(f"pad {name}"),
        share_key or one_time_key(f"share {name}"),
    )
    return pairwise_pb2.Join(
        offer_id=offer.raw,
        certificate=who.certificate,
        pad_key=pad_key,
        share_key=share_key,
        signature=signature
        or who.key.sign(SigningContext.ROUND_KEYS, offer.raw + pad_key + share_key),
    )


def refused(kind: Kind, step: Callable[..., object], *given: object, text: str = "") -> None:
    """The device's step is refused for good: typed error, state ABORTED with the same line, no
    keys, and no further step.
    """
    device = getattr(step, "__self__", None)
    assert isinstance(device, DeviceRound)
    with pytest.raises(ShoalError) as error:
        step(*given)
    assert (error.value.kind, text in error.value.message) == (kind, True), error.value.message
    assert device.state is DeviceState.ABORTED
    assert device.reason == error.value.message
    assert "\n" not in device.reason
    assert not list(reachable(device))
    with pytest.raises(ShoalError) as again:
        step(*given)
    assert again.value.kind is Kind.ABORTED


def reachable(device: DeviceRound) -> Iterator[object]:
    """Every bytes object and private key that the device holds, beyond its terms and identity and
    its session.
    """
    waiting: list[object] = [device._known, device._answers]
    while waiting:
        one = waiting.pop()
        if isinstance(one, bytes | X25519PrivateKey):
            yield one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, tuple | list):
            waiting += one
        else:
            slots = {name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())}
            waiting += [getattr(one, name) for name in slots if hasattr(one, name)]

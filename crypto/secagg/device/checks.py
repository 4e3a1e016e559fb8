"""What a device checks before it takes the next step of a round. Pure: records in, facts or a
ShoalError out; no keys, no state.

Shuffler and analyzer are not trusted here: they may sign whatever they like. Each function lists
its checks in the order in which they are made; cheap ones come first, so that a forged record costs
little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.crypto.admission.enrolment import verify_certificate
from shoal.crypto.secagg import ring
from shoal.crypto.secagg.complaints import dealt_bytes
from shoal.crypto.secagg.records import (
    Commit,
    Offer,
    Start,
    Status,
    nonce_commitment,
    offer_id,
    round_id,
    verify_both,
)
from shoal.crypto.secagg.ring import Seat
from shoal.crypto.secagg.shares import CIPHERTEXT_SIZE
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext, is_signed, verify
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2


@dataclass(frozen=True, slots=True)
class CheckedOffer:
    """An offer that was checked, and its id."""

    offer: Offer
    offer_id: Digest


@dataclass(frozen=True, slots=True)
class OwnKeys:
    """A device's public keys in one round: its Ed25519 identity and two X25519 keys, 32 bytes
    each.
    """

    device_key: bytes
    pad_key: bytes
    share_key: bytes


@dataclass(frozen=True, slots=True)
class Peer:
    """A neighbour whose certificate, signature and place on the ring were checked."""

    position: int
    device_key: bytes
    pad_key: bytes
    share_key: bytes


@dataclass(frozen=True, slots=True)
class Circle:
    """A device's place in a round and the neighbours that shuffler and analyzer could not choose,
    in ring order of the arc.
    """

    round_id: Digest
    devices: int
    position: int
    threshold: int
    peers: tuple[Peer, ...]


def round_keys(offer: Digest, pad_key: bytes, share_key: bytes) -> bytes:
    """What a device signs when it joins (context ROUND_KEYS): its keys of this round and no other.
    96 bytes.
    """
    return offer.raw + pad_key + share_key


def check_offer(terms: RoundTerms, signed: pairwise_pb2.SignedOffer) -> CheckedOffer:
    """Both signatures (BAD_SIGNATURE); well-formed (INVALID); this task, window, analyzer key and
    schedule (MISMATCH).
    """
    _verify_both(
        terms,
        SigningContext.ROUND_OFFER,
        signed.offer,
        signed.shuffler_signature,
        signed.analyzer_signature,
    )
    offer = Offer.decode(signed.offer)
    # Signed by both, so an offer of another task is a real one: replayed, its keys are the wrong
    # ones.
    _match(offer.task_id == terms.task_id, "the offer is for another task")
    _match(offer.window == terms.window, "the offer is for another window")
    _match(
        # Another key would open the vectors for somebody else, or in another window.
        offer.analyzer_key_id == terms.analyzer_config.key_id,
        "the offer names another analyzer key than the task's schedule",
    )
    _match(
        # Two schedules for one task: devices could be told apart by the key that they use.
        offer.schedule_hash == terms.schedule_hash,
        "the offer rests on another key schedule: fetch the schedule again",
    )
    return CheckedOffer(offer, offer_id(signed.offer))


def check_started(
    terms: RoundTerms,
    offered: CheckedOffer,
    own: OwnKeys,
    started: pairwise_pb2.Started,
    now: float,
) -> Circle:
    """Where the round puts this device, and who its neighbours are.

    In this order: both signatures (BAD_SIGNATURE); well-formed (INVALID); the offer that was
    joined, and the nonces that it committed to (MISMATCH); so many devices as the plan allows
    (MISMATCH); graph parameters, computed here (INVALID if nothing fits); number of neighbours
    (MISMATCH); a position on the ring (INVALID); every certificate, valid at ``now``
    (UNAUTHENTICATED); the seats that follow from them, with this device's own in its place, rise
    along the arc and lead to the ring's root, and no device or key, its own included, is there
    twice (INVALID, BAD_SIGNATURE: ``ring.verify_arc``); every neighbour's signature over its keys
    (BAD_SIGNATURE). Whether the keys are points that give a secret, in their one spelling, is found
    out when they are used (``pads.agree``).
    """
    record = started.start
    _verify_both(
        terms,
        SigningContext.ROUND_START,
        record.record,
        record.shuffler_signature,
        record.analyzer_signature,
    )
    start = Start.decode(record.record)
    _check_begun(terms, offered, start)
    graph = terms.parameters(start.devices)
    _match(
        len(started.neighbours) == graph.neighbours,
        f"a device of this round has {graph.neighbours} neighbours",
    )
    # Computed here and never told: whoever may name the neighbours names corrupt ones.
    places = ring.neighbour_positions(start.devices, graph.neighbours, started.position)
    # Without certificates one machine could hold all seats but one, and subtract itself from the
    # sum.
    devices = [
        verify_certificate(peer.certificate, terms.enrolment_key, now, remember=True).device_key
        for peer in started.neighbours
    ]
    _check_arc(offered.offer_id, start, started, own, devices, places, graph.neighbours)
    # Keys that a neighbour did not sign could be the shuffler's: it would know the pads.
    for device, peer in zip(devices, started.neighbours, strict=True):
        verify(
            device,
            SigningContext.ROUND_KEYS,
            round_keys(offered.offer_id, peer.pad_key, peer.share_key),
            peer.signature,
        )
    peers = tuple(
        Peer(place, device, peer.pad_key, peer.share_key)
        for place, device, peer in zip(places, devices, started.neighbours, strict=True)
    )
    return Circle(round_id(record.record), start.devices, started.position, graph.threshold, peers)


def check_roster(circle: Circle, roster: pairwise_pb2.Roster) -> tuple[bytes, ...]:
    """One ciphertext per neighbour, of the one length or empty (MISMATCH); ``threshold`` neighbours
    or more shared (ABORTED).
    """
    ciphertexts = tuple(roster.ciphertexts)
    _match(
        len(ciphertexts) == len(circle.peers),
        f"the roster speaks of {len(ciphertexts)} neighbours, not of {len(circle.peers)}",
    )
    _match(
        all(len(ciphertext) in {0, CIPHERTEXT_SIZE} for ciphertext in ciphertexts),
        f"a neighbour's ciphertext is {CIPHERTEXT_SIZE} bytes long",
    )
    shared = sum(map(bool, ciphertexts))
    _enough(
        shared >= circle.threshold, f"{shared} neighbours shared, {circle.threshold} are needed"
    )
    return ciphertexts


def check_dealt(circle: Circle, peer: Peer, ciphertext: bytes, dealt: pairwise_pb2.Shares) -> None:
    """``peer`` dealt ``ciphertext`` to this device: its signature over all that it dealt
    (BAD_SIGNATURE), these bytes in it (CONFLICT).
    """
    signed = dealt_bytes(circle.round_id, peer.position, dealt.commitment, dealt.ciphertexts)
    verify(peer.device_key, SigningContext.ROUND_SHARES, signed, dealt.signature)
    place = ring.place_of(circle.devices, len(circle.peers), peer.position, circle.position)
    if dealt.ciphertexts[place * CIPHERTEXT_SIZE :][:CIPHERTEXT_SIZE] != ciphertext:
        raise ShoalError(
            Kind.CONFLICT,
            "the shuffler showed another ciphertext than the neighbour signed: the round is given "
            "up",
        )


def check_commit(
    terms: RoundTerms, circle: Circle, shared: Sequence[bool], signed: pairwise_pb2.SignedRecord
) -> Commit:
    """Who is in the sum, if this device may act on it. ``shared``: what the roster said of each
    neighbour.

    In this order: both signatures (BAD_SIGNATURE); well-formed, each status one of three (INVALID);
    this round, one status per position (MISMATCH); this device itself in the sum,
    ``terms.survivors`` devices or more, ``threshold`` neighbours or more (ABORTED); nobody shared
    who did not, and the reverse (CONFLICT): pads were added with exactly those whom the roster
    named.
    """
    _verify_both(
        terms,
        SigningContext.ROUND_COMMIT,
        signed.record,
        signed.shuffler_signature,
        signed.analyzer_signature,
    )
    commit = Commit.decode(signed.record)
    _match(commit.round_id == circle.round_id, "the commit is of another round")
    _match(
        len(commit.statuses) == circle.devices,
        f"the commit speaks of {len(commit.statuses)} devices, not of {circle.devices}",
    )
    _enough(
        # Else neighbours would give shares of its pad key: its self mask alone would stand before
        # its vector.
        commit.statuses[circle.position] == Status.ALIVE,
        "this device's vector is not in the sum",
    )
    # The noise of fewer devices than this does not add up to what the certificate counts on.
    least = terms.survivors(circle.devices)
    _enough(commit.alive >= least, f"{commit.alive} vectors are in the sum, {least} are needed")
    alive = sum(commit.statuses[peer.position] == Status.ALIVE for peer in circle.peers)
    _enough(
        alive >= circle.threshold,
        f"{alive} neighbours are in the sum, {circle.threshold} are needed",
    )
    # Both stories may have been told to different devices: to go on would give shares for both.
    for peer, did_share in zip(circle.peers, shared, strict=True):
        if did_share == (commit.statuses[peer.position] == Status.NEVER_SHARED):
            raise ShoalError(
                Kind.CONFLICT,
                "the commit contradicts the roster about who shared: the round is given up",
            )
    return commit


def check_endorsements(
    circle: Circle, commit: Commit, record: bytes, endorsements: Sequence[pairwise_pb2.Endorsement]
) -> None:
    """Strict mode: ``threshold`` different neighbours in the sum, or more, signed these very bytes;
    else ABORTED.

    What does not count (no neighbour, not in the sum, twice, a wrong signature) is passed over: one
    corrupt neighbour must not end everybody's round. More endorsements than neighbours are INVALID.
    """
    # Bounded before any is verified: each verification costs this device time.
    if len(endorsements) > len(circle.peers):
        raise ShoalError(Kind.INVALID, "there are more endorsements than neighbours")
    waiting = {
        peer.position: peer.device_key
        for peer in circle.peers
        if commit.statuses[peer.position] == Status.ALIVE
    }
    valid = 0
    for endorsement in endorsements:
        device = waiting.get(endorsement.position)
        if device is not None and is_signed(
            device, SigningContext.ROUND_ENDORSE, record, endorsement.signature
        ):
            # counted once: a corrupt neighbour may send its own many times
            del waiting[endorsement.position]
            valid += 1
            if valid == circle.threshold:
                return
    raise ShoalError(
        Kind.ABORTED, f"{valid} neighbours endorsed the commit, {circle.threshold} are needed"
    )


def _verify_both(
    terms: RoundTerms, context: SigningContext, record: bytes, shuffler: bytes, analyzer: bytes
) -> None:
    verify_both(context, record, terms.shuffler_key, shuffler, terms.analyzer_key, analyzer)


def _check_begun(terms: RoundTerms, offered: CheckedOffer, start: Start) -> None:
    """The round that begins is the one that was joined, by the nonces that were committed to, of
    a size that the plan allows. Raises MISMATCH.
    """
    _match(
        start.offer_id == offered.offer_id, "the round that starts is not the one that was offered"
    )
    _match(
        # A nonce chosen after the seats are known could place corrupt devices around this one.
        nonce_commitment(start.shuffler_nonce) == offered.offer.shuffler_commitment,
        "the shuffler's nonce is not what it committed to",
    )
    _match(
        nonce_commitment(start.analyzer_nonce) == offered.offer.analyzer_commitment,
        "the analyzer's nonce is not what it committed to",
    )
    # The promise was computed for these sizes: fewer devices have too few honest ones among them.
    least, most = terms.plan.cohort_min, terms.plan.cohort_max
    _match(
        least <= start.devices <= most,
        f"a round of this task has {least} to {most} devices, this one has {start.devices}",
    )


def _check_arc(
    offer: Digest,
    start: Start,
    started: pairwise_pb2.Started,
    own: OwnKeys,
    devices: Sequence[bytes],
    places: Sequence[int],
    neighbours: int,
) -> None:
    """The ring was laid from both nonces over seats fixed before, and these are the consecutive
    seats of this arc.
    """
    seats = {
        place: Seat(ring.seat_of(offer, device), peer.pad_key, peer.share_key)
        for place, device, peer in zip(places, devices, started.neighbours, strict=True)
    }
    mine = Seat(ring.seat_of(offer, own.device_key), own.pad_key, own.share_key)
    if neighbours == start.devices - 1:
        leaves = [seats.get(place, mine) for place in range(start.devices)]
    else:
        arc = list(places)
        arc.insert(neighbours // 2, started.position)
        leaves = [seats.get(place, mine) for place in arc]
    seed = ring.graph_seed(offer, start.list_hash, start.shuffler_nonce, start.analyzer_nonce)
    ring.verify_arc(
        start.ring_root.raw,
        start.devices,
        neighbours,
        started.position,
        leaves,
        seed,
        list(started.proof),
    )


def _match(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.MISMATCH, message)


def _enough(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.ABORTED, f"{message}: the round is given up")

"""Who sits where in a round, as the shuffler sees it: seats, one-time keys, the ring, and what each
seat has sent.

Nothing here decides about phases or time; ``Coordinator`` does. Device keys stay here: the analyzer
sees seats, which are pseudonyms of this round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.crypto.admission.enrolment import verify_certificate
from shoal.crypto.secagg.complaints import Dispute
from shoal.crypto.secagg.pads import PUBLIC_SIZE, agree
from shoal.crypto.secagg.parameters import GraphParameters
from shoal.crypto.secagg.primitives.agreement_proof import on_curve
from shoal.crypto.secagg.records import Reason, Status
from shoal.crypto.secagg.ring import Ring, Seat, neighbour_positions, place_of, seat_of
from shoal.crypto.secagg.shares import CIPHERTEXT_SIZE, COMMITMENT_SIZE
from shoal.crypto.secagg.shuffler.phases import Stage
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext, verify
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2

# Whether a point is of low order does not depend on the scalar that multiplies it, so any scalar
# will do to look.
_PROBE = X25519PrivateKey.from_private_bytes(bytes(31) + b"\x40")
# the phase in which devices share is not over
_BEFORE_CHECK = frozenset({Stage.JOIN, Stage.STARTING, Stage.SHARE})
_BEFORE_DELIVERY = _BEFORE_CHECK | {Stage.CHECK, Stage.MASK}


@dataclass(slots=True, repr=False)
class Member:
    """One seat and what came from it. Does not print: who sits here is in nobody's log."""

    session: bytes
    device_key: bytes
    join: pairwise_pb2.Join
    seat: Seat
    position: int = -1
    # a ciphertext for each neighbour, one after the other; commitment; signature
    shares: tuple[bytes, bytes, bytes] | None = None
    checked: bool = False  # can use what was dealt to it
    suspect: int | None = None  # position of the neighbour whose word it wants to see
    upload: Digest | None = None
    status: Status = Status.NEVER_SHARED
    endorsement: bytes | None = None
    bundle: bytes | None = None

    @property
    def alive(self) -> bool:
        """Whether its vector is in the sum; False until the analyzer has looked at the vectors."""
        return self.status is Status.ALIVE

    def leave(self) -> None:
        """Before anybody masks: as if it had never shared."""
        self.shares, self.suspect = None, None


class Seating:
    """The seats of one round: taken one by one, then laid on the ring for good."""

    def __init__(self, terms: RoundTerms, offer_id: Digest) -> None:
        self.terms, self.offer_id = terms, offer_id
        self.members: dict[bytes, Member] = {}  # by session
        self.order: tuple[Member, ...] = ()  # by position, once laid
        self._devices: set[bytes] = set()
        self._one_time_keys: set[bytes] = set()
        self._laid: tuple[Ring, GraphParameters] | None = None

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    # --- taking seats -----------------------------------------------------------------------------

    def identify(self, join: pairwise_pb2.Join, now: float) -> bytes:
        """The device key of a Join for this round. Raises NOT_FOUND, INVALID, UNAUTHENTICATED,
        BAD_SIGNATURE. Changes nothing.

        The certificate must hold until the round's last second: each neighbour looks at it by its
        own clock and gives up the round if it does not hold, so one that is about to expire would
        cost k others their seats.
        """
        if join.offer_id != self.offer_id.raw:
            raise ShoalError(Kind.NOT_FOUND, "this round is not open: ask for the one that is")
        _require(
            len(join.pad_key) == len(join.share_key) == PUBLIC_SIZE,
            f"a join has two keys of {PUBLIC_SIZE} bytes",
        )
        until = now + self.terms.plan.seconds
        device_key = verify_certificate(
            join.certificate, self.terms.enrolment_key, now, until=until
        ).device_key
        verify(
            device_key,
            SigningContext.ROUND_KEYS,
            join.offer_id + join.pad_key + join.share_key,
            join.signature,
        )
        return device_key

    def take(self, session: bytes, join: pairwise_pb2.Join, now: float) -> bytes:
        """A seat for the device, whose key is returned. Raises what ``identify`` raises, and
        CONFLICT.

        A key of low order or in a second spelling would make its neighbours give up the round, and
        with a share key on the curve's twist nobody could prove anything against it: INVALID here.
        """
        device_key = self.identify(join, now)
        # two seats of one device would be two neighbours that are one, and its noise counted twice
        if device_key in self._devices:
            raise ShoalError(Kind.CONFLICT, "this device has a seat in this round already")
        for key in (join.pad_key, join.share_key):
            agree(_PROBE, key)
        _require(on_curve(join.share_key), "a share key is not on Curve25519: make keys by X25519")
        keys = {join.pad_key, join.share_key}
        # Equal keys give equal pads: the difference of two vectors would lie open.
        if len(keys) < 2 or not self._one_time_keys.isdisjoint(keys):
            raise ShoalError(
                Kind.CONFLICT,
                "a key of this join is in use already: make two new ones for each round",
            )
        # Ours, whatever the caller does with its message later.
        copy = pairwise_pb2.Join()
        copy.CopyFrom(join)
        self._devices.add(device_key)
        self._one_time_keys |= keys
        seat = Seat(seat_of(self.offer_id, device_key), join.pad_key, join.share_key)
        self.members[session] = Member(session, device_key, copy, seat)
        return device_key

    def seats(self) -> list[Seat]:
        """In order of arrival, for ``encode_seats`` and ``Ring``, whose orders say nothing about
        who came first.
        """
        return [member.seat for member in self.members.values()]

    def lay(self, ring: Ring, graph: GraphParameters) -> None:
        """Fix everybody's position."""
        for member in self.members.values():
            member.position = ring.position_of(member.seat.seat)
        self.order = tuple(sorted(self.members.values(), key=lambda member: member.position))
        self._laid = (ring, graph)

    # --- on the ring ------------------------------------------------------------------------------

    @property
    def graph(self) -> GraphParameters:
        """Neighbours and threshold of this round. Raises INTERNAL before its start and after its
        end.
        """
        return self._circle[1]

    @property
    def statuses(self) -> bytes:
        """One byte per position."""
        return bytes(member.status for member in self.order)

    @property
    def commitments(self) -> bytes:
        """32 bytes per position: to the seeds of self masks; zeros of those who did not share."""
        return b"".join(
            bytes(COMMITMENT_SIZE) if member.shares is None else member.shares[1]
            for member in self.order
        )

    def started_for(self, member: Member, start: pairwise_pb2.SignedRecord) -> pairwise_pb2.Started:
        """The member's neighbours and the proof that they are its neighbours."""
        ring, graph = self._circle
        neighbours = [
            pairwise_pb2.Neighbour(
                certificate=neighbour.join.certificate,
                pad_key=neighbour.join.pad_key,
                share_key=neighbour.join.share_key,
                signature=neighbour.join.signature,
            )
            for neighbour in self._neighbours(member)
        ]
        proof = ring.proof(member.position, graph.neighbours)
        return pairwise_pb2.Started(
            start=start, position=member.position, neighbours=neighbours, proof=proof
        )

    def roster_for(self, member: Member) -> pairwise_pb2.Roster:
        """What each neighbour shared with the member; empty where it did not share."""
        ciphertexts, n, k = [], len(self.order), self.graph.neighbours
        for neighbour in self._neighbours(
            member
        ):  # on the event loop, for every poll: no lists of lists
            start = place_of(n, k, neighbour.position, member.position) * CIPHERTEXT_SIZE
            ciphertexts.append(
                b""
                if neighbour.shares is None
                else neighbour.shares[0][start : start + CIPHERTEXT_SIZE]
            )
        return pairwise_pb2.Roster(ciphertexts=ciphertexts)

    def dispute(self, round_id: Digest, complainer: Member, dealer: int) -> Dispute | None:
        """What a neighbour dealt to the complainer; None if that neighbour is out already. Raises
        INVALID for one that is no neighbour.
        """
        place = (
            place_of(len(self.order), self.graph.neighbours, dealer, complainer.position)
            * CIPHERTEXT_SIZE
        )
        dealer_member = self.order[dealer]
        if dealer_member.shares is None:
            return None
        ciphertext = dealer_member.shares[0][place : place + CIPHERTEXT_SIZE]
        return Dispute(
            round_id,
            dealer,
            dealer_member.seat.share_key,
            complainer.position,
            complainer.seat.share_key,
            ciphertext,
        )

    def dealt_by(self, position: int | None) -> pairwise_pb2.Shares | None:
        """All that a seat dealt, signed by it; None if it is out."""
        if position is None or (shares := self.order[position].shares) is None:
            return None
        ciphertexts, commitment, signature = shares
        return pairwise_pb2.Shares(
            ciphertexts=ciphertexts, commitment=commitment, signature=signature
        )

    def endorsements_for(self, member: Member) -> list[pairwise_pb2.Endorsement]:
        """Of the member's neighbours, as many as came."""
        return [
            pairwise_pb2.Endorsement(position=neighbour.position, signature=neighbour.endorsement)
            for neighbour in self._neighbours(member)
            if neighbour.endorsement is not None
        ]

    def unfinished(self, state: Stage, reason: Reason | None) -> frozenset[bytes]:
        """Sessions that took a seat and then let a whole phase pass without what the round waited
        for.

        ``state``: the one that the round ends in; ``reason``: why. Only a phase that was over
        counts: nobody is late in one that a restart, or the analyzer, cut short.
        """
        shared = state not in _BEFORE_CHECK or reason is Reason.TOO_FEW_SHARED
        masked = shared and (state not in _BEFORE_DELIVERY or reason is Reason.TOO_FEW_VECTORS)
        left = (m for m in self if (shared and m.shares is None) or (masked and m.upload is None))
        return frozenset(m.session for m in left)

    def clear(self) -> None:
        """Forget everything but who had a seat."""
        for member in self.members.values():
            member.shares = member.bundle = member.endorsement = None
        self.order, self._laid = (), None

    @property
    def _circle(self) -> tuple[Ring, GraphParameters]:
        if self._laid is None:
            raise ShoalError(
                Kind.INTERNAL, "a round has neighbours only between its start and its end"
            )
        return self._laid

    def _neighbours(self, member: Member) -> list[Member]:
        return [self.order[position] for position in self._places(member)]

    def _places(self, member: Member) -> tuple[int, ...]:
        return neighbour_positions(len(self.order), self.graph.neighbours, member.position)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ShoalError(Kind.INVALID, message)

"""What the shuffler sends to the analyzer in a round, and how it compares the start that comes back
with its own computation.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.crypto.secagg import records
from shoal.crypto.secagg.records import Start
from shoal.crypto.secagg.ring import Ring, Seat, encode_seats, graph_seed
from shoal.crypto.secagg.shuffler.seating import Seating
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.signing import SigningContext, verify
from shoal.entropy import Entropy, shuffled
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.protos import pairwise_pb2

POSITION_SIZE = 4  # bytes: in front of each bundle for the analyzer, where it came from
REQUEST_BYTES = 1 << 20  # of bundles in one UnmaskRound request


def start_request(
    offer_id: Digest, nonce: bytes, seats: Sequence[Seat]
) -> pairwise_pb2.StartRoundRequest:
    """StartRound: the seats, pseudonyms of this round, and the nonce that the offer committed to.

    The nonce (32 bytes) is given away only now, when no seat can be added any more: known before,
    it would let the analyzer look for seats that land beside a device of its choice.
    """
    return pairwise_pb2.StartRoundRequest(
        offer_id=offer_id.raw, shuffler_nonce=nonce, seats=encode_seats(seats)
    )


def check_start(
    terms: RoundTerms,
    offer_id: Digest,
    nonce: bytes,
    analyzer_commitment: bytes,
    seats: Sequence[Seat],
    reply: pairwise_pb2.StartRoundReply,
) -> Ring:
    """The ring over ``seats``, computed here and equal to the one that the analyzer signed.

    Raises BAD_SIGNATURE, and INVALID if the start is of other seats, another ring or offer, or its
    nonce is not the one that the analyzer committed to (``analyzer_commitment``): with a nonce
    chosen afterwards it could try until corrupt devices surround an honest one.
    """
    verify(terms.analyzer_key, SigningContext.ROUND_START, reply.start, reply.analyzer_signature)
    start = Start.decode(reply.start)
    list_hash = Digest.of(encode_seats(seats))
    ring = Ring(graph_seed(offer_id, list_hash, nonce, start.analyzer_nonce), seats)
    expected = Start(
        offer_id, len(seats), Digest(ring.root), nonce, start.analyzer_nonce, list_hash
    )
    if start != expected:
        raise ShoalError(Kind.INVALID, "the start is not of the round that was asked for")
    if records.nonce_commitment(start.analyzer_nonce) != analyzer_commitment:
        raise ShoalError(Kind.INVALID, "the nonce is not that of the offer")
    return ring


def commit_request(
    commit: pairwise_pb2.SignedRecord, unusable: set[int], seating: Seating
) -> pairwise_pb2.CommitRoundRequest:
    """CommitRound: who is in the sum, signed by the shuffler, which rows were left out, and every
    device's commitment to the seed of its self mask.
    """
    return pairwise_pb2.CommitRoundRequest(
        commit=commit.record,
        shuffler_signature=commit.shuffler_signature,
        left_out=sorted(unusable),
        commitments=seating.commitments,
    )


def positioned_bundles(seating: Seating, entropy: Entropy) -> list[bytes]:
    """The sealed shares of every device that answered, in random order, each after its position
    (u32be): the order of arrival would say who answers fast, and is nothing the analyzer needs.
    """
    bundles = [
        member.position.to_bytes(POSITION_SIZE, "big") + member.bundle
        for member in seating
        if member.bundle is not None
    ]
    return shuffled(bundles, entropy)


def unmask_requests(
    round_id: Digest, bundles: Sequence[bytes]
) -> tuple[pairwise_pb2.UnmaskRoundRequest, ...]:
    """UnmaskRound, in requests of at most ``REQUEST_BYTES`` of bundles (one at least); the last one
    says so. ``bundles``: one or more, of one length.
    """
    per_request = max(1, REQUEST_BYTES // len(bundles[0]))
    requests = tuple(
        pairwise_pb2.UnmaskRoundRequest(
            round_id=round_id.raw, bundles=bundles[start : start + per_request]
        )
        for start in range(0, len(bundles), per_request)
    )
    requests[-1].last = True
    return requests

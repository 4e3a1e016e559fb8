"""What a device deals to its neighbours: shares of two secrets, each pair sealed for one neighbour.

Double masking (Bonawitz and others, CCS 2017; on a sparse graph of neighbours: Bell
and others, CCS 2020): of each device, neighbours reveal shares of one secret only, never of both.
The seed of the self mask, if its vector is in the sum; the private pad key, if it is lost, so that
its pads can be taken out of the others' vectors. Either alone says nothing about its vector.
"""

from __future__ import annotations

from shoal.crypto.admission.enrolment import DeviceIdentity
from shoal.crypto.secagg import complaints, pads, shares
from shoal.crypto.secagg.device.checks import Circle
from shoal.crypto.secagg.device.secrets import AfterJoin, AfterShare
from shoal.crypto.secagg.primitives import shamir
from shoal.crypto.secagg.shares import SharePair
from shoal.crypto.signing import SigningContext
from shoal.entropy import Entropy
from shoal.errors import ShoalError
from shoal.protos import pairwise_pb2


def deal(
    joined: AfterJoin, circle: Circle, identity: DeviceIdentity, entropy: Entropy
) -> tuple[AfterShare, pairwise_pb2.Shares]:
    """What is known afterwards, and what is sent: one ciphertext per neighbour in ring order, the
    commitment to the self mask's seed, and the device's signature over both.

    All agreements are made here, once, with the pad key that is then forgotten. The signature binds
    the bytes to the round and the place (``complaints.dealt_bytes``): without it the shuffler could
    swap a ciphertext and blame its dealer. Raises INVALID for a neighbour's X25519 key of low
    order, whose agreed secret everybody would know (RFC 7748, section 6.1).
    """
    seed = entropy.bytes(32)
    # a share at 0 would be the secret itself
    points = [peer.position + 1 for peer in circle.peers]
    seed_shares = shamir.split(seed, circle.threshold, points, entropy)
    pad_key_shares = shamir.split(
        joined.pad_private.private_bytes_raw(), circle.threshold, points, entropy
    )
    streams, inbound, ciphertexts = [], [], []
    for peer, *pair in zip(circle.peers, seed_shares, pad_key_shares, strict=True):
        agreed = pads.agree(joined.pad_private, peer.pad_key)
        stream = pads.pair_stream_key(agreed, circle.round_id, joined.own.pad_key, peer.pad_key)
        streams.append((stream, pads.sign_of(joined.own.pad_key, peer.pad_key)))
        agreed = pads.agree(joined.share_private, peer.share_key)
        # a key for each direction: the same one would let a ciphertext be sent back to its dealer
        outbound, back = shares.share_keys(
            agreed, circle.round_id, joined.own.share_key, peer.share_key
        )
        inbound.append(back)
        ciphertexts.append(
            shares.seal_shares(
                outbound, SharePair(*pair), circle.round_id, circle.position, peer.position
            )
        )
    dealt = b"".join(ciphertexts)
    commitment = shares.commitment(circle.round_id, joined.own.pad_key, seed)
    signed = complaints.dealt_bytes(circle.round_id, circle.position, commitment, dealt)
    message = pairwise_pb2.Shares(
        ciphertexts=dealt,
        commitment=commitment,
        signature=identity.key.sign(SigningContext.ROUND_SHARES, signed),
    )
    known = AfterShare(
        circle,
        joined.own,
        joined.share_private,
        tuple(streams),
        tuple(inbound),
        pads.self_stream_key(seed, circle.round_id, joined.own.pad_key),
    )
    return known, message


def open_dealt(key: bytes, ciphertext: bytes, circle: Circle, sender: int) -> SharePair | None:
    """The shares that the neighbour at position ``sender`` dealt to this device; None if they do
    not open, or are none.
    """
    try:
        return shares.open_shares(key, ciphertext, circle.round_id, sender, circle.position)
    except ShoalError:
        return None

"""Complaints for the test vectors: what a dealer dealt, the shared secret given away, the proof,
and who is guilty.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from vectors_tasks import Json, fixed

from shoal.crypto.secagg import pads
from shoal.crypto.secagg.complaints import Dispute
from shoal.crypto.secagg.shares import SharePair, seal_shares, share_key
from shoal.entropy import SeededEntropy
from shoal.ids import Digest

DEALER, COMPLAINER = 3, 300


def complaints() -> list[Json]:
    """One ciphertext that opens, one with a flipped bit, one that holds no shares; and false
    evidence.
    """
    round_id = Digest(fixed("round id"))
    dealer, complainer = (
        X25519PrivateKey.from_private_bytes(fixed(label))
        for label in ("dealer share key", "complainer share key")
    )
    keys = [key.public_key().public_bytes_raw() for key in (dealer, complainer)]
    key = share_key(pads.agree(dealer, keys[1]), round_id, *keys)
    pair = SharePair(*(fixed(f"share of {secret}").rjust(33, b"\x00") for secret in "bs"))
    good = seal_shares(key, pair, round_id, DEALER, COMPLAINER)
    empty = _no_shares(key, round_id)
    made: list[Json] = []
    for name, ciphertext in (
        ("opens", good),
        ("does not open", bytes((good[0] ^ 1,)) + good[1:]),
        ("holds no shares", empty),
    ):
        dispute = Dispute(round_id, DEALER, keys[0], COMPLAINER, keys[1], ciphertext)
        shared, proof = dispute.prove(complainer, SeededEntropy(f"complaint: {name}"))
        made.append(_entry(name, dispute, shared, proof, fixed("complainer share key")))
    bad = Dispute(round_id, DEALER, keys[0], COMPLAINER, keys[1], bytes((good[0] ^ 1,)) + good[1:])
    shared, proof = dispute.prove(complainer, SeededEntropy("complaint: false evidence"))
    made.append(_entry("another shared secret", bad, fixed("another shared secret"), proof, b""))
    made.append(
        _entry("a bit of the proof", bad, shared, proof[:-1] + bytes((proof[-1] ^ 1,)), b"")
    )
    return made


def _no_shares(key: bytes, round_id: Digest) -> bytes:
    """Sealed rightly, but both numbers are above the prime."""
    bound = round_id.raw + pads.u32(DEALER, "position") + pads.u32(COMPLAINER, "position")
    return AESGCM(key).encrypt(bytes(12), b"\xff" * 66, bound)


def _entry(name: str, dispute: Dispute, shared: bytes, proof: bytes, private: bytes) -> Json:
    return {
        "name": name,
        "round_id": dispute.round_id.hex,
        "dealer": dispute.dealer,
        "dealer_share_key": dispute.dealer_key.hex(),
        "complainer": dispute.complainer,
        "complainer_share_key": dispute.complainer_key.hex(),
        "complainer_private_key": private.hex(),
        "ciphertext": dispute.ciphertext.hex(),
        "shared": shared.hex(),
        "proof": proof.hex(),
        "dealer_is_guilty": dispute.dealer_is_guilty(shared, proof),
    }

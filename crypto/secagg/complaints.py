"""A neighbour's share ciphertext that does not open, shown to whoever decides: who broke the round,
the dealer or the complainer?

What a device dealt, all its ciphertexts and its commitment, it has signed for the round and its
place. A device that can't open the one addressed to it, or finds no shares in it, gives away the
X25519 secret of the two share keys, with a proof that it is that one (``agreement_proof``). Then
everybody can try: the ciphertext opens, and the complaint was false, or it doesn't, and the dealer
is guilty. There is no third case, and no word of one against the other.

What is given away opens two ciphertexts, those of this pair: what the dealer dealt to the
complainer, and the reverse. So a device complains about nothing but bytes that the dealer signed:
an honest dealer's open, and whoever put other bytes in their place would get its true share for
them. What remains is known to a corrupt dealer, or to a corrupt complainer, already.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.crypto.secagg import pads
from shoal.crypto.secagg.primitives import agreement_proof
from shoal.crypto.secagg.shares import COMMITMENT_SIZE, open_shares, share_key
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest


def dealt_bytes(round_id: Digest, position: int, commitment: bytes, ciphertexts: bytes) -> bytes:
    """What a dealer signs (context ROUND_SHARES): round id, u32be position, commitment (32), its
    ciphertexts in ring order.
    """
    if len(commitment) != COMMITMENT_SIZE:
        raise ShoalError(Kind.INVALID, f"a commitment is {COMMITMENT_SIZE} bytes long")
    return round_id.raw + pads.u32(position, "position") + commitment + ciphertexts


@dataclass(frozen=True, slots=True)
class Dispute:
    """One ciphertext between two devices of a round. Public: keys are the devices' share keys,
    positions those on the ring.
    """

    round_id: Digest
    dealer: int
    dealer_key: bytes
    complainer: int
    complainer_key: bytes
    ciphertext: bytes

    @property
    def _context(self) -> bytes:
        return (
            self.round_id.raw
            + pads.u32(self.complainer, "position")
            + pads.u32(self.dealer, "position")
        )

    def opens(self, shared: bytes) -> bool:
        """Whether the ciphertext holds two shares under this shared secret of the two share
        keys.
        """
        try:
            key = share_key(shared, self.round_id, self.dealer_key, self.complainer_key)
            open_shares(key, self.ciphertext, self.round_id, self.dealer, self.complainer)
        except ShoalError:
            return False
        return True

    def prove(self, private: X25519PrivateKey, entropy: Entropy) -> tuple[bytes, bytes]:
        """The shared secret and the proof of it, by the complainer. Some 20 ms of CPU. Raises
        INVALID for a dealer's key of small order.
        """
        shared = pads.agree(private, self.dealer_key)
        return shared, agreement_proof.prove(
            private, self.dealer_key, shared, self._context, entropy
        )

    def dealer_is_guilty(self, shared: bytes, proof: bytes) -> bool:
        """The verdict, for whoever reads it the same: True, or the complaint is false. Some 20 ms
        of CPU, if the proof counts.
        """
        if self.opens(shared):  # cheaper than the proof; whichever secret opens it
            return False
        return agreement_proof.verify(
            self.complainer_key, self.dealer_key, shared, self._context, proof
        )

"""Devices that deal shares which do not open, in the rounds of ``secagg``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shoal.crypto.secagg.complaints import dealt_bytes
from shoal.crypto.secagg.shares import CIPHERTEXT_SIZE
from shoal.crypto.signing import SigningContext
from shoal.protos import pairwise_pb2
from tests.worlds.rounds.secagg import Play, identity

Spoil = Callable[[bytes], bytes]


def flipped(ciphertext: bytes) -> bytes:
    return bytes((ciphertext[0] ^ 1,)) + ciphertext[1:]


def signed(
    play: Play, number: int, message: pairwise_pb2.Shares, ciphertexts: bytes
) -> pairwise_pb2.Shares:
    """Other ciphertexts, signed by the dealer itself."""
    device = play.devices[number]
    assert device.round_id is not None
    data = dealt_bytes(device.round_id, play.position(number), message.commitment, ciphertexts)
    signature = identity(number).key.sign(SigningContext.ROUND_SHARES, data)
    return pairwise_pb2.Shares(
        ciphertexts=ciphertexts, commitment=message.commitment, signature=signature
    )


@dataclass
class BadDealers(Play):
    """``bad``: to how many of its neighbours a device deals what does not open, from its first one
    on.
    """

    bad: Mapping[int, int] = field(default_factory=dict)
    spoil: Spoil = flipped

    def shares(self, number: int, message: pairwise_pb2.Shares) -> pairwise_pb2.Shares:
        if number not in self.bad:
            return message
        parts = [
            message.ciphertexts[at : at + CIPHERTEXT_SIZE]
            for at in range(0, len(message.ciphertexts), CIPHERTEXT_SIZE)
        ]
        parts[: self.bad[number]] = map(self.spoil, parts[: self.bad[number]])
        return signed(self, number, message, b"".join(parts))


def guilty(play: Play) -> set[int]:
    return {
        number
        for number, device in enumerate(play.devices)
        if device.session in play.coordinator.guilty
    }


def charged(play: Play) -> set[int]:
    return {number for number, ledger in enumerate(play.ledgers) if ledger.answers()}

"""Shares on their way: sealed from a device to each neighbour, and the bundle in which a neighbour
hands them on.

A device shares two secrets, the seed of its self mask and its private pad key; the pair of shares
for one neighbour is one AES-256-GCM ciphertext of 82 bytes. Its key comes from the two devices'
share keys, is for one direction of one round and encrypts once, so the nonce is zero (NIST SP
800-38D section 8: a key and nonce pair must never serve twice). Seal the shares of a round once and
keep the bytes for every retry.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shoal.crypto.secagg.pads import PUBLIC_SIZE, SEED_SIZE, hkdf_expand, u32
from shoal.crypto.secagg.primitives.shamir import SHARE_SIZE, parse_share
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest

KEY_SIZE = 32  # bytes
CIPHERTEXT_SIZE = 2 * SHARE_SIZE + 16  # bytes: two shares and a tag
COMMITMENT_SIZE = 32  # bytes
_ITEM_SIZE = 1 + SHARE_SIZE  # bytes: kind, share
_POSITION_SIZE = 4  # bytes
_NONCE = bytes(12)


@dataclass(frozen=True, slots=True)
class SharePair:
    """What one neighbour holds of one device: a share of its self seed, a share of its private pad
    key. Secret: does not print.

    Raises INVALID unless both are 33 bytes and below the field's prime: a device never hands on
    what nobody could use.
    """

    b: bytes = field(repr=False)
    s: bytes = field(repr=False)

    def __post_init__(self) -> None:
        parse_share(self.b)
        parse_share(self.s)

    def __reduce__(self) -> NoReturn:
        raise TypeError("shares are not pickled or copied: they live in memory for one round")


def share_key(shared: bytes, round_id: Digest, sender: bytes, receiver: bytes) -> bytes:
    """The key that seals the shares from one device to another; the other direction has another
    key. 32 bytes, secret.

    HKDF-SHA256(salt = round id, ikm = shared, info = "shoal/v1/secagg/share" 0x00 sender receiver).
    ``shared``: ``agree`` of the two share keys; ``sender``, ``receiver``: their public halves.
    Raises INVALID for a wrong length or equal keys.
    """
    return share_keys(shared, round_id, sender, receiver)[0]


def share_keys(shared: bytes, round_id: Digest, own: bytes, other: bytes) -> tuple[bytes, bytes]:
    """``share_key`` from the device with the public key ``own`` to the other one, and back. Raises
    INVALID.
    """
    if (
        len(shared) != KEY_SIZE
        or len(own) != PUBLIC_SIZE
        or len(other) != PUBLIC_SIZE
        or own == other
    ):
        raise ShoalError(
            Kind.INVALID,
            "a share key comes from a shared secret and two different public keys, 32 bytes each",
        )
    extracted, label = hmac.digest(round_id.raw, shared, "sha256"), b"shoal/v1/secagg/share\x00"
    return (
        hkdf_expand(extracted, label + own + other, KEY_SIZE),
        hkdf_expand(extracted, label + other + own, KEY_SIZE),
    )


def seal_shares(key: bytes, pair: SharePair, round_id: Digest, sender: int, receiver: int) -> bytes:
    """82 bytes: AES-256-GCM of b || s, bound to the round and to both positions on the ring.
    ``key`` from ``share_key``, used once.
    """
    return _cipher(key).encrypt(_NONCE, pair.b + pair.s, _bound_to(round_id, sender, receiver))


def open_shares(
    key: bytes, sealed: bytes, round_id: Digest, sender: int, receiver: int
) -> SharePair:
    """What ``seal_shares`` sealed. Raises INVALID if it does not open or holds what can be no
    share.
    """
    data = _bound_to(round_id, sender, receiver)
    if len(sealed) != CIPHERTEXT_SIZE:
        raise ShoalError(Kind.INVALID, f"sealed shares are {CIPHERTEXT_SIZE} bytes long")
    try:
        plaintext = _cipher(key).decrypt(_NONCE, sealed, data)
    except InvalidTag:
        raise ShoalError(
            Kind.INVALID, "sealed shares do not open: other key, round or position, or damaged"
        ) from None
    return SharePair(plaintext[:SHARE_SIZE], plaintext[SHARE_SIZE:])


def commitment(round_id: Digest, pad_key: bytes, seed: bytes) -> bytes:
    """SHA-256("shoal/v1/secagg/self" 0x00 round_id pad_key seed), 32 bytes: shows later that a seed
    was put together rightly.

    Hiding because the seed has 256 random bits. Raises INVALID for a wrong length.
    """
    if len(pad_key) != PUBLIC_SIZE or len(seed) != SEED_SIZE:
        raise ShoalError(
            Kind.INVALID, "a commitment is to a seed of 32 bytes, for a pad key of 32 bytes"
        )
    return hashlib.sha256(b"shoal/v1/secagg/self\x00" + round_id.raw + pad_key + seed).digest()


@unique
class ShareKind(IntEnum):
    """What a device says about one neighbour in its bundle: at most one share, so that both are
    never said together.
    """

    NONE = 0  # never shared, or no share of it is held
    SELF_SEED = 1  # alive: its self mask is to be removed
    PAD_KEY = 2  # dropped: its pads with others are to be removed


Item = tuple[ShareKind, bytes]


@dataclass(frozen=True, slots=True)
class ShareBundle:
    """What the device at ``position`` hands to the analyzer: one item per neighbour in ring order;
    the share of a NONE is empty.
    """

    position: int
    items: tuple[Item, ...] = field(repr=False)

    def __post_init__(self) -> None:
        """Raises INVALID."""
        u32(self.position, "position")
        for kind, share in self.items:
            if kind is ShareKind.NONE and share:
                raise ShoalError(
                    Kind.INVALID, "a bundle has a share where it says that there is none"
                )
            if kind is not ShareKind.NONE:
                parse_share(share)

    def __reduce__(self) -> NoReturn:
        raise TypeError("shares are not pickled or copied: they live in memory for one round")


def bundle_size(neighbours: int) -> int:
    """Bytes of every bundle of a round with so many neighbours, whatever is in it."""
    return _POSITION_SIZE + neighbours * _ITEM_SIZE


def encode_bundle(position: int, items: Sequence[tuple[int, bytes]]) -> bytes:
    """u32be position, then per neighbour u8 kind and 33 bytes (zeros for NONE). Raises INVALID."""
    bundle = ShareBundle(position, tuple((_kind(kind), share) for kind, share in items))
    return u32(position, "position") + b"".join(
        bytes((kind,)) + share.rjust(SHARE_SIZE, b"\x00") for kind, share in bundle.items
    )


def decode_bundle(data: bytes, neighbours: int) -> ShareBundle:
    """Strict: the length of ``neighbours`` items, known kinds, zeros for NONE, shares below the
    prime; else INVALID.
    """
    if len(data) != bundle_size(neighbours):
        raise ShoalError(
            Kind.INVALID,
            f"a bundle of {neighbours} neighbours is {bundle_size(neighbours)} bytes long",
        )
    items = []
    for start in range(_POSITION_SIZE, len(data), _ITEM_SIZE):
        kind, share = _kind(data[start]), data[start + 1 : start + _ITEM_SIZE]
        items.append((kind, b"" if kind is ShareKind.NONE and not any(share) else share))
    return ShareBundle(int.from_bytes(data[:_POSITION_SIZE], "big"), tuple(items))


def _kind(number: int) -> ShareKind:
    try:
        return ShareKind(number)
    except ValueError:
        raise ShoalError(Kind.INVALID, "a bundle's items are of kind 0, 1 or 2") from None


def _cipher(key: bytes) -> AESGCM:
    if len(key) != KEY_SIZE:
        raise ShoalError(Kind.INVALID, f"a share key is {KEY_SIZE} bytes long")
    return AESGCM(key)


def _bound_to(round_id: Digest, sender: int, receiver: int) -> bytes:
    return round_id.raw + u32(sender, "position") + u32(receiver, "position")

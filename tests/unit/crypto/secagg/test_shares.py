"""Sealed shares open for one neighbour, one direction and one round; a bundle says one thing about
each neighbour.
"""

from __future__ import annotations

import copy
import hashlib
import pickle
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shoal.crypto.secagg.primitives.shamir import PRIME
from shoal.crypto.secagg.shares import (
    CIPHERTEXT_SIZE,
    ShareBundle,
    ShareKind,
    SharePair,
    bundle_size,
    commitment,
    decode_bundle,
    encode_bundle,
    open_shares,
    seal_shares,
    share_key,
)
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from tests.cases import for_each

ROUND, OTHER_ROUND = Digest.of(b"round"), Digest.of(b"another round")
SHARED = bytes(range(50, 82))
A, B = bytes(range(32)), bytes(range(1, 33))
KEY = share_key(SHARED, ROUND, A, B)
SHARE_B, SHARE_S = b"\x00" + bytes(range(150, 182)), b"\x00" + bytes(range(200, 232))
PAIR = SharePair(SHARE_B, SHARE_S)
SENDER, RECEIVER = 258, 3
LARGEST = (PRIME - 1).to_bytes(33, "big")


def refused(act: Any, *args: Any) -> None:
    with pytest.raises(ShoalError) as caught:
        act(*args)
    assert caught.value.kind is Kind.INVALID
    assert "\n" not in str(caught.value)


# --- sealing --------------------------------------------------------------------------------------


def test_share_keys_are_what_their_documentation_says() -> None:
    """And those of the two directions, of two rounds and of two pairs differ. Planted: keys sorted
    as for pads -> this fails.
    """
    assert (
        HKDF(hashes.SHA256(), 32, ROUND.raw, b"shoal/v1/secagg/share\x00" + A + B).derive(SHARED)
        == KEY
    )
    others = [
        share_key(SHARED, ROUND, B, A),
        share_key(SHARED, OTHER_ROUND, A, B),
        share_key(A, ROUND, A, B),
    ]
    assert len({KEY, *others}) == 4


def test_shares_come_back() -> None:
    sealed = seal_shares(KEY, PAIR, ROUND, SENDER, RECEIVER)
    assert len(sealed) == CIPHERTEXT_SIZE == 82
    assert open_shares(KEY, sealed, ROUND, SENDER, RECEIVER) == PAIR
    largest = SharePair(LARGEST, bytes(33))
    assert (
        open_shares(KEY, seal_shares(KEY, largest, ROUND, 0, 2**32 - 1), ROUND, 0, 2**32 - 1)
        == largest
    )


def test_the_ciphertext_is_aes_256_gcm_as_documented() -> None:
    """Planted: positions little-endian or exchanged; s before b -> this fails."""
    bound = ROUND.raw + b"\x00\x00\x01\x02" + b"\x00\x00\x00\x03"
    assert seal_shares(KEY, PAIR, ROUND, SENDER, RECEIVER) == AESGCM(KEY).encrypt(
        bytes(12), SHARE_B + SHARE_S, bound
    )


def test_shares_open_nowhere_else() -> None:
    """Other key, direction, round or position. Planted: each part left out of the associated data
    -> this fails.
    """
    sealed = seal_shares(KEY, PAIR, ROUND, SENDER, RECEIVER)
    refused(open_shares, share_key(SHARED, ROUND, B, A), sealed, ROUND, SENDER, RECEIVER)
    refused(open_shares, KEY, sealed, OTHER_ROUND, SENDER, RECEIVER)
    refused(open_shares, KEY, sealed, ROUND, SENDER + 1, RECEIVER)
    refused(open_shares, KEY, sealed, ROUND, SENDER, RECEIVER + 1)
    refused(open_shares, KEY, sealed, ROUND, RECEIVER, SENDER)


def test_damaged_shares_do_not_open() -> None:
    sealed = seal_shares(KEY, PAIR, ROUND, SENDER, RECEIVER)
    for place in range(len(sealed)):
        refused(
            open_shares,
            KEY,
            sealed[:place] + bytes((sealed[place] ^ 1,)) + sealed[place + 1 :],
            ROUND,
            SENDER,
            RECEIVER,
        )
    for wrong in (b"", sealed[:-1], sealed + b"\x00"):
        refused(open_shares, KEY, wrong, ROUND, SENDER, RECEIVER)


@pytest.mark.parametrize("share", [PRIME.to_bytes(33, "big"), b"\xff" * 33])
def test_shares_outside_the_field_are_none(share: bytes) -> None:
    """A dealer that seals what is no share: the holder counts it as no share, instead of making its
    whole bundle unreadable.
    """
    refused(SharePair, share, SHARE_S)
    refused(SharePair, SHARE_B, share)
    for plaintext in (share + SHARE_S, SHARE_B + share):
        bound = ROUND.raw + SENDER.to_bytes(4, "big") + RECEIVER.to_bytes(4, "big")
        refused(
            open_shares,
            KEY,
            AESGCM(KEY).encrypt(bytes(12), plaintext, bound),
            ROUND,
            SENDER,
            RECEIVER,
        )


def test_wrong_lengths_and_positions_are_refused() -> None:
    sealed = seal_shares(KEY, PAIR, ROUND, SENDER, RECEIVER)
    for wrong in (b"", bytes(31), bytes(33)):
        refused(share_key, wrong, ROUND, A, B)
        refused(share_key, SHARED, ROUND, wrong, B)
        refused(share_key, SHARED, ROUND, A, wrong)
        refused(seal_shares, wrong, PAIR, ROUND, 0, 1)
        refused(open_shares, wrong, sealed, ROUND, 0, 1)
        refused(commitment, ROUND, wrong, SHARED)
        refused(commitment, ROUND, A, wrong)
    for wrong in (b"", bytes(32), bytes(34)):
        refused(SharePair, wrong, SHARE_S)
        refused(SharePair, SHARE_B, wrong)
    for position in (-1, 2**32):
        refused(seal_shares, KEY, PAIR, ROUND, position, 1)
        refused(seal_shares, KEY, PAIR, ROUND, 1, position)
    refused(share_key, SHARED, ROUND, A, A)


# --- commitment -----------------------------------------------------------------------------------


def test_a_commitment_is_to_round_key_and_seed() -> None:
    """Planted: the round left out -> this fails."""
    expected = hashlib.sha256(b"shoal/v1/secagg/self\x00" + ROUND.raw + A + SHARED).digest()
    assert commitment(ROUND, A, SHARED) == expected
    assert (
        len(
            {
                expected,
                commitment(OTHER_ROUND, A, SHARED),
                commitment(ROUND, B, SHARED),
                commitment(ROUND, A, B),
            }
        )
        == 4
    )


# --- bundles --------------------------------------------------------------------------------------

ITEMS = (
    (ShareKind.SELF_SEED, SHARE_B),
    (ShareKind.NONE, b""),
    (ShareKind.PAD_KEY, SHARE_S),
    (ShareKind.SELF_SEED, LARGEST),
)


def test_a_bundle_comes_back() -> None:
    """Byte by byte as documented. Planted: the position little-endian; zeros for NONE left out ->
    this fails.
    """
    data = encode_bundle(258, ITEMS)
    assert (
        data
        == b"\x00\x00\x01\x02"
        + b"\x01"
        + SHARE_B
        + b"\x00"
        + bytes(33)
        + b"\x02"
        + SHARE_S
        + b"\x01"
        + LARGEST
    )
    assert decode_bundle(data, 4) == ShareBundle(258, ITEMS)
    assert decode_bundle(encode_bundle(0, ()), 0) == ShareBundle(0, ())


def test_a_share_of_zeros_is_not_none() -> None:
    """The kind says what there is, not the bytes."""
    item = (ShareKind.SELF_SEED, bytes(33))
    assert decode_bundle(encode_bundle(1, [item]), 1).items == (item,)


def test_a_bundle_has_one_length() -> None:
    """Whatever was shared, dropped or missing. Planted: NONE encoded as its kind alone -> this
    fails.
    """
    shares = {ShareKind.NONE: b"", ShareKind.SELF_SEED: SHARE_B, ShareKind.PAD_KEY: SHARE_S}
    for kind, share in shares.items():
        assert len(encode_bundle(7, [(kind, share)] * 50)) == bundle_size(50) == 4 + 50 * 34


@for_each(
    "items",
    [
        [(0, SHARE_B)],
        [(0, bytes(33))],
        [(1, b"")],
        [(2, b"")],
        [(1, SHARE_B[:-1])],
        [(1, PRIME.to_bytes(33, "big"))],
        [(3, SHARE_B)],
        [(-1, SHARE_B)],
    ],
)
def test_bundles_that_are_none_are_not_made(items: list[tuple[int, bytes]]) -> None:
    refused(encode_bundle, 1, items)


def test_bundles_that_are_none_are_refused() -> None:
    """Planted: the check of zeros; of the length; of the field -> each fails."""
    good = encode_bundle(1, ITEMS)
    for wrong in (b"", good[:-1], good + b"\x00", good[:-34], good[:4]):
        refused(decode_bundle, wrong, 4)
    refused(decode_bundle, good, 3)
    refused(decode_bundle, good, 5)
    for place, byte in ((4, 3), (4, 255), (4, 0), (4 + 34 + 33, 1), (4 + 34 + 1, 1), (5, 2)):
        changed = bytearray(good)
        changed[place] = byte
        refused(decode_bundle, bytes(changed), 4)
    for position in (-1, 2**32):
        refused(encode_bundle, position, ITEMS)


# --- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("holder", [PAIR, ShareBundle(1, ITEMS)], ids=["pair", "bundle"])
def test_shares_do_not_print_pickle_or_copy(holder: object) -> None:
    """Planted: repr=False removed; ``__reduce__`` removed -> this fails."""
    for share in (SHARE_B, SHARE_S):
        for form in (repr(share)[2:-1], share.hex(), repr(share[10:20])[2:-1]):
            assert form not in repr(holder)
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            act(holder)
    assert not hasattr(holder, "__dict__")

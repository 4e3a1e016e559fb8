"""A proof that an X25519 shared secret is the right one, for everybody to check, that tells nothing
about the private key.

Whoever knows e with E = e B (its public key; B the base point) shows for another public key D and a
value Z that Z = e D: that the shared secret of the two keys is Z. A device shows with it that a
neighbour's ciphertext really does not open (``complaints``).

A cut-and-choose proof of equal logarithms (the statement of Chaum and Pedersen, CRYPTO 1992, in the
form that needs no addition of points, as group actions use it): X25519 of a vetted library is the
only arithmetic on the curve. In each of ``ROUNDS`` rounds the prover draws r and commits to T1 = r
B and T2 = r D. One bit of a hash over everything (Fiat and Shamir) asks for r, or for q = r / e
modulo the prime order l of B's group, and the verifier finds the same T1, T2 as r B, r D or as q E,
q Z. Whoever can answer both bits of one round has r = q e up to sign, so that q Z = q e D; whoever
can't guesses ``ROUNDS`` bits. r alone and q alone are uniform.

*Scalars.* X25519 multiplies by the numbers 2^254 + 8 m < 2^255 alone, and its u-coordinates do not
see a scalar's sign. Of s and l - s exactly one is such a number modulo l (but for a part of 2^-124
of all s): s + j l is a multiple of 8 for one j below 8, which is 7 - j for l - s, and 4 l to 8 l is
2^254 to 2^255 but for as little. So 32 random bytes are a uniform r up to sign, every q is a scalar
of X25519, and it matters to nobody which r / e came out.

*Points that are not in B's group.* All scalars are multiples of 8, so a small-order part of E or D
drops out on both sides, as it does in X25519. Z may have none, or there would be several Z that
pass: it must stay as it is under ``_ONE``, which is 1 or -1 modulo l. u-coordinates of the twist
have points of another order: a proof for such a key does not come out. ``on_curve`` tells them, and
no seat is given for one.
"""

from __future__ import annotations

import hashlib
from hmac import compare_digest

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from shoal.entropy import Entropy

ROUNDS = 128  # each is passed by guessing with probability 1/2
SIZE = ROUNDS // 8 + ROUNDS * 32  # bytes: the challenge, then a scalar per round
# of the base point, RFC 7748 section 4.1
_ORDER = (1 << 252) + 27742317777372353535851937790883648493
_FIELD_PRIME = (1 << 255) - 19
_A = 486662  # v^2 = u^3 + A u^2 + u
_BASE = (9).to_bytes(32, "little")
_LABEL = b"shoal/v1/secagg/agreement\x00"


def on_curve(public: bytes) -> bool:
    """Whether a u-coordinate is of Curve25519 itself and not of its twist. Every key that was made
    by X25519 is.
    """
    u = int.from_bytes(public, "little")
    return pow(u * (u * u + _A * u + 1) % _FIELD_PRIME, (_FIELD_PRIME - 1) // 2, _FIELD_PRIME) == 1


def prove(
    private: X25519PrivateKey, other: bytes, shared: bytes, context: bytes, entropy: Entropy
) -> bytes:
    """``SIZE`` bytes that show ``shared`` to be the shared secret of ``private`` and the public key
    ``other``, within ``context``.

    The inverse of the private key is computed with Python's integers, whose time depends on them:
    made once, for a key of one round.
    """
    inverse = pow(_clamped(private.private_bytes_raw()), -1, _ORDER)
    answers = [_nonce(inverse, entropy) for _ in range(ROUNDS)]
    commitments = [_times(nonce, _BASE) + _times(nonce, other) for nonce, _ in answers]
    challenge = _challenge(
        context, private.public_key().public_bytes_raw(), other, shared, commitments
    )
    return challenge + b"".join(answers[index][_bit(challenge, index)] for index in range(ROUNDS))


def verify(public: bytes, other: bytes, shared: bytes, context: bytes, proof: bytes) -> bool:
    """Whether ``proof`` shows that ``shared`` is the shared secret of the two public keys. All may
    be hostile.
    """
    if (
        len(proof) != SIZE
        or not len(public) == len(other) == len(shared) == 32
        or not (on_curve(public) and on_curve(other))
    ):
        return False
    challenge, rest = proof[: ROUNDS // 8], proof[ROUNDS // 8 :]
    try:
        if _times(_ONE, shared) != shared:
            return False
        commitments = []
        for index in range(ROUNDS):
            scalar = rest[32 * index : 32 * index + 32]
            first, second = (public, shared) if _bit(challenge, index) else (_BASE, other)
            commitments.append(_times(scalar, first) + _times(scalar, second))
    except ValueError:  # a point of small order: its multiple is zero
        return False
    return compare_digest(challenge, _challenge(context, public, other, shared, commitments))


def _challenge(
    context: bytes, public: bytes, other: bytes, shared: bytes, commitments: list[bytes]
) -> bytes:
    head = len(context).to_bytes(4, "big") + context + public + other + shared
    return hashlib.sha256(_LABEL + head + b"".join(commitments)).digest()[: ROUNDS // 8]


def _bit(challenge: bytes, index: int) -> int:
    return challenge[index // 8] >> (index % 8) & 1


def _times(scalar: bytes, point: bytes) -> bytes:
    """X25519. Raises ValueError for a point of small order."""
    return X25519PrivateKey.from_private_bytes(scalar).exchange(
        X25519PublicKey.from_public_bytes(point)
    )


def _nonce(inverse: int, entropy: Entropy) -> tuple[bytes, bytes]:
    """r, uniform up to sign, and r times ``inverse``, both as X25519 reads them."""
    while True:
        nonce = _clamped(entropy.bytes(32))
        quotient = _scalar(nonce * inverse % _ORDER)
        if quotient is not None:  # but for a part of 2^-124
            return nonce.to_bytes(32, "little"), quotient


def _scalar(number: int) -> bytes | None:
    """32 bytes that X25519 reads as this number, or as its negative, modulo the order; None if
    there are none.
    """
    for root in (number, _ORDER - number):
        multiple = root + -root * pow(_ORDER, -1, 8) % 8 * _ORDER
        if multiple >> 254 == 1:
            return multiple.to_bytes(32, "little")
    return None


def _clamped(data: bytes) -> int:
    """The number that X25519 multiplies by (RFC 7748 section 5)."""
    return int.from_bytes(data, "little") & ((1 << 254) - 8) | 1 << 254


_ONE = _scalar(1) or b""
"""1 or -1 modulo the order, and a multiple of 8: it takes the small-order part of a point away, and
nothing else.
"""

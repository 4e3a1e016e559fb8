"""Signatures in every context, and some that must be refused: a part of the vectors that
tools/vectors.py writes.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from vectors_tasks import Json, fixed, signing_key

from shoal.crypto.signing import SigningContext, signed_input


def flipped(data: bytes, place: int, bit: int = 0) -> bytes:
    """The same bytes with one bit changed; ``place`` may count from the end."""
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


def signatures() -> list[Json]:
    """A signature in every context."""
    entries = []
    for context in SigningContext:
        key, data = signing_key(context.value), fixed(f"{context.value} data", 20)
        entries.append(
            {
                "context": context.value,
                "private_key": fixed(f"{context.value} signing key").hex(),
                "public_key": key.public.hex(),
                "data": data.hex(),
                "input": signed_input(context, data).hex(),
                "signature": key.sign(context, data).hex(),
            }
        )
    return entries


def bad_signatures() -> list[Json]:
    """Signatures that must be refused."""
    key, data = signing_key("task"), fixed("task data", 20)
    good = key.sign(SigningContext.TASK, data)
    bare = Ed25519PrivateKey.from_private_bytes(fixed("task signing key")).sign(data)
    order = 2**252 + 27742317777372353535851937790883648493
    high = good[:32] + (int.from_bytes(good[32:], "little") + order).to_bytes(32, "little")
    cases: dict[str, tuple[str, bytes, bytes, bytes]] = {
        "other context": ("manifest", key.public, data, good),
        "without the context prefix": ("task", key.public, data, bare),
        "other data": ("task", key.public, data + b"\x00", good),
        "other key": ("task", signing_key("ack").public, data, good),
        "bit flipped in R": ("task", key.public, data, flipped(good, 0)),
        "bit flipped in S": ("task", key.public, data, flipped(good, 32)),
        "S not reduced": ("task", key.public, data, high),
        "cut": ("task", key.public, data, good[:-1]),
        "empty": ("task", key.public, data, b""),
        "public key cut": ("task", key.public[:-1], data, good),
    }
    return [
        {
            "name": name,
            "context": context,
            "public_key": public.hex(),
            "data": data.hex(),
            "signature": signature.hex(),
            "kind": "BAD_SIGNATURE",
        }
        for name, (context, public, data, signature) in cases.items()
    ]

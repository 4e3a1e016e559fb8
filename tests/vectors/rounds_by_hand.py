"""The parts of a round, made after docs/WIRE.md from hashes, HKDF, AES, X25519 and Ed25519."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.vectors.test_secagg_vectors import u32

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "shoal_secagg_v1.json").read_text())
REFUSE, ROUND, SINGLES, RECORDS = (
    VECTORS["refuse"],
    VECTORS["round"],
    VECTORS["singles"],
    VECTORS["records"],
)
PRIME = 2**256 + 297


def labelled(label: str, *parts: bytes) -> bytes:
    return hashlib.sha256(b"shoal/v1/secagg/" + label.encode() + b"\x00" + b"".join(parts)).digest()


def derived(salt: bytes, secret: bytes, label: str, *parts: bytes, size: int = 48) -> bytes:
    return HKDF(
        hashes.SHA256(),
        size,
        salt,
        b"shoal/v1/secagg/" + label.encode() + b"\x00" + b"".join(parts),
    ).derive(secret)


def signed(key: bytes, context: str, data: bytes, signature: bytes) -> None:
    """Raises unless it is."""
    Ed25519PublicKey.from_public_bytes(key).verify(
        signature, b"shoal/v1/sign/" + context.encode() + b"\x00" + data
    )


def agreed(private: bytes, other: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).exchange(
        X25519PublicKey.from_public_bytes(other)
    )


def public_of(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def pad(stream_key: bytes, count: int, bits: int) -> list[int]:
    stream = (
        Cipher(algorithms.AES(stream_key[:32]), modes.CTR(stream_key[32:]))
        .encryptor()
        .update(bytes(count * bits // 8))
    )
    return numbers(stream, bits)


def numbers(data: bytes, bits: int) -> list[int]:
    return [
        int.from_bytes(data[i : i + bits // 8], "little") for i in range(0, len(data), bits // 8)
    ]


def added(words: Sequence[int], more: Iterable[int], sign: int, bits: int) -> list[int]:
    return [(one + sign * other) % 2**bits for one, other in zip(words, more, strict=True)]


def as_signed(word: int, bits: int) -> int:
    return word - 2**bits if word >= 2 ** (bits - 1) else word


def constants_of(label: bytes, bits: int) -> list[int]:
    digest = labelled("checks", bytes((bits,)), label)
    return [1] + [one | 1 for one in numbers(digest, bits)[1 : {16: 4, 32: 2, 64: 2}[bits]]]


def tree_hash(leaves: Sequence[bytes]) -> bytes:
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + tree_hash(leaves[:half]) + tree_hash(leaves[half:])).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"\x02" + u32(len(leaves)) + tree_hash(leaves)).digest()


def around(n: int, k: int, position: int) -> list[int]:
    if k == n - 1:
        return [p for p in range(n) if p != position]
    return [(position + step) % n for step in range(-k // 2, k // 2 + 1) if step]


def at_zero(shares: dict[int, bytes]) -> bytes:
    """Lagrange's formula, naively."""
    total = 0
    for x, share in shares.items():
        factor = int.from_bytes(share, "big")
        for other in shares:
            if other != x:
                factor = factor * other * pow(other - x, -1, PRIME) % PRIME
        total += factor
    return (total % PRIME).to_bytes(32, "big")

"""What a window's secret makes of reports and devices: the storage key of a sealed message, and the
tag of an admitted device. Whatever the store, both are the same function of a secret that lives
only while the window is open.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence

from shoal.arrays import np
from shoal.ids import StorageKey

_ADMITTED = b"shoal/v1/admitted\x00"
_STEP = 16_384  # messages


class KeyedHash:
    """HMAC-SHA256 (RFC 2104) under one key, for many messages: the two blocks of the key are hashed
    once.
    """

    def __init__(self, secret: bytes) -> None:
        """``secret``: at most 64 bytes."""
        block = secret.ljust(hashlib.sha256().block_size, b"\0")
        self._inner, self._outer = (
            hashlib.sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C)
        )

    def digests(self, messages: Iterable[bytes]) -> list[bytes]:
        """32 bytes for each."""
        inner, outer, digests = self._inner.copy, self._outer.copy, list[bytes]()
        for message in messages:
            inside, other = inner(), outer()
            inside.update(message)
            other.update(inside.digest())
            digests.append(other.digest())
        return digests


def key_of(secret: bytes, sealed: bytes) -> bytes:
    """HMAC-SHA256(secret of a window, SHA-256(sealed))[:16]."""
    return hmac.digest(secret, hashlib.sha256(sealed).digest(), "sha256")[: StorageKey.SIZE]


class WindowHashes:
    """``secret``: of one window, at most 64 bytes. Neither it nor anything made of it prints."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._keyed = secret, KeyedHash(secret)

    def __repr__(self) -> str:
        return "<WindowHashes>"

    def key(self, sealed: bytes) -> bytes:
        """HMAC-SHA256(secret of this window, SHA-256(sealed))[:16]: the same bytes get the same
        key, nobody can choose one.
        """
        return key_of(self._secret, sealed)

    def keys_of(self, digests: Iterable[bytes]) -> list[bytes]:
        """``key`` of each, of which the caller has SHA-256 already."""
        return [digest[: StorageKey.SIZE] for digest in self._keyed.digests(digests)]

    def joined_keys_of(self, digests: Iterable[bytes]) -> bytes:
        """As ``keys_of``, joined to one bytes object."""
        whole = np.frombuffer(b"".join(self._keyed.digests(digests)), dtype=np.uint8)
        return whole.reshape(-1, hashlib.sha256().digest_size)[:, : StorageKey.SIZE].tobytes()

    def steps_of(self, messages: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Keys and messages, each joined, of many: what sorting a batch takes."""
        for at in range(0, len(messages), _STEP):
            some = messages[at : at + _STEP]
            digests = [hashlib.sha256(message).digest() for message in some]
            yield self.joined_keys_of(digests), b"".join(some)

    def tag(self, device: bytes) -> bytes:
        """HMAC-SHA256(secret of this window, "shoal/v1/admitted" 0x00 device's public key)[:16].
        Without the secret nobody can tell whose it is; with it, everybody who has a list of devices
        can.
        """
        return hmac.digest(self._secret, _ADMITTED + device, "sha256")[: StorageKey.SIZE]

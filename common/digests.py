"""SHA-256 and HMAC-SHA256 from the library that has the other cryptography too.

Python's ``hashlib`` and ``hmac`` load a second OpenSSL, 4 MB that an idle device would keep for a
few digests an hour. Whoever opens many thousands of reports a second may use ``hashlib``, which
takes 2 microseconds less for each digest.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.hashes import SHA256


@cache
def _algorithm() -> SHA256:
    # not above: the accountant alone imports this file and hashes nothing, so it loads none
    from cryptography.hazmat.primitives.hashes import SHA256

    return SHA256()


@cache
def _digest() -> Callable[[SHA256, bytes], bytes]:
    from cryptography.hazmat.primitives.hashes import Hash

    return Hash.hash


def sha256(data: bytes) -> bytes:
    """32 bytes."""
    return _digest()(_algorithm(), data)


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """32 bytes. ``key``: of any length."""
    from cryptography.hazmat.primitives.hmac import HMAC

    mac = HMAC(key, _algorithm())
    mac.update(message)
    return mac.finalize()


def is_hmac_sha256(key: bytes, message: bytes, mac: bytes) -> bool:
    """Whether ``mac`` is ``hmac_sha256(key, message)``, compared in constant time."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.hmac import HMAC

    expected = HMAC(key, _algorithm())
    expected.update(message)
    try:
        expected.verify(mac)
    except InvalidSignature:
        return False
    return True

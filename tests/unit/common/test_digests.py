"""SHA-256 and HMAC-SHA256: those of the standard library, whatever the lengths."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys

from shoal.digests import hmac_sha256, is_hmac_sha256, sha256
from shoal.entropy import SeededEntropy
from tests.cases import for_each

LENGTHS = (0, 1, 31, 32, 55, 56, 63, 64, 65, 127, 1_000, 70_001)


@for_each("length", LENGTHS)
def test_digests_are_those_of_the_standard_library(length: int) -> None:
    data, key = (
        SeededEntropy(length).bytes(length),
        SeededEntropy(f"key {length}").bytes(length % 131),
    )
    assert sha256(data) == hashlib.sha256(data).digest()
    mac = hmac_sha256(key, data)
    assert mac == hmac.digest(key, data, "sha256")
    assert is_hmac_sha256(key, data, mac)


def test_a_mac_that_differs_anywhere_is_none() -> None:
    """Each bit of it, its length, the message and the key. Planted: only the first 16 bytes
    compared -> fails.
    """
    key, data = bytes(32), b"frame"
    mac = hmac_sha256(key, data)
    for bit in range(8 * len(mac)):
        wrong = bytearray(mac)
        wrong[bit // 8] ^= 1 << bit % 8
        assert not is_hmac_sha256(key, data, bytes(wrong))
    for other in (b"", mac[:-1], mac + b"\0", mac[::-1]):
        assert not is_hmac_sha256(key, data, other)
    assert not is_hmac_sha256(key, data + b"\0", mac)
    assert not is_hmac_sha256(b"\1" + key[1:], data, mac)


def test_no_second_openssl_is_loaded() -> None:
    """Planted: ``hmac.compare_digest`` for ``verify`` -> hashlib is loaded, and fails."""
    code = """
import sys
from shoal.digests import hmac_sha256, is_hmac_sha256, sha256
from shoal.ids import KeyId, TaskId
assert is_hmac_sha256(b"k", sha256(b"x"), hmac_sha256(b"k", sha256(b"x")))
assert TaskId.of(b"") and KeyId.of(b"")
assert not {"hashlib", "hmac", "_hashlib", "ssl", "_ssl"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)

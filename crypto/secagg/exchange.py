"""The envelope of one step of a round, and what seals vectors and shares for the analyzer.

A request is sealed to the shuffler's hop key and brings the key of its reply, so that whoever ends
TLS learns sizes alone::

    frame = u8 version, u8 suite, key_id (8), HPKE(hop key, info = "shoal/v1/secagg/exchange" 0x00
    key_id) of reply_key (32) || step reply = nonce (12) || AES-256-GCM(reply_key, nonce) of the
    answer

A frame may come twice, by a retry or because somebody replays it, and the two answers may differ.
So a reply's nonce is random, never fixed: two answers under one key and one nonce would open each
other (NIST SP 800-38D section 8).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shoal.crypto.hpke import HpkePrivateKey, open_sealed, seal
from shoal.crypto.secagg.pads import u32
from shoal.crypto.suites import PublicKeyConfig, SuiteId
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, TaskId
from shoal.limits import LIMITS

VERSION = 1
HEADER_SIZE = 10  # bytes: version, suite, key id
REPLY_KEY_SIZE = 32  # bytes
NONCE_SIZE = 12  # bytes
TAG_SIZE = 16  # bytes


def exchange_info(key_id: KeyId) -> bytes:
    """What a request is bound to: the hop key that it is sealed to."""
    return b"shoal/v1/secagg/exchange\x00" + key_id.raw


def vector_info(round_id: Digest, key_id: KeyId) -> bytes:
    """What a masked vector, sealed to the analyzer, is bound to: its round and the analyzer's key
    of the window.
    """
    return b"shoal/v1/secagg/vector\x00" + round_id.raw + key_id.raw


def shares_info(round_id: Digest, key_id: KeyId) -> bytes:
    """What a bundle of shares, sealed to the analyzer, is bound to: its round and the analyzer's
    key of the window.
    """
    return b"shoal/v1/secagg/shares\x00" + round_id.raw + key_id.raw


def single_info(task_id: TaskId, window: int, key_id: KeyId) -> bytes:
    """What a masked vector of helper mode is bound to: task, window and the analyzer's key of the
    window. Raises INVALID.
    """
    return b"shoal/v1/secagg/single\x00" + task_id.raw + u32(window, "window") + key_id.raw


@dataclass(frozen=True, slots=True)
class SealedRequest:
    """A sealed step and the secret key of its reply, which does not print."""

    frame: bytes
    reply_key: bytes = field(repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a reply key is not pickled or copied: it lives in memory until the reply has come"
        )


def seal_request(hop_config: PublicKeyConfig, step: bytes, entropy: Entropy) -> SealedRequest:
    """One step sealed to the shuffler. A retry may send the same frame again, or seal the step
    anew.

    Raises OVERSIZE if the frame would be longer than ``LIMITS.exchange_bytes``.
    """
    size = HEADER_SIZE + hop_config.suite.overhead + REPLY_KEY_SIZE + len(step)
    if size > LIMITS.exchange_bytes:
        raise ShoalError(
            Kind.OVERSIZE,
            f"a step of a round is sealed in at most {LIMITS.exchange_bytes} bytes, not {size}",
        )
    reply_key = entropy.bytes(REPLY_KEY_SIZE)
    header = bytes((VERSION, hop_config.suite)) + hop_config.key_id.raw
    return SealedRequest(
        header + seal(hop_config, reply_key + step, exchange_info(hop_config.key_id)), reply_key
    )


def request_key_id(frame: bytes) -> KeyId:
    """The key that a frame says it is sealed to; not trusted before it has been opened.

    Raises OVERSIZE for too long a frame, INVALID for another version, an unknown suite or one too
    short to hold anything.
    """
    return _header(frame)[1]


def open_request(hop_key: HpkePrivateKey, frame: bytes) -> tuple[bytes, bytes]:
    """The step, and the secret reply key. Raises UNKNOWN_KEY for another key id, OVERSIZE, and
    INVALID for anything else.
    """
    suite, key_id = _header(frame)
    config = hop_key.config
    if key_id != config.key_id:
        raise ShoalError(
            Kind.UNKNOWN_KEY,
            "a step is sealed for a key that this service does not hold: fetch the key schedule "
            "again",
        )
    if suite is not config.suite:
        raise ShoalError(Kind.INVALID, "a step's suite is not that of its key")
    plaintext = open_sealed(hop_key, frame[HEADER_SIZE:], exchange_info(key_id))
    return plaintext[REPLY_KEY_SIZE:], plaintext[:REPLY_KEY_SIZE]


def seal_reply(reply_key: bytes, answer: bytes, entropy: Entropy = SYSTEM) -> bytes:
    """``len(answer) + 28`` bytes for whoever made the request. May be called any number of times
    with one key. Raises INVALID.
    """
    nonce = entropy.bytes(NONCE_SIZE)
    return nonce + _cipher(reply_key).encrypt(nonce, answer, None)


def open_reply(reply_key: bytes, sealed: bytes) -> bytes:
    """The answer. Raises BAD_SIGNATURE if it does not open: it is not from the holder of the hop
    key, or not for this request.
    """
    cipher = _cipher(reply_key)
    try:
        return cipher.decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], None)
    except (InvalidTag, ValueError):
        raise ShoalError(
            Kind.BAD_SIGNATURE,
            "a reply does not open: it is damaged, of another request, or not from the shuffler; "
            "ask again",
        ) from None


def _header(frame: bytes) -> tuple[SuiteId, KeyId]:
    if len(frame) > LIMITS.exchange_bytes:
        raise ShoalError(
            Kind.OVERSIZE, f"a sealed step is at most {LIMITS.exchange_bytes} bytes long"
        )
    if len(frame) < HEADER_SIZE:
        raise ShoalError(Kind.INVALID, "a sealed step is shorter than its header")
    if frame[0] != VERSION:
        raise ShoalError(
            Kind.INVALID,
            f"a sealed step of version {frame[0]} is unknown: this version reads {VERSION}",
        )
    suite = SuiteId.of(frame[1])
    if len(frame) < HEADER_SIZE + suite.overhead + REPLY_KEY_SIZE:
        raise ShoalError(Kind.INVALID, "a sealed step is too short to hold its reply key")
    return suite, KeyId(bytes(frame[2:HEADER_SIZE]))


def _cipher(reply_key: bytes) -> AESGCM:
    if len(reply_key) != REPLY_KEY_SIZE:
        raise ShoalError(Kind.INVALID, f"a reply key is {REPLY_KEY_SIZE} bytes long")
    return AESGCM(reply_key)

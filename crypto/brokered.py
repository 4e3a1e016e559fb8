"""What a shuffler answers to a frame that came over a message broker: 48 bytes that say nothing to
anybody but the frame's sender.

    reply = SHA-256(frame)[:16] || nonce (16) || HMAC-SHA256(ack_key, "shoal/v1/reply" 0x00 nonce
    u8(status) SHA-256(frame))[:16]

A broker holds frames and may publish them again whenever it likes. The MAC of a receipt
(``envelope.receipt_mac``) would be an oracle then: it is the same as long as the status is, so the
moment at which it changes is the moment at which the frame's window opens, fills or closes, and
tells which window that is. Therefore the status is not sent, and a nonce makes every reply a new
one. A frame that did not open is answered under a key that is drawn for this reply alone.
HMAC-SHA256 being a pseudorandom function, all of these look alike: 32 random bytes.

The device knows the ack key and tries the few statuses there are. The MAC has 128 bits (RFC 2104
section 5 allows half of the hash, and no less), so that somebody else's reply is believed with a
probability of about 2^-123 for each that is sent.

All of this keeps the broker from an oracle of its own. It does not take away that of calls: whoever
holds a frame and reaches the shuffler's gRPC port may submit it there, and is told its status in
the clear. Where a broker is to learn nothing of windows, it must not reach that port.
"""

from __future__ import annotations

import hashlib
import hmac

from shoal.crypto.envelope import ACK_KEY_SIZE
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind

ACCEPTED = 0  # the status of a report that is stored; every other is the number of a ``Kind``
NAME_SIZE = 16  # bytes
NONCE_SIZE = 16  # bytes
TAG_SIZE = 16  # bytes
REPLY_SIZE = NAME_SIZE + NONCE_SIZE + TAG_SIZE
_STATUSES = (ACCEPTED, *(kind.value for kind in Kind))


def reply_name(frame: bytes) -> bytes:
    """The first 16 bytes of every reply to this frame, for a device that has several under way. Not
    secret.
    """
    return hashlib.sha256(frame).digest()[:NAME_SIZE]


def make_reply(
    frame: bytes, ack_key: bytes | None, status: int, entropy: Entropy = SYSTEM
) -> bytes:
    """48 bytes for whoever sent ``frame``. ``ack_key`` None: it did not open, and nobody can read
    the reply.
    """
    digest = hashlib.sha256(frame).digest()
    # always both: a frame that opened costs what one that did not costs
    drawn = entropy.bytes(NONCE_SIZE + ACK_KEY_SIZE)
    nonce, nobodys = drawn[:NONCE_SIZE], drawn[NONCE_SIZE:]
    return (
        digest[:NAME_SIZE]
        + nonce
        + _tag(nobodys if ack_key is None else ack_key, nonce, status, digest)
    )


def read_reply(reply: bytes, frame: bytes, ack_key: bytes) -> int | None:
    """The status that the shuffler gave this frame; None if this is no reply to it, or not by
    somebody who opened it.

    Compared in constant time for each status. Says nothing about when the reply was made: a broker
    may deliver an old one again.
    """
    digest = hashlib.sha256(frame).digest()
    if len(reply) != REPLY_SIZE or reply[:NAME_SIZE] != digest[:NAME_SIZE]:
        return None
    nonce, tag = reply[NAME_SIZE:-TAG_SIZE], reply[-TAG_SIZE:]
    return next(
        (
            status
            for status in _STATUSES
            if hmac.compare_digest(_tag(ack_key, nonce, status, digest), tag)
        ),
        None,
    )


def _tag(ack_key: bytes, nonce: bytes, status: int, digest: bytes) -> bytes:
    message = b"shoal/v1/reply\x00" + nonce + bytes((status,)) + digest
    return hmac.digest(ack_key, message, "sha256")[:TAG_SIZE]

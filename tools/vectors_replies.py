"""The part of our test vectors that is about replies through a broker (docs/WIRE.md, section 15).
See tools/vectors.py.

Nothing here is random: nonces are test bytes, and the frames are test bytes of a frame's size that
nobody could open. A reply knows of a frame its hash and its ack key alone.
"""

from __future__ import annotations

import hashlib
import hmac

from vectors_tasks import Json, fixed

from shoal.crypto.brokered import ACCEPTED, NAME_SIZE, NONCE_SIZE, TAG_SIZE, make_reply
from shoal.crypto.envelope import receipt_mac
from shoal.errors import Kind

LABEL = b"shoal/v1/reply\x00"
FRAME = b"".join(fixed(f"brokered frame {part}") for part in range(16))
OTHER = b"".join(fixed(f"another brokered frame {part}") for part in range(16))
ACK_KEY, OTHER_KEY = fixed("brokered ack key"), fixed("another brokered ack key")
STATUSES = (ACCEPTED, *(kind.value for kind in Kind))


class _Drawn:
    """Entropy that gives bytes which were chosen before."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def bytes(self, count: int) -> bytes:
        if count > len(self._data):
            raise ValueError("more is drawn than there is")
        drawn, self._data = self._data[:count], self._data[count:]
        return drawn


def nonce_of(status: int) -> bytes:
    """The nonce of the reply with this status."""
    return fixed(f"reply nonce {status}", NONCE_SIZE)


def reply_of(frame: bytes, ack_key: bytes | None, status: int) -> bytes:
    """The reply to a frame; ``ack_key``: None where the frame could not be opened."""
    return make_reply(frame, ack_key, status, _Drawn(nonce_of(status) + fixed("nobody's ack key")))  # type: ignore[arg-type] # bytes are enough


def replies() -> list[Json]:
    """Every status for one frame, and two frames that differ in hash and key under the same
    nonce.
    """
    entries = []
    for frame, ack_key, statuses in (
        (FRAME, ACK_KEY, STATUSES),
        (OTHER, OTHER_KEY, (ACCEPTED, Kind.WINDOW_CLOSED.value)),
    ):
        digest = hashlib.sha256(frame).digest()
        entries.append(
            {
                "frame": frame.hex(),
                "ack_key": ack_key.hex(),
                "digest": digest.hex(),
                "replies": [
                    {
                        "status": status,
                        "nonce": nonce_of(status).hex(),
                        "input": (LABEL + nonce_of(status) + bytes((status,)) + digest).hex(),
                        "reply": reply_of(frame, ack_key, status).hex(),
                    }
                    for status in statuses
                ],
            }
        )
    return entries


def bad_replies() -> list[Json]:
    """What says nothing to the sender of FRAME, who holds ACK_KEY: as if it had not come."""
    digest, nonce = hashlib.sha256(FRAME).digest(), nonce_of(ACCEPTED)
    good = reply_of(FRAME, ACK_KEY, ACCEPTED)
    head = digest[:NAME_SIZE] + nonce

    def tagged(message: bytes, key: bytes = ACK_KEY) -> bytes:
        return head + hmac.digest(key, message, "sha256")[:TAG_SIZE]

    def flipped(place: int) -> bytes:
        changed = bytearray(good)
        changed[place] ^= 1
        return bytes(changed)

    whole = hmac.digest(ACK_KEY, LABEL + nonce + b"\x00" + digest, "sha256")
    cases = {
        "empty": b"",
        "cut": good[:-1],
        "a byte longer": good + b"\x00",
        "tag not cut to 16 bytes": head + whole,
        "second half of the hash as tag": head + whole[TAG_SIZE:],
        "zeros": bytes(len(good)),
        "bit flipped in the name": flipped(0),
        "bit flipped in the nonce": flipped(NAME_SIZE),
        "bit flipped in the tag": flipped(NAME_SIZE + NONCE_SIZE),
        "last bit flipped": flipped(-1),
        "of another frame": reply_of(OTHER, OTHER_KEY, ACCEPTED),
        "of another frame, under this one's key": reply_of(OTHER, ACK_KEY, ACCEPTED),
        "of another frame, under this one's name and key": digest[:NAME_SIZE]
        + reply_of(OTHER, ACK_KEY, ACCEPTED)[NAME_SIZE:],
        "under another key": reply_of(FRAME, OTHER_KEY, ACCEPTED),
        "of a frame that did not open": reply_of(FRAME, None, Kind.INVALID.value),
        "nonce of another reply": head[:NAME_SIZE]
        + nonce_of(Kind.INVALID.value)
        + good[-TAG_SIZE:],
        "status that no kind has": tagged(LABEL + nonce + bytes((len(STATUSES),)) + digest),
        "status 255": tagged(LABEL + nonce + b"\xff" + digest),
        "status as four bytes": tagged(LABEL + nonce + bytes(4) + digest),
        "nonce not in the tag": tagged(LABEL + b"\x00" + digest),
        "nonce after the hash": tagged(LABEL + b"\x00" + digest + nonce),
        "without the label": tagged(nonce + b"\x00" + digest),
        "label without its zero": tagged(LABEL[:-1] + nonce + b"\x00" + digest),
        "hash cut to the name": tagged(LABEL + nonce + b"\x00" + digest[:NAME_SIZE]),
        "frame in place of its hash": tagged(LABEL + nonce + b"\x00" + FRAME),
        "receipt of a call as tag": head + receipt_mac(ACK_KEY, ACCEPTED, FRAME)[:TAG_SIZE],
    }
    return [
        {
            "name": name,
            "digest": digest.hex(),
            "frame": FRAME.hex(),
            "ack_key": ACK_KEY.hex(),
            "reply": reply.hex(),
        }
        for name, reply in cases.items()
    ]

"""What opening many frames found, in a few objects whatever their number: it crosses from a worker
to its parent, and from there goes to the store.

Most frames of a call say the same about themselves: task, window, keys, lengths. Such frames are
one group, judged once. What differs lies back to back in their order: messages with the SHA-256 of
each report, keys, and the receipts that say "stored", which their parent hands out once it is true.
"""

from __future__ import annotations

import hashlib
import hmac
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shoal.crypto.envelope import (
    ACK_KEY_SIZE,
    HEADER_SIZE,
    MAC_SIZE,
    HopShape,
    receipt_input,
)
from shoal.crypto.hop_payload import HopFields
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId
from shoal.protos import submit_pb2

ACCEPTED = 0
# A SubmitBatchReply with one receipt that says "stored", without its mac: serialized messages that
# are put one behind the other are read as one (protobuf's rule for repeated fields), so these bytes
# with a mac each, joined, are the reply.
_ENTRY = submit_pb2.SubmitBatchReply(
    receipts=[submit_pb2.Receipt(status=ACCEPTED, mac=bytes(MAC_SIZE))]
).SerializeToString()[:-MAC_SIZE]
_ACCEPTED = receipt_input(ACCEPTED, b"")
_sha256 = hashlib.sha256
ENTRY_SIZE = len(_ENTRY) + MAC_SIZE  # bytes


def accepted_entry(ack_key: bytes, frame: bytes) -> bytes:
    """``ENTRY_SIZE`` bytes of a SubmitBatchReply: this frame's receipt with status 0. Its last
    ``MAC_SIZE`` are ``receipt_mac``, in less than half of the time.
    """
    said = _ACCEPTED + _sha256(frame).digest()
    return _ENTRY + hmac.digest(ack_key, said, "sha256")


class Refusal(NamedTuple):
    """Why, and in words: what a ShoalError says, to be compared."""

    kind: Kind
    message: str

    @property
    def error(self) -> ShoalError:
        """A new one for everybody who is told."""
        return ShoalError(self.kind, self.message)


class Facts(NamedTuple):
    """What admission looks at, of a frame that opened. ``refusal``: why whoever sent it is not
    admitted; None: he is. ``frame_size``, ``message_size``: bytes.
    """

    task_id: bytes
    window: int
    analyzer_key_id: bytes
    hop_key_id: bytes
    frame_size: int
    messages: int
    message_size: int
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class OpenedGroup:
    """Frames with the same facts: ``places`` are their numbers among those that were opened
    together, ascending.

    ``ack_keys``: ``ACK_KEY_SIZE`` bytes for each. Where they are not refused: ``sealed``, their
    messages; ``digests``, SHA-256 of each frame's, joined; ``entries``, ``accepted_entry`` of each;
    ``devices``, their tags, or none for tasks that admit anybody. Secrets of devices are among
    them: nothing prints.
    """

    facts: Facts = field(repr=False)
    places: array[int] = field(repr=False)
    ack_keys: bytes = field(repr=False)
    sealed: bytes = field(repr=False)
    digests: bytes = field(repr=False)
    entries: bytes = field(repr=False)
    devices: tuple[bytes, ...] = field(repr=False)

    def indices(self, held: Sequence[int]) -> Sequence[int]:
        """The numbers of its frames in a call. ``held``: those of the frames that were opened."""
        if len(self.places) == len(held):
            return held
        return [held[place] for place in self.places]

    def ack_key(self, index: int) -> bytes:
        """Of the group's frame number ``index``."""
        return self.ack_keys[index * ACK_KEY_SIZE : (index + 1) * ACK_KEY_SIZE]

    def entry(self, index: int) -> bytes:
        """As ``ack_key``: its receipt, should it be stored."""
        return self.entries[index * ENTRY_SIZE : (index + 1) * ENTRY_SIZE]


@dataclass(frozen=True, slots=True)
class OpenedFrames:
    """Every frame is in one group, or in ``refused``: its number, and why it could not be
    opened.
    """

    groups: tuple[OpenedGroup, ...]
    refused: dict[int, Refusal]


def _facts(frame: bytes, fields: HopFields, refusal: Refusal | None) -> Facts:
    return Facts(
        fields.task_id,
        fields.window,
        fields.analyzer_key_id,
        frame[HEADER_SIZE - KeyId.SIZE : HEADER_SIZE],
        len(frame),
        len(fields.sealed),
        len(fields.sealed[0]),
        refusal,
    )


class _Open:
    """A group that grows."""

    __slots__ = ("ack_keys", "devices", "digests", "entries", "places", "sealed")

    def __init__(self) -> None:
        self.places = array("I")
        self.ack_keys, self.sealed, self.digests = list[bytes](), list[bytes](), list[bytes]()
        self.entries, self.devices = list[bytes](), list[bytes]()


# Bytes at the front of a plaintext by which frames that may be alike are found: they hold its
# length and most of the task. Whether they are alike says ``HopShape``.
_FRONT = 36


class _Alike(NamedTuple):
    """A group of frames that one more may join unread, if it begins and is shaped as they are."""

    header: bytes
    shape: HopShape
    group: _Open


class Grouping:
    """Collects frames as they are opened."""

    def __init__(self) -> None:
        self._groups: dict[Facts, _Open] = {}
        self._alike: dict[bytes, _Alike] = {}
        self._refused: dict[int, Refusal] = {}

    def refuse(self, place: int, refusal: Refusal) -> None:
        """The frame number ``place`` did not open."""
        self._refused[place] = refusal

    def add(self, place: int, frame: bytes, fields: HopFields, who: bytes | Refusal) -> None:
        """It did. ``who``: the tag of who sent it, empty: anybody; or why he is not admitted."""
        ack_key, sealed = fields.ack_key, fields.sealed
        facts = _facts(frame, fields, None if isinstance(who, bytes) else who)
        group = self._groups.get(facts)
        if group is None:
            group = self._groups[facts] = _Open()
        group.places.append(place)
        group.ack_keys.append(ack_key)
        if not isinstance(who, bytes):
            return
        joined = sealed[0] if len(sealed) == 1 else b"".join(sealed)
        group.sealed.append(joined)
        group.digests.append(_sha256(joined).digest())
        group.entries.append(accepted_entry(ack_key, frame))
        if who:
            group.devices.append(who)

    def add_first(self, place: int, frame: bytes, plaintext: bytes, fields: HopFields) -> None:
        """It did, and nothing is asked of whoever sent it, nor does he show anything; ``fields``:
        what ``plaintext`` says. The next that is like it need not be read (``add_alike``).
        """
        self.add(place, frame, fields, b"")
        if len(fields.sealed) == 1:
            facts = _facts(frame, fields, None)
            shape = HopShape(fields, len(plaintext))
            self._alike[plaintext[:_FRONT]] = _Alike(
                frame[:HEADER_SIZE], shape, self._groups[facts]
            )

    def add_alike(self, place: int, frame: bytes, plaintext: bytes) -> bool:
        """Whether the frame was like one of ``add_first``: then it is in its group."""
        known = self._alike.get(plaintext[:_FRONT])
        if known is None or not frame.startswith(known.header):
            return False
        read = known.shape.read(plaintext)
        if read is None:
            return False
        ack_key, message = read
        group = known.group
        group.places.append(place)
        group.ack_keys.append(ack_key)
        group.sealed.append(message)
        group.digests.append(_sha256(message).digest())
        group.entries.append(accepted_entry(ack_key, frame))
        return True

    def done(self) -> OpenedFrames:
        """All of them."""
        return OpenedFrames(
            tuple(
                OpenedGroup(
                    facts,
                    group.places,
                    b"".join(group.ack_keys),
                    b"".join(group.sealed),
                    b"".join(group.digests),
                    b"".join(group.entries),
                    tuple(group.devices),
                )
                for facts, group in self._groups.items()
            ),
            self._refused,
        )

"""The two layers around a report, as pure functions. Offsets, info strings and vectors:
docs/WIRE.md.

Inner layer, one per message of a report, for the analyzer alone::

    plaintext = nonce (16) || report, one length per task;  info = "shoal/v1/report" 0x00 task_id
    u32be(window) key_id

Hop layer, one per frame, for the shuffler. It is there on every transport: whoever ends TLS would
otherwise hold, next to an address, the very bytes that the analyzer will see::

    frame = u8 version, u8 suite, u8 hop, key_id (8), enc || ciphertext of (u32be length,
    HopPayload, zeros) info  = "shoal/v1/hop" 0x00 u8(hop) key_id

The header stays outside the ciphertext so that a key can be found; hop and key id are bound through
``info``, the suite through the key id. A frame has one of a few global sizes, so its length names
neither task nor window nor value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from shoal.crypto.hop_payload import HopFields, HopWriter, read_canonical, sealed_field_size
from shoal.crypto.hpke import HpkePrivateKey, open_sealed, seal
from shoal.crypto.suites import PublicKeyConfig, SuiteId
from shoal.digests import hmac_sha256, is_hmac_sha256, sha256
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.limits import LIMITS, frame_size_for
from shoal.protos.submit_pb2 import HopPayload

VERSION = 1
NONCE_SIZE = 16  # bytes; random, so that the analyzer counts each (window, nonce) once
ACK_KEY_SIZE = 32  # bytes
MAC_SIZE = 32  # bytes
HEADER_SIZE = 11  # bytes: version, suite, hop, key id
_LENGTH_SIZE = 4  # bytes: u32be in front of the payload
_FRAME_SIZES = frozenset(LIMITS.frame_sizes)
# bytes of the fixed32 field; protobuf leaves it out for window 0, and the frame size must not show
# that
_WINDOW_FIELD = 5


def report_info(task_id: TaskId, window: int, key_id: KeyId) -> bytes:
    """What a sealed report is bound to: task, window and the one analyzer key of that window. 60
    bytes.
    """
    return b"shoal/v1/report\x00" + task_id.raw + _u32(window) + key_id.raw


def hop_info(hop: int, key_id: KeyId) -> bytes:
    """What a frame is bound to: its hop (0 = first) and the key of that hop. 22 bytes."""
    return b"shoal/v1/hop\x00" + _u8(hop, "hop") + key_id.raw


def sealed_size(suite: SuiteId, report_size: int) -> int:
    """Bytes of one sealed message whose report is ``report_size`` bytes long."""
    return suite.overhead + NONCE_SIZE + report_size


def seal_report(
    config: PublicKeyConfig, task_id: TaskId, window: int, nonce: bytes, report: bytes
) -> bytes:
    """One message sealed for the analyzer: ``sealed_size(config.suite, len(report))`` bytes.

    ``nonce``: 16 random bytes, drawn once per message. Call it once per report and keep the result
    for every retry: a second sealing would be a second report.
    """
    if len(nonce) != NONCE_SIZE:
        raise ShoalError(Kind.INVALID, f"a report's nonce is {NONCE_SIZE} random bytes")
    # Bound to task, window and key: opened anywhere else it fails, so no report can be moved.
    return seal(config, nonce + report, report_info(task_id, window, config.key_id))


def open_report(key: HpkePrivateKey, info: bytes, sealed: bytes) -> bytes:
    """nonce (16) || report of one sealed message; ``info`` from ``report_info``, made once per
    batch.

    Raises INVALID if it does not open or is shorter than a nonce. Whether the report has the task's
    length is for the caller to check: only the task knows it.
    """
    plaintext = open_sealed(key, sealed, info)
    if len(plaintext) < NONCE_SIZE:
        raise ShoalError(Kind.INVALID, "an opened report is shorter than its nonce")
    return plaintext


@dataclass(frozen=True, slots=True)
class HopContent:
    """What the shuffler learns from a frame. ``sealed``: 1 to ``LIMITS.messages`` messages
    of one length, for the analyzer.

    ``ack_key`` is a secret of device and shuffler, used for this frame's receipt alone; it does not
    print. The object can be pickled, because frames are opened in worker processes and the receipt
    is made after the commit in their parent. Raises INVALID on construction for any field of a
    wrong length.
    """

    task_id: TaskId
    window: int
    ack_key: bytes = field(repr=False)
    analyzer_key_id: KeyId
    admission: bytes = field(repr=False)
    sealed: tuple[bytes, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.window < 1 << 32:
            raise _no_window()
        if len(self.ack_key) != ACK_KEY_SIZE:
            raise ShoalError(Kind.INVALID, f"a frame's ack key is {ACK_KEY_SIZE} random bytes")
        check_messages(self.sealed)


def check_messages(sealed: Sequence[bytes]) -> None:
    """Raise INVALID unless they are as many as a frame may hold, and of one length."""
    if not 1 <= len(sealed) <= LIMITS.messages:
        raise ShoalError(Kind.INVALID, f"a frame holds 1 to {LIMITS.messages} sealed messages")
    size = len(sealed[0])
    if size == 0 or (len(sealed) > 1 and any(len(message) != size for message in sealed)):
        raise ShoalError(Kind.INVALID, "the sealed messages of a frame have one length, above 0")


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """The readable part of a frame. Nothing of it is trusted before the frame has been opened."""

    suite: SuiteId
    hop: int
    key_id: KeyId


def frame_size(suite: SuiteId, messages: int, sealed_length: int, admission_length: int = 0) -> int:
    """Bytes of every frame of a task: the smallest global size that holds its payload, whatever
    window or value.

    ``suite`` is that of the hop key; ``sealed_length`` from ``sealed_size``. Raises OVERSIZE if
    none holds it.
    """
    # Made of zeros of the right lengths: no value, and so no secret, can have a say in the size.
    payload = HopPayload(
        task_id=bytes(TaskId.SIZE),
        window=1,
        ack_key=bytes(ACK_KEY_SIZE),
        analyzer_key_id=bytes(KeyId.SIZE),
        admission=bytes(admission_length),
        sealed=[bytes(sealed_length)] * messages,
    )
    return _global_size(suite, payload.ByteSize())


def seal_frame(
    config: PublicKeyConfig, content: HopContent, hop: int = 0, messages: int = 0
) -> bytes:
    """The frame that a device sends to hop ``hop``: exactly one of ``LIMITS.frame_sizes`` bytes.

    ``messages``: that a report of the task has at most, where this one may have fewer: the frame is
    as large as theirs. So the size follows from suite, lengths and number of messages and
    admission, which a task fixes; never from the value, the report's bytes or the window. Raises
    OVERSIZE if the content fits no frame. Every call draws a new encapsulation: seal once and keep
    the bytes for every retry.
    """
    writer = HopWriter(content.task_id.raw, content.window, content.analyzer_key_id.raw)
    payload = writer.write(content.ack_key, content.admission, content.sealed)
    header, info = header_and_info(config.suite, hop, config.key_id.raw)
    room = room_for(content.sealed, messages)
    return header + seal(config, padded(config.suite, content.window, payload, room), info)


def room_for(sealed: Sequence[bytes], messages: int) -> int:
    """Bytes that the messages of a payload would take beyond these, were they ``messages``."""
    return max(0, messages - len(sealed)) * sealed_field_size(len(sealed[0]))


def padded(suite: SuiteId, window: int, payload: bytes, room: int = 0) -> bytes:
    """The plaintext of a frame: u32be length, payload, zeros up to the global size that holds
    ``room`` bytes more. ``suite`` is that of the hop key. Raises OVERSIZE.
    """
    # Protobuf leaves out a window of 0: counted all the same, or window 0 might have a smaller
    # frame.
    inner = _inner_size(suite, len(payload) + room + (_WINDOW_FIELD if window == 0 else 0))
    return (len(payload).to_bytes(_LENGTH_SIZE, "big") + payload).ljust(inner, b"\x00")


def frame_header(frame: bytes) -> FrameHeader:
    """The header of a frame. Raises INVALID for a length that is no global size, another version,
    an unknown suite.
    """
    if len(frame) not in LIMITS.frame_sizes:
        sizes = ", ".join(map(str, LIMITS.frame_sizes))
        raise ShoalError(Kind.INVALID, f"a frame is one of {sizes} bytes long")
    if frame[0] != VERSION:
        raise ShoalError(
            Kind.INVALID, f"frame version {frame[0]} is unknown: this version reads {VERSION}"
        )
    return FrameHeader(SuiteId.of(frame[1]), frame[2], KeyId(bytes(frame[3:HEADER_SIZE])))


def open_frame(key: HpkePrivateKey, frame: bytes, hop: int = 0) -> HopContent:
    """What a frame for hop ``hop`` holds.

    Strict, in this order: header, hop, key id (UNKNOWN_KEY), suite, opening, length field, zero
    padding, protobuf without unknown fields, length of every field. Everything but the key id
    raises INVALID.
    """
    fields = open_fields(key, frame, hop)
    return HopContent(
        task_id=_task_id(fields.task_id),
        window=fields.window,
        ack_key=fields.ack_key,
        analyzer_key_id=_key_id(fields.analyzer_key_id),
        admission=fields.admission,
        sealed=fields.sealed,
    )


def open_fields(key: HpkePrivateKey, frame: bytes, hop: int = 0) -> HopFields:
    """As ``open_frame``, for those who open very many: the same checks, plain values."""
    return read_plaintext(HopOpener(key, hop).open(frame))


class HopOpener:
    """Opens the frames of one hop key, as far as HPKE goes: whoever opens very many needs little
    more for those that are alike (``HopShape``). It holds a private key, and prints nothing of it.
    """

    __slots__ = ("_header", "_hop", "_info", "_key")

    def __init__(self, key: HpkePrivateKey, hop: int = 0) -> None:
        config = key.config
        self._key, self._hop = key, hop
        self._header, self._info = header_and_info(config.suite, hop, config.key_id.raw)

    def open(self, frame: bytes) -> bytes:
        """The plaintext, unread. Raises UNKNOWN_KEY, INVALID."""
        if len(frame) not in _FRAME_SIZES or not frame.startswith(self._header):
            raise _not_ours(frame, self._key, self._hop)
        return self._key.open(frame[HEADER_SIZE:], self._info)


def read_plaintext(plaintext: bytes) -> HopFields:
    """What an opened frame says. Raises INVALID."""
    end = _LENGTH_SIZE + int.from_bytes(plaintext[:_LENGTH_SIZE], "big")
    # From here on the frame opened, so whoever sealed it wrote this: hostile bytes, but not damage.
    if end > len(plaintext):
        raise ShoalError(Kind.INVALID, "a frame's length field reaches beyond its end")
    # Anything but zeros would be a channel past the checks, and a second frame for the same
    # content.
    if plaintext.count(0, end) != len(plaintext) - end:
        raise ShoalError(Kind.INVALID, "a frame's padding is not zero")
    payload = plaintext[_LENGTH_SIZE:end]
    return read_canonical(payload) or _fields(payload)


class HopShape:
    """All plaintexts of ``size`` bytes that say what ``fields`` say but for the ack key and the
    bytes of their one message, in the canonical form: of those nothing else is left to be read.
    """

    __slots__ = ("_at", "_end", "_head", "_key_end", "_middle", "_padding", "_size")

    def __init__(self, fields: HopFields, size: int) -> None:
        """``fields``: of one message, without admission, as a plaintext of ``size`` bytes held
        them.
        """
        writer = HopWriter(fields.task_id, fields.window, fields.analyzer_key_id)
        message = len(fields.sealed[0])
        head, self._middle = writer.around(message)
        length = len(head) + ACK_KEY_SIZE + len(self._middle) + message
        self._head, self._size = length.to_bytes(_LENGTH_SIZE, "big") + head, size
        self._key_end = len(self._head) + ACK_KEY_SIZE
        self._at, self._end = self._key_end + len(self._middle), _LENGTH_SIZE + length
        self._padding = bytes(max(0, size - self._end))

    def read(self, plaintext: bytes) -> tuple[bytes, bytes] | None:
        """Its ack key and its message; None: it is not of this shape, and says what it says."""
        if (
            len(plaintext) == self._size
            and plaintext.startswith(self._head)
            and plaintext.startswith(self._middle, self._key_end)
            and plaintext.endswith(self._padding, self._end)
        ):
            message = plaintext[self._at : self._end]
            return plaintext[len(self._head) : self._key_end], message
        return None


@lru_cache(maxsize=256)
def header_and_info(suite: SuiteId, hop: int, key_id: bytes) -> tuple[bytes, bytes]:
    """What every frame for this hop key begins with, and what it is bound to."""
    return bytes((VERSION, suite)) + _u8(hop, "hop") + key_id, hop_info(hop, KeyId(key_id))


def _not_ours(frame: bytes, key: HpkePrivateKey, hop: int) -> ShoalError:
    """Why a frame's header is not the expected one."""
    header = frame_header(frame)
    if header.hop != hop:
        return ShoalError(Kind.INVALID, f"a frame for hop {header.hop} came to hop {hop}")
    if header.key_id != key.config.key_id:
        return ShoalError(
            Kind.UNKNOWN_KEY,
            "a frame is sealed for a key that this service does not hold: fetch the key schedule "
            "again",
        )
    return ShoalError(Kind.INVALID, "a frame's suite is not that of its key")


# Frames name few tasks and keys, many times: one object for each is quicker to make, to compare,
# and to pickle in bulk.
_task_id = lru_cache(maxsize=1024)(TaskId)
_key_id = lru_cache(maxsize=1024)(KeyId)


def _fields(payload: bytes) -> HopFields:
    """Whatever protobuf reads of it, checked."""
    try:
        message = HopPayload.FromString(payload)
    except DecodeError:
        raise ShoalError(Kind.INVALID, "a frame's payload is no HopPayload") from None
    # A field that is passed over could mean something to the next version, and bind nobody here.
    if len(UnknownFieldSet(message)):
        raise ShoalError(
            Kind.INVALID, "a frame's payload has a field that this version does not know"
        )
    content = HopContent(
        task_id=_task_id(message.task_id),
        window=message.window,
        ack_key=message.ack_key,
        analyzer_key_id=_key_id(message.analyzer_key_id),
        admission=message.admission,
        sealed=tuple(message.sealed),
    )
    return HopFields(
        content.task_id.raw,
        content.window,
        content.ack_key,
        content.analyzer_key_id.raw,
        content.admission,
        content.sealed,
    )


def receipt_mac(ack_key: bytes, status: int, frame: bytes) -> bytes:
    """HMAC-SHA256(ack_key, u8 status || SHA-256(frame)), 32 bytes: whoever opened this frame says
    this status.

    It makes a reply as trustworthy as the hop key, over transports whose far end is not the
    shuffler.
    """
    return hmac_sha256(ack_key, receipt_input(status, sha256(frame)))


def receipt_input(status: int, digest: bytes) -> bytes:
    """What a receipt is the MAC of, 33 bytes; ``digest``: SHA-256 of the frame."""
    return _u8(status, "status") + digest


def verify_receipt(ack_key: bytes, status: int, frame: bytes, mac: bytes) -> None:
    """Return if ``mac`` is the receipt of this frame with this status, compared in constant time;
    else raise BAD_SIGNATURE.
    """
    if not is_hmac_sha256(ack_key, receipt_input(status, sha256(frame)), mac):
        raise ShoalError(
            Kind.BAD_SIGNATURE,
            "a receipt does not belong to this frame and status: keep the report and send it again",
        )


@lru_cache(maxsize=1024)
def _inner_size(suite: SuiteId, payload: int) -> int:
    """Bytes of a frame's plaintext."""
    return _global_size(suite, payload) - HEADER_SIZE - suite.overhead


def _global_size(suite: SuiteId, payload: int) -> int:
    size = frame_size_for(_LENGTH_SIZE + payload, HEADER_SIZE + suite.overhead)
    if size is None:
        raise ShoalError(
            Kind.OVERSIZE,
            f"a report of {payload} bytes fits no frame (at most {LIMITS.frame_sizes[-1]} bytes): "
            "use fewer or smaller messages",
        )
    return size


def _u32(window: int) -> bytes:
    if not 0 <= window < 1 << 32:
        raise _no_window()
    return window.to_bytes(4, "big")


def _no_window() -> ShoalError:
    return ShoalError(Kind.INVALID, "a window is a number in [0, 2^32)")


def _u8(value: int, what: str) -> bytes:
    if not 0 <= value < 256:
        raise ShoalError(Kind.INVALID, f"a {what} is a number in [0, 256)")
    return bytes((value,))

"""The fixed-layout reader of hop payloads says what the codec says, or that it does not know: for
honest payloads and for bytes that somebody made up.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.crypto import envelope
from shoal.crypto.hop_payload import HopFields, HopWriter, read_canonical
from shoal.errors import ShoalError
from shoal.limits import LIMITS
from shoal.protos.submit_pb2 import HopPayload
from tests.sizes import size

EXAMPLES = size(600, 20_000)


def fixed(length: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=length, max_size=length)


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Serialized payloads, most of them right in every length."""
    odd = draw(st.integers(0, 9)) == 0
    length = draw(st.one_of(st.integers(0, 300), st.sampled_from([127, 128, 16_383, 16_384])))
    count = draw(st.sampled_from([0, 1, 1, 1, 2, 3, LIMITS.messages, LIMITS.messages + 1]))
    sealed = [draw(fixed(min(length, 4))).ljust(length, b"\x32") for _ in range(count)]
    if odd and sealed:
        sealed[-1] = draw(st.binary(max_size=200))
    return HopPayload(
        task_id=draw(st.binary(max_size=40) if odd else fixed(32)),
        window=draw(st.one_of(st.just(0), st.integers(0, 2**32 - 1))),
        ack_key=draw(st.binary(max_size=40) if odd else fixed(32)),
        analyzer_key_id=draw(fixed(8)),
        admission=draw(st.one_of(st.just(b""), fixed(184), st.binary(max_size=300))),
        sealed=sealed,
    ).SerializeToString()


# what a protobuf may also hold: empty and over-long fields, other fields, fields again, other types
PIECES = st.one_of(
    st.sampled_from(
        [
            b"\x0a\x20" + bytes(32),
            b"\x0a\xa0\x00" + bytes(32),
            b"\x15" + bytes(4),
            b"\x15\x01\x00\x00\x80",
            b"\x10\x01",
            b"\x1a\x20" + bytes(32),
            b"\x22\x08" + bytes(8),
            b"\x22\x07" + bytes(7),
            b"\x2a\x00",
            b"\x2a\x01\x01",
            b"\x32\x00",
            b"\x32\x02ab",
            b"\x32\x82\x00ab",
            b"\x32\x81\x80\x00a",
            b"\x32\x80\x01" + bytes(128),
            b"\x3a\x00",
            b"\x40\x00",
        ]
    ),
    st.binary(max_size=3),
)


HEAD = b"\x0a\x20" + bytes(32) + b"\x1a\x20" + bytes(32) + b"\x22\x08" + bytes(8)


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """A payload with bytes changed, cut, put in or put behind; or pieces in any order."""
    if draw(st.booleans()):
        return b"".join(draw(st.lists(PIECES, max_size=8)))
    payload = bytearray(draw(payloads()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, min(len(payload), 400)))
        match draw(st.integers(0, 3)):
            case 0 if at < len(payload):
                payload[at] = draw(st.integers(0, 255))
            case 1:
                del payload[at:]
            case 2:
                payload[at:at] = draw(PIECES)
            case _:
                payload += draw(PIECES)
    return bytes(payload)


def of_the_codec(payload: bytes) -> HopFields | None:
    try:
        return envelope._fields(payload)
    except ShoalError:
        return None


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.one_of(payloads(), hostile()))
@example(HEAD + b"\x32\x02ab\x2a\x02cd")  # another field where a second message would be
@example(HEAD + b"\x32\x02ab\x32\x01c\x01")
@example(HEAD + b"\x2a\x7fab\x32\x01")
def test_it_reads_nothing_that_the_codec_does_not_read_alike(payload: bytes) -> None:
    """Planted: a length of zero taken, no look at the last message's end, prefixes not compared,
    any number of messages -> each fails.
    """
    read = read_canonical(payload)
    assert read is None or read == of_the_codec(payload)


@settings(max_examples=EXAMPLES, deadline=None)
@given(payloads())
@example(HEAD[:34] + b"\x15\x00\x01\x00\x00" + HEAD[34:] + b"\x32\x02ab")  # window 256
def test_it_reads_what_an_encoder_writes(payload: bytes) -> None:
    """Else it would save nothing. Beyond 16,383 bytes to a message, which no frame of ours but the
    largest holds, it may leave it to the codec. Planted: a window whose first
    byte is 0, or an admission, not known -> fails.
    """
    right = of_the_codec(payload)
    if right is not None and len(right.sealed[0]) < 1 << 14:
        assert read_canonical(payload) == right


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    fixed(32),
    st.one_of(st.just(0), st.integers(0, 2**32 - 1)),
    fixed(32),
    fixed(8),
    st.one_of(st.just(b""), fixed(184), st.binary(max_size=300)),
    st.sampled_from([1, 2, LIMITS.messages]),
    st.one_of(st.integers(1, 300), st.sampled_from([127, 128, 16_383, 16_384])),
)
def test_the_writer_writes_what_the_codec_writes(
    task_id: bytes,
    window: int,
    ack_key: bytes,
    key_id: bytes,
    admission: bytes,
    count: int,
    length: int,
) -> None:
    """Planted: window 0 or an empty admission written, a window big-endian, a length of one byte
    always -> each fails.
    """
    sealed = [bytes((number,)) * length for number in range(count)]
    payload = HopPayload(
        task_id=task_id,
        window=window,
        ack_key=ack_key,
        analyzer_key_id=key_id,
        admission=admission,
        sealed=sealed,
    )
    written = HopWriter(task_id, window, key_id).write(ack_key, admission, sealed)
    assert written == payload.SerializeToString(deterministic=True)

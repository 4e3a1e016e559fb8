"""Replies over a broker: read by the frame's sender alone, and never the same twice."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter

import pytest

from shoal.crypto import brokered
from shoal.crypto.brokered import ACCEPTED, REPLY_SIZE, make_reply, read_reply, reply_name
from shoal.entropy import SeededEntropy
from shoal.errors import Kind
from tests.cases import for_each
from tests.flipped import last_bit_flipped

FRAME = bytes(range(256)) * 2
KEY = hashlib.sha256(b"ack key").digest()
STATUSES = (ACCEPTED, *(kind.value for kind in Kind))


@for_each("status", STATUSES)
def test_the_sender_reads_every_status(status: int) -> None:
    """Planted: a status left out of those that are tried -> this fails."""
    reply = make_reply(FRAME, KEY, status)
    assert len(reply) == REPLY_SIZE == 48
    assert reply[:16] == reply_name(FRAME) == hashlib.sha256(FRAME).digest()[:16]
    assert read_reply(reply, FRAME, KEY) == status


def test_the_bytes_are_what_the_module_says() -> None:
    """Made again from the formula, by hand. Planted: the status left out of the MAC, or another
    label -> this fails.
    """
    reply = make_reply(FRAME, KEY, 5, SeededEntropy("bytes"))
    nonce = SeededEntropy("bytes").bytes(48)[:16]
    message = b"shoal/v1/reply" + b"\x00" + nonce + b"\x05" + hashlib.sha256(FRAME).digest()
    assert (
        reply
        == hashlib.sha256(FRAME).digest()[:16]
        + nonce
        + hmac.new(KEY, message, "sha256").digest()[:16]
    )


def test_nobody_else_reads_it() -> None:
    """Another frame, another key, a reply that was changed anywhere, cut or made longer. Planted:
    comparing a part of the MAC -> fails.
    """
    reply = make_reply(FRAME, KEY, ACCEPTED)
    assert read_reply(reply, last_bit_flipped(FRAME), KEY) is None
    assert read_reply(reply, FRAME, bytes(32)) is None
    for at in range(REPLY_SIZE):
        assert (
            read_reply(reply[:at] + bytes((reply[at] ^ 1,)) + reply[at + 1 :], FRAME, KEY) is None
        )
    for other in (b"", reply[:-1], reply + b"\x00", reply[:16] + bytes(32)):
        assert read_reply(other, FRAME, KEY) is None


def test_a_frame_that_did_not_open_gets_what_nobody_reads() -> None:
    """Planted: a fixed key instead of a fresh one -> two such replies could be told from the
    others; the second half fails.
    """
    seed = SeededEntropy("unopened")
    replies = [make_reply(FRAME, None, Kind.INVALID.value, seed) for _ in range(50)]
    assert {len(reply) for reply in replies} == {REPLY_SIZE}
    assert {read_reply(reply, FRAME, key) for reply in replies for key in (KEY, bytes(32))} == {
        None
    }
    assert all(
        read_reply(reply, FRAME, SeededEntropy("unopened").bytes(48)[16:]) is None
        for reply in replies[1:]
    )


def test_a_broker_that_publishes_a_frame_again_learns_nothing() -> None:
    """The reply of an unchanged status is another one each time. Planted: the receipt's MAC as the
    reply (it says when the status changed) -> this fails.
    """
    for key, status in (
        (KEY, ACCEPTED),
        (KEY, Kind.WINDOW_CLOSED.value),
        (None, Kind.INVALID.value),
    ):
        replies = [make_reply(FRAME, key, status) for _ in range(200)]
        for part in (slice(16, 32), slice(32, 48)):
            assert Counter(reply[part] for reply in replies).most_common(1)[0][1] == 1


def test_as_much_is_drawn_and_computed_for_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: random bytes instead of a MAC where the frame did not open -> one computation is
    missing, this fails.
    """
    calls: list[int] = []
    tag = brokered._tag

    def counted(key: bytes, nonce: bytes, status: int, digest: bytes) -> bytes:
        calls.append(len(key))
        return tag(key, nonce, status, digest)

    monkeypatch.setattr(brokered, "_tag", counted)

    class Meter(SeededEntropy):
        drawn = 0

        def bytes(self, count: int) -> bytes:
            self.drawn += count
            return super().bytes(count)

    meters = [Meter("as much"), Meter("as much")]
    make_reply(FRAME, KEY, ACCEPTED, meters[0])
    make_reply(FRAME, None, Kind.INVALID.value, meters[1])
    assert meters[0].drawn == meters[1].drawn == 48
    assert calls == [32, 32]

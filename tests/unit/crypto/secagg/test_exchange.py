"""A step comes through whole, its reply opens for its sender alone, and no answer opens another
one.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from shoal.crypto.hpke import generate, open_sealed, seal
from shoal.crypto.secagg.exchange import (
    HEADER_SIZE,
    REPLY_KEY_SIZE,
    exchange_info,
    open_reply,
    open_request,
    request_key_id,
    seal_reply,
    seal_request,
    shares_info,
    single_info,
    vector_info,
)
from shoal.crypto.suites import SuiteId
from shoal.entropy import SYSTEM, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, KeyId, TaskId
from shoal.limits import LIMITS

HOP = {suite: generate(suite) for suite in SuiteId}
SUITES = pytest.mark.parametrize("suite", SuiteId)
AES = SuiteId.X25519_AES128
ROUND = Digest(bytes(range(32)))
TASK = TaskId(bytes(range(1, 33)))
KEY_ID = KeyId(b"KEYIDKEY")


def refused(kind: Kind, act: Any, *args: Any) -> None:
    with pytest.raises(ShoalError) as caught:
        act(*args)
    assert caught.value.kind is kind, str(caught.value)
    assert "\n" not in str(caught.value)


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :]


def test_infos_are_as_documented_and_differ() -> None:
    """Planted: the window little-endian; the zero byte dropped -> this fails."""
    infos = [
        exchange_info(KEY_ID),
        vector_info(ROUND, KEY_ID),
        shares_info(ROUND, KEY_ID),
        single_info(TASK, 258, KEY_ID),
    ]
    assert infos == [
        b"shoal/v1/secagg/exchange\x00KEYIDKEY",
        b"shoal/v1/secagg/vector\x00" + ROUND.raw + b"KEYIDKEY",
        b"shoal/v1/secagg/shares\x00" + ROUND.raw + b"KEYIDKEY",
        b"shoal/v1/secagg/single\x00" + TASK.raw + b"\x00\x00\x01\x02KEYIDKEY",
    ]
    for window in (-1, 2**32):
        refused(Kind.INVALID, single_info, TASK, window, KEY_ID)


@SUITES
@pytest.mark.parametrize("step", [b"", b"x", bytes(range(256)) * 100])
def test_a_step_and_its_reply_come_through(suite: SuiteId, step: bytes) -> None:
    key = HOP[suite]
    request = seal_request(key.config, step, SYSTEM)
    assert request.frame[:HEADER_SIZE] == bytes((1, suite)) + key.config.key_id.raw
    assert len(request.frame) == HEADER_SIZE + suite.overhead + REPLY_KEY_SIZE + len(step)
    assert request_key_id(request.frame) == key.config.key_id
    assert open_request(key, request.frame) == (step, request.reply_key)
    assert (
        open_sealed(key, request.frame[HEADER_SIZE:], exchange_info(key.config.key_id))
        == request.reply_key + step
    )
    reply = seal_reply(request.reply_key, step)
    assert len(reply) == len(step) + 28
    assert open_reply(request.reply_key, reply) == step


def test_every_request_has_its_own_reply_key() -> None:
    """Planted: a constant reply key -> this fails."""
    requests = [seal_request(HOP[AES].config, b"step", SYSTEM) for _ in range(3)]
    assert (
        len({request.reply_key for request in requests})
        == len({request.frame for request in requests})
        == 3
    )


def test_two_answers_to_one_request_do_not_share_a_keystream() -> None:
    """A frame may be replayed by whoever carries it, and be answered twice. Planted: a fixed nonce
    -> this fails.
    """
    key = bytes(range(32))
    first, second = b"there is nothing to do", b"the round is aborted.."
    replies = [seal_reply(key, answer) for answer in (first, second)]
    assert len({reply[:12] for reply in replies}) == 2

    def difference(a: bytes, b: bytes) -> bytes:
        return bytes(x ^ y for x, y in zip(a, b, strict=True))

    assert difference(replies[0][12:-16], replies[1][12:-16]) != difference(first, second)
    assert [open_reply(key, reply) for reply in replies] == [first, second]


def test_a_reply_opens_under_its_own_key_alone() -> None:
    """BAD_SIGNATURE, not INVALID: to the device it means that somebody else answered. Planted:
    ValueError let through -> this fails.
    """
    key, other = bytes(range(32)), bytes(range(1, 33))
    reply = seal_reply(key, b"answer", SeededEntropy("reply"))
    refused(Kind.BAD_SIGNATURE, open_reply, other, reply)
    for place in range(len(reply)):
        refused(Kind.BAD_SIGNATURE, open_reply, key, flipped(reply, place))
    for wrong in (b"", reply[:7], reply[:12], reply[:27], reply[:-1], reply + b"\x00"):
        refused(Kind.BAD_SIGNATURE, open_reply, key, wrong)
    for wrong in (b"", bytes(16), bytes(33)):
        refused(Kind.INVALID, open_reply, wrong, reply)
        refused(Kind.INVALID, seal_reply, wrong, b"answer")


@SUITES
def test_damaged_frames_are_refused(suite: SuiteId) -> None:
    """Planted: the version, suite or key id not compared -> this fails."""
    key = HOP[suite]
    frame = seal_request(key.config, b"step", SYSTEM).frame
    other_suite = SuiteId(suite % 3 + 1)
    refused(Kind.INVALID, open_request, key, flipped(frame, 0))
    refused(Kind.INVALID, open_request, key, frame[:1] + b"\x09" + frame[2:])
    refused(Kind.INVALID, open_request, key, frame[:1] + bytes((other_suite,)) + frame[2:])
    refused(Kind.UNKNOWN_KEY, open_request, key, flipped(frame, 2))
    refused(Kind.UNKNOWN_KEY, open_request, key, flipped(frame, 9))
    for place in (HEADER_SIZE, HEADER_SIZE + suite.enc_length, len(frame) - 1):
        refused(Kind.INVALID, open_request, key, flipped(frame, place))
    for wrong in (b"", frame[:9], frame[:HEADER_SIZE], frame[:50], frame[:-1], frame + b"\x00"):
        refused(Kind.INVALID, open_request, key, wrong)
    for wrong in (b"", frame[:9], frame[:HEADER_SIZE], flipped(frame, 0)):
        refused(Kind.INVALID, request_key_id, wrong)


def test_a_request_for_another_key_or_purpose_is_refused() -> None:
    """Bound through info: a frame sealed for something else is no request."""
    key = HOP[AES]
    header = bytes((1, AES)) + key.config.key_id.raw
    refused(
        Kind.UNKNOWN_KEY,
        open_request,
        generate(AES),
        seal_request(key.config, b"step", SYSTEM).frame,
    )
    for info in (b"", exchange_info(KEY_ID), b"shoal/v1/hop\x00\x00" + key.config.key_id.raw):
        refused(Kind.INVALID, open_request, key, header + seal(key.config, bytes(40), info))


def test_a_request_without_room_for_its_reply_key_is_refused() -> None:
    key = HOP[AES]
    header = bytes((1, AES)) + key.config.key_id.raw
    info = exchange_info(key.config.key_id)
    refused(Kind.INVALID, open_request, key, header + seal(key.config, bytes(31), info))
    assert open_request(key, header + seal(key.config, bytes(32), info)) == (b"", bytes(32))


def test_frames_that_are_too_long_are_neither_made_nor_opened() -> None:
    """At the limit exactly it still goes. Planted: < for <= on either side -> this fails."""
    key = HOP[AES]
    most = LIMITS.exchange_bytes - HEADER_SIZE - AES.overhead - REPLY_KEY_SIZE
    request = seal_request(key.config, bytes(most), SYSTEM)
    assert len(request.frame) == LIMITS.exchange_bytes
    assert open_request(key, request.frame)[0] == bytes(most)
    refused(Kind.OVERSIZE, seal_request, key.config, bytes(most + 1), SYSTEM)
    refused(Kind.OVERSIZE, open_request, key, request.frame + b"\x00")
    refused(Kind.OVERSIZE, request_key_id, request.frame + b"\x00")


def test_an_upload_of_the_largest_chunk_fits_with_every_suite() -> None:
    """A chunk of ``upload_bytes`` in its step, whose other fields take less than 200 bytes."""
    for suite in SuiteId:
        seal_request(HOP[suite].config, bytes(LIMITS.upload_bytes + 200), SYSTEM)


def test_the_reply_key_does_not_print_pickle_or_copy() -> None:
    """Planted: repr=False removed; ``__reduce__`` removed -> this fails."""
    request = seal_request(HOP[AES].config, b"step", SeededEntropy("print"))
    for form in (repr(request.reply_key)[2:-1], request.reply_key.hex()):
        assert form not in repr(request)
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            act(request)
    assert not hasattr(request, "__dict__")

"""Groups of opened frames, and the reply that is put together from them: what protobuf would have
written, receipt by receipt.
"""

from __future__ import annotations

import os
import pickle
from hashlib import sha256

from shoal.crypto.envelope import ACK_KEY_SIZE, HEADER_SIZE, receipt_mac
from shoal.crypto.hop_payload import HopFields
from shoal.errors import Kind
from shoal.protos import submit_pb2
from shoal.shuffler.reports.opened import Grouping, OpenedFrames, Refusal
from shoal.shuffler.reports.taken import Answer, Taken

FRAMES = [bytes(HEADER_SIZE) + os.urandom(501) for _ in range(9)]  # of one key
ACK_KEYS = [os.urandom(ACK_KEY_SIZE) for _ in FRAMES]
STRANGER = Refusal(Kind.UNAUTHENTICATED, "a stranger")


def fields(index: int, window: int, messages: int = 1) -> HopFields:
    sealed = tuple(bytes((index, one)) * 20 for one in range(messages))
    return HopFields(bytes(32), window, ACK_KEYS[index], bytes(8), b"", sealed)


def opened(windows: dict[int, int], who: bytes | Refusal = b"") -> OpenedFrames:
    grouping = Grouping()
    for place, (index, window) in enumerate(windows.items()):
        grouping.add(place, FRAMES[index], fields(index, window), who)
    found: OpenedFrames = pickle.loads(pickle.dumps(grouping.done()))  # noqa: S301 - our own
    return found


def receipts(kinds: list[Kind | None], closed: set[int]) -> bytes:
    """The reply made by protobuf alone; of ``closed`` nobody knows the key."""
    return submit_pb2.SubmitBatchReply(
        receipts=[
            submit_pb2.Receipt(
                status=0 if kind is None else kind.value,
                mac=b""
                if index in closed
                else receipt_mac(ACK_KEYS[index], 0 if kind is None else kind.value, frame),
            )
            for index, (kind, frame) in enumerate(zip(kinds, FRAMES, strict=True))
        ]
    ).SerializeToString()


def test_all_stored_is_what_the_worker_wrote() -> None:
    """One group, one bytes object. Planted: another status in the entries -> fails."""
    found = opened(dict.fromkeys(range(9), 3))
    (group,) = found.groups
    assert group.digests == b"".join(sha256(fields(i, 3).sealed[0]).digest() for i in range(9))
    assert group.sealed == b"".join(fields(i, 3).sealed[0] for i in range(9))
    taken = Taken(9)
    taken.settle(group, group.indices(range(9)), [None] * 9)
    reply = submit_pb2.SubmitBatchReply.FromString(taken.reply(FRAMES))
    assert [(one.status, one.mac) for one in reply.receipts] == [
        (0, receipt_mac(key, 0, frame)) for key, frame in zip(ACK_KEYS, FRAMES, strict=True)
    ]
    assert not taken.refused()


def test_a_mixed_reply_is_what_protobuf_writes() -> None:
    """Two windows in turn, one frame that is none, one of a closed key, one that does not open, one
    refused by the store, a group refused as a whole. Planted: places taken for numbers, a refusal's
    receipt of status 0, a mac where nothing opened -> each fails.
    """
    taken = Taken(9)
    taken.refuse(0, Kind.INVALID)
    taken.refuse(4, Kind.WINDOW_CLOSED)
    held = [1, 2, 3, 5, 6, 7, 8]
    grouping = Grouping()
    for place, index in enumerate(held):
        if index == 6:
            grouping.refuse(place, Refusal(Kind.INVALID, ""))
        else:
            window = 9 if index == 8 else index % 2
            who: bytes | Refusal = STRANGER if index == 8 else b""
            grouping.add(place, FRAMES[index], fields(index, window), who)
    found = grouping.done()
    for place, refusal in found.refused.items():
        taken.refuse(held[place], refusal.kind)
    kinds: dict[int, Kind] = {3: Kind.WINDOW_FULL, 8: Kind.UNAUTHENTICATED}
    for group in found.groups:
        indices = group.indices(held)
        taken.settle(group, indices, [kinds.get(index) for index in indices])
    closed = {0: Kind.INVALID, 4: Kind.WINDOW_CLOSED, 6: Kind.INVALID}
    everything = [{**closed, **kinds}.get(index) for index in range(9)]
    assert taken.reply(FRAMES) == receipts(everything, set(closed))
    assert taken.answers() == [
        Answer(kind, None if index in closed else ACK_KEYS[index])
        for index, kind in enumerate(everything)
    ]
    assert taken.refused() == {
        Kind.INVALID: 2,
        Kind.WINDOW_CLOSED: 1,
        Kind.WINDOW_FULL: 1,
        Kind.UNAUTHENTICATED: 1,
    }
    taken.soften(lambda kind: Kind.UNAVAILABLE if kind is Kind.WINDOW_FULL else kind)
    everything[3] = Kind.UNAVAILABLE
    assert taken.reply(FRAMES) == receipts(everything, set(closed))


def test_what_is_refused_is_not_carried_further() -> None:
    """Nor do keys, messages or devices print. Planted: a field with its repr -> fails."""
    (group,) = opened({1: 0, 2: 0}, STRANGER).groups
    assert (group.sealed, group.digests, group.entries, group.devices) == (b"", b"", b"", ())
    (group,) = opened({1: 0, 2: 0}, b"device-of-somebody").groups
    assert group.devices == (b"device-of-somebody",) * 2
    assert repr(group) == "OpenedGroup()"
    assert "11" not in repr(fields(1, 0))
    assert Taken(0).reply([]) == b""

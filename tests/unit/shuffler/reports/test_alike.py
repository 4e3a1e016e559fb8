"""Frames that are alike are read once. What that finds is what reading each of them finds, in any
order and among hostile ones.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence

import pytest

from shoal.crypto.envelope import (
    HEADER_SIZE,
    HopContent,
    HopOpener,
    HopShape,
    hop_info,
    open_fields,
    open_frame,
    read_plaintext,
    seal_frame,
)
from shoal.crypto.hop_payload import HopFields
from shoal.crypto.hpke import HpkePrivateKey, generate, seal
from shoal.crypto.suites import SuiteId
from shoal.errors import ShoalError
from shoal.ids import KeyId, TaskId
from shoal.shuffler.reports.opened import ACCEPTED, Grouping, OpenedFrames, Refusal, accepted_entry
from shoal.shuffler.reports.opening import ANYBODY, AdmissionChecks, _open
from tests.flipped import last_bit_flipped

AES = SuiteId.X25519_AES128
KEYS = [generate(AES), generate(AES)]
TASKS = [TaskId(bytes((1,)) * 32), TaskId(bytes((1,)) * 31 + b"\x02")]  # their fronts are the same
ANALYZER = [KeyId(b"analyzer"), KeyId(b"analyst.")]


def frame(
    key: HpkePrivateKey = KEYS[0],
    task: TaskId = TASKS[0],
    window: int = 7,
    analyzer: KeyId = ANALYZER[0],
    sealed: Sequence[int] = (90,),
    admission: bytes = b"",
) -> bytes:
    messages = tuple(os.urandom(length) for length in sealed)
    content = HopContent(task, window, os.urandom(32), analyzer, admission, messages)
    return seal_frame(key.config, content)


def plain(key: HpkePrivateKey, whole: bytes) -> bytes:
    return HopOpener(key).open(whole)


def resealed(change: Callable[[bytearray], None], key: HpkePrivateKey = KEYS[0]) -> bytes:
    """A frame whose plaintext was changed by who made it."""
    first = frame(key)
    text = bytearray(plain(key, first))
    change(text)
    return first[:HEADER_SIZE] + seal(key.config, bytes(text), hop_info(0, key.config.key_id))


class Stranger:
    """A verifier who knows nobody by what is shown, and everybody by nothing."""

    proof_size = 0

    def verify(
        self, proof: bytes, task_id: TaskId, window: int, sealed: Sequence[bytes], now: float
    ) -> bytes:
        return b"tag of a device"


def found(frames: list[bytes], checks: AdmissionChecks, *, one_by_one: bool) -> OpenedFrames:
    grouping, openers = Grouping(), {key.config.key_id.raw: HopOpener(key) for key in KEYS}
    if one_by_one:
        grouping.add_alike = lambda *_: False  # type: ignore[method-assign]  # the long way alone
    for place, whole in enumerate(frames):
        try:
            opener = openers[whole[HEADER_SIZE - KeyId.SIZE : HEADER_SIZE]]
            _open(grouping, place, opener, whole, checks)
        except ShoalError as error:
            grouping.refuse(place, Refusal(error.kind, error.message))
    return grouping.done()


def poke(at: int, value: int) -> Callable[[bytearray], None]:
    def change(text: bytearray) -> None:
        text[at] = value

    return change


# Offsets of a plaintext: length 0 to 3, task from 6, window tag 38, ack key from 45, analyzer's key
# from 79, the message's tag and length at 87 and 88.
CHANGES = [
    poke(3, 1),  # its length
    poke(0, 255),
    poke(5, 0x21),
    poke(37, 9),  # the task's last byte
    poke(38, 0x1D),
    poke(39, 8),  # the window
    poke(43, 0x22),
    poke(78, 7),
    poke(80, 0),  # the analyzer's key
    poke(87, 0x2A),
    poke(88, 89),
    poke(88, 91),
    poke(-1, 1),  # padding
    poke(180, 1),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_differs_is_read(change: Callable[[bytearray], None]) -> None:
    """Planted: middle not compared, padding not compared, head compared without the length, the
    size of a plaintext not compared -> each fails.
    """
    first = frame()
    shape = HopShape(open_fields(KEYS[0], first), len(plain(KEYS[0], first)))
    other = plain(KEYS[0], resealed(change))
    assert shape.read(other) is None
    again = plain(KEYS[0], frame())
    assert shape.read(again) == (read_plaintext(again).ack_key, read_plaintext(again).sealed[0])
    assert shape.read(again + b"\x00") is None
    assert shape.read(again[:-1]) is None
    frames = [first, first, resealed(change), frame()]
    short, long = (found(frames, ANYBODY, one_by_one=one) for one in (False, True))
    assert short == long


def test_the_short_way_finds_what_the_long_way_finds() -> None:
    """Tasks, windows, keys, lengths, numbers of messages and shown proofs in turns; one that does
    not open. Each group holds every field, place and receipt as read one by one.

    Planted: the header not compared, so that a frame of another hop key joins -> this fails; a
    digest of the frame for that of the message -> fails.
    """
    kinds = [
        frame(),
        frame(window=0),
        frame(task=TASKS[1]),
        frame(key=KEYS[1]),
        frame(analyzer=ANALYZER[1]),
        frame(sealed=(91,)),
        frame(sealed=(200,)),
        frame(sealed=(90, 90)),
        frame(sealed=(600,)),
        frame(admission=b"a proof that nobody asked for"),
        last_bit_flipped(frame()),
        resealed(poke(3, 1)),
    ]
    order = [kinds[at % len(kinds)] for at in range(0, 5 * 60, 5)] + kinds[::-1] + kinds
    short, long = (found(order, ANYBODY, one_by_one=one) for one in (False, True))
    assert short == long
    assert sum(len(group.places) for group in short.groups) + len(short.refused) == len(order)
    for group in short.groups:
        if group.facts.refusal is not None:
            continue
        for index, place in enumerate(group.places):
            key = next(k for k in KEYS if k.config.key_id.raw == group.facts.hop_key_id)
            content = open_frame(key, order[place])
            assert group.ack_key(index) == content.ack_key
            assert group.entry(index) == accepted_entry(content.ack_key, order[place])
    assert ACCEPTED == 0


def test_a_task_that_asks_who_it_is_never_takes_the_short_way() -> None:
    """Planted: ``add_first`` also for tasks with a verifier -> this fails: no tag of the second."""
    checks = AdmissionChecks({TASKS[0].raw: Stranger()}, 0.0)
    frames = [frame(), frame(), frame(task=TASKS[1]), frame(), frame(task=TASKS[1])]
    asked, anybody = found(frames, checks, one_by_one=False).groups
    assert (len(asked.devices), len(asked.places)) == (3, 3)
    assert (anybody.devices, len(anybody.places)) == ((), 2)


def test_openers_and_shapes_hold_their_tongues() -> None:
    """Planted: an f-string of its slots as repr -> this fails."""
    key = KEYS[0]
    opener = HopOpener(key)
    first = frame(key)
    fields: HopFields = open_fields(key, first)
    shape = HopShape(fields, len(plain(key, first)))
    for text in (repr(opener), repr(shape)):
        assert key.to_raw_secret().hex() not in text
        assert fields.ack_key.hex() not in text
        assert repr(fields.ack_key) not in text
    with pytest.raises(TypeError):
        pickle.dumps(opener)

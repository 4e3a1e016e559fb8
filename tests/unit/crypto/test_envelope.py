"""Both layers: sizes that say nothing, contents that come back whole, and strictness about
everything else.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import itertools
import os
from collections.abc import Callable
from functools import partial

import pytest

from shoal.crypto.envelope import (
    HEADER_SIZE,
    HopContent,
    frame_header,
    frame_size,
    hop_info,
    open_frame,
    open_report,
    receipt_mac,
    report_info,
    seal_frame,
    seal_report,
    sealed_size,
    verify_receipt,
)
from shoal.crypto.hpke import HpkePrivateKey, generate, open_sealed, seal
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.limits import LIMITS, frame_size_for
from shoal.protos.submit_pb2 import HopPayload
from tests.cases import for_each
from tests.sizes import size

TASK = TaskId(bytes(range(32)))
WINDOW = 258
NONCE = bytes(range(16))
HOP = {suite: generate(suite) for suite in SuiteId}
ANALYZER = {suite: generate(suite) for suite in SuiteId}
SUITES = pytest.mark.parametrize("suite", SuiteId)
AES = SuiteId.X25519_AES128


def refused(kind: Kind, act: Callable[[], object]) -> str:
    with pytest.raises(ShoalError) as caught:
        act()
    assert caught.value.kind is kind, str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def content(
    suite: SuiteId = AES,
    *,
    report: bytes = b"\x01",
    window: int = WINDOW,
    messages: int = 1,
    admission: bytes = b"",
) -> HopContent:
    config = ANALYZER[suite].config
    sealed = tuple(
        seal_report(config, TASK, window, os.urandom(16), report) for _ in range(messages)
    )
    return HopContent(TASK, window, os.urandom(32), config.key_id, admission, sealed)


# --- inner layer ----------------------------------------------------------------------------------


def test_info_layouts() -> None:
    """Byte by byte, as docs/WIRE.md has it. Planted: window little-endian; the zero byte dropped ->
    this fails.
    """
    key_id = KeyId(b"KEYIDKEY")
    assert (
        report_info(TASK, WINDOW, key_id)
        == b"shoal/v1/report" + b"\x00" + TASK.raw + b"\x00\x00\x01\x02" + b"KEYIDKEY"
    )
    assert hop_info(3, key_id) == b"shoal/v1/hop" + b"\x00" + b"\x03" + b"KEYIDKEY"
    assert len(report_info(TASK, WINDOW, key_id)) == 60
    assert len(hop_info(3, key_id)) == 22


@SUITES
@pytest.mark.parametrize("report", [b"", b"\x00", b"\xff\xff", bytes(4096)])
def test_report_round_trip(suite: SuiteId, report: bytes) -> None:
    key = ANALYZER[suite]
    sealed = seal_report(key.config, TASK, WINDOW, NONCE, report)
    assert len(sealed) == sealed_size(suite, len(report))
    assert open_report(key, report_info(TASK, WINDOW, key.config.key_id), sealed) == NONCE + report


@SUITES
def test_a_report_opens_in_its_own_context_alone(suite: SuiteId) -> None:
    """Planted: task id, window or key id left out of report_info -> this fails for each."""
    key = ANALYZER[suite]
    sealed = seal_report(key.config, TASK, WINDOW, NONCE, b"\x01")
    tasks, windows, ids = (
        (TASK, TaskId(bytes(32))),
        (WINDOW, WINDOW + 1, 0, 0x02010000),
        (key.config.key_id, KeyId(bytes(8))),
    )
    opened = 0
    for task, window, key_id in itertools.product(tasks, windows, ids):
        info = report_info(task, window, key_id)
        if (task, window, key_id) == (TASK, WINDOW, key.config.key_id):
            opened += open_report(key, info, sealed) == NONCE + b"\x01"
        else:
            refused(Kind.INVALID, partial(open_report, key, info, sealed))
    assert opened == 1


@pytest.mark.parametrize("length", [0, 15, 17])
def test_nonce_of_wrong_length(length: int) -> None:
    assert "16 random bytes" in refused(
        Kind.INVALID, lambda: seal_report(ANALYZER[AES].config, TASK, WINDOW, bytes(length), b"x")
    )


def test_plaintext_shorter_than_a_nonce() -> None:
    key = ANALYZER[AES]
    info = report_info(TASK, WINDOW, key.config.key_id)
    refused(Kind.INVALID, lambda: open_report(key, info, seal(key.config, bytes(15), info)))


@pytest.mark.parametrize("window", [-1, 2**32])
def test_window_out_of_range(window: int) -> None:
    refused(Kind.INVALID, lambda: report_info(TASK, window, KeyId(bytes(8))))


@pytest.mark.parametrize("hop", [-1, 256])
def test_hop_out_of_range(hop: int) -> None:
    refused(Kind.INVALID, lambda: hop_info(hop, KeyId(bytes(8))))


# --- hop layer: sizes -----------------------------------------------------------------------------


@SUITES
def test_size_is_the_same_for_all_values_of_a_task(suite: SuiteId) -> None:
    """Every value of a one-byte report, extremes of wider ones, every window: one sealed size and
    one frame size per task.

    Planted: padding to the payload's own length instead of the global size -> this fails;
    report.rstrip in seal_report -> fails.
    """
    for reports in (
        [bytes((value,)) for value in range(0, 256, 1 if suite is AES else 51)],
        [b"\x00\x00", b"\x00\x01", b"\xff\xff", b"ab"],
        [b"\x00" * 4, b"\xff" * 4, os.urandom(4)],
    ):
        contents = [
            content(suite, report=report, window=window)
            for report in reports
            for window in (0, 1, 2**32 - 1)[:: 1 if suite is AES else 2]
        ]
        assert {len(c.sealed[0]) for c in contents} == {sealed_size(suite, len(reports[0]))}
        announced = frame_size(suite, 1, sealed_size(suite, len(reports[0])))
        assert {len(seal_frame(HOP[suite].config, c)) for c in contents} == {announced}


def test_window_0_at_the_edge_of_a_frame_size() -> None:
    """Protobuf leaves out a window of 0; the frame size must not: checked at every length around an
    edge.

    Planted: ``_WINDOW_FIELD`` not added for window 0 -> this fails.
    """
    config = HOP[AES].config
    seen = set()
    for length in range(300, 380):
        base = HopContent(TASK, 1, bytes(32), KeyId(bytes(8)), b"", (bytes(length),))
        sizes = {
            len(seal_frame(config, dataclasses.replace(base, window=window)))
            for window in (0, 1, 2**32 - 1)
        }
        assert sizes == {frame_size(AES, 1, length)}
        seen |= sizes
    assert seen == {512, 4096}


@SUITES
def test_smallest_global_size_is_chosen(suite: SuiteId) -> None:
    """At the edge of every size: one more byte of admission moves to the next. Planted: always the
    largest -> this fails.
    """
    config, base = HOP[suite].config, content(suite)
    bare = 4 + len(_payload(base)) + HEADER_SIZE + suite.overhead
    for smaller, larger in itertools.pairwise(LIMITS.frame_sizes):
        if bare + 3 > smaller:  # 3 bytes of tag and length of the admission field
            continue
        room = smaller - bare
        fitting = room - (2 if room - 2 < 128 else 3)
        assert (
            len(seal_frame(config, dataclasses.replace(base, admission=bytes(fitting)))) == smaller
        )
        assert (
            len(seal_frame(config, dataclasses.replace(base, admission=bytes(fitting + 1))))
            == larger
        )
    assert frame_size_for(1, 0) == LIMITS.frame_sizes[0]


def _payload(c: HopContent) -> bytes:
    return HopPayload(
        task_id=c.task_id.raw,
        window=c.window,
        ack_key=c.ack_key,
        analyzer_key_id=c.analyzer_key_id.raw,
        admission=c.admission,
        sealed=c.sealed,
    ).SerializeToString()


def test_content_too_large_for_any_frame() -> None:
    """Planted: the None of frame_size_for not handled -> TypeError here."""
    big = HopContent(TASK, 1, bytes(32), KeyId(bytes(8)), b"", (bytes(600),) * 64)
    assert "fewer or smaller messages" in refused(
        Kind.OVERSIZE, lambda: seal_frame(HOP[AES].config, big)
    )
    refused(Kind.OVERSIZE, lambda: frame_size(AES, 64, 600))


# --- hop layer: contents --------------------------------------------------------------------------


@SUITES
@pytest.mark.parametrize(
    ("messages", "admission", "hop"), [(1, b"", 0), (3, b"proof", 0), (1, b"", 255)]
)
def test_frame_round_trip(suite: SuiteId, messages: int, admission: bytes, hop: int) -> None:
    key, before = HOP[suite], content(suite, messages=messages, admission=admission)
    frame = seal_frame(key.config, before, hop)
    header = frame_header(frame)
    assert (header.suite, header.hop, header.key_id) == (suite, hop, key.config.key_id)
    assert frame[:HEADER_SIZE] == bytes((1, suite, hop)) + key.config.key_id.raw
    assert open_frame(key, frame, hop) == before


@SUITES
def test_any_suite_of_the_hop_carries_any_suite_of_the_analyzer(suite: SuiteId) -> None:
    for inner in SuiteId:
        before = content(inner)
        assert open_frame(HOP[suite], seal_frame(HOP[suite].config, before)) == before


def test_largest_content_round_trip() -> None:
    before = HopContent(
        TASK,
        1,
        os.urandom(32),
        KeyId(bytes(8)),
        os.urandom(100),
        tuple(os.urandom(500) for _ in range(64)),
    )
    frame = seal_frame(HOP[AES].config, before)
    assert len(frame) == LIMITS.frame_sizes[-1]
    assert open_frame(HOP[AES], frame) == before


def test_two_frames_of_one_content_share_nothing_but_the_header() -> None:
    c = content()
    first, second = seal_frame(HOP[AES].config, c), seal_frame(HOP[AES].config, c)
    same = sum(a == b for a, b in zip(first[HEADER_SIZE:], second[HEADER_SIZE:], strict=True))
    assert same < 30  # of 501 bytes, about 2 by chance: more than 29 has probability below 1e-20


def test_every_flipped_byte_of_a_frame_is_refused() -> None:
    """Header included: nothing of a frame can be changed. Planted: hop left out of hop_info -> byte
    2 opens (at hop 1).
    """
    key, frame = HOP[AES], seal_frame(HOP[AES].config, content())
    for place in range(len(frame)):
        changed = frame[:place] + bytes((frame[place] ^ 1,)) + frame[place + 1 :]
        kind = Kind.UNKNOWN_KEY if 3 <= place < HEADER_SIZE else Kind.INVALID
        refused(kind, partial(open_frame, key, changed))
    moved = frame[:2] + b"\x01" + frame[3:]
    refused(Kind.INVALID, lambda: open_frame(key, moved, 1))


def test_frame_for_another_hop() -> None:
    frame = seal_frame(HOP[AES].config, content(), 1)
    assert "hop 1 came to hop 0" in refused(Kind.INVALID, lambda: open_frame(HOP[AES], frame))


@SUITES
def test_frame_for_another_key(suite: SuiteId) -> None:
    frame = seal_frame(HOP[suite].config, content(suite))
    assert "key schedule" in refused(Kind.UNKNOWN_KEY, lambda: open_frame(generate(suite), frame))


@for_each("length", [0, 1, HEADER_SIZE, 511, 513, 4095, 4097, 32_767, 32_769, 65_536])
def test_lengths_that_no_frame_has(length: int) -> None:
    assert "512, 4096, 32768" in refused(Kind.INVALID, lambda: frame_header(b"\x01" * length))


@pytest.mark.parametrize("version", [0, 2, 255])
def test_other_versions(version: int) -> None:
    assert f"version {version}" in refused(
        Kind.INVALID, lambda: frame_header(bytes((version,)) + b"\x01" * 511)
    )


@pytest.mark.parametrize("suite", [0, 4, 255])
def test_unknown_suites(suite: int) -> None:
    refused(Kind.INVALID, lambda: frame_header(bytes((1, suite)) + bytes(510)))


@for_each("total", [300, 511, 513, 4095, 40_000])
def test_a_correctly_sealed_frame_of_another_length(total: int) -> None:
    """Nothing but the length is wrong. Planted: the length check removed from open_frame -> this
    fails.
    """
    payload = _payload(content())
    frame = _around(len(payload).to_bytes(4, "big") + payload, total=total)
    assert len(frame) == total
    refused(Kind.INVALID, partial(open_frame, HOP[AES], frame))


def _around(plaintext: bytes, key: HpkePrivateKey = HOP[AES], total: int = 512) -> bytes:
    """A frame around any plaintext of any length that fills it."""
    room = total - HEADER_SIZE - key.config.suite.overhead
    assert len(plaintext) <= room
    sealed = seal(key.config, plaintext.ljust(room, b"\x00"), hop_info(0, key.config.key_id))
    return bytes((1, key.config.suite, 0)) + key.config.key_id.raw + sealed


def test_every_bit_of_padding_is_checked() -> None:
    """Padding could carry a covert mark from a device to the shuffler's log. Planted: the count
    removed -> this fails.
    """
    payload = _payload(content())
    start = len(payload).to_bytes(4, "big") + payload
    room = 512 - HEADER_SIZE - AES.overhead - len(start)
    assert open_frame(HOP[AES], _around(start)).task_id == TASK
    for place in range(0, room, size(7, 1)):
        for bit in (0, 7):
            padding = bytes(place) + bytes((1 << bit,))
            assert "padding" in refused(
                Kind.INVALID, partial(open_frame, HOP[AES], _around(start + padding))
            )


@for_each("beyond", [1, 2, 1 << 16, (1 << 32) - 500])
def test_length_field_beyond_the_end(beyond: int) -> None:
    """Planted: the range check removed -> a payload cut short is read, and this fails."""
    payload = _payload(content())
    room = 512 - HEADER_SIZE - AES.overhead - 4
    frame = _around((room + beyond).to_bytes(4, "big") + payload)
    assert "length field" in refused(Kind.INVALID, lambda: open_frame(HOP[AES], frame))


def test_unknown_fields_and_trailing_bytes_in_the_payload() -> None:
    """Planted: the UnknownFieldSet check removed -> the first fails."""
    payload = _payload(content())
    for extra, words in (
        (b"\x7a\x01x", "does not know"),
        (b"\x00", "no HopPayload"),
        (b"\x7a", "no HopPayload"),
    ):
        frame = _around((len(payload) + len(extra)).to_bytes(4, "big") + payload + extra)
        assert words in refused(Kind.INVALID, partial(open_frame, HOP[AES], frame))


BAD_FIELDS: dict[str, dict[str, object]] = {
    "task id short": {"task_id": bytes(31)},
    "task id long": {"task_id": bytes(33)},
    "task id missing": {"task_id": b""},
    "ack key short": {"ack_key": bytes(31)},
    "ack key missing": {"ack_key": b""},
    "key id short": {"analyzer_key_id": bytes(7)},
    "nothing sealed": {"sealed": []},
    "empty message": {"sealed": [b""]},
    "two lengths": {"sealed": [b"ab", b"a"]},
    "201 messages": {"sealed": [b"x"] * 201},
}


@for_each("changed", BAD_FIELDS.values(), ids=BAD_FIELDS.keys())
def test_fields_of_wrong_length(changed: dict[str, object]) -> None:
    message = HopPayload.FromString(_payload(content()))
    for name, value in changed.items():
        message.ClearField(name)  # type: ignore[arg-type]
        getattr(message, name).extend(value) if isinstance(value, list) else setattr(
            message, name, value
        )
    payload = message.SerializeToString()
    frame = _around(len(payload).to_bytes(4, "big") + payload, total=4096)
    refused(Kind.INVALID, lambda: open_frame(HOP[AES], frame))


def test_content_is_checked_where_it_is_made() -> None:
    good = content()
    for change in (
        {"window": -1},
        {"window": 2**32},
        {"ack_key": b""},
        {"sealed": ()},
        {"sealed": (b"a", b"")},
        {"sealed": (b"",)},
    ):
        refused(Kind.INVALID, partial(dataclasses.replace, good, **change))


def test_random_frames_never_raise_anything_else() -> None:
    """Fuzz: whatever is sealed correctly but holds random bytes costs a typed error. Planted:
    DecodeError not caught -> this fails.
    """
    key = HOP[AES]
    good = _payload(content())
    for _ in range(size(400, 20_000)):
        choice = os.urandom(3)
        if choice[0] < 128:
            body = os.urandom(1 + choice[1])
        else:
            place = int.from_bytes(choice[1:], "big") % len(good)
            body = good[:place] + os.urandom(1 + choice[0] % 4) + good[place + 1 :]
        body = body[:440]
        try:
            open_frame(key, _around(len(body).to_bytes(4, "big") + body))
        except ShoalError as error:
            # either outcome is right, but no other exception
            assert error.kind is Kind.INVALID  # noqa: PT017


# --- receipts -------------------------------------------------------------------------------------


def test_receipt_layout() -> None:
    """Planted: status left out of the MAC -> this fails."""
    mac = receipt_mac(b"k" * 32, 7, b"frame")
    assert (
        mac
        == hmac.new(b"k" * 32, b"\x07" + hashlib.sha256(b"frame").digest(), hashlib.sha256).digest()
    )
    verify_receipt(b"k" * 32, 7, b"frame", mac)


def test_a_receipt_fits_one_key_status_and_frame() -> None:
    """Planted: verify_receipt returns without raising -> this fails."""
    key, frame = os.urandom(32), os.urandom(512)
    mac = receipt_mac(key, 0, frame)
    for status in range(1, 256):
        refused(Kind.BAD_SIGNATURE, partial(verify_receipt, key, status, frame, mac))
    for other_key, other_frame, other_mac in (
        (os.urandom(32), frame, mac),
        (key, frame[:-1], mac),
        (key, frame, mac[:-1]),
        (key, frame, mac + b"\x00"),
        (key, frame, b""),
        (key, frame, bytes(32)),
    ):
        refused(Kind.BAD_SIGNATURE, partial(verify_receipt, other_key, 0, other_frame, other_mac))


@pytest.mark.parametrize("status", [-1, 256])
def test_status_out_of_range(status: int) -> None:
    refused(Kind.INVALID, lambda: receipt_mac(bytes(32), status, b""))


def test_nobody_but_the_hop_reads_a_frame() -> None:
    """The analyzer's key does not open a frame's layer, and the hop's key does not open the sealed
    report.
    """
    c = content()
    frame = seal_frame(HOP[AES].config, c)
    with pytest.raises(ShoalError):
        open_sealed(ANALYZER[AES], frame[HEADER_SIZE:], hop_info(0, HOP[AES].config.key_id))
    with pytest.raises(ShoalError):
        open_report(HOP[AES], report_info(TASK, WINDOW, ANALYZER[AES].config.key_id), c.sealed[0])

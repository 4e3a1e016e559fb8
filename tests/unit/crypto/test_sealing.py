"""A window's sealer makes the frames that ``seal_report`` and ``seal_frame`` make."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from shoal.crypto.envelope import (
    HEADER_SIZE,
    frame_size,
    hop_info,
    open_frame,
    open_report,
    report_info,
    seal_frame,
    sealed_size,
)
from shoal.crypto.hpke import HpkePrivateKey, generate, open_sealed
from shoal.crypto.sealing import WindowSealer
from shoal.crypto.suites import SuiteId
from shoal.entropy import SYSTEM, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from tests.cases import for_each
from tests.sizes import size

TASK = TaskId(bytes(range(32)))
KEYS = {suite: (generate(suite), generate(suite)) for suite in SuiteId}
AES = SuiteId.X25519_AES128


def _sealer(window: int = 258, suite: SuiteId = AES) -> WindowSealer:
    analyzer, hop = KEYS[suite]
    return WindowSealer(analyzer.config, hop.config, TASK, window)


def _plaintext(key: HpkePrivateKey, frame: bytes) -> bytes:
    return open_sealed(key, frame[HEADER_SIZE:], hop_info(0, key.config.key_id))


@for_each(
    "suite, window, messages, length, proof",
    list(itertools.product(SuiteId, (0, 258), (1, 3), (1, 200), (b"", b"p" * 184))),
)
def test_the_frame_is_that_of_the_envelope(
    suite: SuiteId, window: int, messages: int, length: int, proof: bytes
) -> None:
    """Header, size, padding and content, by the plaintexts: encapsulations are random. Planted: the
    nonces of two messages the same, the ack key among the nonces, window 0 without its field's
    bytes in the size -> each fails.
    """
    analyzer, hop = KEYS[suite]
    report = [bytes((number,)) * length for number in range(messages)]
    asked: list[tuple[TaskId, int]] = []

    def prove(task_id: TaskId, window: int, sealed: Sequence[bytes]) -> bytes:
        asked.append((task_id, window))
        assert len(sealed) == messages
        return proof

    frame, ack_key = _sealer(window, suite).seal(report, SeededEntropy(3), prove)
    content = open_frame(hop, frame)
    assert asked == [(content.task_id, content.window)] == [(TASK, window)]
    assert (content.ack_key, content.admission) == (ack_key, proof)
    assert content.analyzer_key_id == analyzer.config.key_id
    info = report_info(TASK, window, analyzer.config.key_id)
    opened = [open_report(analyzer, info, message) for message in content.sealed]
    assert [one[16:] for one in opened] == report
    nonces = {one[:16] for one in opened}
    assert len(nonces) == messages
    assert not any(nonce in ack_key for nonce in nonces)
    again = seal_frame(hop.config, content)
    assert (len(again), again[:HEADER_SIZE]) == (len(frame), frame[:HEADER_SIZE])
    assert _plaintext(hop, again) == _plaintext(hop, frame)


def test_every_report_has_its_own_nonce_and_ack_key() -> None:
    """Planted: one draw kept by the sealer -> fails."""
    analyzer, hop = KEYS[AES]
    sealer, info = _sealer(), report_info(TASK, 258, KEYS[AES][0].config.key_id)
    seen: set[bytes] = set()
    count = size(20, 500)
    for _ in range(count):
        frame, ack_key = sealer.seal([b"x"], SYSTEM, lambda *_: b"")
        (sealed,) = open_frame(hop, frame).sealed
        seen |= {ack_key, open_report(analyzer, info, sealed)[:16], frame}
    assert len(seen) == 3 * count


@for_each(
    "report, kind",
    [
        ([], Kind.INVALID),
        ([b"a", b"bc"], Kind.INVALID),
        ([b"a"] * (LIMITS.messages + 1), Kind.INVALID),
        ([bytes(LIMITS.frame_sizes[-1])], Kind.OVERSIZE),
    ],
)
def test_what_fits_no_frame_is_refused(report: list[bytes], kind: Kind) -> None:
    """Planted: messages not checked -> two of unequal length go out as they are, fails."""
    with pytest.raises(ShoalError) as caught:
        _sealer().seal(report, SYSTEM, lambda *_: b"")
    assert caught.value.kind is kind


@for_each("messages", [5, 6, 7, 47, 48, 49, 60, 200])
@for_each("window", [0, 258])
def test_a_frame_of_fewer_messages_is_as_large_as_one_of_the_most(
    messages: int, window: int
) -> None:
    """Around where a larger frame is needed, by either way of sealing, opened as what it holds.
    Planted: no room for empty slots -> a frame that tells how many messages it has, fails.
    """
    analyzer, hop = KEYS[AES]
    sealer = WindowSealer(analyzer.config, hop.config, TASK, window, messages)
    wanted = frame_size(AES, messages, sealed_size(AES, 2), 7)
    for count in {1, 2, messages - 1, messages}:
        frame, _ = sealer.seal([b"ab"] * count, SYSTEM, lambda *_: b"a proof")
        content = open_frame(hop, frame)
        assert len(content.sealed) == count
        assert len(frame) == len(seal_frame(hop.config, content, messages=messages)) == wanted


def test_no_window_beyond_32_bits() -> None:
    analyzer, hop = KEYS[AES]
    for window in (-1, 1 << 32):
        with pytest.raises(ShoalError):
            WindowSealer(analyzer.config, hop.config, TASK, window)

"""The window that an enrolled device's key draws: by hand, uniform, and of that key and task
alone.
"""

from __future__ import annotations

import hmac
from collections import Counter

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shoal.crypto.admission.fresh_window import fresh_window
from shoal.crypto.signing import SigningKey
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from tests.cases import for_each

TASK = TaskId(bytes(range(32)))
ENTROPY = SeededEntropy("keys that draw")
SEEDS = [ENTROPY.bytes(32) for _ in range(1_200)]
KEYS = [(seed, SigningKey(Ed25519PrivateKey.from_private_bytes(seed))) for seed in SEEDS]


def by_hand(seed: bytes, task_id: TaskId) -> int:
    """RFC 5869, two calls of HMAC, before the windows are counted."""
    extracted = hmac.digest(bytes(32), seed, "sha256")
    info = b"shoal/v1/fresh" + b"\x00" + task_id.raw
    return int.from_bytes(hmac.digest(extracted, info + b"\x01", "sha256"), "big")


def test_it_is_the_number_of_the_document() -> None:
    """Planted: read little-endian -> fails; the context left out -> fails."""
    for seed, key in KEYS[:50]:
        for windows in (1, 2, 7, 365):
            assert fresh_window(key, TASK, windows) == by_hand(seed, TASK) % windows


def test_every_window_is_as_likely_and_tasks_are_independent() -> None:
    """Of 1,200 keys, pairs of the windows of two tasks: the sum of squares over 100/3 has 35
    degrees of freedom, and above 98 with a chance of 1e-7. Planted: the task left out -> the
    windows are the same, 6,000.
    """
    other = TaskId(bytes(32))
    pairs = Counter((fresh_window(key, TASK, 6), fresh_window(key, other, 6)) for _, key in KEYS)
    mean = len(KEYS) / 36
    counts = [pairs[one, two] for one in range(6) for two in range(6)]
    assert sum((count - mean) ** 2 / mean for count in counts) < 98


@for_each("windows", [0, -1, 1 << 32])
def test_numbers_of_windows_that_no_task_has(windows: int) -> None:
    with pytest.raises(ShoalError) as refused:
        fresh_window(SigningKey.generate(), TASK, windows)
    assert refused.value.kind is Kind.INVALID

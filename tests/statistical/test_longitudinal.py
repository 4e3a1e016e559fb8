"""Chained unary encoding over many windows: an unchanged value gives away its lifetime epsilon at
most, whatever the noise averages to.

The attack of ``test_memoized``, on real agents' answers: the attacker has every window's report of
one device, opened, and knows that its value is one of two and never changes. It averages each bit
over the windows: the fresh noise goes, and the permanent bits are left. "Not refuted" is wrong with
probability at most 1e-6 each (``FALSE_ALARM``); seeds are fixed. The same attack with the same
numbers convicts a device without a memory, and with fewer windows an agent whose noise lies on the
true value.

Planted, each fails here: the permanent answer drawn anew in each window (``permanent`` of the book
that knows nothing); the report of ``draw`` in the place of ``report_one``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.audit.audit import AuditResult, audit
from shoal.clients.core import Assignment, assign
from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.clients.reports import answering
from shoal.clients.reports.answering import AnswerRequest, Terms, answer
from shoal.crypto.admission.open import OPEN
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import YesNo
from shoal.entropy import Entropy, SeededEntropy
from shoal.mechanisms.categories.unary import least_one_if_zero
from shoal.mechanisms.longitudinal.l_unary import ChainedUnary
from shoal.mechanisms.parts import bitmaps
from shoal.task import MechanismSpec
from tests.sizes import size
from tests.statistical.test_memoized import unsealed
from tests.worlds.devices.clients import START, make_world

WINDOWS = size(100, 400, 2_000)
TRIALS = 100  # devices per value, half of them to choose the event
LIFETIME = 0.7
WORDS = 1 << 64

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3_600)]
Sent = Callable[[int], NDArray[np.uint8]]
"""uint8[windows, 2]: the bits of all reports of a new device that holds a cell."""


@pytest.fixture(autouse=True)
def _opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "seal", unsealed)


def task() -> Assignment:
    """Permanent bits that are designed for LIFETIME, and little noise in the windows: one report
    has an epsilon0 of 0.6 or so.
    """
    world = make_world(
        domain=YesNo(), mechanism="l_unary", epsilon0=0.5, count=WINDOWS, length=86_400
    )
    zero = least_one_if_zero(WORDS // 2, LIFETIME)
    noise = WORDS // 33
    parts = {
        "permanent_if_one": WORDS // 2,
        "permanent_if_zero": zero,
        "report_if_one": WORDS - noise,
        "report_if_zero": noise,
    }
    world.task = replace(
        world.task, memoized=True, mechanism=MechanismSpec.of("l_unary", k=2, **parts)
    )
    world.sign()
    trusted = trust_task(world.signed_task, world.authorities)
    return assign(trusted, trust_schedule(world.signed_schedule, trusted))


def bits(reports: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.unpackbits(reports.reshape(-1, 1), axis=1, count=2)


def agent(assignment: Assignment, seed: str, windows: int = WINDOWS) -> Sent:
    entropy, terms = SeededEntropy(seed), Terms(None)

    def sent(cell: int) -> NDArray[np.uint8]:
        commitments = MemoryCommitments(entropy)
        frames = [
            answer(
                AnswerRequest(assignment, window, bool(cell), OPEN, terms, START),
                commitments,
                entropy,
            ).frame
            for window in range(windows)
        ]
        return bits(np.frombuffer(b"".join(frames), dtype=np.uint8))

    return sent


def attacked(sent: Sent) -> AuditResult:
    def views(which: int, trials: int) -> Mapping[str, NDArray[np.float64]]:
        shares = np.array([sent(which).mean(axis=0) for _ in range(trials)])
        return {
            "first bit": shares[:, 0],
            "second bit": shares[:, 1],
            "first less second": shares[:, 0] - shares[:, 1],
        }

    return audit(views, LIFETIME, 0.0, TRIALS)


def test_an_unchanged_value_leaks_no_more_than_the_lifetime_epsilon() -> None:
    assignment = task()
    assert assignment.epsilon_first is not None
    assert assignment.epsilon_first < assignment.epsilon0 <= LIFETIME
    assert not attacked(agent(assignment, "kept")).refuted


def test_a_device_without_a_memory_fails_the_same_audit() -> None:
    """The control: the same randomizer, attack and windows, all of it drawn anew in each."""
    mechanism, entropy = task().mechanism, SeededEntropy("afresh")
    assert mechanism is not None
    result = attacked(
        lambda cell: bits(mechanism.randomize(np.full(WINDOWS, cell), entropy).reshape(-1))
    )
    assert result.refuted
    assert result.epsilon_measured_lower > LIFETIME


def test_noise_on_the_true_value_fails_the_same_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect that averages out: what is kept is the truth, and only each window's report is
    noisy.
    """

    def truth(self: ChainedUnary, choice: bytes, key: int, entropy: Entropy) -> bytes:
        return bitmaps.pack([cell == key for cell in range(self.k)])

    monkeypatch.setattr(ChainedUnary, "remember_one", truth)
    assert attacked(agent(task(), "true value", 10)).refuted

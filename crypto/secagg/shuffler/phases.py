"""The states of a round at the shuffler, what devices see of them, and how long they wait between
polls.
"""

from __future__ import annotations

import hashlib
from enum import Enum, auto, unique

from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2
from shoal.secagg import PairwisePlan

WAIT_LEAST_MS, WAIT_MOST_MS = 100, 10_000


@unique
class Stage(Enum):
    """In the order in which a round goes through them; ABORTED can follow on each but DONE."""

    JOIN = auto()
    STARTING = auto()  # the analyzer is asked to start
    SHARE = auto()
    CHECK = auto()  # of what was shared, before anybody masks
    MASK = auto()
    DELIVERING = auto()  # vectors go to the analyzer
    COMMITTING = auto()  # the analyzer is asked to sign who is in the sum
    ENDORSE = auto()  # strict mode alone
    UNMASK = auto()
    SUMMING = auto()  # shares go to the analyzer
    DONE = auto()
    ABORTED = auto()


PHASE = {
    Stage.JOIN: pairwise_pb2.PHASE_JOIN,
    Stage.STARTING: pairwise_pb2.PHASE_JOIN,
    Stage.SHARE: pairwise_pb2.PHASE_SHARE,
    Stage.CHECK: pairwise_pb2.PHASE_CHECK,
    Stage.MASK: pairwise_pb2.PHASE_MASK,
    Stage.DELIVERING: pairwise_pb2.PHASE_MASK,
    Stage.COMMITTING: pairwise_pb2.PHASE_MASK,
    Stage.ENDORSE: pairwise_pb2.PHASE_ENDORSE,
    Stage.UNMASK: pairwise_pb2.PHASE_UNMASK,
    Stage.SUMMING: pairwise_pb2.PHASE_UNMASK,
    Stage.DONE: pairwise_pb2.PHASE_DONE,
    Stage.ABORTED: pairwise_pb2.PHASE_ABORTED,
}
"""As devices see them: while the analyzer is asked, the phase before seems to go on."""

WITH_DEVICES = frozenset(
    {Stage.JOIN, Stage.SHARE, Stage.CHECK, Stage.MASK, Stage.ENDORSE, Stage.UNMASK}
)
"""Those that wait for devices, and so have a deadline."""


def wait_ms(session: bytes, state: Stage, plan: PairwisePlan, left_s: float) -> int:
    """When a device should ask again, in milliseconds.

    A twentieth of the phase, or half of what is left of it (``left_s``, seconds), whichever is
    less, within fixed bounds; spread by up to a quarter either way, by session and state, so that
    not all devices ask at once.
    """
    lengths = {
        pairwise_pb2.PHASE_JOIN: plan.join_s,
        pairwise_pb2.PHASE_SHARE: plan.share_s,
        pairwise_pb2.PHASE_CHECK: plan.share_s,
        pairwise_pb2.PHASE_MASK: plan.mask_s,
    }
    wait_s = min(lengths.get(PHASE[state], plan.unmask_s) / 20, left_s / 2)
    spread = 0.75 + hashlib.sha256(session + bytes((state.value,))).digest()[0] / 510
    return round(min(max(1000 * wait_s * spread, WAIT_LEAST_MS), WAIT_MOST_MS))


def refusal(error: ShoalError) -> pairwise_pb2.Answer:
    """The Answer that tells a device why its step was refused, and when to try again: nothing
    else.
    """
    phase = (
        pairwise_pb2.PHASE_ABORTED if error.kind is Kind.ABORTED else pairwise_pb2.PHASE_UNSPECIFIED
    )
    wait_ms = int(error.retry_after_s * 1000)
    return pairwise_pb2.Answer(
        phase=phase, kind=error.kind.value, reason=error.message, wait_ms=wait_ms
    )

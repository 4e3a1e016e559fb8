"""What a round at the shuffler wants done: the calls to the analyzer that ``Coordinator`` asks its
driver for.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.crypto.secagg.records import Reason
from shoal.protos import pairwise_pb2


@dataclass(frozen=True, slots=True)
class AskStart:
    """Call StartRound; give the reply to ``Coordinator.started``."""

    request: pairwise_pb2.StartRoundRequest


@dataclass(frozen=True, slots=True)
class Deliver:
    """Stream the complete uploads of these sessions to DeliverVectors, in this order; give the
    reply to ``delivered``.

    The order is uniformly random, and the same at every attempt.
    """

    rows: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class AskCommit:
    """Call CommitRound; give the reply to ``committed``."""

    request: pairwise_pb2.CommitRoundRequest


@dataclass(frozen=True, slots=True)
class AskUnmask:
    """Call UnmaskRound with each request in order; give the reply to the last one to ``unmasked``.

    Each holds at most ``analyzer_calls.REQUEST_BYTES`` of bundles. A reply with a reason goes to
    ``unmasked`` at once, whichever it answers.
    """

    requests: tuple[pairwise_pb2.UnmaskRoundRequest, ...]


@dataclass(frozen=True, slots=True)
class End:
    """Call EndRound, best effort, and forget every upload of the round. No answer is awaited."""

    reason: Reason


Effect = AskStart | Deliver | AskCommit | AskUnmask | End

"""How many ended rounds the analyzer remembers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from shoal.analyzer.rounds import open_rounds
from shoal.analyzer.rounds.open_rounds import OpenRound, OpenRounds
from shoal.clocks.clock import FakeClock
from shoal.crypto.secagg.records import Reason
from shoal.ids import Digest, TaskId
from tests.cases import for_each


def ended(number: int, seats: int) -> OpenRound:
    """A round of so many seats that was aborted, and counted."""
    name = Digest.of(number.to_bytes(4, "big"))
    collector = SimpleNamespace(offer_id=name, round_id=name, reason=Reason.OTHER, seats=seats)
    served = SimpleNamespace(task=SimpleNamespace(pairwise=None), task_id=TaskId(bytes(32)))
    return OpenRound(cast(Any, collector), cast(Any, served), 0, 0.0, abort_counted=True)


@for_each(
    "seats, kept",
    [
        ([10] * 2_000, 1_024),
        ([10_000] * 200, 104),
        ([10_000] * 50 + [10] * 1_100, 1_024),
        ([10] * 50 + [10_000] * 105, 104),
        ([10_000], 1),
    ],
    ids=lambda given: str(given if isinstance(given, int) else len(given)),
)
async def test_as_many_as_their_seats_allow(seats: Sequence[int], kept: int) -> None:
    """The latest stay: 1,024 rounds, of 2^20 seats together. Planted: rounds counted alone -> the
    second case keeps 200: fails.
    """
    rounds = OpenRounds(cast(Any, None), FakeClock(1.0))
    for number, count in enumerate(seats):
        rounds.add((TaskId(bytes(32)), 0, number.to_bytes(4, "big")), ended(number, count))
    await rounds.drop_forgotten()
    left = list(rounds.of(TaskId(bytes(32)), 0))
    assert len(left) == kept
    assert sum(one.collector.seats for one in left) <= open_rounds._MOST_SEATS
    last = Digest.of((len(seats) - 1).to_bytes(4, "big"))
    assert left[-1].collector.offer_id == last

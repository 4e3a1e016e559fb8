"""Windows that a new store must never open: of a shuffler whose disk was lost, or by an operator's
word.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.crypto.trust import ServedTask
from shoal.shuffler.core import Capacity, WindowId, row_size
from shoal.shuffler.stores.claims import CLAIM_S, OwnerId
from shoal.shuffler.stores.store import Store


def begun(served: ServedTask, now: float) -> list[WindowId]:
    """Windows that may have taken a report by that time."""
    plan = served.task.windows
    return [
        WindowId(served.task_id, window)
        for window in range(plan.count)
        if plan.start_of(window) - plan.skew_s <= now
    ]


async def close_for_good(
    store: Store, served: ServedTask, windows: Iterable[WindowId]
) -> list[WindowId]:
    """Record windows that have no report here as over; those that were open until now. May be
    repeated. Raises what the store raises.
    """
    store.adopt(served.task_id, served.keys.digest, Capacity.of(served.task), row_size(served.task))
    owner, closed = OwnerId.draw(), list[WindowId]()
    for window in windows:
        if store.record(window) is not None:
            continue
        claim = await store.claim(window, owner, CLAIM_S)
        if claim is not None:
            await store.lapse([claim])
            await store.release(claim)
            closed.append(window)
    return closed

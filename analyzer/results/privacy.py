"""What a release says of its privacy: one message, whatever kind of guarantee stands behind it."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.accounting.guarantee import Guarantee
from shoal.analyzer.records import Spending
from shoal.analyzer.results.cumulative import compose_spendings, composed_words
from shoal.protos import release_pb2
from shoal.task import Task


def privacy_message(
    task: Task,
    guarantee: Guarantee,
    *,
    unit: str,
    received: float,
    assumptions: Sequence[str],
    spendings: Sequence[Spending],
    memoized: release_pb2.Memoized | None = None,
) -> release_pb2.Privacy:
    """The privacy part of a release of ``task``.

    ``unit``: what one device's answer is here. ``received``: the epsilon at what really came, not
    guaranteed; an upper bound. ``assumptions``: of this release, without those of composition.
    ``spendings``: what every batch and window opened so far cost, this one the last.
    """
    composed = compose_spendings(spendings)
    return release_pb2.Privacy(
        epsilon0=guarantee.epsilon0,
        epsilon_upper=guarantee.epsilon_upper,
        epsilon_lower=guarantee.epsilon_lower,
        delta=guarantee.delta,
        n_certified=guarantee.n_honest,
        honest_fraction=float(task.honest_fraction),
        relation=guarantee.relation,
        method=guarantee.method,
        assumptions=[*assumptions, *composed_words(spendings)],
        epsilon_at_received_n=received,
        unit=unit,
        epsilon_cumulative_upper=composed.epsilon_upper,
        delta_cumulative=composed.delta,
        windows_composed=len(spendings),
        tasks_composed=len({spending.task_id for spending in spendings}),
        memoized=memoized,
    )

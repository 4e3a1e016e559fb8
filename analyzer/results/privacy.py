"""What a release says of its privacy: one message, whatever kind of guarantee stands behind it."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.accounting.guarantee import Guarantee
from shoal.accounting.metric import metric_of
from shoal.accounting.metric_words import metric_sentences
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
    metric: release_pb2.Metric | None = None,
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
        metric=metric,
    )


def metric_message(
    task: Task, guarantee: Guarantee, mechanism: object
) -> release_pb2.Metric | None:
    """What single reports of ``task`` promise by distance; None where answers have none."""
    found = metric_of(mechanism, guarantee)
    if found is None:
        return None
    return release_pb2.Metric(
        epsilon_per_km=found.epsilon_per_km,
        cell_diagonal_m=found.diagonal_m,
        across_m=found.across_m,
        epsilon_elsewhere=found.epsilon_elsewhere,
        moves=[
            release_pb2.Move(
                radius_m=move.radius_m, epsilon0=move.epsilon0, epsilon_upper=move.epsilon_upper
            )
            for move in found.moves
        ],
        words=metric_sentences(found, task.windows.count, memoized=task.memoized),
    )

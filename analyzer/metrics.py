"""Counts for the operator, read from the store whenever somebody asks: per task and window at the
finest, never per report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sized
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from shoal.analyzer.core import REASONS, BatchState
from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.store import AnalyzerStore
from shoal.crypto.trust import ServedTask
from shoal.ids import TaskId
from shoal.services.given_up import GivenUpWindows, shown

_WINDOWS_SHOWN = 200  # per task, the latest


class _Batches(Collector):
    def __init__(
        self,
        store: AnalyzerStore,
        rounds: Callable[[], dict[str, int]],
        given_up: Sized,
    ) -> None:
        self._store, self._rounds, self._given_up = store, rounds, given_up

    def collect(self) -> Iterator[Metric]:
        states = Counter(batch.state for batch in self._store.batches())
        batches = GaugeMetricFamily("shoal_analyzer_batches", "Batches by state", labels=["state"])
        for state in BatchState:
            batches.add_metric([state.name.lower()], states[state])
        reports, rejected, releases = 0, Counter[str](), Counter[str]()
        for stored in self._store.releases():
            release = decode_release(stored.release)
            releases["withheld" if release.withheld else "released"] += 1
            reports += release.n
            rejected.update({row.reason: row.count for row in release.rejected})
        ended = CounterMetricFamily(
            "shoal_analyzer_windows", "Windows that ended, by outcome", labels=["outcome"]
        )
        for outcome in ("released", "withheld"):
            ended.add_metric([outcome], releases[outcome])
        refused = CounterMetricFamily(
            "shoal_analyzer_rejected_rows", "Rows that did not count, by reason", labels=["reason"]
        )
        # each from 0 on: of a series that begins at its first count no increase is seen
        for reason, count in sorted({**dict.fromkeys(REASONS, 0), **rejected}.items()):
            refused.add_metric([reason], count)
        rounds = CounterMetricFamily(
            "shoal_analyzer_rounds",
            "Rounds by how they ended, or open, since the start",
            labels=["end"],
        )
        for end, count in self._rounds().items():
            rounds.add_metric([end], count)
        yield from (
            batches,
            ended,
            refused,
            rounds,
            GaugeMetricFamily(
                "shoal_analyzer_given_up_windows",
                "Windows that an operator gave up",
                value=len(self._given_up),
            ),
            CounterMetricFamily("shoal_analyzer_reports", "Reports that counted", value=reports),
        )


def registry_of(
    store: AnalyzerStore, rounds: Callable[[], dict[str, int]] = dict, given_up: Sized = ()
) -> CollectorRegistry:
    """``rounds``: of secure aggregation, how many are open, and how many ended since the start, by
    how.
    """
    registry = CollectorRegistry()
    registry.register(_Batches(store, rounds, given_up))
    return registry


def status_of(
    store: AnalyzerStore, tasks: list[ServedTask], given_up: GivenUpWindows | None = None
) -> dict[str, Any]:
    """{"tasks": [{"task_id", "name", "windows", "receiving", "processing", "released", "withheld",
    "ended"}]}, by name.

    receiving to withheld count windows; "ended": [{"window", "n", "rejected", "withheld"}], the
    latest 200: what the releases say. "given_up": what operators gave up, where there is any.
    """
    states = Counter((batch.manifest.task_id, batch.state) for batch in store.batches())
    withheld: Counter[TaskId] = Counter()
    ended: dict[TaskId, list[dict[str, Any]]] = {}
    for stored in store.releases():
        release = decode_release(stored.release)
        withheld[stored.task_id] += bool(release.withheld)
        rejected = sum(row.count for row in release.rejected)
        row = {
            "window": release.window,
            "n": release.n,
            "rejected": rejected,
            "withheld": bool(release.withheld),
        }
        ended.setdefault(stored.task_id, []).append(row)
    rows = [
        {
            "task_id": served.task_id.hex,
            "name": served.task.name,
            "windows": served.task.windows.count,
            "receiving": states[served.task_id, BatchState.RECEIVING],
            "processing": states[served.task_id, BatchState.PROCESSING],
            "released": len(ended.get(served.task_id, [])) - withheld[served.task_id],
            "withheld": withheld[served.task_id],
            "ended": sorted(ended.get(served.task_id, []), key=lambda row: int(row["window"]))[
                -_WINDOWS_SHOWN:
            ],
            **shown([] if given_up is None else given_up.of(served.task_id)),
        }
        for served in tasks
    ]
    return {"tasks": sorted(rows, key=lambda row: (str(row["name"]), str(row["task_id"])))}

"""What an operator may see: tasks, window states, counts of windows that are decided. Never a count
of an open window: watched often enough, that would be the arrival times of its reports.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from shoal.errors import Kind
from shoal.ids import TaskId
from shoal.services.conditions import Condition
from shoal.services.given_up import GivenUp, GivenUpWindows, shown
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.reports.ingress import Ingress
from shoal.shuffler.reports.lifecycle import Lifecycle
from shoal.shuffler.reports.mqtt_bridge import MqttBridge
from shoal.shuffler.rounds.driver import RoundDriver
from shoal.shuffler.rounds.ingress import RoundsIngress
from shoal.shuffler.stores.store import Store, WindowRecord
from shoal.shuffler.tasks import ShufflerTasks

_WINDOWS_SHOWN = 200  # per task, the latest
_STUBBORN = 5  # failures in a row after which the service says that it isn't ready
_DAY_S = 86_400
_OUTCOMES = (WindowState.ACKNOWLEDGED, WindowState.WITHHELD, WindowState.EXPIRED)
_PATIENT = 12  # while the analyzer is away or busy: about ten minutes, as pauses grow


class StatusPage:
    """What /status and /metrics (as a Prometheus collector) show, and the conditions of windows,
    rounds and broker.
    """

    def __init__(
        self,
        tasks: ShufflerTasks,
        store: Store,
        lifecycle: Lifecycle,
        ingress: Ingress,
        stopping: Callable[[], bool],
        driver: RoundDriver,
        rounds: RoundsIngress,
        bridge: MqttBridge | None = None,
        machine: Callable[[], dict[str, Any]] = dict,
        now: Callable[[], float] = time.time,
        given_up: GivenUpWindows | None = None,
    ) -> None:
        """``machine``: what /status tells of certificates, disk and clock."""
        self._tasks, self._store, self._lifecycle, self._ingress, self._stopping = (
            tasks,
            store,
            lifecycle,
            ingress,
            stopping,
        )
        self._driver, self._rounds, self._bridge = driver, rounds, bridge
        self._machine, self._now, self._given_up = machine, now, given_up

    def conditions(self) -> Iterator[Condition]:
        """What is wrong with the windows, the rounds and the broker, for ``Conditions.watch``."""
        if self._stopping():
            yield Condition("stopping", "", "stopping")
        if not self._tasks.served:
            yield Condition("task", "", "no task is served: put signed tasks into tasks_dir")
        stuck = [
            kind
            for kind, failures in self._lifecycle.trouble().values()
            if failures >= (_PATIENT if kind is Kind.UNAVAILABLE else _STUBBORN)
        ]
        if stuck:
            yield Condition(
                "stuck", "windows", f"{len(stuck)} windows are stuck ({stuck[0].name}): see the log"
            )
        unfinished = sum(attempts >= _STUBBORN for attempts in self._driver.failing.values())
        if unfinished:
            yield Condition(
                "stuck", "rounds", f"{unfinished} windows of rounds can't be finished: see the log"
            )
        if self._bridge is not None and self._bridge.trouble:
            yield Condition(
                "broker",
                "",
                f"frames are taken over gRPC alone: {self._bridge.trouble}",
                stops=False,
            )

    def status(self) -> dict[str, Any]:
        """For /status, to which the admin port adds ``ready`` and ``conditions``."""
        records, trouble = self._by_task(), self._lifecycle.trouble()
        return {
            "service": "shuffler",
            "tasks": [
                {
                    "task_id": task_id.hex,
                    "name": served.task.name,
                    "pairwise": served.task.pairwise is not None,
                    "windows": served.task.windows.count,
                    "min_batch": served.task.min_batch,
                    "max_batch": served.task.max_batch,
                    "states": {
                        state.name: count
                        for state, count in sorted(_states(records.get(task_id, {})).items())
                    },
                    "shown": [
                        _window_json(number, record, trouble.get(WindowId(task_id, number)))
                        for number, record in sorted(records.get(task_id, {}).items())[
                            -_WINDOWS_SHOWN:
                        ]
                    ],
                    **shown(self._lines(task_id)),
                }
                for task_id, served in sorted(self._tasks.served.items())
            ],
            "rounds": {
                task: {
                    "open": dict(sorted(phases.items())),
                    "ended": dict(sorted(ended.items())),
                    "blamed": self._driver.blamed()[task],
                }
                for task, (phases, ended) in sorted(self._driver.counts().items())
            },
            "refused": {
                kind.name: count
                for kind, count in sorted(self._refused().items(), key=lambda item: item[0].value)
            },
            **self._mqtt(),
            **self._machine(),
        }

    def collect(self) -> Iterator[Metric]:
        """Prometheus: windows per task and state, reports in decided windows per task and outcome,
        refusals by kind, and what the bridge to a broker left unanswered: never what it brought.
        """
        windows = GaugeMetricFamily(
            "shoal_shuffler_windows", "Windows by state", labels=["task", "state"]
        )
        reports = CounterMetricFamily(
            "shoal_shuffler_reports",
            "Distinct reports of decided windows",
            labels=["task", "outcome"],
        )
        damaged = CounterMetricFamily(
            "shoal_shuffler_damaged_rows",
            "Acknowledged rows that the disk lost or changed",
            labels=["task"],
        )
        for task_id, records in self._by_task().items():
            damaged.add_metric([task_id.short], sum(record.damaged for record in records.values()))
            for state, count in _states(records).items():
                windows.add_metric([task_id.short, state.name], count)
            # each from 0 on: of a series that begins at its first count no increase is seen
            totals = Counter(dict.fromkeys(_OUTCOMES, 0))
            for record in records.values():
                if record.outcome is not None:
                    totals[record.outcome] += record.reports
            for outcome, total in totals.items():
                reports.add_metric([task_id.short, outcome.name], total)
        refused = CounterMetricFamily(
            "shoal_shuffler_refused", "Refused submissions by kind", labels=["kind"]
        )
        for kind, count in self._refused().items():
            refused.add_metric([kind.name], count)
        phases = GaugeMetricFamily(
            "shoal_shuffler_open_rounds", "Rounds under way by phase", labels=["task", "phase"]
        )
        ended = CounterMetricFamily(
            "shoal_shuffler_rounds", "Rounds that ended, by how", labels=["task", "end"]
        )
        for task, (open_rounds, ends) in self._driver.counts().items():
            for phase, count in open_rounds.items():
                phases.add_metric([task, phase], count)
            for end, count in ends.items():
                ended.add_metric([task, end], count)
        blamed = CounterMetricFamily(
            "shoal_shuffler_blamed",
            "Devices that broke a round, by proof, once per window",
            labels=["task"],
        )
        for task, count in self._driver.blamed().items():
            blamed.add_metric([task], count)
        yield from (windows, reports, damaged, refused, phases, ended, blamed)
        yield self._ingress.times.metric()
        yield from (self._queue(), self._days_left(), self._given())
        if self._bridge is not None:
            yield GaugeMetricFamily(
                "shoal_shuffler_mqtt_connected",
                "1 while the MQTT broker is reached",
                value=self._bridge.connected,
            )
            dropped = CounterMetricFamily(
                "shoal_shuffler_mqtt_dropped",
                "Messages of the broker without a reply, by why",
                labels=["reason"],
            )
            for reason, count in self._bridge.dropped.items():
                dropped.add_metric([reason], count)
            yield dropped

    def _queue(self) -> Metric:
        return GaugeMetricFamily(
            "shoal_shuffler_queue_share",
            "Work of batches that waits, of the most that may, in quarters rounded down",
            value=self._ingress.backlog.share,
        )

    def _given(self) -> Metric:
        given = GaugeMetricFamily(
            "shoal_shuffler_given_up_windows",
            "Windows that an operator gave up, by task",
            labels=["task"],
        )
        for task_id in self._tasks.served:
            given.add_metric([task_id.short], len(self._lines(task_id)))
        return given

    def _days_left(self) -> Metric:
        left = GaugeMetricFamily(
            "shoal_shuffler_task_days_left",
            "Whole days until a task's last window ends",
            labels=["task"],
        )
        for task_id, served in self._tasks.served.items():
            plan = served.task.windows
            seconds = plan.end_of(plan.count - 1) - self._now()
            left.add_metric([task_id.short], seconds // _DAY_S)
        return left

    def _lines(self, task_id: TaskId) -> list[GivenUp]:
        return [] if self._given_up is None else self._given_up.of(task_id)

    def _mqtt(self) -> dict[str, Any]:
        bridge = self._bridge
        return (
            {}
            if bridge is None
            else {
                "mqtt": {
                    "connected": bridge.connected,
                    "dropped": dict(sorted(bridge.dropped.items())),
                }
            }
        )

    def _refused(self) -> Counter[Kind]:
        return self._ingress.refused + self._rounds.refused

    def _by_task(self) -> dict[TaskId, dict[int, WindowRecord]]:
        grouped: dict[TaskId, dict[int, WindowRecord]] = {}
        for window, record in self._store.records().items():
            grouped.setdefault(window.task_id, {})[window.window] = record
        return grouped


def _states(records: dict[int, WindowRecord]) -> Counter[WindowState]:
    return Counter(record.state for record in records.values())


def _window_json(
    number: int, record: WindowRecord, trouble: tuple[Kind, int] | None
) -> dict[str, Any]:
    shown: dict[str, Any] = {"window": number, "state": record.state.name}
    if record.outcome is not None:
        shown["outcome"] = record.outcome.name
    if record.state not in (WindowState.OPEN, WindowState.CLOSING):
        shown["reports"] = record.reports
    if record.damaged:
        shown["damaged_rows"] = record.damaged
    if trouble is not None:
        shown["failing"] = {"kind": trouble[0].name, "attempts": trouble[1]}
    return shown

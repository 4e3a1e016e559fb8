"""Random lives of a shuffler against a model: submissions, repeats, late ones, time, failures of
disk and analyzer, crashes.

The model is the law, not the implementation: a report that was acknowledged is delivered exactly
once, with its window, iff the window had min_batch distinct reports; nothing refused for good is
delivered; no batch is smaller than min_batch; a window is delivered at most once; no device has two
reports in a window; a window closes by the clock or by being full. A crash abandons all objects
between two steps (within a step: tests/faults).

Planted, each caught: equal neighbours delivered; ``append`` blind to the state; ``verdict`` always
ENOUGH; a batch shredded after its first attempt; a new secret when an inbox is opened again; tags
kept in memory alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shoal import failpoints
from shoal.clocks.clock import FakeClock
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.reports.lifecycle import Lifecycle
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport, WindowRecord
from shoal.shuffler.stores.threaded import ThreadedStore
from shoal.shuffler.tasks import ShufflerTasks
from tests.sizes import FULL, size
from tests.worlds.services.shuffler import GRACE, LENGTH, START, World

MIN, MAX, WINDOWS = 3, 6, 3
POOL, DEVICES = 11, 8  # reports that may come, and their senders: three of these have two each
POINTS = [
    "inbox.insert",
    "inbox.commit",
    "inbox.committed",
    "state.open",
    "state.closing",
    "seal.write",
    "seal.rename",
    "state.sealed",
]
POINTS += [
    "inbox.unlink",
    "state.delivering",
    "state.acknowledged",
    "batch.unlink",
    "state.shredded",
    "state.lapse",
    "writer.append",
]


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # no fsync is tested here
        self.folder = Path(tempfile.mkdtemp(prefix="shoal-windows-", dir=memory))
        self.loop = asyncio.new_event_loop()
        self.world, self.clock = World(self.folder), FakeClock(START)
        self.world.data_dir.mkdir()
        self.abandoned: list[SqliteStore] = []
        self.acked: dict[int, set[bytes]] = {w: set() for w in range(WINDOWS)}
        self.unsure: dict[int, set[bytes]] = {w: set() for w in range(WINDOWS)}
        self.delivered: dict[int, list[bytes]] = {}
        self.answers: list[bool | None] = []

    @initialize(
        limited=st.booleans(), answers=st.lists(st.sampled_from([True, False, None]), max_size=4)
    )
    def begin(self, limited: bool, answers: list[bool | None]) -> None:
        self.answers = list(answers)
        self.published = self.world.publish(
            count=WINDOWS, min_batch=MIN, max_batch=MAX if limited else 0
        )
        self.limited = limited
        self.pool = [self.published.sealed() for _ in range(POOL)]
        self.owner = {
            report: bytes([number % DEVICES]) * 32 for number, report in enumerate(self.pool)
        }
        self.start()

    def start(self) -> None:
        world = self.world
        files = SqliteStore(world.data_dir)
        self.abandoned.append(files)
        self.store = ThreadedStore(files, commit_ms=0)
        authorities = frozenset({world.authority.public})
        self.book = ShufflerTasks(
            self.store,
            self.clock,
            world.tasks_dir,
            world.keys_dir,
            authorities,
            world.shuffler.public,
        )
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        self.lifecycle = Lifecycle(
            self.book, self.store, self, self.clock, SeededEntropy("windows"), 2.0
        )

    async def attempt(self, served: Any, window: WindowId, record: WindowRecord) -> bool:
        """The analyzer: works, is away (None), or needs another look (False)."""
        answer = self.answers.pop(0) if self.answers else True
        if answer is None:
            raise ShoalError(Kind.UNAVAILABLE, "away")
        data = await self.store.read_rows(window, 0, record.rows)
        rows = [data[at : at + record.row_size] for at in range(0, len(data), record.row_size)]
        if answer:
            assert self.delivered.setdefault(window.window, rows) == rows
        return answer

    # --- what may happen --------------------------------------------------------------------------

    @rule(
        window=st.integers(0, WINDOWS - 1),
        picks=st.lists(st.integers(0, POOL - 1), min_size=1, max_size=3),
    )
    def submit_few(self, window: int, picks: list[int]) -> None:
        self.submit(window, picks)

    @rule(
        window=st.integers(0, WINDOWS - 1),
        picks=st.lists(st.integers(0, POOL - 1), min_size=3, max_size=8),
    )
    def submit_many(self, window: int, picks: list[int]) -> None:
        self.submit(window, picks)

    def submit(self, window: int, picks: list[int]) -> None:
        """Any mixture of new reports, repeats, and second reports of a device."""
        reports = [self.pool[pick] for pick in picks]
        one = WindowId(self.published.task_id, window)
        try:
            group = [AdmittedReport(one, (report,), self.owner[report]) for report in reports]
            outcomes = self.loop.run_until_complete(self.store.append(group))
        except ShoalError:
            outcomes = [Kind.INTERNAL] * len(reports)
        for report, outcome in zip(reports, outcomes, strict=True):
            if outcome is None:
                self.acked[window].add(report)
            elif outcome is Kind.CONFLICT:
                others = (self.acked[window] | self.unsure[window]) - {report}
                assert self.owner[report] in {self.owner[other] for other in others}
            elif outcome in (Kind.INTERNAL, Kind.OVERLOADED):
                self.unsure[window].add(report)
        if self.limited:
            assert len(self.acked[window]) <= MAX

    @rule(seconds=st.sampled_from([1, 60, LENGTH // 2, -LENGTH // 2]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.tick()

    @rule(ticks=st.integers(1, 4))
    def a_window_ends(self, ticks: int) -> None:
        self.clock.advance(LENGTH + GRACE)
        for _ in range(ticks):
            self.tick()

    @rule()
    def tick(self) -> None:
        async def run() -> None:
            with contextlib.suppress(OSError):
                await self.lifecycle.tick()
            await self.lifecycle.settle()

        self.loop.run_until_complete(run())
        self.clock.advance(2)

    @rule(answers=st.lists(st.sampled_from([True, False, None]), max_size=4))
    def the_analyzer_will(self, answers: list[bool | None]) -> None:
        self.answers = list(answers)

    @rule(
        point=st.sampled_from(POINTS),
        way=st.sampled_from(["eio", "enospc"]),
        number=st.integers(1, 3),
    )
    def the_disk_will_fail(self, point: str, way: str, number: int) -> None:
        failpoints.arm(f"{point}={way}@{number}")

    @rule()
    def crash(self) -> None:
        """The process is gone between two steps; everything is opened again from the disk."""
        failpoints.arm("")
        self.loop.run_until_complete(self.store.close())
        self.start()

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def no_batch_is_too_small_and_none_has_a_repeat(self) -> None:
        for rows in self.delivered.values():
            assert len(rows) >= MIN
            assert len(rows) == len(set(rows))
            assert not self.limited or len(rows) <= MAX
            assert len({self.owner[row] for row in rows}) == len(rows)

    @invariant()
    def windows_close_by_rule(self) -> None:
        if not hasattr(self, "store"):
            return
        for window, record in self.store.records().items():
            full = (
                self.limited and len(self.acked[window.window] | self.unsure[window.window]) >= MAX
            )
            if record.state is not WindowState.OPEN and not full:
                assert max(self.clock.time, self.latest) >= self.published.task.windows.deadline_of(
                    window.window
                )

    @property
    def latest(self) -> float:
        self._latest = max(getattr(self, "_latest", 0.0), self.clock.time)
        return self._latest

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                self.end()
        finally:
            failpoints.arm("")
            for store in self.abandoned:
                store.close()
            self.loop.close()
            shutil.rmtree(self.folder)

    def end(self) -> None:
        """Everything is brought to its end, and counted."""
        self.answers = []
        self.crash()
        self.clock.time = START + WINDOWS * LENGTH + GRACE
        for _ in range(40):
            self.tick()
            self.clock.advance(300)
        self.loop.run_until_complete(self.store.close())
        self.no_batch_is_too_small_and_none_has_a_repeat()
        for window in range(WINDOWS):
            record = self.store.record(WindowId(self.published.task_id, window))
            assert record is not None
            assert record.state is WindowState.SHREDDED
            rows, possible = (
                set(self.delivered.get(window, [])),
                self.acked[window] | self.unsure[window],
            )
            assert rows <= possible
            if len(self.acked[window]) >= MIN:
                assert self.acked[window] <= rows
            if len(possible) < MIN:
                assert not rows
        assert not [
            path
            for path in self.world.data_dir.iterdir()
            if path.name.startswith(("inbox", "batch"))
        ]


# A step costs real disk writes, so a failure is shrunk under the full size only.
_PHASES = (Phase.generate, Phase.shrink) if FULL else (Phase.generate,)
Machine.TestCase.settings = settings(
    max_examples=size(60, 2_000), stateful_step_count=size(30, 60), phases=_PHASES
)
TestWindows = pytest.mark.timeout(1_800)(Machine.TestCase)

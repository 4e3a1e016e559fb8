"""The steps of the discoveries that an analyzer serves: made when they are due, kept before they
are told, and the same for ever.

A release and the step that follows from it need no common transaction: the step is made of what is
stored, by a rule that gives the same one again (``campaign``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from shoal.analyzer.discovery.campaign import ReleasedLevel, due_step, level_asked
from shoal.analyzer.results.release import decode_release
from shoal.analyzer.store import AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import SureClock
from shoal.crypto.discovery_steps import DiscoveryStep, SignedStep, sign_step, trust_step
from shoal.crypto.signing import SigningKey
from shoal.crypto.trust import ServedTask
from shoal.domain import Discovery
from shoal.errors import ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.log import get_log
from shoal.questions.discovery import DiscoveryLevel
from shoal.storage.checksums import fits, row_digest

log = get_log("analyzer")
_LOOK_S = 1.0  # between two looks at whether a step is due
_COLUMNS = "task_id, window, step, digest"


class DiscoverySteps:
    """``given_up``: windows that operators gave up, by (task, window). Thread-safe as the store
    is.
    """

    def __init__(
        self,
        store: AnalyzerStore,
        tasks: AnalyzerTasks,
        signing_key: SigningKey,
        clock: SureClock,
        given_up: Callable[[TaskId], Collection[int]],
    ) -> None:
        self._store, self._tasks, self._key, self._clock = store, tasks, signing_key, clock
        self._given_up = given_up
        self._released: dict[tuple[TaskId, int], ReleasedLevel] = {}

    # --- what is told -----------------------------------------------------------------------------

    def last(self, served: ServedTask) -> bytes | None:
        """The SignedDiscoveryStep of the last window that asks anything; None: window 0 is, or the
        task is no discovery.
        """
        if not isinstance(served.task.domain, Discovery):
            return None
        steps = self._known(served)
        return max(steps, key=lambda signed: signed.step.window).data if steps else None

    def level(self, served: ServedTask, window: int) -> DiscoveryLevel | None:
        """What a window asks; None: nothing, or the task is no discovery."""
        discovery = served.task.domain
        if not isinstance(discovery, Discovery):
            return None
        return level_asked(discovery, [signed.step for signed in self._known(served)], window)

    def _known(self, served: ServedTask) -> list[SignedStep]:
        """Verified; a damaged one is as none: it is made again."""
        with self._store.reading() as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM steps WHERE task_id = ? ORDER BY window",  # noqa: S608
                (served.task_id.raw,),
            ).fetchall()
        return [trust_step(row[2], served.task, served.task_id) for row in rows if fits(row)]

    # --- what is made -----------------------------------------------------------------------------

    async def run_forever(self) -> None:
        """Make what is due, until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self.look)
            except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again
                log.error("a step of a discovery can't be made yet", error=error)
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        """Make every step that is due now. Nothing while the clock is disputed. Raises OVERLOADED:
        the disk.
        """
        discoveries = [
            served for served in self._tasks.all() if isinstance(served.task.domain, Discovery)
        ]
        now = self._clock.decide() if discoveries else None
        if now is None:
            return
        for served in discoveries:
            step = self._due(served, now)
            if step is not None:
                self._make(served, step)

    def _due(self, served: ServedTask, now: float) -> DiscoveryStep | None:
        task, task_id = served.task, served.task_id
        steps = [signed.step for signed in self._known(served)]
        asked = {0, *(step.window for step in steps)}
        ended = {window for window in asked if self._store.released(task_id, window)}
        released = {window: found for window in ended if (found := self._found(task_id, window))}
        ended |= asked & set(self._given_up(task_id))
        return due_step(task, task_id, steps, released, ended, now)

    def _found(self, task_id: TaskId, window: int) -> ReleasedLevel | None:
        """None: it is withheld, or damaged."""
        known = self._released.get((task_id, window))
        if known is not None:
            return known
        for stored in self._store.releases():
            if (stored.task_id, stored.window) == (task_id, window):
                try:
                    release = decode_release(stored.release)
                except ShoalError:
                    return None
                if release.withheld or not release.HasField("discovered"):
                    return None
                found = ReleasedLevel(
                    tuple(release.discovered.beginnings), Digest.of(stored.release)
                )
                self._released[task_id, window] = found
                return found
        return None

    def _make(self, served: ServedTask, step: DiscoveryStep) -> None:
        discovery = served.task.domain
        assert isinstance(discovery, Discovery)  # noqa: S101 - of ``look``
        signed = sign_step(step, discovery, self._key)
        with self._store.transaction() as db:
            row = (served.task_id.raw, step.window, signed.data)
            db.execute(
                f"INSERT INTO steps ({_COLUMNS}) VALUES (?, ?, ?, ?)",  # noqa: S608
                (*row, row_digest(*row)),
            )
        hit("analyzer.discovery.step")
        log.info(
            "discovery is over" if step.level is None else "next level of a discovery",
            task=served.task_id,
            window=step.window,
        )

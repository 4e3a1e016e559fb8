"""The steps of the discoveries that an analyzer serves: made when they are due, kept before they
are told, and the same for ever.

A release and the step that follows from it need no common transaction: the step is made of what is
stored, by a rule that gives the same one again (``campaign``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

from shoal.analyzer.discovery.campaign import ReleasedLevel, due_step
from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.store import AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import SureClock
from shoal.codec import Manifest
from shoal.crypto.discovery_steps import DiscoveryStep, level_asked, sign_step
from shoal.crypto.signing import SigningKey
from shoal.crypto.step_folder import StepFolder
from shoal.crypto.trust import ServedTask
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.log import get_log
from shoal.questions.discovery import DiscoveryLevel
from shoal.services.conditions import Condition
from shoal.services.whole_files import replace_whole

log = get_log("analyzer")
POINT = "analyzer.step"  # of the failpoints of a step's file
_LOOK_S = 1.0  # between two looks at whether a step is due


class DiscoverySteps:
    """``folder``: where they are kept. ``given_up``: windows of a task that operators gave up."""

    def __init__(
        self,
        folder: Path,
        store: AnalyzerStore,
        tasks: AnalyzerTasks,
        signing_key: SigningKey,
        clock: SureClock,
        given_up: Callable[[TaskId], Collection[int]],
    ) -> None:
        self._store, self._tasks, self._key, self._clock = store, tasks, signing_key, clock
        self._given_up = given_up
        self._folder, self._steps = folder, StepFolder(folder, partial(replace_whole, point=POINT))
        self._unknown: set[tuple[TaskId, int]] = set()  # windows that answer something else
        # of every window that is released: what it published, None: nothing
        self._released: dict[tuple[TaskId, int], ReleasedLevel | None] = {}

    # --- what is told -----------------------------------------------------------------------------

    def last(self, served: ServedTask) -> bytes | None:
        """The SignedDiscoveryStep of the last window that asks anything; None: window 0 does, or
        the task is no discovery.
        """
        known = self._steps.of(served.task, served.task_id)
        return known[max(known)].data if known else None

    def level(self, served: ServedTask, window: int) -> DiscoveryLevel | None:
        """What a window asks; None: nothing, or the task is no discovery."""
        discovery = served.task.domain
        if not isinstance(discovery, Discovery):
            return None
        return level_asked(discovery, self._known(served), window)

    def level_of(self, served: ServedTask, manifest: Manifest) -> DiscoveryLevel | None:
        """What a batch answers; None: nothing.

        Raises MISMATCH: it answers something else than this analyzer asked. So does one whose
        folder was restored from before it asked: what it would ask now in that window is another
        question than the one that devices and shuffler know. The batch is kept: it can be released
        once the steps are back.
        """
        signed = self._steps.of(served.task, served.task_id).get(manifest.window)
        key = served.task_id, manifest.window
        if manifest.asked and (signed is None or signed.name.raw != manifest.asked):
            self._unknown.add(key)
            raise ShoalError(
                Kind.MISMATCH,
                f"window {manifest.window} of task {served.task.name} answers what this analyzer "
                f"does not know, {self._mend(served.task_id)}",
            )
        self._unknown.discard(key)
        return self.level(served, manifest.window)

    def _mend(self, task_id: TaskId) -> str:
        return (
            "as one that was put back from an older copy: stop it, put the shuffler's files "
            f"steps/{task_id.hex[:8]}... in place of those in {self._folder}, and start it, or "
            "give the window up (docs/DISCOVERY.md)"
        )

    def conditions(self) -> Iterator[Condition]:
        """Windows that were answered to other questions, for ``Conditions.watch``."""
        for task_id, window in sorted(self._unknown):
            if self._tasks.serves(task_id) and not self._store.released(task_id, window):
                yield Condition(
                    "task",
                    f"{task_id.short}:{window}/steps",
                    f"window {window} of task {task_id.short} answers what this analyzer does not "
                    f"know, {self._mend(task_id)}",
                    stops=False,
                )

    def _known(self, served: ServedTask) -> Mapping[int, DiscoveryStep]:
        steps = self._steps.of(served.task, served.task_id)
        return {window: signed.step for window, signed in steps.items()}

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
            (served, served.task.domain)
            for served in self._tasks.all()
            if isinstance(served.task.domain, Discovery)
        ]
        now = self._clock.decide() if discoveries else None
        if now is None:
            return
        for served, discovery in discoveries:
            step = self._due(served, now)
            if step is not None:
                signed = sign_step(step, discovery, self._key)
                self._steps.take(served.task, served.task_id, signed.data)
                hit("analyzer.discovery.step")
                log.info(
                    "discovery is over" if step.is_over else "next level of a discovery",
                    task=served.task_id,
                    window=step.window,
                )

    def _due(self, served: ServedTask, now: float) -> DiscoveryStep | None:
        task, task_id = served.task, served.task_id
        window = task.windows.current(now)
        steps = self._known(served)
        if window is None or any(step.is_over for step in steps.values()):
            return None
        ended = {one for one in range(window + 1) if self._store.released(task_id, one)}
        released = {one: found for one in ended if (found := self._found(task_id, one))}
        ended |= {one for one in self._given_up(task_id) if one <= window}
        return due_step(task, task_id, steps, released, ended, now)

    def _found(self, task_id: TaskId, window: int) -> ReleasedLevel | None:
        """None: it is withheld, or damaged. A release never changes, and all are read to find one:
        each is looked for once.
        """
        key = task_id, window
        if key not in self._released:
            of_window = (
                one.release for one in self._store.releases() if (one.task_id, one.window) == key
            )
            data = next(of_window, None)
            self._released[key] = None if data is None else _level_of(data)
        return self._released[key]


def _level_of(data: bytes) -> ReleasedLevel | None:
    try:
        release = decode_release(data)
    except ShoalError:
        return None
    if release.withheld or not release.HasField("discovered"):
        return None
    found = release.discovered
    return ReleasedLevel(found.level, tuple(found.beginnings), Digest.of(data))

"""Noise that the shuffler adds to a batch, where its task asks for it: drawn once for a window that
is sealed, sealed as devices seal their reports, and mixed with them by its storage keys.

What is drawn, and from which law, the shuffler does not know: it reads no reports. Whoever makes
the service gives it a ``NoiseSource``, and without one it refuses such tasks when they are taken up
(``ShufflerTasks.take_up``): a batch without its noise would show the analyzer exact counts.

*Once.* The batch file with its noise gets its name in one step, and nothing of it is shown before
the window is SEALED, durably. A crash before that leaves the window CLOSING: the file is written
anew with other noise, and nobody has seen the first. After it nothing is ever added.

*What fails is tried again with the same noise*, as long as the process lives. Whether a batch finds
room on the disk depends on how much was drawn: noise that is drawn until it fits has another law.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from shoal import failpoints
from shoal.crypto.envelope import NONCE_SIZE, seal_report
from shoal.crypto.trust import ServedTask
from shoal.entropy import SYSTEM, Entropy, streamed
from shoal.errors import Kind, ShoalError
from shoal.shuffler.core import WindowId
from shoal.task import Task


class NoiseSource(Protocol):
    """Draws the noise of batches. Called in threads."""

    def check(self, task: Task) -> None:
        """Return if noise can be drawn for this task. Raises CONFIG, INVALID."""
        ...

    def draw(self, task: Task) -> Sequence[bytes]:
        """The messages of noise of one batch, ``task.report_size`` bytes each, in any order, no
        more than ``task.added_messages``: drawn anew at every call, from the CSPRNG.
        """
        ...


class AddedNoise:
    """``source``: None where this shuffler has none. ``entropy``: of the nonces, the CSPRNG."""

    def __init__(self, source: NoiseSource | None = None, entropy: Entropy = SYSTEM) -> None:
        self._source, self._entropy = source, entropy
        self._drawn: dict[WindowId, Sequence[bytes]] = {}  # of windows that are not sealed yet

    def check(self, task: Task) -> None:
        """Return if a batch of this task can have what it asks for. Raises CONFIG, INVALID."""
        if not task.added_messages:
            return
        if self._source is None:
            raise ShoalError(
                Kind.CONFIG,
                f"task {task.name}: its shuffler adds noise ({task.mechanism.name}), and this one "
                "has no source of noise: start it with `shoal shuffler serve`",
            )
        self._source.check(task)

    async def of(self, served: ServedTask, window: WindowId) -> Sequence[bytes]:
        """The sealed messages to be added to this window's batch, the same until ``forget``; none
        where its task wants none. Raises what ``check`` raises, and INTERNAL for a source that
        draws too many.
        """
        if not served.task.added_messages:
            return ()
        if window not in self._drawn:
            self._drawn[window] = await asyncio.to_thread(self._of, served, window)
        return self._drawn[window]

    def forget(self, window: WindowId) -> None:
        """The window is sealed, or gone."""
        self._drawn.pop(window, None)

    def _of(self, served: ServedTask, window: WindowId) -> Sequence[bytes]:
        task, key = served.task, served.keys.analyzer_keys[window.window]
        self.check(task)
        assert self._source is not None  # noqa: S101 - checked
        failpoints.hit("noise.draw")
        drawn, entropy = self._source.draw(task), streamed(self._entropy)
        if len(drawn) > task.added_messages or any(len(m) != task.report_size for m in drawn):
            raise ShoalError(Kind.INTERNAL, "the noise of a batch is not what its task says")
        sealed = [
            seal_report(key, served.task_id, window.window, entropy.bytes(NONCE_SIZE), message)
            for message in drawn
        ]
        failpoints.hit("noise.drawn")
        return sealed

"""shoal.v1.Directory: everybody may read all tasks that this shuffler serves and that are not over,
with their key schedules.

Nothing here is secret, and a device believes nothing of it but signatures. Whoever asks gets
everything, in pages of one size: which task a device takes part in, or looks for, is not said, and
nothing here knows who asks.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping

from shoal import codec
from shoal.clocks.clock import SureClock
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import KIB, LIMITS
from shoal.log import get_log
from shoal.protos import directory_pb2
from shoal.rpc.call import Call
from shoal.rpc.server import Method, Service
from shoal.shuffler.tasks import ShufflerTasks

log = get_log("shuffler")
SERVICE = "shoal.v1.Directory"
# of the catalogue in one reply, which is at most LIMITS.reply_bytes
PAGE_BYTES = LIMITS.chunk_bytes - 4 * KIB
_DIGEST_SIZE = hashlib.sha256().digest_size
_FIELD_BYTES = 6  # around a bundle in a catalogue: a tag and its length


class Directory:
    """The service's handler. The catalogue is made when it is first asked for, and again when a
    task was added or is over.
    """

    def __init__(
        self,
        tasks: ShufflerTasks,
        clock: SureClock,
        paused: Callable[[], Mapping[TaskId, frozenset[int]]] = dict,
        steps: Callable[[], tuple[bytes, ...]] = tuple,
    ) -> None:
        """``paused``: windows that the analyzer could not open, by task; an empty set: all.
        ``steps``: what discoveries ask, as it is listed.
        """
        self._tasks, self._clock, self._paused, self._steps = tasks, clock, paused, steps
        self._known = -1  # tasks served when the catalogue was made: it only ever grows
        self._listed_paused: Mapping[TaskId, frozenset[int]] = {}  # what was paused then
        self._listed_steps: tuple[bytes, ...] = ()
        self._until = -math.inf  # Unix seconds until which none of those in it is over
        self._data = self._digest = b""

    def service(self) -> Service:
        """Anybody may call."""
        return Service(SERVICE, {"Page": Method(KIB, handler=self.page)})

    async def page(self, request: bytes, call: Call) -> bytes:
        """PageRequest -> PageReply. Raises INVALID for a digest that is none, or an offset beyond
        the catalogue's end.
        """
        asked = codec.parse(directory_pb2.PageRequest, request, "page request")
        if len(asked.digest) not in (0, _DIGEST_SIZE):
            raise ShoalError(
                Kind.INVALID,
                f"a catalogue's digest is {_DIGEST_SIZE} bytes: leave it empty at first",
            )
        data, digest = self._catalogue()
        offset = asked.offset if asked.digest == digest else 0
        if offset > len(data):
            raise ShoalError(
                Kind.INVALID,
                f"the catalogue has {len(data)} bytes: read it again from its beginning",
            )
        part = data[offset : offset + PAGE_BYTES]
        return directory_pb2.PageReply(
            digest=digest, total=len(data), offset=offset, data=part
        ).SerializeToString()

    def _catalogue(self) -> tuple[bytes, bytes]:
        """The serialized Catalogue and its SHA-256."""
        now = self._clock.earliest()  # a clock that went ahead hides no task
        if (
            self._known != len(self._tasks.served)
            or now >= self._until
            or self._paused() != self._listed_paused
            or self._steps() != self._listed_steps
        ):
            self._make(now)
        return self._data, self._digest

    def _make(self, now: float) -> None:
        served = self._tasks.served
        shown, left_out, size = list[ServedTask](), 0, 0
        for _, served_task in sorted(served.items()):
            if now >= _end_of(served_task):
                continue
            size += _size(served_task)
            if size <= LIMITS.catalogue_bytes:
                shown.append(served_task)
            else:
                left_out += 1
        if left_out:
            log.warning(
                "the catalogue is full: hand these tasks to devices in another way", tasks=left_out
            )
        bundles = [
            directory_pb2.TaskBundle(
                signed_task=served_task.bundle.signed_task,
                signed_schedule=served_task.bundle.signed_schedule,
            )
            for served_task in shown
        ]
        self._listed_paused = self._paused()
        paused = [
            directory_pb2.Paused(
                task_id=served_task.task_id.raw,
                windows=sorted(self._listed_paused[served_task.task_id]),
            )
            for served_task in shown
            if served_task.task_id in self._listed_paused
        ]
        self._listed_steps = self._steps()
        self._data = directory_pb2.Catalogue(
            bundles=bundles, paused=paused, steps=self._fitting_steps(size)
        ).SerializeToString()
        self._digest = hashlib.sha256(self._data).digest()
        self._known, self._until = len(served), min(map(_end_of, shown), default=math.inf)

    def _fitting_steps(self, size: int) -> list[bytes]:
        """Those that there is room for beside so many bytes of tasks."""
        steps, left = list[bytes](), LIMITS.catalogue_bytes - size
        for step in self._listed_steps:
            left -= len(step) + _FIELD_BYTES
            if left >= 0:
                steps.append(step)
            else:
                log.warning("the catalogue is full: devices wait for what a discovery asks")
        return steps


def _end_of(served: ServedTask) -> float:
    """Unix seconds from which no window of the task takes reports."""
    return served.task.windows.deadline_of(served.task.windows.count - 1)


def _size(served: ServedTask) -> int:
    """Bytes of a task in a catalogue, at most."""
    return len(codec.encode_bundle(served.bundle)) + _FIELD_BYTES

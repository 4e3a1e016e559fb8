"""Submit and SubmitBatch: open the hop layer, admit, store, and only then answer.

Bytes in, bytes out. Nothing here knows who calls. A duplicate takes the same path as the first and
gets the same bytes. ``Ingress.take`` is the one way for many frames at once, whatever brought them:
a call of a relay, or messages of a broker.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from shoal import codec
from shoal.clocks.clock import Moment, SureClock
from shoal.crypto.admission.revocation import revoked
from shoal.crypto.envelope import (
    ACK_KEY_SIZE,
    HEADER_SIZE,
    MAC_SIZE,
    HopContent,
    frame_header,
)
from shoal.crypto.hpke import HpkePrivateKey
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.limits import LIMITS
from shoal.protos import submit_pb2
from shoal.rpc.backlog import Backlog
from shoal.rpc.call import Call
from shoal.rpc.server import Method, Service
from shoal.shuffler import core
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.reports.gathering import Gathering, Single
from shoal.shuffler.reports.latency import AnswerTimes
from shoal.shuffler.reports.opened import Facts, OpenedGroup, Refusal
from shoal.shuffler.reports.opening import KEY_OVER, AdmissionChecks, Opener, key_id_of
from shoal.shuffler.reports.taken import Answer, Taken
from shoal.shuffler.revocations import Revocations
from shoal.shuffler.stores.store import AdmittedRows, Store
from shoal.shuffler.tasks import ShufflerTasks

SERVICE = "shoal.v1.Ingress"
# batches for each worker that are parsed, opened and written at a time; others wait as the bytes
# that came
_TURNS = 4
_LEAST_TURNS = 8
# a SubmitReply without its mac, which is its end
_REPLY = submit_pb2.SubmitReply(mac=bytes(MAC_SIZE)).SerializeToString()[:-MAC_SIZE]

# What the store's refusals mean to a device.
_TEXTS: dict[Kind, str] = {
    Kind.WINDOW_FULL: core.FULL,
    Kind.WINDOW_CLOSED: "the window is over: drop the report",
    Kind.CONFLICT: (
        "this device has been admitted in this window, with another report: drop this one"
    ),
    Kind.UNKNOWN_TASK: (
        "the window asks another question than the report answers: read again what it asks"
    ),
    Kind.OVERLOADED: "no more reports can be stored now: try again later",
    Kind.INTERNAL: "the report could not be stored: try again later",
    Kind.UNAVAILABLE: "whether the report was stored is not known: send the same again",
}


def _nothing(_: WindowId) -> bool:
    return False


def _unnamed(_: TaskId) -> None:
    """Nobody asks anything by a name."""


class Ingress:
    """The service's handlers. ``refused`` counts refusals by kind, and ``times`` how long answers
    took, for metrics. ``paused``: windows that the analyzer could not open. ``asked``: the window
    of a discovery whose question has that name.
    """

    def __init__(
        self,
        tasks: ShufflerTasks,
        store: Store,
        opener: Opener,
        clock: SureClock,
        paused: Callable[[WindowId], bool] = _nothing,
        revocations: Revocations | None = None,
        asked: Callable[[TaskId], WindowId | None] = _unnamed,
    ) -> None:
        self._paused, self._revocations, self._asked = paused, revocations, asked
        self._tasks, self._store, self._opener, self._clock = tasks, store, opener, clock
        self.refused: Counter[Kind] = Counter()
        self.times = AnswerTimes(self._still_open)
        self.backlog = Backlog()  # of batches
        self._singles = Gathering(self._take_singles, max(1, opener.workers))
        self._turns = asyncio.Semaphore(max(_LEAST_TURNS, _TURNS * opener.workers))

    def service(self) -> Service:
        """Anybody may call: admission is a matter of the frame, never of the connection."""
        return Service(
            SERVICE,
            {
                "Submit": Method(LIMITS.submit_bytes, handler=self.submit),
                "SubmitBatch": Method(
                    LIMITS.batch_bytes, handler=self.submit_batch, backlog=self.backlog
                ),
            },
        )

    async def submit(self, request: bytes, call: Call) -> bytes:
        """SubmitRequest -> SubmitReply. Raises every kind that ``core.admit``, the task's
        verifier and the store know.
        """
        try:
            frame = codec.parse(submit_pb2.SubmitRequest, request, "submission").frame
            if key_id_of(frame) not in self._tasks.keys_by_raw_id:
                raise self._not_ours(frame)
            return _REPLY + await self._singles.add(frame)
        except ShoalError as error:
            self.refused[error.kind] += 1
            raise

    async def _take_singles(self, calls: list[Single], opened: Callable[[], None]) -> None:
        """Frames of ``submit``, in groups like those of a batch; but who is refused is told at
        once, and in words.
        """
        moment = Moment.of(self._clock)
        checks = AdmissionChecks(dict(self._tasks.verifiers), moment.now)
        frames = [call.frame for call in calls]
        found = await self._opener.open_many(
            self._tasks.keys_by_raw_id, frames, checks, at_once=True
        )
        opened()
        for place, refusal in found.refused.items():
            calls[place].refuse(refusal.error)
        entering = list[tuple[OpenedGroup, AdmittedRows, list[ShoalError | None] | None]]()
        for group in found.groups:
            try:
                with moment.refusing():
                    window = self._judge(group.facts, checks)
                rows, refusals = self._unrevoked(group, window)
                if rows.count:
                    self._check_size(group.facts, window)
            except ShoalError as error:
                for place in group.places:
                    calls[place].refuse(Refusal(error.kind, error.message).error)
                continue
            entering.append((group, rows, refusals))
        if not entering:
            return
        outcomes = await self._store.append_rows([rows for _, rows, _ in entering if rows.count])
        stored, now = iter(outcomes), perf_counter()
        for group, rows, refusals in entering:
            kinds = _merged(next(stored) if rows.count else [], refusals)
            answered = list[float]()
            for index, (place, kind) in enumerate(zip(group.places, kinds, strict=True)):
                call = calls[place]
                if isinstance(kind, ShoalError):
                    call.refuse(kind)
                elif kind is not None:
                    call.refuse(ShoalError(kind, _TEXTS[kind]))
                elif call.accept(group.entry(index)[-MAC_SIZE:]):
                    answered.append(now - call.began)
            self.times.add_answers(rows.window, answered)

    async def submit_batch(self, request: bytes, call: Call) -> bytes:
        """SubmitBatchRequest -> one receipt per frame, in order.

        Raises INVALID, OVERSIZE, OVERLOADED, UNAVAILABLE for the call as a whole; the same bytes
        may be sent again.
        """
        async with self._turns:
            frames = list(codec.parse(submit_pb2.SubmitBatchRequest, request, "submission").frames)
            if len(frames) > LIMITS.batch_frames:
                raise ShoalError(
                    Kind.OVERSIZE,
                    f"{len(frames)} frames in one call, at most {LIMITS.batch_frames} are taken: "
                    "send several calls",
                )
            taken = await self._take(frames)
            return taken.reply(frames)

    async def take(self, frames: Sequence[bytes]) -> list[Answer]:
        """Open, admit and store many frames: one answer each, in order, when what is accepted is on
        disk.

        None suffers from another's fault, and none is answered sooner than the rest. Raises
        OVERLOADED, UNAVAILABLE, INTERNAL for all of them alike: which of them are on disk is then
        not known, and the same bytes may be sent again.
        """
        return (await self._take(frames)).answers()

    async def _take(self, frames: Sequence[bytes]) -> Taken:
        began = perf_counter()
        taken, known = Taken(len(frames)), self._tasks.keys_by_raw_id
        held = self._ours(frames, known, taken)
        moment = Moment.of(self._clock)
        checks = AdmissionChecks(dict(self._tasks.verifiers), moment.now)
        opened = await self._opener.open_many(known, [frames[index] for index in held], checks)
        for place, refusal in opened.refused.items():
            taken.refuse(held[place], refusal.kind)
        # what admission looks at is the same for all of a group
        verdicts = [self._verdict(group.facts, checks) for group in opened.groups]
        entering = list[tuple[OpenedGroup, AdmittedRows, list[ShoalError | None] | None]]()
        for group, verdict in zip(opened.groups, verdicts, strict=True):
            if isinstance(verdict, Kind):
                taken.settle(group, group.indices(held), [verdict] * len(group.places))
            else:
                entering.append((group, *self._unrevoked(group, verdict)))
        # also when nothing of them is to be stored: refusals queue up behind the same commits
        outcomes = (
            await self._store.append_rows([rows for _, rows, _ in entering if rows.count])
            if frames
            else []
        )
        stored = iter(outcomes)
        for group, rows, refusals in entering:
            kinds = next(stored) if rows.count else []
            settled = [
                one.kind if isinstance(one, ShoalError) else one for one in _merged(kinds, refusals)
            ]
            taken.settle(group, group.indices(held), settled)
        if not moment.sure:
            taken.soften(moment.kind)
        self.refused.update(taken.refused())
        self.times.add_call(verdicts, perf_counter() - began)
        return taken

    def _ours(
        self, frames: Sequence[bytes], known: Mapping[bytes, HpkePrivateKey], taken: Taken
    ) -> Sequence[int]:
        """The numbers of frames that name a key of ours; the others are refused."""
        sizes = LIMITS.frame_sizes
        if {*map(len, frames)} <= {*sizes} and {*map(key_id_of, frames)} <= known.keys():
            return range(len(frames))
        held = list[int]()
        # by header: whoever sends what can't be opened must not cost us more than himself
        refusals: dict[bytes, Kind] = {}
        for index, frame in enumerate(frames):
            if len(frame) not in sizes:
                taken.refuse(index, Kind.INVALID)
            elif key_id_of(frame) in known:
                held.append(index)
            else:
                header = frame[:HEADER_SIZE]
                kind = refusals.get(header)
                if kind is None:
                    kind = refusals[header] = self._not_ours(frame).kind
                taken.refuse(index, kind)
        return held

    def _verdict(self, facts: Facts, checks: AdmissionChecks) -> WindowId | Kind:
        try:
            window = self._judge(facts, checks)
            self._check_size(facts, window)
        except ShoalError as error:
            return error.kind
        return window

    def _judge(self, facts: Facts, checks: AdmissionChecks) -> WindowId:
        """The window that frames of these facts enter. Raises what ``_admit`` raises, and why
        whoever sent them is not admitted.
        """
        task = facts.task_id
        content = HopContent(
            TaskId(task),
            facts.window,
            bytes(ACK_KEY_SIZE),
            KeyId(facts.analyzer_key_id),
            b"",
            (bytes(facts.message_size),) * facts.messages,
        )
        window = self._admit(content, KeyId(facts.hop_key_id), checks.now)
        if task in self._tasks.verifiers and task not in checks.verifiers:
            # served since the frame was opened: nobody looked at its proof
            raise ShoalError(Kind.UNAVAILABLE, "the task was just taken up: try again")
        if facts.refusal is not None:
            raise facts.refusal.error
        return window

    def _check_size(self, facts: Facts, window: WindowId) -> None:
        core.check_size(self._tasks.served[window.task_id].task, facts.frame_size)

    def _unrevoked(
        self, group: OpenedGroup, window: WindowId
    ) -> tuple[AdmittedRows, list[ShoalError | None] | None]:
        """Those of a group that stay, and of all of them who is refused; None: nobody is."""
        count = len(group.places)
        facts = group.facts
        messages = facts.messages
        sizes = (messages,) * count if messages > 1 else ()
        asked = b"" if facts.task_id == window.task_id.raw else facts.task_id
        whole = AdmittedRows(
            window, group.sealed, count, group.devices, group.digests, sizes, asked
        )
        if not group.devices or self._revocations is None or not self._revocations.any():
            return whole, None
        refusals = [self._revoked(window.task_id, device) for device in group.devices]
        if not any(refusals):
            return whole, None
        stay = [index for index, refusal in enumerate(refusals) if refusal is None]
        size = len(group.sealed) // count
        some = AdmittedRows(
            window,
            b"".join(group.sealed[index * size : (index + 1) * size] for index in stay),
            len(stay),
            tuple(group.devices[index] for index in stay),
            sizes=sizes[: len(stay)],
            asked=asked,
        )
        return some, refusals

    def _revoked(self, task_id: TaskId, device: bytes) -> ShoalError | None:
        try:
            self._check_revoked(task_id, device)
        except ShoalError as error:
            return error
        return None

    def _check_revoked(self, task_id: TaskId, device: bytes) -> None:
        """``device``: empty in tasks for everybody. Raises UNAUTHENTICATED, UNAVAILABLE."""
        if not device or self._revocations is None:
            return
        if device in self._revocations.revoked(self._tasks.served[task_id].task.enrolment_key):
            raise revoked()

    def _not_ours(self, frame: bytes) -> ShoalError:
        """Why a frame whose header names no key of ours is refused."""
        try:
            key_id = frame_header(frame).key_id
        except ShoalError as error:
            return error
        if self._tasks.over(key_id):
            return ShoalError(Kind.WINDOW_CLOSED, KEY_OVER)
        return ShoalError(
            Kind.UNKNOWN_KEY,
            "this shuffler does not hold the key that the frame is sealed for: fetch the key "
            "schedule again",
        )

    def _still_open(self, window: WindowId) -> bool:
        record = self._store.record(window)
        return record is None or record.state is WindowState.OPEN

    def _admit(self, content: HopContent, key_id: KeyId, now: float) -> WindowId:
        named = None
        if content.task_id not in self._tasks.served:
            named = self._asked(content.task_id)
        if named is not None:
            content = replace(content, task_id=named.task_id)
        served = self._tasks.served.get(content.task_id)
        if served is None:
            raise ShoalError(
                Kind.UNKNOWN_TASK,
                "this shuffler does not serve the task: refresh the task, or ask its authority "
                "where it is served",
            )
        if content.window >= served.task.windows.count:
            raise ShoalError(
                Kind.INVALID,
                f"the task has windows 0 to {served.task.windows.count - 1}: read the task again",
            )
        window = WindowId(content.task_id, content.window)
        record = self._store.record(window)
        state, reports = (record.state, record.reports) if record else (None, 0)
        core.admit(served, state, content, key_id, now, reports)
        core.check_asked(served.task, window, named)
        if self._paused(window):
            raise ShoalError(
                Kind.UNAVAILABLE,
                "the analyzer can't open this window now: try again later, its operator knows",
            )
        return window


def _merged(
    kinds: list[Kind | None], refusals: list[ShoalError | None] | None
) -> Sequence[Kind | ShoalError | None]:
    """What the store said of those who were not refused before, in the places of all."""
    if refusals is None:
        return kinds
    left = iter(kinds)
    return [next(left) if refusal is None else refusal for refusal in refusals]

"""Frames of a simulated fleet with the key agreements made beforehand: what a load test needs to
outrun the services.

A device spends nearly all of a report's time on X25519. That work depends on neither value nor
report, so a simulation may do it before its clock starts: ``prepare_pool`` encapsulates for every
report of a task and window, twice per device (a message for the analyzer, a frame for the shuffler;
more with more messages), and ``make_frames`` then draws and seals reports by the block: the same
bytes as ``shoal.clients.core.prepare`` makes one at a time, each with an encapsulation of its own.
Real devices never do this: see ``shoal.crypto.prepared``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from shoal.arrays import NDArray, np
from shoal.clients.core import Assignment, SealedReport, expiry
from shoal.clients.drawing import randomize
from shoal.crypto.envelope import (
    ACK_KEY_SIZE,
    HEADER_SIZE,
    NONCE_SIZE,
    VERSION,
    frame_size,
    hop_info,
    report_info,
    sealed_size,
)
from shoal.crypto.prepared import Encapsulations, encapsulate_many, seal_rows
from shoal.crypto.suites import PublicKeyConfig, parse_config
from shoal.domain import Value
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos.submit_pb2 import HopPayload

if TYPE_CHECKING:
    from shoal.crypto.admission.admission import Prover
    from shoal.services.workers import WorkerPool

_CHUNK = 1_000  # encapsulations that one process makes at a time: about a tenth of a second
BLOCK = 1_024  # reports that are best sealed in one call: their rows stay in cache


class Pool:
    """Encapsulations for the devices of one task and window. ``take(n)`` gives each out once. Never
    shown, pickled or copied.
    """

    __slots__ = ("_hop", "_inner", "messages", "task_id", "window")

    task_id: TaskId
    window: int
    messages: int

    def __init__(
        self,
        task_id: TaskId,
        window: int,
        messages: int,
        inner: Encapsulations,
        hop: Encapsulations,
    ) -> None:
        """``inner``: one per message, to the window's analyzer key; ``hop``: one per device. Raises
        INVALID if they don't fit.
        """
        if messages < 1 or len(inner) != messages * len(hop):
            raise ShoalError(
                Kind.INVALID,
                f"a pool holds {messages} encapsulations for the analyzer for each one for the "
                "shuffler",
            )
        if inner.info != report_info(task_id, window, inner.config.key_id) or hop.info != hop_info(
            0, hop.config.key_id
        ):
            raise ShoalError(
                Kind.INVALID,
                "a pool's encapsulations are bound to its task, its window and its two keys",
            )
        self.task_id, self.window, self.messages = task_id, window, messages
        self._inner, self._hop = inner, hop

    def __len__(self) -> int:
        """Devices for which there is something left."""
        return len(self._hop)

    def take(self, devices: int) -> Pool:
        """What the next ``devices`` reports need; it leaves this pool. Raises CONFLICT if there is
        less; nothing is taken then.

        Also how a pool is shared out. One thread at a time takes from a pool.
        """
        if not 0 <= devices <= len(self):
            raise ShoalError(
                Kind.CONFLICT,
                f"{devices} reports want more than the {len(self)} that were prepared for this "
                "task: prepare one per report",
            )
        return Pool(
            self.task_id,
            self.window,
            self.messages,
            self._inner.take(devices * self.messages),
            self._hop.take(devices),
        )

    def layers(self) -> tuple[Encapsulations, Encapsulations]:
        """(for the analyzer, for the shuffler): the encapsulations themselves, to be used up."""
        return self._inner, self._hop

    def move_raw(self) -> tuple[bytes, bytes, bytes, bytes]:
        """(analyzer configuration, its encapsulations, hop configuration, its encapsulations): all
        that is left, for ``pool_of_raw`` in one other process. This pool is empty then. Secrets of
        simulated devices: drop the bytes once they are there.
        """
        inner, hop = self._inner, self._hop
        return inner.config.raw, inner.move_raw(), hop.config.raw, hop.move_raw()

    def __repr__(self) -> str:
        return f"<Pool for {len(self)} devices of task {self.task_id.short}, window {self.window}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("pools are not pickled or copied: use move_raw() on purpose")


def pool_of_raw(
    task_id: TaskId, window: int, messages: int, raw: tuple[bytes, bytes, bytes, bytes]
) -> Pool:
    """The pool that ``move_raw`` emptied, elsewhere. Raises INVALID if the bytes don't belong to
    that task and window.
    """
    analyzer, hop = parse_config(raw[0]), parse_config(raw[2])
    inner = Encapsulations(analyzer, report_info(task_id, window, analyzer.key_id), raw[1])
    return Pool(
        task_id, window, messages, inner, Encapsulations(hop, hop_info(0, hop.key_id), raw[3])
    )


def prepare_pool(
    assignment: Assignment,
    window: int,
    devices: int,
    workers: WorkerPool | None = None,
    entropy: Entropy = SYSTEM,
    progress: Callable[[float], None] | None = None,
) -> Pool:
    """Encapsulate for ``devices`` reports of a task's window: here, or in all of ``workers``.
    Blocks until it is done.

    It takes about as long as sealing them would, 0.2 ms of one core for each device of a task with
    one message. ``progress`` is told the share that is done, in (0, 1]. ``entropy`` serves without
    workers alone; they draw from the system's. Raises INVALID for a window that the task hasn't, or
    a task that is summed in rounds.
    """
    _check(assignment, window)
    analyzer, hop = assignment.keys.analyzer_keys[window], assignment.keys.hop_keys[window]
    messages = assignment.task.messages
    layers = (
        (analyzer, report_info(assignment.task_id, window, analyzer.key_id), devices * messages),
        (hop, hop_info(0, hop.key_id), devices),
    )
    total, done = sum(count for _, _, count in layers), 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done / total)

    inner, outer = (_encapsulate(*layer, workers, entropy, tell) for layer in layers)
    return Pool(assignment.task_id, window, messages, inner, outer)


def _encapsulate(
    config: PublicKeyConfig,
    info: bytes,
    count: int,
    workers: WorkerPool | None,
    entropy: Entropy,
    tell: Callable[[int], None],
) -> Encapsulations:
    sizes = deque(min(_CHUNK, count - first) for first in range(0, count, _CHUNK))
    waiting: deque[tuple[int, Future[bytes]]] = deque()
    raw = bytearray()
    while sizes or waiting:
        if workers is None:
            size = sizes.popleft()
            raw += encapsulate_many(config, info, size, entropy).move_raw()
        else:
            while sizes and len(waiting) < 2 * workers.processes:
                waiting.append(
                    (sizes[0], workers.submit(encapsulate_raw, config.raw, info, sizes.popleft()))
                )
            size, future = waiting.popleft()
            raw += future.result()
        tell(size)
    return Encapsulations(config, info, raw)


def encapsulate_raw(config: bytes, info: bytes, count: int) -> bytes:
    """In a worker process: ``count`` encapsulations as ``Encapsulations.move_raw`` writes them."""
    return encapsulate_many(parse_config(config), info, count).move_raw()


@dataclass(frozen=True, slots=True)
class Frames:
    """Sealed reports of one task and window, in the order of their values. ``data``: ``len(self)``
    frames of ``size`` bytes each; ``ack_keys``: as many keys of 32 bytes, secrets that don't print.
    ``expires_s`` as in ``SealedReport``.
    """

    task_id: TaskId
    window: int
    size: int
    expires_s: int
    data: bytes = field(repr=False)
    ack_keys: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.data) // self.size

    def frame(self, index: int) -> bytes:
        """One sealed report, ``size`` bytes."""
        return self.data[index * self.size : (index + 1) * self.size]

    def ack_key(self, index: int) -> bytes:
        """The 32 bytes under which its receipt is authenticated: a secret."""
        return self.ack_keys[index * ACK_KEY_SIZE : (index + 1) * ACK_KEY_SIZE]

    def prepared(self, index: int) -> SealedReport:
        """One of them as ``shoal.clients.core.seal`` would have returned it: for an outbox."""
        return SealedReport(
            self.task_id, self.window, self.frame(index), self.ack_key(index), self.expires_s
        )


def make_frames(
    assignment: Assignment,
    window: int,
    values: Sequence[Value],
    pool: Pool,
    entropy: Entropy = SYSTEM,
    provers: Sequence[Prover] | None = None,
) -> Frames:
    """Encode, randomize and seal one report per value: what ``core.prepare`` does for one, in calls
    over whole arrays.

    Takes ``len(values)`` from the pool; each report is a draw of its own with nonce, ack key and
    encapsulations of its own. ``provers``: one per value where the task does not admit everybody
    (each then costs a signature). Raises as ``seal_frames`` does.
    """
    return seal_frames(
        assignment, window, randomize(assignment, values, entropy), pool, entropy, provers
    )


def seal_frames(
    assignment: Assignment,
    window: int,
    reports: NDArray[np.uint8],
    pool: Pool,
    entropy: Entropy = SYSTEM,
    provers: Sequence[Prover] | None = None,
) -> Frames:
    """Both layers around reports, uint8[n, messages, report_size], as ``core.seal`` puts them
    around one.

    Best called with about ``BLOCK`` at a time. Raises INVALID for reports of another shape, or a
    window that the task hasn't; MISMATCH for a pool of another task, window or key; CONFLICT if the
    pool holds too few; nothing is taken from it in any of these cases.
    """
    _check(assignment, window)
    task, analyzer, hop = (
        assignment.task,
        assignment.keys.analyzer_keys[window],
        assignment.keys.hop_keys[window],
    )
    _check_reports(assignment, window, reports, pool, provers)
    count, length = len(reports), sealed_size(analyzer.suite, task.report_size)
    inner, outer = pool.take(count).layers()
    plain = np.empty((count * task.messages, NONCE_SIZE + task.report_size), dtype=np.uint8)
    plain[:, :NONCE_SIZE] = _random(count * task.messages, NONCE_SIZE, entropy)
    plain[:, NONCE_SIZE:] = reports.reshape(count * task.messages, task.report_size)
    sealed = seal_rows(inner, plain).reshape(count, task.messages, length)
    proofs = _proofs(assignment.task_id, window, sealed, provers or ())
    layout = _layout(
        hop,
        assignment.task_id,
        window,
        analyzer,
        task.messages,
        length,
        len(proofs[0]) if proofs else 0,
    )
    payloads = np.tile(layout.template, (count, 1))
    ack_keys = _random(count, ACK_KEY_SIZE, entropy)
    payloads[:, layout.ack_key] = ack_keys
    for number, slot in enumerate(layout.sealed):
        payloads[:, slot] = sealed[:, number]
    for row, proof in enumerate(proofs):
        payloads[row, layout.admission] = np.frombuffer(proof, dtype=np.uint8)
    frames = seal_rows(outer, payloads, layout.header)
    return Frames(
        assignment.task_id,
        window,
        frames.shape[1],
        expiry(task, window),
        frames.tobytes(),
        ack_keys.tobytes(),
    )


def _check_reports(
    assignment: Assignment,
    window: int,
    reports: NDArray[np.uint8],
    pool: Pool,
    provers: Sequence[Prover] | None,
) -> None:
    """Raise INVALID or MISMATCH as ``seal_frames`` says, before anything is taken from the pool."""
    task, keys = assignment.task, assignment.keys
    if (
        reports.ndim != 3
        or reports.shape[1:] != (task.messages, task.report_size)
        or reports.dtype != np.uint8
    ):
        raise ShoalError(
            Kind.INVALID,
            f"reports of task {task.name} are uint8[n, {task.messages}, {task.report_size}]",
        )
    if provers is not None and len(provers) != len(reports):
        raise ShoalError(Kind.INVALID, "devices that prove who they are are as many as reports")
    held = tuple(layer.config for layer in pool.layers())
    if (pool.task_id, pool.window, *held) != (
        assignment.task_id,
        window,
        keys.analyzer_keys[window],
        keys.hop_keys[window],
    ):
        raise ShoalError(
            Kind.MISMATCH,
            "this pool was prepared for another task, window or key than those of task "
            f"{task.name}: prepare one",
        )


def _check(assignment: Assignment, window: int) -> None:
    if assignment.mechanism is None and assignment.vectors is None:
        raise ShoalError(
            Kind.INVALID,
            f"task {assignment.task.name} is summed in rounds: it has no reports to prepare",
        )
    if not 0 <= window < len(assignment.keys.analyzer_keys):
        raise ShoalError(
            Kind.INVALID,
            f"task {assignment.task.name} has no window {window}: it has 0 to "
            f"{len(assignment.keys.analyzer_keys) - 1}",
        )


def _random(rows: int, width: int, entropy: Entropy) -> NDArray[np.uint8]:
    return np.frombuffer(entropy.bytes(rows * width), dtype=np.uint8).reshape(rows, width)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The plaintext of every frame of a task's window with its slots empty: u32be length,
    HopPayload, zeros.
    """

    header: bytes
    template: NDArray[np.uint8]
    ack_key: slice
    admission: slice
    sealed: tuple[slice, ...]


def _proofs(
    task_id: TaskId, window: int, sealed: NDArray[np.uint8], provers: Sequence[Prover]
) -> list[bytes]:
    """One per prover, over its row of ``sealed``, uint8[n, messages, length]."""
    return [
        prover.prove(task_id, window, [message.tobytes() for message in sealed[row]])
        for row, prover in enumerate(provers)
    ]


@lru_cache(maxsize=64)
def _layout(
    hop: PublicKeyConfig,
    task_id: TaskId,
    window: int,
    analyzer: PublicKeyConfig,
    messages: int,
    length: int,
    admission: int,
) -> _Layout:
    """Where things lie. A serialized message is its fields' serializations one after the other, in
    order of their numbers.
    """
    fields = (
        HopPayload(task_id=task_id.raw, window=window),
        HopPayload(ack_key=bytes(ACK_KEY_SIZE)),
        HopPayload(analyzer_key_id=analyzer.key_id.raw),
        HopPayload(admission=bytes(admission)),
        *(HopPayload(sealed=[bytes(length)]) for _ in range(messages)),
    )
    whole, ends, text = HopPayload(), [], b""
    for part in fields:
        whole.MergeFrom(part)
        text += part.SerializeToString()
        ends.append(4 + len(text))  # the length comes before
    if text != whole.SerializeToString():
        raise ShoalError(
            Kind.INTERNAL,
            "the protobuf library writes fields in another order than that of their numbers",
        )
    size = frame_size(hop.suite, messages, length, admission)
    plain = (len(text).to_bytes(4, "big") + text).ljust(
        size - HEADER_SIZE - hop.suite.overhead, b"\x00"
    )
    return _Layout(
        header=bytes((VERSION, hop.suite, 0)) + hop.key_id.raw,
        template=np.frombuffer(plain, dtype=np.uint8),
        ack_key=slice(ends[1] - ACK_KEY_SIZE, ends[1]),
        admission=slice(ends[3] - admission, ends[3]),
        sealed=tuple(slice(end - length, end) for end in ends[4:]),
    )

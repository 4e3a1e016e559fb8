"""Opening the hop layer: in the event loop for single reports, in worker processes for batches of
them.

HPKE and Ed25519 hold the interpreter lock, so parallelism means processes. Workers are handed
frames only (as one bytes object per chunk) and the folder of key files, from which they load what
they need; a private key never travels through a pipe. Who sent a frame is proven inside it, so it
is verified where it was opened, by the verifiers of the tasks that want it. What comes back is
grouped (``opened``): a few objects per call, not per frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.crypto.admission.admission import Verifier
from shoal.crypto.admission.open import OPEN
from shoal.crypto.envelope import HEADER_SIZE, HopOpener, read_plaintext
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.keyfiles import load_hpke_key
from shoal.errors import Kind, ShoalError
from shoal.ids import KeyId, TaskId
from shoal.services.workers import WorkerPool
from shoal.shuffler.reports.opened import Grouping, OpenedFrames, Refusal

_SLICE = 32  # frames opened in a row on the event loop before others get a turn: about 2 ms

KEY_OVER = "the windows of this frame's key are over: drop the report"
_OVER = Refusal(Kind.WINDOW_CLOSED, KEY_OVER)
# frames for which a worker pays: handing them over and back costs as much as opening that many
_WORTH = 8

_worker_folder: Path = Path()
_worker_keys: dict[bytes, HopOpener] = {}


def key_id_of(frame: bytes) -> bytes:
    """The raw key id that a frame's header names; ``open_frame`` checks the rest of the header."""
    return frame[HEADER_SIZE - KeyId.SIZE : HEADER_SIZE]


@dataclass(frozen=True, slots=True)
class AdmissionChecks:
    """``verifiers``: by raw task id, of the tasks that do not admit everybody; ``now``: the Unix
    time at which proofs must hold.
    """

    verifiers: Mapping[bytes, Verifier]
    now: float


ANYBODY = AdmissionChecks({}, 0.0)


def _open(
    grouping: Grouping, place: int, opener: HopOpener, frame: bytes, checks: AdmissionChecks
) -> None:
    """Into the group where it belongs. Raises what ``open_fields`` raises."""
    plaintext = opener.open(frame)
    if grouping.add_alike(place, frame, plaintext):
        return
    fields = read_plaintext(plaintext)
    verifier = checks.verifiers.get(fields.task_id)
    if verifier is None and not fields.admission:  # nothing is asked for, nothing is shown
        grouping.add_first(place, frame, plaintext, fields)
        return
    who: bytes | Refusal
    try:
        who = (verifier or OPEN).verify(
            fields.admission, TaskId(fields.task_id), fields.window, fields.sealed, checks.now
        )
    except ShoalError as error:
        who = Refusal(error.kind, error.message)
    grouping.add(place, frame, fields, who)


def _prepare(folder: str) -> None:
    """In a worker, once."""
    global _worker_folder  # noqa: PLW0603 - a worker process has one folder
    _worker_folder = Path(folder)


def _open_chunk(frames: bytes, sizes: Sequence[int], checks: AdmissionChecks) -> OpenedFrames:
    """In a worker: frames back to back with their sizes. The parent has checked that it holds each
    frame's key.
    """
    grouping = Grouping()
    at = 0
    for place, size in enumerate(sizes):
        frame = frames[at : at + size]
        at += size
        try:
            raw = key_id_of(frame)
            opener = _worker_keys.get(raw)
            if opener is None:
                key = load_hpke_key(_worker_folder / f"{raw.hex()}.key")
                opener = _worker_keys[raw] = HopOpener(key)
            _open(grouping, place, opener, frame, checks)
        except ShoalError as error:
            # A key file that went away between the parent's look and ours belongs to windows that
            # are over.
            over = error.kind is Kind.KEY_FILE
            grouping.refuse(place, _OVER if over else Refusal(error.kind, error.message))
    return grouping.done()


class Opener:
    """``workers`` 0: everything on the event loop."""

    def __init__(self, keys_dir: Path, workers: int) -> None:
        self._keys_dir, self.workers = keys_dir, workers
        self._chunks = 0  # that workers have, or that wait for them
        self._pool = self._make()

    def _make(self) -> WorkerPool | None:
        return WorkerPool(self.workers, _prepare, (str(self._keys_dir),)) if self.workers else None

    def warm(self) -> None:
        """Wait until the workers run."""
        if self._pool is not None:
            self._pool.warm()

    async def open_many(
        self,
        keys: Mapping[bytes, HpkePrivateKey],
        frames: Sequence[bytes],
        checks: AdmissionChecks = ANYBODY,
        *,
        at_once: bool = False,
    ) -> OpenedFrames:
        """Frames that name one of ``keys`` in their headers. ``at_once``: few frames, which do not
        wait for workers that are busy. Raises UNAVAILABLE if a worker dies.
        """
        pool, least = self._pool, _WORTH if at_once else 2
        busy = at_once and self._chunks >= self.workers
        if pool is not None and len(frames) >= least and not busy:
            return await self._in_worker(pool, frames, checks)
        grouping = Grouping()
        for place, frame in enumerate(frames):
            if place % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            try:
                _open(grouping, place, HopOpener(keys[key_id_of(frame)]), frame, checks)
            except ShoalError as error:
                grouping.refuse(place, Refusal(error.kind, error.message))
            except KeyError:  # retired while others had their turn
                grouping.refuse(place, _OVER)
        return grouping.done()

    async def _in_worker(
        self, pool: WorkerPool, frames: Sequence[bytes], checks: AdmissionChecks
    ) -> OpenedFrames:
        self._chunks += 1
        try:
            return await pool.run(
                _open_chunk, b"".join(frames), [len(frame) for frame in frames], checks
            )
        finally:
            self._chunks -= 1

    async def forget_keys(self) -> None:
        """After a key was deleted: start the workers anew, so that no process still holds it."""
        old, self._pool = self._pool, self._make()
        if old is not None:
            await asyncio.to_thread(old.close)

    def close(self) -> None:
        """End the worker processes, if there are any."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

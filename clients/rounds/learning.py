"""A device follows a model that is learnt: from one signed release to the next, and to its answer.

A device takes a model from nobody. It begins with the plan's first model, and moves it by each
release of the task, whose signature by the task's analyzer it verifies: window after window, none
left out, none twice. So who can sign releases decides what a device is asked, within what the task
allows: the vector is clipped and noised by the task's own numbers whatever the model is. An
analyzer that signs two releases of one window can show two models to two devices;
docs/THREAT_MODEL.md says what that can do.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

from shoal import codec
from shoal.arrays import NDArray, np
from shoal.crypto.signing import SigningContext, verify
from shoal.domain import Vector
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import MIB
from shoal.protos import release_pb2
from shoal.questions.learning import (
    LearningPlan,
    LearningState,
    after_nothing,
    after_parts,
    after_round,
    answers,
    is_row,
)
from shoal.storage.released_arrays import array_name, released_totals
from shoal.task import Task

MOST_BYTES = 64 * MIB  # of a release file, as ``shoal verify`` takes them


def follow(
    plan: LearningPlan,
    task: Task,
    task_id: TaskId,
    state: LearningState,
    signed: bytes,
    folder: Path | None = None,
) -> LearningState:
    """The model after the next window. ``signed``: a SignedRelease of window ``state.done``.
    ``folder``: where the array of a long vector lies, beside the release file; it is read one
    segment at a time, and each must be what was signed.

    A withheld release leaves the model as it is. Raises INVALID for what is no release of this
    shape, BAD_SIGNATURE, MISMATCH for a release of another task or window, and for an array that is
    not there or is not what was signed. ``state`` is left as it was.
    """
    message = codec.parse(release_pb2.SignedRelease, signed, "signed release")
    verify(task.analyzer_key, SigningContext.RELEASE, message.release, message.signature)
    release = codec.parse(release_pb2.Release, message.release, "release")
    if release.version != codec.VERSION or release.task_id != task_id.raw:
        raise ShoalError(Kind.MISMATCH, f"task {task.name}: this is a release of another task")
    if release.window != state.done:
        raise ShoalError(
            Kind.MISMATCH,
            f"task {task.name}: the release of window {state.done} comes next, this is window "
            f"{release.window}: give releases in order",
        )
    if release.withheld:
        return after_nothing(plan, state)
    if task.pairwise is not None and task.pairwise.segmented:
        return after_parts(plan, state, _parts(task, release, folder), release.n)
    if tuple(row.label for row in release.estimates) != task.domain.labels:
        raise ShoalError(
            Kind.MISMATCH, f"task {task.name}: the release has other coordinates than the task"
        )
    totals = np.array([row.value for row in release.estimates], dtype=np.float64)
    return after_round(plan, state, totals, release.n)


def _parts(
    task: Task, release: release_pb2.Release, folder: Path | None
) -> Iterator[NDArray[np.float64]]:
    domain = task.domain
    if not isinstance(domain, Vector) or not release.HasField("array"):
        raise ShoalError(
            Kind.MISMATCH, f"task {task.name}: this release has no array, as its task wants one"
        )
    name = array_name(TaskId(release.task_id), release.window)
    if folder is None:
        raise ShoalError(
            Kind.MISMATCH,
            f"task {task.name}: its totals are in the file {name}: say in which folder it lies "
            "(shoal results export --format release writes it beside the release)",
        )
    return released_totals(folder / name, release.array, domain)


def signed_release(file: bytes) -> bytes:
    """The SignedRelease in a release file (docs/VERIFY.md), for ``follow``, which verifies it; the
    rest of the file is for readers. Raises INVALID for any other file.
    """
    try:
        if len(file) > MOST_BYTES:
            raise ValueError
        signed = json.loads(file)["signed"]
        release, signature = (
            base64.b64decode(signed[name], validate=True)
            for name in ("release", "release_signature")
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ShoalError(
            Kind.INVALID,
            "this is no release file: write one with shoal results export --format release",
        ) from None
    return release_pb2.SignedRelease(release=release, signature=signature).SerializeToString()


def answer(
    plan: LearningPlan, state: LearningState, row: NDArray[np.float64], yes: bool
) -> NDArray[np.float64]:
    """float64[plan.dimension]: what a device with this row answers in window ``state.done``, at
    most ``plan.bound`` long; before rounding and noise (``clients.rounds.agent.noisy``).

    ``row``: float64[features]. One with NaN, infinity or a number beyond 10^9 is answered with the
    zero vector, as a missing vector is, and no log says so: who takes part must not depend on it.
    Raises INVALID for another number of features, CONFIG on a device that lacks what the model's
    gradient takes, whatever the row is. Nothing is charged by then.
    """
    usable = is_row(plan, row)
    numbers = row if usable else np.zeros_like(row)
    vector: NDArray[np.float64] = answers(plan, state, numbers[None, :], np.array([yes]))[0]
    if not usable:
        vector[:] = 0.0
    return vector

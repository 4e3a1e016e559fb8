"""What a window of a discovery asks: the analyzer's signed word, and what everybody checks of it.

A discovery is one signed task, and its levels are asked in its windows, one after another: so one
promise, one key schedule and one consent hold for all of them, and no authority has to be there
while it runs. Window 0 asks level 0. Of every later window that asks anything the analyzer, whose
key the task names, says once which level it asks and which beginnings of words are followed there.
A window without a step asks nothing.

*What devices check.* A step has the form that the task promised (``DiscoveryLevel``), follows from
steps that the device saw before (``follows``), and is the only one for its window: two that differ
are two questions under one name, made to tell devices apart, and end the task. Whether what is
followed is what was released can be told by everybody who has the releases: a step names the digest
of the one that it is made of.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from shoal.codec import VERSION, parse
from shoal.crypto.signing import SigningContext, verify
from shoal.digests import sha256
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import KIB
from shoal.protos import directory_pb2
from shoal.questions.discovery import DiscoveryLevel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shoal.crypto.signing import SigningKey
    from shoal.task import Task

_ENVELOPE = KIB  # around the beginnings: fields, lengths, signature
_SYMBOL_BYTES = 4  # tag and length of a beginning, at most


@dataclass(frozen=True, slots=True)
class DiscoveryStep:
    """``window`` >= 1; ``level``: what it asks, None: the discovery is over, and nothing is asked
    from this window on. ``release``: SHA-256 of the Release bytes that the beginnings come from;
    None: of no release, at level 0.
    """

    task_id: TaskId
    window: int
    level: DiscoveryLevel | None
    release: Digest | None

    @property
    def is_over(self) -> bool:
        """Whether it ends the discovery."""
        return self.level is None


@dataclass(frozen=True, slots=True)
class SignedStep:
    """A step that was verified, and the bytes in which it is passed on: a SignedDiscoveryStep.

    ``name``: of what the step asks: SHA-256("shoal/v1/discovery-step" || 0x00 || the signed bytes).
    A report of its window carries it where others have their task's id, and the shuffler takes no
    other. So all reports of a window answer the same: a device that was told something else than
    the others would have no noise but its own in the cells that they don't have.
    """

    step: DiscoveryStep
    data: bytes
    name: TaskId


def first_level(discovery: Discovery) -> DiscoveryLevel:
    """What window 0 asks."""
    return discovery.level(0)


def level_asked(
    discovery: Discovery, steps: Mapping[int, DiscoveryStep], window: int
) -> DiscoveryLevel | None:
    """What a window asks, by the steps that are known; None: nothing, as far as they say."""
    if window in steps:
        return steps[window].level
    return first_level(discovery) if window == 0 else None


def sign_step(step: DiscoveryStep, discovery: Discovery, key: SigningKey) -> SignedStep:
    """``key``: the one that the task names as its analyzer's. The same step has the same bytes."""
    level = step.level
    data = directory_pb2.DiscoveryStep(
        version=VERSION,
        task_id=step.task_id.raw,
        window=step.window,
        level=discovery.levels if level is None else level.number,
        followed=() if level is None else level.followed,
        release_hash=b"" if step.release is None else step.release.raw,
    ).SerializeToString(deterministic=True)
    signature = key.sign(SigningContext.DISCOVERY_STEP, data)
    signed = directory_pb2.SignedDiscoveryStep(step=data, signature=signature)
    return SignedStep(step, signed.SerializeToString(deterministic=True), _name(data))


def task_of_step(data: bytes) -> TaskId:
    """Of which task a SignedDiscoveryStep says that it is; nothing is verified. Raises INVALID."""
    signed = parse(directory_pb2.SignedDiscoveryStep, data, _WHAT)
    return TaskId(parse(directory_pb2.DiscoveryStep, signed.step, _WHAT).task_id)


def trust_step(data: bytes, task: Task, task_id: TaskId) -> SignedStep:
    """Verify and parse a SignedDiscoveryStep of a trusted task.

    Raises INVALID (its form; a level or beginnings that the discovery can't have), OVERSIZE,
    BAD_SIGNATURE, MISMATCH (the task is no discovery; the step is of another task).
    """
    discovery = task.domain
    if not isinstance(discovery, Discovery):
        raise ShoalError(Kind.MISMATCH, f"step: task {task.name} is no discovery, it has none")
    if len(data) > most_bytes(discovery):
        raise ShoalError(
            Kind.OVERSIZE,
            f"step of task {task.name}: {len(data)} bytes, at most {most_bytes(discovery)} are "
            "read",
        )
    signed = parse(directory_pb2.SignedDiscoveryStep, data, _WHAT)
    verify(task.analyzer_key, SigningContext.DISCOVERY_STEP, signed.step, signed.signature)
    step = _read(signed.step, task, task_id, discovery)
    whole = directory_pb2.SignedDiscoveryStep(step=signed.step, signature=signed.signature)
    # what lies around the signed bytes is not passed on
    return SignedStep(step, whole.SerializeToString(deterministic=True), _name(signed.step))


def _name(step: bytes) -> TaskId:
    return TaskId(sha256(b"shoal/v1/discovery-step\x00" + step))


def _read(data: bytes, task: Task, task_id: TaskId, discovery: Discovery) -> DiscoveryStep:
    message = parse(directory_pb2.DiscoveryStep, data, _WHAT)
    if message.version != VERSION:
        raise ShoalError(
            Kind.INVALID,
            f"step of task {task.name}: version {message.version} is not known here (this program "
            f"reads version {VERSION})",
        )
    if message.task_id != task_id.raw:
        raise ShoalError(Kind.MISMATCH, f"step: it belongs to another task than {task.name}")
    if not 1 <= message.window < task.windows.count:
        raise ShoalError(
            Kind.INVALID,
            f"step of task {task.name}: windows 1 to {task.windows.count - 1} have one, and none "
            f"is {message.window}",
        )
    over = message.level == discovery.levels
    if over and message.followed:
        raise ShoalError(
            Kind.INVALID, f"step of task {task.name}: one that ends it follows nothing"
        )
    level = None if over else discovery.level(message.level, message.followed)
    release = Digest(message.release_hash) if message.release_hash else None
    if (release is None) != (level is not None and level.number == 0):
        raise ShoalError(
            Kind.INVALID,
            f"step of task {task.name}: it names the release that it follows, but at level 0",
        )
    return DiscoveryStep(task_id, message.window, level, release)


def most_bytes(discovery: Discovery) -> int:
    """Of a SignedDiscoveryStep: of a longer one nothing is read."""
    return _ENVELOPE + discovery.most * (discovery.longest + _SYMBOL_BYTES)


def check_step(step: DiscoveryStep, before: Iterable[DiscoveryStep], discovery: Discovery) -> None:
    """Return if a step can stand beside those that were seen. ``before``: of the same task, of any
    windows, in any order; window 0 is known without.

    A level is asked again, where its window was lost, with the same beginnings; the next one
    follows beginnings of it alone. Raises CONFLICT for a second one of its window, and for one that
    does not follow.
    """
    asked: dict[int, DiscoveryLevel | None] = {0: first_level(discovery)}
    for one in before:
        if one.window == step.window and one != step:
            raise _conflict("a second step was offered for one window")
        asked[one.window] = one.level
    asked[step.window] = step.level
    for (a, earlier), (b, later) in pairwise(sorted(asked.items(), key=_window)):
        if not _may_follow(earlier, later, b - a):
            raise _conflict("its steps do not follow from one another")


def _may_follow(earlier: DiscoveryLevel | None, later: DiscoveryLevel | None, windows: int) -> bool:
    """Whether a window may ask ``later`` when another, so many ``windows`` before, asked
    ``earlier``; None: it was over.
    """
    if later is None:
        return True
    if earlier is None or not 0 <= later.number - earlier.number <= windows:
        return False
    if later.number == earlier.number:
        return later.followed == earlier.followed
    return all(_reaches(earlier, one) for one in later.followed)


def _reaches(level: DiscoveryLevel, beginning: bytes) -> bool:
    """Whether a longer beginning begins as one of the level's cells, the last one apart."""
    return level.cell_of(beginning) != level.size - 1


def _window(asked: tuple[int, DiscoveryLevel | None]) -> int:
    return asked[0]


def _conflict(what: str) -> ShoalError:
    return ShoalError(
        Kind.CONFLICT,
        f"a discovery: {what}, made to tell devices apart: its task is answered no more",
    )


_WHAT = "step of a discovery"

"""A whole discovery: that each level follows from the levels before.

The analyzer signs, once for each window but the first, what it asks there: a level, the beginnings
of words that it follows, and the SHA-256 of the release that these are from. A file carries the
step of its own window, and of the release that a discovery ends with the step that ends it. So
files of all windows are a chain, and every link is looked at:

- window 0 asks level 0, and has no step; every other window has one, of this task and window;
- the shuffler's manifest names the step: it took no report that answers anything else;
- the level of a release is the one that its step asks, and whatever it tells goes on from what the
  step follows (of places, every part of it is told);
- what a step follows is what the release that it names told to go on, all of it and nothing else;
  the release is of the same task, of an earlier window, and of the level before;
- the threshold of a level is the one that its cells and devices give (``threshold``), whatever was
  answered.

Not to be seen from releases: whether the estimates are those of the reports, and whether all
devices were told the same step. The second is what the task's shuffler stands for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from shoal.checker.chain import Chain
from shoal.checker.errors import UnreadableError
from shoal.checker.findings import Outcome, Statement
from shoal.checker.promise import decided, honest_of, law_of_task
from shoal.checker.questions.domains import END, first_level, symbols_going_on, symbols_of
from shoal.checker.several.dummies import DummiesLaw, repeated
from shoal.checker.several.threshold import is_threshold
from shoal.protos import release_pb2, task_pb2

_MOST_EPSILON = 100.0
_STEP = "the window has a step, of this task and window"
_NAMED = "all reports of the batch answer that step, as the shuffler says"
_LEVEL = "the level is the one that the step asks"
_GOES_ON = "every beginning goes on from one that the step follows"
_FOLLOWS = "the step follows all that the release it names told to go on"
_THRESHOLD = "the threshold is that of its cells and devices"
_OVER = "nothing was left to follow where the discovery ended"
_ALL = "epsilon of all windows of the discovery, together"


def steps(chain: Chain, sound: Sequence[Chain]) -> Iterator[Statement]:
    """``sound``: chains in which no signature or hash is wrong. Nothing of a task that is no
    discovery.
    """
    task, release = chain.task, chain.release
    if not task.domain.HasField("discovery"):
        if chain.signed.step or chain.signed.end:
            yield Statement(_STEP, Outcome.WRONG, "it is no discovery")
        return
    asked = _asked(chain)
    if isinstance(asked, Statement):
        yield asked
    else:
        level, followed = asked
        yield _said(_STEP, True, f"it asks level {level}" if level >= 0 else "it asks nothing")
        if level >= 0:
            yield _named(chain)
            yield _follows(chain, level, followed, sound)
        if not release.withheld:
            found = release.discovered
            yield _said(_LEVEL, found.level == level, f"level {found.level}")
            yield _said(_GOES_ON, _go_on(found, followed, task), f"{len(followed):,} followed")
            if level >= 0:
                yield _threshold(chain, level, followed)
    if chain.signed.end:
        yield _over(chain)
    yield _together(chain)


def _asked(chain: Chain) -> tuple[int, list[bytes]] | Statement:
    """(level, beginnings that are followed), -1 where nothing is asked; or what is wrong with the
    step.
    """
    window, step = chain.release.window, chain.step
    if window == 0:
        if chain.signed.step:
            return Statement(_STEP, Outcome.WRONG, "window 0 has none: it asks level 0")
        return 0, []
    if not chain.signed.step:
        if chain.release.withheld:
            return -1, []
        return Statement(_STEP, Outcome.OPEN, "the file has none: export the release again")
    discovery = chain.task.domain.discovery
    levels = discovery.longest - discovery.first + 1
    if step.task_id != chain.task_id or step.window != window:
        return Statement(_STEP, Outcome.WRONG, "it is of another task or window")
    followed, depth = list(step.followed), discovery.first + step.level
    if step.level >= levels:
        wrong = step.level > levels or followed or not chain.release.withheld
        return Statement(_STEP, Outcome.WRONG, "it asks nothing") if wrong else (-1, [])
    most = symbols_going_on(discovery)  # words that end don't go on
    fit = all(len(one) == depth - 1 and all(each < most for each in one) for one in followed)
    sorted_once = followed == sorted(set(followed))
    many = len(followed) <= discovery.most if step.level else not followed
    if not (fit and sorted_once and many and bool(followed) == bool(step.level)):
        return Statement(_STEP, Outcome.WRONG, "it follows what no level can")
    return step.level, followed


def _named(chain: Chain) -> Statement:
    """The shuffler's word: whether it signed the manifest is a statement of its own."""
    said, name = chain.manifest.asked, b""
    if not (chain.signed.manifest and chain.signed.manifest_signature):
        return Statement(_NAMED, Outcome.OPEN, "the file has no manifest that a shuffler signed")
    if chain.signed.step:
        name = hashlib.sha256(b"shoal/v1/discovery-step\x00" + chain.signed.step).digest()
    if name and not said:
        return Statement(_NAMED, Outcome.OPEN, "the manifest does not say")
    return _said(_NAMED, said == name, "window 0 has no other question" if not name else "named")


def _follows(chain: Chain, level: int, followed: list[bytes], sound: Sequence[Chain]) -> Statement:
    named = chain.step.release_hash
    if level == 0:
        return _said(_FOLLOWS, not named, "level 0 follows nothing")
    before = [one for one in sound if hashlib.sha256(one.signed.release).digest() == named]
    if not before:
        why = "it wants the file of the release that the step names"
        return Statement(_FOLLOWS, Outcome.OPEN, why)
    release = before[0].release
    earlier = release.task_id == chain.task_id and release.window < chain.release.window
    if not earlier or release.withheld or release.discovered.level != level - 1:
        why = "that is no earlier release of this task with the level before"
        return Statement(_FOLLOWS, Outcome.WRONG, why)
    same = _going_on(release.discovered) == followed
    return _said(_FOLLOWS, same, f"window {release.window}: {len(followed):,} beginnings")


def _going_on(found: release_pb2.DiscoveredLevel) -> list[bytes]:
    return sorted(one for one in found.beginnings if one and one[-1] != END)


def _go_on(found: release_pb2.DiscoveredLevel, followed: list[bytes], task: task_pb2.Task) -> bool:
    """At level 0 words may be shorter than what is asked for. Of places every cell is told that was
    asked for.
    """
    if found.level == 0:
        return not followed
    if task.domain.discovery.HasField("parts"):
        return {one[:-1] for one in found.asked} == set(followed)
    depth, known = task.domain.discovery.first + found.level, set(followed)
    return all(len(one) == depth and one[:-1] in known for one in found.beginnings)


def _threshold(chain: Chain, level: int, followed: list[bytes]) -> Statement:
    law, asked, told = law_of_task(chain.task), chain.task.domain.discovery, chain.release
    if not isinstance(law, DummiesLaw):
        why = law if isinstance(law, str) else "the task is of a mechanism that has none"
        return Statement(_THRESHOLD, Outcome.OPEN, why)
    cells = symbols_of(asked) * len(followed) if level else first_level(asked)
    levels, least = asked.longest - asked.first + 1, told.discovered.threshold
    heard = _heard(chain, law, cells)
    try:
        holds = is_threshold(law, least, cells, levels, heard)
    except UnreadableError as error:
        return Statement(_THRESHOLD, Outcome.OPEN, str(error))
    return _said(_THRESHOLD, holds, f"{least:,} of {heard:,} devices, for {cells:,} cells")


def _heard(chain: Chain, law: DummiesLaw, cells: int) -> int:
    """Devices that estimates are of: those of the batch, less one for as many refused rows as a
    device sends on average at a level of so many ``cells``, another apart.
    """
    refused = sum(row.count for row in chain.release.rejected)
    sent = 1 + Fraction((cells + 1) * law.weight, 1 << 64)
    return max(0, chain.manifest.reports - math.floor(refused / sent))


def _over(chain: Chain) -> Statement:
    """The step that ends the discovery, and names this release."""
    end, found, task = chain.end, chain.release.discovered, chain.task
    levels = task.domain.discovery.longest - task.domain.discovery.first + 1
    named = end.release_hash == hashlib.sha256(chain.signed.release).digest()
    ends = end.level == levels and not end.followed and end.window > chain.release.window
    if not (end.task_id == chain.task_id and named and ends):
        return Statement(_OVER, Outcome.WRONG, "the step that ends it is of another release")
    over = found.level == levels - 1 or not _going_on(found)
    return _said(_OVER, over and not chain.release.withheld, f"with level {found.level}")


def _together(chain: Chain) -> Statement:
    """Of a device that answers in all windows of the task, whatever is asked in them; or in the one
    that it draws.
    """
    task, law = chain.task, law_of_task(chain.task)
    windows = 1 if task.domain.discovery.fresh else task.windows.count
    if not isinstance(law, DummiesLaw):
        why = law if isinstance(law, str) else "the task is of a mechanism that has none"
        return Statement(_ALL, Outcome.OPEN, why)
    honest = honest_of(task, task.min_batch)
    if windows == 1:
        alone = decided(law, honest, task.target_epsilon, task.delta)
        why = f"{task.target_epsilon:.6g} at delta {task.delta:.3g}: a device answers in one window"
        return Statement(_ALL, alone.outcome, f"{why} alone ({alone.how})")
    # a plan keeps all windows at the delta of one; else at the deltas of all, added
    for delta in (task.delta, task.delta * windows):
        found = repeated(law, honest, task.target_epsilon, windows, delta)
        proven = math.inf if found is None else found.epsilon(delta, _MOST_EPSILON)
        if proven < _MOST_EPSILON:
            why = f"at most {proven:.6g} at delta {delta:.3g} for {windows:,} windows"
            return Statement(_ALL, Outcome.HOLDS, why)
    return Statement(_ALL, Outcome.OPEN, f"none is proven for {windows:,} windows")


def _said(what: str, holds: bool, why: str) -> Statement:
    return Statement(what, Outcome.HOLDS if holds else Outcome.WRONG, why)

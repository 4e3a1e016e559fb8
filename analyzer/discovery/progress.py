"""How a discovery stands: whether something is still to come, and what is waited for.

Pure: of the task, of what it was asked and what was released, at a moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from shoal.crypto.discovery_steps import DiscoveryStep, level_asked
from shoal.domain import Discovery
from shoal.task import Task

_SILENT = 2  # windows after which a release that has not come is not waited for


class Stand(StrEnum):
    """``ASKED``: a window runs that asks a level. ``AWAITED``: one is over, and not released yet.
    ``NEXT``: a later window is to ask. ``OVER``: nothing is left to follow. ``RAN_OUT``: the task
    has no window any more. ``GOING_ON``: not over, and nobody said which task it is.
    """

    ASKED = "asked"
    AWAITED = "awaited"
    NEXT = "next"
    OVER = "over"
    RAN_OUT = "ran out"
    GOING_ON = "going on"


@dataclass(frozen=True, slots=True)
class WordProgress:
    """``why``: one line for people. ``withheld``: a line for each window whose level gave nothing,
    in order. ``draws``: windows of which each device answers one alone; 0: it answers every one, or
    the task is not known.
    """

    stand: Stand
    why: str
    withheld: tuple[str, ...] = ()
    draws: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more is to be expected."""
        return self.stand in (Stand.OVER, Stand.RAN_OUT)


def progress(
    task: Task | None,
    steps: Mapping[int, DiscoveryStep],
    released: Collection[int],
    withheld: Mapping[int, str],
    now: float,
    *,
    over: bool,
) -> WordProgress:
    """``task``: None where it is not known. ``steps``: that were made, by window; ``released``:
    windows that told something, ``withheld``: those that did not, and why; ``over``: the releases
    leave nothing to follow; ``now``: Unix seconds.
    """
    draws = 0
    if task is not None and isinstance(task.domain, Discovery) and task.domain.fresh:
        draws = task.windows.count
    found = _stand(task, steps, released, withheld, now, over=over)
    return replace(found, draws=draws)


def _stand(
    task: Task | None,
    steps: Mapping[int, DiscoveryStep],
    released: Collection[int],
    withheld: Mapping[int, str],
    now: float,
    *,
    over: bool,
) -> WordProgress:
    told = tuple(f"window {window} is withheld: {why}" for window, why in sorted(withheld.items()))
    if over or any(step.is_over for step in steps.values()):
        return WordProgress(Stand.OVER, "nothing is left to follow", told)
    if task is None or not isinstance(task.domain, Discovery):
        return WordProgress(Stand.GOING_ON, "not all levels are released yet", told)
    return _running(task, task.domain, steps, {*released, *withheld}, now, told)


def _running(
    task: Task,
    discovery: Discovery,
    steps: Mapping[int, DiscoveryStep],
    ended: Collection[int],
    now: float,
    told: tuple[str, ...],
) -> WordProgress:
    plan = task.windows
    asked = {
        window: level
        for window in range(plan.count)
        if (level := level_asked(discovery, steps, window)) is not None
    }
    open_ones = [window for window in asked if window not in ended]
    for window in open_ones:
        if plan.start_of(window) <= now < plan.deadline_of(window):
            until = _utc(plan.deadline_of(window))
            why = f"window {window} asks level {asked[window].number}, until {until}"
            return WordProgress(Stand.ASKED, why, told)
    waited = [
        window
        for window in open_ones
        if plan.deadline_of(window) <= now < plan.deadline_of(window) + _SILENT * plan.length_s
    ]
    if waited:
        number = asked[waited[-1]].number
        why = f"window {waited[-1]} asked level {number}: its release is awaited"
        return WordProgress(Stand.AWAITED, why, told)
    later = [window for window in range(plan.count) if now < plan.start_of(window)]
    known = [window for window in later if window in asked]
    if known:
        first = known[0]
        why = f"window {first} asks level {asked[first].number}, from {_utc(plan.start_of(first))}"
        return WordProgress(Stand.NEXT, why, told)
    if later or now < plan.end_of(plan.count - 1) - plan.length_s / 2:
        return WordProgress(Stand.NEXT, "a later window is to ask the next level", told)
    lost = [window for window in open_ones if now < plan.start_of(window) + task.retention_s]
    late = f"; window {lost[-1]} may still be released, late" if lost else ""
    why = f"the task's {plan.count} windows are over, and not all levels were asked{late}"
    return WordProgress(Stand.RAN_OUT, why, told)


def _utc(second: float) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M UTC")

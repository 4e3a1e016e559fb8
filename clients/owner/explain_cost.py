"""What a task costs its owner's budget, in plain words."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

from shoal.clients.memory.commitments import NANO, nano_up
from shoal.clients.owner.policy import counted_on
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.clients.core import Assignment
    from shoal.clients.owner.policy import Policy
    from shoal.clients.settings.config import AgentConfig
    from shoal.task import Task


def pays(assignment: Assignment, policy: Policy, spent: int, *, kept: bool) -> bool:
    """Whether the budget, ``spent`` nano-epsilon of it gone, pays for one more window of a task
    whose reports are within the owner's limit.

    ``kept``: the device remembers an answer of this memoized task, which costs nothing to send
    again. Windows that it answered before it forgot (consent taken back, and given again) don't
    count. True where the charge is not known before: sums, and reports accepted explicitly.
    """
    epsilon0, limit = assignment.epsilon0, policy.limit_nano
    repeats = assignment.task.memoized and kept
    is_capped = assignment.epsilon_apart is None and epsilon0 <= policy.max_epsilon0 and not repeats
    return limit is None or not is_capped or spent + nano_up(epsilon0) <= limit


def guaranteed_epsilon(assignment: Assignment) -> float:
    """What the task's certificate guarantees behind the shuffler, of one window: at floor(honest
    fraction x min_batch) reports.

    Of a sum: what is guaranteed of every round. Direction: upper bound. Raises ShoalError if there
    is none.
    """
    if assignment.epsilon_apart is not None:
        return assignment.epsilon_apart
    from shoal.accounting.of_task import guarantee_of

    made = assignment.several or assignment.mechanism
    return guarantee_of(assignment.task, made).epsilon_upper


def cost_lines(
    assignment: Assignment,
    config: AgentConfig,
    accepted: float | None,
    spent: int,
    charged: int,
    answered: int,
) -> list[str]:
    """What answering costs this owner, in sentences: of one window, of all, and what the budget
    pays for. ``accepted``: the epsilon0 that the owner agreed to for this task, if any; ``spent``
    and ``charged``: nano-epsilon of everything, and of this task; ``answered``: windows of it.
    """
    policy, task = config.effective_policy, assignment.task
    per_window = counted_on(policy, assignment.epsilon0, assignment.epsilon_apart)
    what = ""
    if not per_window <= policy.max_epsilon0:
        explicit = accepted is not None and per_window <= accepted
        if explicit and assignment.epsilon_apart is None and not task.memoized:
            with contextlib.suppress(ShoalError):
                per_window = min(per_window, guaranteed_epsilon(assignment))
                what = " (what the certificate guarantees, since you accepted more than your limit)"
        elif not explicit:
            what = ", which is above your limit"
    # With a memory of the mechanism's own, values may share an answer: those of one hash, or of one
    # bucket.
    kept = (
        "each permanent answer that is drawn"
        if assignment.longitudinal is not None
        else "each further distinct value"
    )
    once = task.windows_of_a_device < task.windows.count
    alone = "the one window that this device answers" if once else "each window"
    each = kept if task.memoized else alone
    lines = [
        f"What it costs: {each} costs epsilon {up(per_window)}{what}, whether or not the window is "
        "ever published, and is never given back.",
        _delta_line(assignment, policy),
    ]
    if answered:
        windows = "1 window was" if answered == 1 else f"{answered:,} windows were"
        lines.append(f"So far {windows} answered, which cost epsilon {up(charged / NANO)}.")
    limit = policy.limit_nano
    if limit is None:
        lines.append(
            "Budget: none is set (lifetime_epsilon); all tasks together cost epsilon "
            f"{up(spent / NANO)} so far."
        )
    else:
        lines.append(
            f"Budget: all tasks together cost epsilon {up(spent / NANO)} of "
            f"{policy.lifetime_epsilon:g}; "
            f"{down(max(0, limit - spent) / NANO)} are left."
        )
        lines.append(
            _paid_windows(
                task,
                nano_up(per_window) if math.isfinite(per_window) else None,
                limit,
                max(0, limit - spent),
            )
        )
    return lines


def _delta_line(assignment: Assignment, policy: Policy) -> str:
    """Delta beside the owner's limit, of one window, and what that of all windows adds up to: it is
    in no budget.
    """
    task = assignment.task
    # what a sum leaves if shuffler and analyzer work together holds at a delta too
    held = assignment.epsilon_apart is None and math.isfinite(assignment.epsilon0)
    leak = (
        "more may leak than is promised behind the shuffler, though never more than one report by "
        "itself gives away"
        if held
        else "an answer may leak whole"
    )
    line = (
        f"Delta: with probability {up(task.delta)} (of one window; your limit, max_delta, is "
        f"{policy.max_delta:g}) {leak}."
    )
    count = task.windows_of_a_device
    if count == 1 or task.memoized:
        return line
    total = up(min(1.0, math.nextafter(count * task.delta, math.inf)))
    return f"{line} Over all {count:,} windows this adds up to {total}."


def _paid_windows(task: Task, nano: int | None, limit: int, left: int) -> str:
    """How far a budget goes: of ``nano``-epsilon a window or value, None: infinite. ``left`` of
    ``limit``: what is not spent yet.
    """
    count = task.windows_of_a_device
    windows = "1 window" if count == 1 else f"{count:,} windows"
    if nano is None:
        return f"It pays for none of this task's {windows}: what one costs is infinite."
    whole, now = (count, count) if nano == 0 else (limit // nano, left // nano)
    if task.memoized:
        what = "distinct value" if whole == 1 else "distinct values"
        return (
            f"The whole budget pays for {whole:,} {what} of this task, over all of its {windows}; "
            f"what is left, for {now:,} more. "
            "After that the last answer is repeated."
        )
    return (
        f"The whole budget pays for {min(whole, count):,} of {windows} of this task; what is left, "
        f"for {min(now, count):,} more."
    )


def up(epsilon: float) -> str:
    """For people, rounded up."""
    # the accountant: `shoal agent status` asks this file whether a budget pays, and no more
    from shoal.accounting.meaning import bound_text

    return bound_text(epsilon)


def down(epsilon: float) -> str:
    """For people, rounded down."""
    from shoal.accounting.meaning import bound_text

    return bound_text(epsilon, up=False)

"""What a task must satisfy whose devices send several messages, beyond what its fields say alone.

Errors: a shape that is not the mechanism's, a memoized task, noise that is split over more devices
than the smallest batch is sure to have honest ones (nothing would be proven), a target below what
the smallest batch guarantees, a batch that is larger than a shuffler has room for, had every report
as many messages as it may.

Of a discovery: fewer windows than levels (an error), a grace that a level's release waits for, and
what all windows together cost a device.

Warnings: that a report may show its value to shuffler and analyzer together (epsilon0 is infinite),
which every owner has to agree to by name, or what it keeps; how far one device can move a count;
that a shuffler which reads releases learns more of + and - than the target says, where no empty
messages hide the numbers of messages; that the shuffler is trusted for noise which it adds; noise
for fewer devices than are sure to be honest, which errs more than it has to; and truncation that
was chosen for fewer windows than there are.
"""

from __future__ import annotations

import math

from shoal.accounting.lint.findings import Finding, LintResult
from shoal.accounting.lint.release import full_at_once, of_release
from shoal.accounting.meaning import bound_text
from shoal.accounting.of_task import guarantee_of
from shoal.accounting.several_messages.liars import liar_words
from shoal.accounting.several_messages.of_mechanism import losses_of
from shoal.accounting.several_messages.of_windows import epsilon_together
from shoal.domain import Discovery
from shoal.errors import ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.several.protocol import Several, Summed, sizes_tell
from shoal.mechanisms.several.registry import check_shape
from shoal.task import Admission, Task


def lint_several(task: Task, made: Several) -> LintResult:
    """As ``lint``, of a task with this mechanism."""
    findings = list[Finding]()
    try:
        check_shape(task, made)
    except ShoalError as error:
        findings.append(Finding(True, str(error)))
    room = (LIMITS.batch_rows - task.added_messages) // made.messages
    if max(task.min_batch, task.max_batch) > room:
        findings.append(
            Finding(
                True,
                f"a window has room for {room:,} reports of up to {made.messages} messages: "
                "min_batch and max_batch can't be above that",
            )
        )
    try:
        guarantee = guarantee_of(task, made)
    except ShoalError as error:
        findings.append(Finding(True, str(error)))
        return LintResult(tuple(findings), None)
    findings += of_release(task, guarantee, "raise min_batch, or design its noise for the target")
    shares, honest = made.least_devices, task.n_certified
    if 1 < shares < honest:
        findings.append(
            Finding(
                False,
                f"the noise is split over {shares} devices, and {honest} are sure to be honest: "
                "noise for so many errs less",
            )
        )
    if isinstance(made, Summed) and (task.max_batch or room) > made.most_reports:
        findings.append(
            Finding(
                True,
                f"sums of more than {made.most_reports:,} reports can't be told apart: set "
                "max_batch to that at most, or give the mechanism by its name alone",
            )
        )
    findings += _of_onlookers(task, made)
    findings += _of_windows(task, made)
    if isinstance(task.domain, Discovery):
        findings += _of_levels(task, task.domain)
        findings += _of_all_levels(task, task.domain, made)
    return LintResult((*findings, *full_at_once(task)), guarantee)


def _of_onlookers(task: Task, made: Several) -> list[Finding]:
    """What the services see that no epsilon of a release is about, and what devices that lie do."""
    together = (
        "shuffler and analyzer together see the value itself, so devices answer only if their "
        "owners agree to that by name"
        if math.isinf(made.epsilon0)
        else "shuffler and analyzer together see a value that was randomized first, with epsilon0 "
        f"{bound_text(made.epsilon0)}{_each_window(task, made)}"
    )
    findings = [Finding(False, f"{made.name}: {together}; {liar_words(made, task.domain)}")]
    if sizes_tell(made):
        findings.append(
            Finding(
                False,
                f"{made.name}: target_epsilon holds against everybody who reads the release but "
                "the shuffler, which knows how many messages each device sent: give the mechanism "
                "by its name alone, and empty messages are added that hide it",
            )
        )
    if task.added_messages:
        findings.append(
            Finding(
                False,
                f"{made.name}: the shuffler is trusted for the noise: one that adds none shows the "
                "analyzer exact counts, and nobody can tell; it seals up to "
                f"{task.added_messages:,} messages for every batch, whatever comes",
            )
        )
    return findings


def _each_window(task: Task, made: Several) -> str:
    """What remains of all windows of a device, where it answers in more than one."""
    count = task.windows_of_a_device
    return "" if count == 1 else f" in each window, {bound_text(count * made.epsilon0)} in all"


def _of_levels(task: Task, discovery: Discovery) -> list[Finding]:
    """What the windows of a discovery must have room for."""
    plan, findings = task.windows, list[Finding]()
    if plan.count < discovery.levels:
        findings.append(
            Finding(
                True,
                f"a discovery of {discovery.levels} levels asks one in a window, and the task has "
                f"{plan.count}: raise windows.count, with one or two more for windows that are "
                "lost, or shorten its words",
            )
        )
    if plan.count > 1 and 2 * plan.grace_s > plan.length_s:
        findings.append(
            Finding(
                False,
                "a level is asked in the next window only if the one before is released when that "
                "has run for half its length: with this grace_s every other window is lost: make "
                "grace_s less than half of length_s",
            )
        )
    return findings


def _of_all_levels(task: Task, discovery: Discovery, made: Several) -> list[Finding]:
    """What all windows cost one device, where ``target_epsilon`` is said of one."""
    count, target = task.windows.count, bound_text(task.target_epsilon)
    if count == 1:
        return []
    if discovery.fresh:
        devices = math.ceil(count * (2.0 + math.sqrt(4.0 + task.min_batch)) ** 2)
        liars = task.min_batch - task.n_certified
        kept = "" if task.admission is Admission.ENROLLED else " while it keeps its memory"
        return [
            Finding(
                False,
                f"a device answers in one of {count} windows alone, so all of them together cost "
                f"it epsilon {target}{kept}; for min_batch reports in each of them, some "
                f"{devices:,} devices have to take part (four standard deviations); "
                f"honest_fraction is that of a window's reports: {liars or 'no'} devices may lie, "
                "for one that does may answer in every window",
            )
        ]
    together = epsilon_together(made, task.n_certified, task.delta, count)
    if math.isinf(together):
        return []  # said where the truncation is looked at
    return [
        Finding(
            False,
            f"target_epsilon, {target}, is of one level: a device answers in all {count} windows, "
            f"which cost it epsilon {bound_text(together)} together at delta {task.delta:g}",
        )
    ]


def _of_windows(task: Task, made: Several) -> list[Finding]:
    """A warning where truncation, charged once per window, takes all of delta (``losses_of``:
    mass at infinity adds up): then all windows together have no epsilon at this delta.
    """
    losses, count = losses_of(made, task.n_certified, task.delta), task.windows_of_a_device
    if losses is None or count * losses.infinity <= task.delta:
        return []
    enough = int(task.delta / losses.infinity)
    none = "no epsilon" if math.isinf(losses.epsilon0) else "no epsilon but the sum of epsilon0"
    return [
        Finding(
            False,
            f"{none} holds for all {count} windows together at delta {task.delta:g}: the noise "
            f"is cut off for {enough} at most; give the mechanism by its name alone, and it is "
            "chosen for all",
        )
    ]

"""What a task must satisfy before anybody signs it, beyond what its fields say alone: pure, no
files.

Errors make a task impossible (a target that can't be met, a mechanism that doesn't fit its domain);
``shoal task sign`` refuses them. Warnings are lawful but rarely meant; the person who signs should
read them.

Errors, and why each makes a task impossible:

- report_size or messages unlike the mechanism's: no report could be parsed.
- a target epsilon below what the smallest batch guarantees: every release would be withheld.
- fewer than two honest reports in the smallest batch: nobody to hide among.
- memoized, where repetition promises nothing (``composition.memoized``).

Warnings, and what they guard against:

- delta above 1 / min_batch: publishing one device's answer, drawn at random, would be allowed by
  it.
- delta above what devices answer whose owners say nothing of it: they refuse the task.
- epsilon0 above 6: against shuffler and analyzer together a report then protects hardly at all.
- a certificate that knows nothing but epsilon0: another setting may err less for the same
  guarantee.
- max_batch equal to min_batch: one device that stays away, and the window is withheld.
- memoized reports that few others send: a device is recognised by what it repeats.
- places told to within a distance, drawn anew in several windows: together they tell a home.
"""

from __future__ import annotations

from shoal.accounting.composition.memoized import (
    check_memoized,
    lifetime_epsilon,
    rarest,
    recognised,
)
from shoal.accounting.lint.findings import Finding, LintResult
from shoal.accounting.lint.release import full_at_once, of_release
from shoal.accounting.lint.several import lint_several
from shoal.accounting.lint.sums import lint_sum
from shoal.accounting.meaning import bound_text
from shoal.accounting.metric import OnAMap
from shoal.accounting.of_task import guarantee_of
from shoal.domain import Categories, Numeric, Places, Words, YesNo
from shoal.errors import ShoalError
from shoal.mechanisms import Mechanism
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create_any
from shoal.mechanisms.vectors.protocol import VectorRandomizer
from shoal.privacy import PureLaw, epsilon0_upper
from shoal.task import Aggregator, Task

# Above this a single report says next to nothing against its receiver: the odds between two answers
# move by more than 400.
_WEAK_EPSILON0 = 6.0
_WASTED = (
    "has a memory, and memoized is not set: every window draws all of it anew and costs epsilon0 "
    "again, so the permanent part is noise "
    "without use: set memoized = true, or choose another mechanism"
)
# Mechanisms for each kind of question whose kept answers tell a device apart least.
_SHARED: dict[type, str] = {
    YesNo: "binary_rr",
    Categories: "krr with few cells",
    Places: "krr with few cells",
    Numeric: "one_bit_mean, or kmean with few levels",
    Words: "rappor, which keeps a noisy filter and sends another report of it in each window",
}
# Below this a permanent report that few others send tells a device apart.
_FEW_ALIKE = 20.0


def lint(task: Task) -> LintResult:
    """Check a task against its mechanism and the accountant. Never raises for a task that is merely
    wrong: what is wrong comes back as findings, errors first where they make all else pointless.
    ``guarantee`` is that of the task's smallest release.
    """
    if task.aggregator is Aggregator.PAIRWISE:
        return lint_sum(task)
    try:
        made = create_any(task.mechanism, task.domain)
    except ShoalError as error:
        return LintResult((Finding(True, str(error)),), None)
    if isinstance(made, Several):
        return lint_several(task, made)
    mechanism = made
    findings: list[Finding] = []

    def add(bad: bool, error: bool, message: str) -> None:
        if bad:
            findings.append(Finding(error, message))

    add(
        (task.report_size, task.messages) != (mechanism.report_size, mechanism.messages),
        True,
        f"report_size and messages are {task.report_size} and {task.messages}: {mechanism.name} "
        f"makes {mechanism.messages} message(s) "
        f"of {mechanism.report_size} byte(s)",
    )
    if not isinstance(mechanism, VectorRandomizer):
        findings.extend(_memoized(task, mechanism))
    # From here on the task is compared with what its smallest release promises: a larger batch may
    # be better and never counts.
    guarantee = guarantee_of(task, mechanism)
    epsilon0 = guarantee.epsilon0
    findings += of_release(task, guarantee, "raise min_batch, lower epsilon0")
    add(
        epsilon0 > _WEAK_EPSILON0,
        False,
        f"epsilon0 is {bound_text(epsilon0, digits=3)}: if shuffler and analyzer collude, a report "
        "protects its device hardly at all",
    )
    add(
        isinstance(mechanism.privacy(), PureLaw),
        False,
        f"of {mechanism.name} with these parameters the certificate knows nothing but epsilon0, "
        "and claims little: another "
        "setting or mechanism may give a smaller error for the same guarantee: see `shoal plan`",
    )
    add(
        isinstance(mechanism, OnAMap) and task.windows.count > 1 and not task.memoized,
        False,
        f"a place that stays is drawn anew in each of {task.windows.count:,} windows, and what "
        "reports promise per kilometre adds up: set memoized = true, or ask in fewer windows",
    )
    findings += full_at_once(task)
    return LintResult(tuple(findings), guarantee)


def _memoized(task: Task, mechanism: Mechanism) -> list[Finding]:
    """What memoizing comes to for this task: an error where it can promise nothing, else warnings
    about recognition from window to window and about which epsilon is charged.
    """
    if not task.memoized:
        twice = (
            isinstance(mechanism, Longitudinal)
            and mechanism.privacy().max_ratio < mechanism.permanent().max_ratio
        )
        return (
            [Finding(False, f"{mechanism.name} {_WASTED}")]
            if twice and task.windows.count > 1
            else []
        )
    try:
        check_memoized(task, mechanism)
    except ShoalError as error:
        return [Finding(True, str(error))]
    findings: list[Finding] = []
    if task.windows.count == 1:
        findings.append(Finding(False, "memoized has no use in a task of one window: leave it out"))
    # Two figures: what one report promises by itself, and what an unchanged value costs over all
    # windows. Devices are charged by the second, so whoever signs must see both.
    lifetime, first = lifetime_epsilon(task, mechanism), epsilon0_upper(mechanism.privacy())
    if first < lifetime:
        findings.append(
            Finding(
                False,
                f"memoized: one report promises epsilon0 {bound_text(first)}, an unchanged value "
                f"over all windows {bound_text(lifetime)}, "
                "and each further permanent answer costs that again: devices are charged by the "
                "second figure",
            )
        )
    same, linked = rarest(task, mechanism.privacy()), recognised(task, mechanism)
    if isinstance(mechanism, Longitudinal):
        findings.append(Finding(False, f"memoized: {linked}"))
    elif same is None:
        findings.append(Finding(False, f"memoized: {linked}: use {_SHARED[type(task.domain)]}"))
    elif same < _FEW_ALIKE:
        findings.append(
            Finding(
                False,
                f"memoized: a rare report is expected only {bound_text(same, up=False, digits=2)} "
                "times among the honest ones, so devices "
                "can be recognised from window to window by what they repeat: use fewer cells, a "
                "smaller epsilon0, or a larger min_batch",
            )
        )
    return findings

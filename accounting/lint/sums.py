"""What a pairwise task must satisfy before anybody signs it, beyond what its fields say alone:
pure, no files.

What ``check_sum`` refuses is an error here, word for word: noise for another number of survivors,
and words in which a sum could wrap. Warnings are about rounds that will often fail (phases too
short for a far link, no room for a lost device) and about who could read a vector if shuffler and
analyzer worked together. A task that learns a model has to fit its plan, and its rounds have to
follow one another in time.
"""

from __future__ import annotations

import math

from shoal.accounting.lint.findings import Finding, LintResult
from shoal.accounting.lint.release import beyond_devices
from shoal.accounting.meaning import bound_text
from shoal.accounting.sums.sum_task import check_sum
from shoal.errors import ShoalError
from shoal.limits import LIMITS
from shoal.questions.plan_words import check_learning, plan_in
from shoal.secagg import Mode
from shoal.task import Task


def lint_sum(task: Task) -> LintResult:
    """Errors: noise for another number of survivors, words that could wrap, a target out of reach.
    See ``lint.lint``.
    """
    plan = task.pairwise
    try:
        certificate = check_sum(task)
    except ShoalError as error:
        return LintResult((Finding(True, str(error)),), None)
    findings: list[Finding] = []

    def add(bad: bool, error: bool, message: str) -> None:
        if bad:
            findings.append(Finding(error, message))

    add(
        certificate.epsilon_upper > task.target_epsilon,
        True,
        f"target_epsilon {task.target_epsilon:g} can't be met: the noise gives epsilon "
        f"{bound_text(certificate.epsilon_upper)} at delta "
        f"{task.delta:g}: make the noise anew, or accept a larger target",
    )
    if plan is None:
        return LintResult(tuple(findings), certificate)
    add(
        task.delta > 1 / plan.survivors_min,
        False,
        f"delta {task.delta:g} is above 1 / survivors_min: a whole device's vector may leak with "
        "that probability: choose 1e-6 or less",
    )
    findings += beyond_devices(task)
    add(
        plan.mode is not Mode.STRICT and not math.isfinite(certificate.remaining.together),
        False,
        f"mode {plan.mode.name.lower()}: shuffler and analyzer together can read every vector; "
        "strict mode withstands that",
    )
    add(
        plan.survivors_min == plan.cohort_min,
        False,
        "survivors_min equals cohort_min: one lost device, and the smallest round has no sum",
    )
    # two steps share it
    unmask_s = plan.unmask_s / 2 if plan.mode is Mode.STRICT else plan.unmask_s
    add(
        plan.mode is not Mode.HELPER
        and min(plan.join_s, plan.share_s, plan.mask_s, unmask_s) < LIMITS.phase_far_s,
        False,
        f"a phase is shorter than {LIMITS.phase_far_s} s (in strict mode half of unmask_s): "
        "devices that connect over slow links are lost",
    )
    upload_s = math.ceil(task.report_size / LIMITS.upload_far_bytes_s)
    add(
        plan.mode is not Mode.HELPER and plan.mask_s < upload_s,
        False,
        f"mask_s is {plan.mask_s}, and a vector of {task.report_size:,} bytes takes {upload_s} s "
        "over a link of 1 Mbit/s: devices with such a link are lost, raise mask_s",
    )
    add(
        plan.mode is Mode.HELPER and task.min_batch > plan.cohort_max,
        True,
        f"min_batch is {task.min_batch}, but the one sum of a window in mode helper has "
        f"{plan.cohort_max} devices at most: no window "
        "could be released, lower min_batch or raise cohort_max",
    )
    return LintResult((*findings, *_of_a_model(task)), certificate)


def _of_a_model(task: Task) -> list[Finding]:
    """Of a task whose question ends with the words of a learning plan: errors where devices would
    answer nothing to it, or could not know the model in time.
    """
    try:
        plan = plan_in(task.question)
        if plan is None:
            return []
        check_learning(task, plan)
    except ShoalError as error:
        return [Finding(True, error.message)]
    windows = task.windows
    late = (
        "a round is asked at the model after the release of the one before, which comes when "
        "grace_s is over in the next window: "
    )
    if windows.count > 1 and windows.grace_s >= windows.length_s:
        return [Finding(True, f"{late}make grace_s less than half of length_s")]
    if windows.count > 1 and 2 * windows.grace_s > windows.length_s:
        return [Finding(False, f"{late}with grace_s above half of length_s little of it is left")]
    return []

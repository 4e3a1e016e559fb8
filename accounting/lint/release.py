"""Findings about what a task's smallest release promises, whatever its mechanism."""

from __future__ import annotations

from shoal.accounting.guarantee import Guarantee
from shoal.accounting.lint.findings import Finding
from shoal.accounting.meaning import bound_text
from shoal.limits import LIMITS
from shoal.task import Task


def of_release(task: Task, guarantee: Guarantee, mend: str) -> list[Finding]:
    """Target and delta against the guarantee. ``mend``: what lowers the epsilon."""
    findings = list[Finding]()
    if guarantee.epsilon_upper > task.target_epsilon:
        findings.append(
            Finding(
                True,
                f"target_epsilon {task.target_epsilon:g} can't be met: with min_batch "
                f"{task.min_batch} and honest_fraction {float(task.honest_fraction):g} the "
                f"guaranteed epsilon is {bound_text(guarantee.epsilon_upper)} at delta "
                f"{task.delta:g}: {mend}, or accept a larger target",
            )
        )
    if task.n_certified < 2:
        findings.append(
            Finding(
                True,
                "honest_fraction x min_batch is below 2 reports: nothing would be hidden among "
                "others: raise min_batch",
            )
        )
    if task.delta > 1 / task.min_batch:
        findings.append(
            Finding(
                False,
                f"delta {task.delta:g} is above 1 / min_batch: a whole device's answer may leak "
                "with that probability: choose 1e-6 or less",
            )
        )
    return [*findings, *beyond_devices(task)]


def beyond_devices(task: Task) -> list[Finding]:
    """A delta that devices refuse, unless their owners allow more."""
    if task.delta <= LIMITS.device_delta:
        return []
    return [
        Finding(
            False,
            f"delta {bound_text(task.delta)} is above {LIMITS.device_delta:g}: devices refuse that "
            "unless their owners allow more (max_delta): choose 1e-6 or less",
        )
    ]


def full_at_once(task: Task) -> list[Finding]:
    """A window that one device decides."""
    if task.max_batch != task.min_batch:
        return []
    return [
        Finding(False, "max_batch equals min_batch: one missing device, and the window is withheld")
    ]

"""What a pairwise task comes to: the numbers that are computed from it, for people and programs."""

from __future__ import annotations

import math
from typing import Any

from shoal.accounting.guarantee import Guarantee
from shoal.accounting.lint.findings import Finding, LintResult
from shoal.accounting.meaning import bound_text
from shoal.cli.output import say
from shoal.crypto.secagg.parameters import parameters_for
from shoal.domain import Vector
from shoal.errors import ShoalError
from shoal.mechanisms.noise.registry import create_noise
from shoal.mechanisms.quantize import bounds
from shoal.secagg import Mode
from shoal.task import Task


def derived(task: Task) -> dict[str, Any] | None:
    """None for a shuffled task. Raises INVALID where no round can be laid out."""
    plan, domain = task.pairwise, task.domain
    if plan is None or not isinstance(domain, Vector):
        return None
    step = domain.clip / domain.grid
    noise = create_noise(task.mechanism)
    shown: dict[str, Any] = {
        "mode": plan.mode.name.lower(),
        "devices_per_round": [plan.cohort_min, plan.cohort_max],
        "survivors_min": plan.survivors_min,
        "honest_survivors": plan.honest_survivors(task.honest_fraction_ppm),
        "dropout": float(plan.dropout),
        "word_bits": plan.word_bits,
        "vector_bytes": task.report_size,
        "segment_words": plan.segment_words,
        "dimension": domain.dimension,
        "norm": domain.norm.name.lower(),
        "clip": domain.clip,
        "unit": domain.unit,
        "grid": domain.grid,
        "largest_coordinate": bounds(domain).linf,
        "noise_stderr_per_round": math.sqrt(plan.survivors_min * float(noise.variance)) * step,
    }
    if plan.mode is not Mode.HELPER:
        small, large = (
            parameters_for(plan, task.honest_fraction_ppm, n)
            for n in (plan.cohort_min, plan.cohort_max)
        )
        shown["neighbours"] = [small.neighbours, large.neighbours]
        shown["threshold"] = [small.threshold, large.threshold]
    return shown


def with_graph(task: Task, result: LintResult) -> LintResult:
    """The findings, and whether rounds of every size from cohort_min to cohort_max can be laid
    out.
    """
    plan = task.pairwise
    if plan is None or plan.mode is Mode.HELPER:
        return result
    step = max(1, (plan.cohort_max - plan.cohort_min) // 8)
    try:
        for devices in (*range(plan.cohort_min, plan.cohort_max, step), plan.cohort_max):
            parameters_for(plan, task.honest_fraction_ppm, devices)
    except ShoalError as error:
        return LintResult((*result.findings, Finding(True, str(error))), result.guarantee)
    return result


def with_noise(task: Task, result: LintResult) -> LintResult:
    """The findings, and whether a total can be told from noise at all: the noise of a sum against
    the largest total of its survivors.
    """
    plan, domain = task.pairwise, task.domain
    if plan is None or not isinstance(domain, Vector) or result.errors:
        return result
    step = domain.clip / domain.grid
    error = math.sqrt(plan.survivors_min * float(create_noise(task.mechanism).variance)) * step
    largest = plan.survivors_min * bounds(domain).linf * step
    if error < largest:
        return result
    text = (
        f"the noise of a sum has a standard error of {error:.4g}, and no total of "
        f"{plan.survivors_min} devices exceeds {largest:.4g}"
    )
    return LintResult(
        (
            *result.findings,
            Finding(False, f"{text}: larger rounds or a larger target_epsilon would tell more"),
        ),
        result.guarantee,
    )


def guarantee(certificate: Guarantee) -> str:
    """What a round's sum promises each device, and what is left if shuffler and analyzer work
    together.
    """
    upper, lower = (
        bound_text(certificate.epsilon_upper),
        bound_text(certificate.epsilon_lower, up=False),
    )
    left = certificate.remaining.together
    together = "the same" if left <= certificate.epsilon_upper else f"epsilon0 {bound_text(left)}"
    promise = (
        f"guaranteed epsilon {upper} (at least {lower}) at delta {certificate.delta:g} per round"
    )
    return f"{promise}; if shuffler and analyzer collude, {together}"


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def show(task: Task) -> None:
    """A few lines below a certificate."""
    shown = derived(task)
    if shown is None:
        return
    low, high = shown["devices_per_round"]
    what = "one sum per window, of" if shown["mode"] == "helper" else "rounds of"
    say(
        f"mode {shown['mode']}: {what} {_span(low, high)} devices, of which "
        f"{shown['survivors_min']} must survive; noise for "
        f"{shown['honest_survivors']} honest ones, standard error "
        f"{shown['noise_stderr_per_round']:.4g} per total and round"
    )
    if "neighbours" in shown:
        say(f"neighbours {_span(*shown['neighbours'])}, threshold {_span(*shown['threshold'])}")
    say(
        f"words of {shown['word_bits']} bits, {shown['vector_bytes']:,} bytes per device and window"
    )
    if shown["segment_words"]:
        say(
            f"in segments of {shown['segment_words']:,} coordinates; the totals are released as "
            "one array"
        )

"""A plan for vectors as a task file, of which `shoal task lint` computes the plan's own figures."""

from __future__ import annotations

import importlib.resources
from datetime import UTC, datetime
from typing import Any

import tomlkit

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.task_file import (
    ChosenTask,
    FileTerms,
    Settings,
    file_text,
    honest_value,
    vector_values,
)
from shoal.analyzer.planner.vectors.way import VectorPlan
from shoal.domain import Vector
from shoal.secagg import PairwisePlan
from shoal.task import PPM

_COMMAND = "shoal plan vectors"
_WEEK = 7 * 86_400


def vectors_text(plan: VectorPlan, told: Settings | None = None) -> str:
    """TOML. Parameters, grid and target are the plan's; of a sum, noise and word width follow from
    them.
    """
    told, way, request = told or Settings(), plan.chosen, plan.request
    if way.spec is None or way.domain is None:
        raise TypeError("a choice has its integers")
    if way.plan is not None:
        return _sum_text(plan, way.domain, way.plan, told)
    chosen = ChosenTask(
        way.title,
        way.spec,
        way.domain,
        repr(way.target),
        f"epsilon0 = {bound_text(way.epsilon0, digits=6)}",
    )
    terms = FileTerms(
        request.n, request.smallest_batch, float(request.honest), request.delta, request.windows
    )
    return file_text(chosen, terms, _WEEK, told, _COMMAND)


def _sum_text(plan: VectorPlan, domain: Vector, rounds: PairwisePlan, told: Settings) -> str:
    request, way = plan.request, plan.chosen
    text = (
        importlib.resources.files("shoal.analyzer.planner.vectors")
        .joinpath("planned_sum.toml")
        .read_text("utf-8")
    )
    document: Any = tomlkit.parse(text)
    document |= {
        "min_batch": rounds.survivors_min,
        "honest_fraction": honest_value(float(request.honest)),
        "delta": request.delta,
        "target_epsilon": tomlkit.value(repr(way.target)),
    }
    document["domain"] |= vector_values(domain)
    document["domain"].add(tomlkit.nl())
    for key, value in (
        ("mode", way.name),
        ("noise", way.spec.name if way.spec is not None else ""),
        ("cohort_max", rounds.cohort_max),
        ("cohort_min", rounds.cohort_min),
        ("dropout", rounds.dropout_ppm / PPM),
    ):
        document["pairwise"][key] = value
    windows = document["windows"]
    windows["start"] = tomlkit.value(datetime.now(UTC).strftime("%Y-%m-%dT00:00:00Z"))
    windows["length_s"] = _WEEK
    windows["count"] = request.windows
    told.fill(document)
    each = "" if request.windows == 1 else f", over {request.windows} windows together"
    return (
        f"# Planned by `{_COMMAND}`: {way.title}, for {request.n} devices, central epsilon <= "
        f"{request.epsilon!r}{each}.\n{document.as_string()}"
    )

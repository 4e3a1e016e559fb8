"""A plan for vectors as a task file, of which `shoal task lint` computes the plan's own figures."""

from __future__ import annotations

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.task_file import ChosenTask, FileTerms, Settings, file_text
from shoal.analyzer.planner.vectors.way import VectorPlan

_WEEK = 7 * 86_400


def vectors_text(plan: VectorPlan, told: Settings | None = None) -> str:
    """TOML. Parameters, grid and target are the plan's; of a sum, noise and word width follow from
    them.
    """
    way, request = plan.chosen, plan.request
    if way.spec is None or way.domain is None:
        raise TypeError("a choice has its integers")
    smallest = request.smallest_batch if way.plan is None else way.plan.survivors_min
    each = "" if request.windows == 1 else f", over {request.windows} windows together"
    chosen = ChosenTask(
        way.title,
        way.spec,
        way.domain,
        repr(way.target),
        f"epsilon0 = {bound_text(way.epsilon0, digits=6)}",
        way.plan,
        f"{request.epsilon!r}{each}",
    )
    terms = FileTerms(request.n, smallest, float(request.honest), request.delta, request.windows)
    return file_text(chosen, terms, _WEEK, told or Settings(), "shoal plan vectors")

"""One way of a plan of tables as a task file."""

from __future__ import annotations

import math

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.task_file import ChosenTask, FileTerms, file_text
from shoal.analyzer.tables.plan import TablesWay

_WEEK = 7 * 86_400


def task_file(way: TablesWay, length_s: int = _WEEK) -> str:
    """TOML, with what is not known marked FILL IN. ``length_s``: of a window."""
    request, record = way.request, way.record
    chosen = ChosenTask(
        f"{len(record.marginals)} tables of {len(record.attributes)} attributes by {way.name}",
        way.spec,
        record,
        repr(request.epsilon),
        f"epsilon0 = {bound_text(way.epsilon0, digits=6)}"
        if math.isfinite(way.epsilon0)
        else "no epsilon0, so owners have to agree by name",
    )
    terms = FileTerms(request.n, request.n, float(request.honest), request.delta, request.windows)
    return file_text(chosen, terms, length_s, command="shoal tables plan")

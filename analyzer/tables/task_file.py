"""One way of a plan of tables as a task file."""

from __future__ import annotations

from shoal.analyzer.planner.task_file import ChosenTask, FileTerms, file_text, promise_of
from shoal.analyzer.tables.plan import TablesWay


def task_file(way: TablesWay, length_s: int) -> str:
    """TOML, with what is not known marked FILL IN. ``length_s``: of a window."""
    request, record = way.request, way.record
    chosen = ChosenTask(
        f"{len(record.marginals)} tables of {len(record.attributes)} attributes by {way.name}",
        way.spec,
        record,
        repr(request.epsilon),
        promise_of(way.epsilon0),
    )
    terms = FileTerms(request.n, request.n, float(request.honest), request.delta, request.windows)
    return file_text(chosen, terms, length_s, command="shoal tables plan")

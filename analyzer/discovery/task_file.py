"""A plan of a discovery as a task file."""

from __future__ import annotations

import math
from dataclasses import replace

from shoal.accounting.meaning import bound_text
from shoal.analyzer.discovery.plan import DiscoveryPlan
from shoal.analyzer.planner.task_file import ChosenTask, FileTerms, Settings, file_text, promise_of

_WEEK = 7 * 86_400


def task_file(
    plan: DiscoveryPlan,
    length_s: int = _WEEK,
    told: Settings | None = None,
    command: str = "shoal discover plan",
) -> str:
    """TOML. ``length_s``: of a window, unless it was ``told``; ``command``: that planned it."""
    request, told = plan.request, told or Settings()
    chosen = ChosenTask(
        f"a discovery of {plan.noun}s",
        plan.made.spec,
        plan.discovery,
        bound_text(plan.epsilon_level, digits=6),
        promise_of(math.inf),
    )
    terms = FileTerms(
        request.n, request.n, float(request.honest), request.delta, request.asked_windows
    )
    length = told.windows.get("length_s", length_s)
    # a level waits for the release of the one before: half a window is too late
    windows = {"grace_s": length // 4, **told.windows, "length_s": length}
    text = file_text(chosen, terms, length, replace(told, windows=windows), command)
    together = (
        f"# Each of the {request.windows} windows keeps target_epsilon, and all together "
        f"{bound_text(plan.epsilon, digits=6)}: docs/DISCOVERY.md.\n"
    )
    if not request.same:
        together = (
            f"# A device answers in one of the {request.asked_windows} windows alone, so all "
            "together keep target_epsilon: docs/DISCOVERY.md.\n"
            "# honest_fraction is that of a window's reports: a device that lies may answer in "
            f"all windows, and {request.may_lie:,} may lie.\n"
        )
    first, rest = text.split("\n", 1)
    return f"{first}\n{together}{rest}"

"""Whether the epsilons of a release hold, from the integers of its signed task."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from shoal.checker.chain import Chain
from shoal.checker.epsilon import decide
from shoal.checker.exponential import log_above
from shoal.checker.findings import Outcome, Statement
from shoal.checker.laws import OutputLaw, law_of
from shoal.protos import release_pb2, task_pb2

_LOCAL = "epsilon0: what one report promises by itself"
_CENTRAL = "epsilon: what the release promises"
_RECEIVED = "epsilon at the reports that came (not guaranteed)"
_TOGETHER = "epsilon of all releases so far, together"


def promise(chain: Chain) -> Iterator[Statement]:
    """Every epsilon of the release. What is not known here is open, and says why."""
    task, release = chain.task, chain.release
    privacy = release.privacy
    law = _law(task)
    if isinstance(law, str):
        for what, value in ((_LOCAL, privacy.epsilon0), (_CENTRAL, privacy.epsilon_upper)):
            yield Statement(what, Outcome.OPEN, f"{value:.6g}: {law}")
    else:
        yield _local(law, privacy.epsilon0)
        honest = task.min_batch * task.honest_fraction_ppm // 1_000_000
        yield _amplified(_CENTRAL, law, honest, privacy.epsilon_upper, task.delta)
        came = release.n * task.honest_fraction_ppm // 1_000_000
        if release.n:
            yield _amplified(_RECEIVED, law, came, privacy.epsilon_at_received_n, task.delta)
    yield _together(privacy)


def _law(task: task_pb2.Task) -> OutputLaw | str:
    """Or why there is none."""
    if task.HasField("pairwise"):
        return "sums by secure aggregation are not checked here"
    if task.messages > 1 or task.reports_per_device > 1:
        return "several messages or reports of a device are not checked here"
    parameters = {one.name: one.value for one in task.mechanism.parameters}
    law = law_of(task.mechanism.name, parameters)
    return law or f"the law of {task.mechanism.name} is not known here"


def _local(law: OutputLaw, epsilon0: float) -> Statement:
    true = log_above(law.ratio)
    holds = epsilon0 == float("inf") or Fraction(epsilon0) >= true
    why = f"{epsilon0:.6g}, the task's integers give {float(true):.6g}"
    return Statement(_LOCAL, Outcome.HOLDS if holds else Outcome.WRONG, why)


def _amplified(what: str, law: OutputLaw, n: int, epsilon: float, delta: float) -> Statement:
    decision = decide(law, n, epsilon, delta)
    return Statement(
        what,
        decision.outcome,
        f"{epsilon:.6g} at delta {delta:g} among {n:,} honest reports: {decision.how}",
    )


def _together(privacy: release_pb2.Privacy) -> Statement:
    """Of one release it is that release's own. Of several the others would be needed."""
    total = privacy.epsilon_cumulative_upper
    if total < privacy.epsilon_upper or privacy.delta_cumulative < privacy.delta:
        return Statement(_TOGETHER, Outcome.WRONG, "less than this release alone")
    if privacy.windows_composed <= 1:
        return Statement(_TOGETHER, Outcome.HOLDS, "this is the first release")
    return Statement(
        _TOGETHER,
        Outcome.OPEN,
        f"{total:.6g} for {privacy.windows_composed} releases: it wants the files of all of them",
    )

"""Whether the epsilons of a release hold, from the integers of its signed task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from shoal.checker.chain import Chain
from shoal.checker.composition import MOST_RELEASES, total_delta
from shoal.checker.epsilon import Decision, curve_of, decide
from shoal.checker.exponential import log_above
from shoal.checker.findings import Outcome, Statement
from shoal.checker.laws import OutputLaw, law_of
from shoal.protos import task_pb2

_LOCAL = "epsilon0: what one report promises by itself"
_CENTRAL = "epsilon: what the release promises"
_RECEIVED = "epsilon at the reports that came (not guaranteed)"
_TOGETHER = "epsilon of all releases so far, together"


def promise(chain: Chain) -> Iterator[Statement]:
    """Every epsilon of the release by itself. What is not known here is open, and says why."""
    task, release = chain.task, chain.release
    privacy = release.privacy
    law = _law(task)
    if isinstance(law, str):
        for what, value in ((_LOCAL, privacy.epsilon0), (_CENTRAL, privacy.epsilon_upper)):
            yield Statement(what, Outcome.OPEN, f"{value:.6g}: {law}")
    else:
        yield _local(law, privacy.epsilon0)
        honest = _smallest_honest(task)
        yield _amplified(_CENTRAL, law, honest, privacy.epsilon_upper, task.delta)
        came = release.n * task.honest_fraction_ppm // 1_000_000
        if release.n:
            yield _amplified(_RECEIVED, law, came, privacy.epsilon_at_received_n, task.delta)


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


def together(chain: Chain, chains: Sequence[Chain]) -> Statement:
    """The total that ``chain`` states, over the releases before it, which may be among ``chains``:
    all that are at hand, itself among them.
    """
    privacy = chain.release.privacy
    total, count = privacy.epsilon_cumulative_upper, privacy.windows_composed
    said = f"{total:.6g} at delta {privacy.delta_cumulative:.3g} for {count} releases"
    if total < privacy.epsilon_upper or privacy.delta_cumulative < privacy.delta:
        # Two proofs may differ by a hair, and a memoized task counts at delta 0. So this is no lie
        # by itself: it is one if this release alone can't have so little.
        alone = _alone(chain.task, total, privacy.delta_cumulative)
        if count <= 1 or alone.outcome is Outcome.WRONG:
            return Statement(_TOGETHER, alone.outcome, f"{said}; this one alone: {alone.how}")
    elif count <= 1:
        return Statement(_TOGETHER, Outcome.HOLDS, "this is the first release")
    before = _until(chain, chains)
    if before is None:
        return Statement(_TOGETHER, Outcome.OPEN, f"{said}: it wants the files of all of them")
    curves = []
    for one in before:
        law = _law(one.task)
        curve = None if isinstance(law, str) else curve_of(law, _smallest_honest(one.task))
        if curve is None or one.task.memoized or one.release.n < one.task.min_batch:
            why = "not all of them are of a kind that is composed here"
            return Statement(_TOGETHER, Outcome.OPEN, f"{said}: {why}")
        curves.append(curve)
    epsilons = [one.release.privacy.epsilon_upper for one in before]
    composed = total_delta(curves, epsilons, privacy.delta_cumulative)
    if composed.delta(total) <= privacy.delta_cumulative:
        return Statement(_TOGETHER, Outcome.HOLDS, f"{said}: their losses, composed")
    proven = composed.epsilon(privacy.delta_cumulative, sum(epsilons))
    return Statement(_TOGETHER, Outcome.OPEN, f"{said}: this checker proves {proven:.6g}")


def _alone(task: task_pb2.Task, epsilon: float, delta: float) -> Decision:
    law = _law(task)
    if isinstance(law, str):
        return Decision(Outcome.OPEN, law)
    return decide(law, _smallest_honest(task), epsilon, delta)


def _until(chain: Chain, chains: Sequence[Chain]) -> list[Chain] | None:
    """The releases of one analyzer up to this one, by the number that each says it is; None if one
    is missing, or there are too many.
    """
    count = chain.release.privacy.windows_composed
    if count > MOST_RELEASES:
        return None
    by_number = {
        one.release.privacy.windows_composed: one
        for one in chains
        if one.task.analyzer_key == chain.task.analyzer_key
    }
    found = [by_number[number] for number in range(1, count + 1) if number in by_number]
    return found if len(found) == count and found[-1] is chain else None


def _smallest_honest(task: task_pb2.Task) -> int:
    return task.min_batch * task.honest_fraction_ppm // 1_000_000

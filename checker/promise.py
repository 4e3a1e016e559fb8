"""Whether the epsilons of a release hold, from the integers of its signed task."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TypeAlias

from shoal.checker.chain import Chain
from shoal.checker.epsilon import decide
from shoal.checker.errors import UnreadableError
from shoal.checker.exponential import log_above
from shoal.checker.findings import Decision, Outcome, Statement
from shoal.checker.laws import OutputLaw, law_of
from shoal.checker.questions.shapes import integers_of, is_known
from shoal.checker.questions.terms import refused
from shoal.checker.several.dummies import DummiesLaw, dummies_law
from shoal.checker.several.tables import TablesLaw, decide_tables, tables_law
from shoal.protos import task_pb2

_LOCAL = "epsilon0: what one report promises by itself"
_CENTRAL = "epsilon: what the release promises"
_REPEATED = "what an answer that is repeated promises over all windows"
_RECEIVED = "epsilon at the reports that came (not guaranteed)"


def promise(chain: Chain) -> Iterator[Statement]:
    """Every epsilon of the release by itself. What is not known here is open, and says why."""
    task, release = chain.task, chain.release
    privacy = release.privacy
    law = law_of_task(task)
    yield from _repeated(chain, law)
    if isinstance(law, str):
        for what, value in ((_LOCAL, privacy.epsilon0), (_CENTRAL, privacy.epsilon_upper)):
            yield Statement(what, Outcome.OPEN, f"{value:.6g}: {law}")
        return
    yield _local(_LOCAL, law, privacy.epsilon0)
    for what, n, epsilon in (
        (_CENTRAL, task.min_batch, privacy.epsilon_upper),
        (_RECEIVED, release.n, privacy.epsilon_at_received_n),
    ):
        honest = honest_of(task, n)
        decision = decided(law, honest, epsilon, task.delta)
        said = f"{epsilon:.6g} at delta {task.delta:g} among {honest:,} honest reports"
        yield Statement(what, decision.outcome, f"{said}: {decision.how}")


def _repeated(chain: Chain, law: Law | str) -> Iterator[Statement]:
    """Whoever sees the same report in every window learns what one report says, and no more."""
    repeats, said = chain.task.memoized, chain.release.privacy.HasField("memoized")
    if repeats != said:
        why = "the release does not say" if repeats else "devices of this task repeat none"
        yield Statement(_REPEATED, Outcome.WRONG, why)
    elif repeats:
        promised = chain.release.privacy.memoized.lifetime_epsilon
        yield (
            Statement(_REPEATED, Outcome.OPEN, f"{promised:.6g}: {law}")
            if isinstance(law, str)
            else _local(_REPEATED, law, promised)
        )


# Of a device's report, or of all that it sends.
Law: TypeAlias = OutputLaw | TablesLaw | DummiesLaw


def law_of_task(task: task_pb2.Task) -> Law | str:
    """Or why there is none."""
    if task.HasField("pairwise"):
        return "sums by secure aggregation are not checked here"
    if refused(task):
        return "devices don't answer such a task"
    name, integers = task.mechanism.name, integers_of(task)
    try:
        honest = honest_of(task, task.min_batch)
        if name == "dummies":
            return _among_honest(dummies_law(integers), honest)
        law = tables_law(name, integers, task.messages)
        if law is not None:
            return _among_honest(law, honest)
        if task.messages > 1:
            return f"several messages of a device, as {name} has them, are not checked here"
        own = law_of(name, integers) if is_known(name) else None
        return own or f"the law of {name} is not known here"
    except UnreadableError as error:
        return str(error)


def _among_honest(law: TablesLaw | DummiesLaw, honest: int) -> Law | str:
    """Who signs such a task promises the noise of as many devices as it is shared over."""
    if honest >= law.shares:
        return law
    return f"its noise is shared over {law.shares:,} devices, and {honest:,} are taken to be honest"


def honest_of(task: task_pb2.Task, n: int) -> int:
    """Of n reports, as many as the task takes to be honest: rounded down."""
    return n * task.honest_fraction_ppm // 1_000_000


def decided(law: Law, n: int, epsilon: float, delta: float) -> Decision:
    """``decide``, for whatever stands in a release."""
    if math.isnan(epsilon) or epsilon < 0:
        return Decision(Outcome.WRONG, "no epsilon")
    if math.isinf(epsilon):
        return Decision(Outcome.HOLDS, "nothing is promised")
    try:
        if isinstance(law, TablesLaw):
            return decide_tables(law, n, epsilon, delta)
        if isinstance(law, DummiesLaw):
            return law.decide(n, epsilon, delta)
        return decide(law, n, epsilon, delta)
    except UnreadableError as error:
        return Decision(Outcome.OPEN, str(error))


def _local(what: str, law: Law, epsilon0: float) -> Statement:
    if isinstance(law, TablesLaw) or law.ratio is None:
        holds = epsilon0 == math.inf
        why = "infinite: the true message is the answer" if holds else f"{epsilon0:.6g}: it is none"
        return Statement(what, Outcome.HOLDS if holds else Outcome.WRONG, why)
    true = log_above(law.ratio)
    holds = epsilon0 == math.inf or (epsilon0 >= 0 and Fraction(epsilon0) >= true)
    why = f"{epsilon0:.6g}, the task's integers give {float(true):.6g}"
    return Statement(what, Outcome.HOLDS if holds else Outcome.WRONG, why)

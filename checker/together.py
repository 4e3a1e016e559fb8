"""What the files of several releases of one analyzer say together: that they don't contradict one
another, and the total epsilon that each states.

A release tells how many there are with it (``windows_composed``), so numbers from 1 on put them in
order. That an analyzer made no release that it hides can't be seen from files.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

from shoal.checker.chain import Chain
from shoal.checker.composition import MOST_RELEASES, Curve, Total, total_for
from shoal.checker.epsilon import curve_of
from shoal.checker.errors import UnreadableError
from shoal.checker.exponential import log_above
from shoal.checker.findings import Decision, Outcome, Statement
from shoal.checker.promise import Law, decided, honest_of, law_of_task
from shoal.checker.several.dummies import DummiesLaw, repeated
from shoal.checker.several.tables import TablesLaw, curve_of_tables, decide_together

_ONCE = "no other of these files tells another story"
_TOTAL = "epsilon of all releases so far, together"


def consistent(chain: Chain, sound: Sequence[Chain]) -> Statement:
    """``sound``: chains in which no signature or hash is wrong."""
    for other in sound:
        same_signer = other.task.analyzer_key == chain.task.analyzer_key
        if not same_signer or other.signed.release == chain.signed.release:
            continue
        if (other.task_id, other.release.window) == (chain.task_id, chain.release.window):
            return Statement(_ONCE, Outcome.WRONG, "the same window was released twice")
        if _number(other) == _number(chain):
            return Statement(
                _ONCE, Outcome.WRONG, f"another release is number {_number(chain)} too"
            )
    return Statement(_ONCE, Outcome.HOLDS, f"it says that it is number {_number(chain)}")


def total(chain: Chain, sound: Sequence[Chain]) -> Statement:
    """The total that ``chain`` states. Of several releases the files of all are needed."""
    task, privacy = chain.task, chain.release.privacy
    epsilon, delta, count = (
        privacy.epsilon_cumulative_upper,
        privacy.delta_cumulative,
        privacy.windows_composed,
    )
    said = f"{epsilon:.6g} at delta {delta:.3g} for {count} releases"
    if epsilon == math.inf:
        return Statement(_TOTAL, Outcome.HOLDS, "nothing is promised of all together")
    few = chain.release.n < task.min_batch  # and was opened all the same: it cost by what came
    if not (epsilon >= privacy.epsilon_upper and delta >= privacy.delta) or few or count < 1:
        # Two proofs may differ by a hair, and a memoized task counts at delta 0. So this is no lie
        # by itself: it is one if this release alone can't have so little.
        alone = _alone(chain, epsilon, delta)
        if count <= 1 or alone.outcome is Outcome.WRONG:
            return Statement(_TOTAL, alone.outcome, f"{said}; this one alone: {alone.how}")
    elif count == 1:
        return Statement(_TOTAL, Outcome.HOLDS, "it says that it is the first release")
    before = _until(chain, sound)
    if before is None:
        return Statement(_TOTAL, Outcome.OPEN, f"{said}: it wants the files of all of them")
    if len({one.task_id for one in before}) != privacy.tasks_composed:
        return Statement(_TOTAL, Outcome.WRONG, f"{said}: they are of another number of tasks")
    decision = _composed(before, epsilon, delta)
    return Statement(_TOTAL, decision.outcome, f"{said}: {decision.how}")


def _composed(before: Sequence[Chain], epsilon: float, delta: float) -> Decision:
    laws = [law_of_task(one.task) for one in before]
    known = [law for law in laws if not isinstance(law, str)]
    if len(known) < len(laws):
        return Decision(Outcome.OPEN, "not all of them are of a kind that is known here")
    ratios = [None if isinstance(law, TablesLaw) else law.ratio for law in known]
    alone = [log_above(ratio) for ratio in ratios if ratio is not None]
    if len(alone) == len(ratios) and Fraction(epsilon) >= sum(alone, Fraction(0)):
        return Decision(Outcome.HOLDS, "one report alone of each promises as much")
    if _added(before, known, epsilon, delta):
        return Decision(Outcome.HOLDS, "each of them holds, and epsilons and deltas add up")
    other = Decision(Outcome.OPEN, "not all of them are of a kind that is composed here")
    if any(one.task.memoized or one.release.n < one.task.min_batch for one in before):
        return other
    honest = [honest_of(one.task, one.task.min_batch) for one in before]
    try:
        tables = [table for table in map(_as_tables, known) if table is not None]
        all_tables = len(tables) == len(known)
        by_curves = None
        if not (all_tables and any(isinstance(law, TablesLaw) for law in known)):
            by_curves = _by_curves(before, known, honest, epsilon, delta)
        if by_curves is not None and by_curves.outcome is Outcome.HOLDS:
            return by_curves
        if all_tables:
            found = decide_together(list(zip(tables, honest, strict=True)), epsilon, delta)
            if by_curves is None or found.outcome is not Outcome.OPEN:
                return found
    except UnreadableError as error:
        return Decision(Outcome.OPEN, str(error))
    return by_curves or other


def _by_curves(
    before: Sequence[Chain],
    laws: Sequence[Law],
    honest: Sequence[int],
    epsilon: float,
    delta: float,
) -> Decision | None:
    """From above alone: it holds, or is open. None where one of them has no curve."""
    asked = list(zip(laws, honest, strict=True))
    of_each = {(law, n): _curve(law, n) for law, n in dict.fromkeys(asked)}
    curves = [of_each[one] for one in asked]
    found = [curve for curve in curves if curve is not None]
    if len(found) < len(curves):
        return None
    epsilons = [one.release.privacy.epsilon_upper for one in before]
    composed = _again(before, laws, delta) or total_for(found, epsilons, epsilon, delta)
    if composed.delta(epsilon) <= delta:
        return Decision(Outcome.HOLDS, "their losses, composed")
    proven = composed.epsilon(delta, 100.0)
    return Decision(Outcome.OPEN, f"this checker proves {proven:.6g}")


def _as_tables(law: Law) -> TablesLaw | None:
    """Dummies with a true message as it is are one table; None of what is no tables."""
    if isinstance(law, DummiesLaw) and not law.uniform:
        return TablesLaw(1, law.cells, law.rate, law.shares, law.slots)
    return law if isinstance(law, TablesLaw) else None


def _curve(law: Law, honest: int) -> Curve | None:
    if isinstance(law, TablesLaw):
        return curve_of_tables(law, honest)
    return law.curve(honest) if isinstance(law, DummiesLaw) else curve_of(law, honest)


def _again(before: Sequence[Chain], laws: Sequence[Law], delta: float) -> Total | None:
    """Of one kind of release with dummies, again and again; None of any others."""
    kinds = {
        (law, honest_of(one.task, one.task.min_batch), one.release.privacy.epsilon_upper)
        for one, law in zip(before, laws, strict=True)
    }
    if len(kinds) > 1:
        return None
    ((law, honest, epsilon),) = kinds
    if not isinstance(law, DummiesLaw):
        return None
    return repeated(law, honest, epsilon, len(before), delta)


def _added(before: Sequence[Chain], laws: Sequence[Law], epsilon: float, delta: float) -> bool:
    """Sequential composition (Dwork, Roth 2014, Theorem 3.16). What is proven by swapping, one
    release at a time, is no curve; where one is worth most of the total, the sum is the smaller.
    """
    privacies = [one.release.privacy for one in before]
    stated = [(each.epsilon_upper, each.delta) for each in privacies]
    numbers = [delta, *itertools.chain(*stated)]
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        return False
    epsilons, deltas = (
        sum(map(Fraction, column), Fraction(0)) for column in zip(*stated, strict=True)
    )
    if epsilons > Fraction(epsilon) or deltas > Fraction(delta):
        return False
    # windows of one task promise the same
    asked = dict[tuple[bytes, float, float], Decision]()
    for one, law, promised in zip(before, laws, stated, strict=True):
        if one.task.memoized or one.release.n < one.task.min_batch:
            return False
        key = one.task_id, *promised
        if key not in asked:
            asked[key] = decided(law, honest_of(one.task, one.task.min_batch), *promised)
        if asked[key].outcome is not Outcome.HOLDS:
            return False
    return True


def _alone(chain: Chain, epsilon: float, delta: float) -> Decision:
    """Of this release by itself: with fewer reports than its smallest batch, by what came."""
    law = law_of_task(chain.task)
    if isinstance(law, str):
        return Decision(Outcome.OPEN, law)
    n = min(chain.release.n, chain.task.min_batch)
    return decided(law, honest_of(chain.task, n), epsilon, delta)


def _until(chain: Chain, sound: Sequence[Chain]) -> list[Chain] | None:
    """The releases of one analyzer up to this one, in order; None if one is missing, or there are
    too many.
    """
    count = _number(chain)
    if count > MOST_RELEASES:
        return None
    mine = [one for one in sound if one.task.analyzer_key == chain.task.analyzer_key]
    numbered = {_number(one): one for one in mine} | {count: chain}
    found = [numbered[number] for number in range(1, count + 1) if number in numbered]
    return found if len(found) == count else None


def _number(chain: Chain) -> int:
    return chain.release.privacy.windows_composed

"""Whether (epsilon, delta) holds for a batch: yes, no, or not to be decided here.

"Yes" rests on an upper bound of the divergence at an e that is at or below e^epsilon, "no" on a
lower bound, for a real pair of datasets, at an e that is at or above it. Both bounds have their
rounding on the side that makes the answer harder to give.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from shoal.checker.composition import Curve
from shoal.checker.enumeration import MOST_STEPS, exact_divergence, steps
from shoal.checker.errors import UnreadableError
from shoal.checker.expectation import (
    SMOOTHING,
    Summand,
    exact_mean_positive_part,
    few_counts,
    mean_positive_part,
)
from shoal.checker.exponential import exp_above, exp_below, log_above
from shoal.checker.findings import Decision, Outcome
from shoal.checker.laws import OutputLaw, Outputs
from shoal.checker.swapped import SwapProver
from shoal.checker.two_outputs import divergence_above, largest_divergence

LARGEST_N = 100_000_000
_LARGEST_EPSILON = 600.0
# For a curve, which is asked for some hundred times:
_DATASETS = 500
_PAIRS = 6  # of answers
_SWAPPED = "by swapping: the device takes another's place, whose report hides in a crowd"


def decide(law: OutputLaw, n: int, epsilon: float, delta: float) -> Decision:
    """Of n shuffled reports with this law; n counts those that hide one another.

    Beyond ``LARGEST_N`` reports what holds is decided for that many: more hide better (the others'
    reports can be taken away again, so a larger batch shows no more).
    """
    if not 0 <= epsilon <= _LARGEST_EPSILON or not 0 <= delta < 1:
        raise UnreadableError("epsilon is from 0 to 600 here, delta from 0 to 1")
    local = log_above(law.ratio)
    if Fraction(epsilon) >= local:
        return Decision(Outcome.HOLDS, "one report alone promises as much")
    if delta == 0:  # all reports may be one output: that is as telling as one report
        return Decision(Outcome.WRONG, "at delta 0 a batch promises no more than one report")
    if n > LARGEST_N:
        decision = decide(law, LARGEST_N, epsilon, delta)
        more = Decision(Outcome.OPEN, f"not among {LARGEST_N:,}; more are not looked at")
        return more if decision.outcome is Outcome.WRONG else decision
    n = max(n, 1)  # the report itself is there
    return _decided(law, n, exp_below(epsilon), exp_above(epsilon), Fraction(delta))


def _decided(
    law: OutputLaw, n: int, below: Fraction, above: Fraction, allowed: Fraction
) -> Decision:
    if law.table is not None and steps(law.table, n) <= MOST_STEPS:
        if exact_divergence(law.table, n, below) <= allowed:
            return Decision(Outcome.HOLDS, "all datasets and outcomes, in exact fractions")
        if exact_divergence(law.table, n, above) > allowed:
            return Decision(Outcome.WRONG, "all datasets and outcomes, in exact fractions")
        return Decision(Outcome.OPEN, "too close to call at 50 digits")
    if law.coin is not None:
        if Fraction(largest_divergence(law.coin, n, below).high) <= allowed:
            return Decision(Outcome.HOLDS, "two outputs: the divergence of every dataset")
        if Fraction(largest_divergence(law.coin, n, above).low) > allowed:
            return Decision(Outcome.WRONG, "two outputs: a dataset has a larger divergence")
        return Decision(Outcome.OPEN, "too close to call for the bounds of this checker")
    # The first pair that does not hold decides. A real dataset makes it wrong, else it is open.
    decision, prover = Decision(Outcome.OPEN, "no pair of answers"), SwapProver(law, n, allowed)
    by_swapping = None
    for outputs in law.pairs():
        decision = _by_blanket(outputs, n, below, allowed)
        if decision.outcome is Outcome.OPEN and prover.proves(outputs, below):
            decision = by_swapping = Decision(Outcome.HOLDS, _SWAPPED)
        if decision.outcome is not Outcome.HOLDS:
            return _refuted(outputs, n, above, allowed) or decision
    return by_swapping or decision


def curve_of(law: OutputLaw, n: int) -> Curve | None:
    """The divergence of n shuffled reports as a function of e >= 1, from above; a little further
    above than where ``decide`` looks. None where too many pairs would have to be looked at.
    """
    n, coin = max(1, min(n, LARGEST_N)), law.coin
    if coin is not None:
        return lambda e: divergence_above(coin, n, e, _DATASETS)
    pairs = list(law.pairs())
    if len(pairs) > _PAIRS:
        return None
    return lambda e: max(
        mean_positive_part(_blanket(outputs, e), n, SMOOTHING[0]).high for outputs in pairs
    )


def _by_blanket(outputs: Sequence[Outputs], n: int, below: Fraction, delta: Fraction) -> Decision:
    """Balle, Bell, Gascon, Nissim (CRYPTO 2019), Lemma 5.3: the view of an adversary who is told
    all reports that looked at their input.

    The other way: where all others answer z, the divergence *is* such an expectation, with P(y | z)
    in the blanket's place, since P(y_1 ... y_n) has one place in n for the report in question.
    """
    blanket = _blanket(outputs, below)
    if few_counts(blanket, n):
        if exact_mean_positive_part(blanket, n) <= delta:
            return Decision(Outcome.HOLDS, "the privacy blanket's expectation, in exact fractions")
    else:
        for smoothing in SMOOTHING:
            proven = mean_positive_part(blanket, n, smoothing)
            if Fraction(proven.high) <= delta:
                return Decision(Outcome.HOLDS, "the privacy blanket's expectation, in full")
            if Fraction(proven.low) > delta:
                break
    return Decision(Outcome.OPEN, "no bound is at most delta, no dataset's divergence is above it")


def _refuted(
    outputs: Sequence[Outputs], n: int, above: Fraction, delta: Fraction
) -> Decision | None:
    """By what all the others answer: one of the answers of ``Outputs.after``, the last first."""
    bases = zip(*(one.after for one in outputs), strict=True)
    for base in reversed(list(bases)):
        if _exceeds(_dataset(outputs, base, above), n, delta):
            return Decision(Outcome.WRONG, "a real dataset has a larger divergence")
    return None


def _exceeds(kinds: Sequence[Summand], n: int, delta: Fraction) -> bool:
    if few_counts(kinds, n):
        return exact_mean_positive_part(kinds, n) > delta
    return Fraction(mean_positive_part(kinds, n, SMOOTHING[-1]).low) > delta


def _blanket(outputs: Sequence[Outputs], e: Fraction) -> list[Summand]:
    return _merged(((one.first - e * one.second) / one.least, one.least) for one in outputs)


def _dataset(outputs: Sequence[Outputs], base: Sequence[Fraction], e: Fraction) -> list[Summand]:
    return _merged(
        ((one.first - e * one.second) / weight, weight)
        for one, weight in zip(outputs, base, strict=True)
        if weight
    )


def _merged(pairs: Iterable[tuple[Fraction, Fraction]]) -> list[Summand]:
    """One kind for each value."""
    chances: dict[Fraction, Fraction] = {}
    for value, chance in pairs:
        chances[value] = chances.get(value, Fraction(0)) + chance
    return [Summand(value, chance) for value, chance in chances.items()]

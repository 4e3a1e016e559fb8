"""What (epsilon, delta) means for a person: how well anybody can guess, test or learn, in numbers
and in plain sentences.

One fact is behind all of it. P and Q are the laws of what is seen, under the one answer of a device
and under the other; for every set S of things that could be seen, P(S) <= e^epsilon Q(S) + delta
and Q(S) <= e^epsilon P(S) + delta. Guessing, testing and being convinced are all choices of an S.
The other answers may be known; the relation is replace-one, so "in or out" of a data set means:
this answer, or another one in its place (that a device takes part at all is not hidden by anything
here).

Numbers: each figure is a handful of float operations, each good to 2e-16 of itself (exp: 4e-16); no
differences of nearly equal numbers but ``1 - delta`` and the false-alarm line of
``least_missed_detection``, whose rounding is subtracted explicitly. Upper bounds are moved up by
1e-14 of themselves, lower bounds down.

An upper bound on what somebody can do errs up, a lower bound on what a test must miss errs down;
the printed text rounds in the same direction (``percent_text``, ``bound_text``). So no sentence
promises more than the certificate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.accounting.guarantee import Guarantee
from shoal.errors import Kind, ShoalError

# Relative slack of the few float operations below: every bound is moved up by it.
_UP = 1e-14
_ULP = 2.0**-52
# What ``sentences`` tells of: a suspicion held before, and the false alarms that a test is allowed.
_SUSPICION, _FALSE_ALARM = 0.1, 0.05
# Beyond this e^epsilon is not computed: whatever a bound could still say there is below any
# rounding.
_LARGEST_EXPONENT = 700.0
# How far beyond e^epsilon the odds may move in ``posterior`` when delta > 0; the exception is delta
# / (1 - e^-this).
_EXTRA = 0.01


def best_guess(epsilon: float, delta: float, prior: float = 0.5) -> float:
    """The largest probability of guessing right which of two answers a device gave, seeing the
    release. Direction: upper bound.

    ``prior``: the adversary's probability of the first answer, in [0, 1]. The adversary may know
    everybody else's answers. For prior 1/2 this is (e^epsilon + delta) / (1 + e^epsilon). In
    general it is the largest value of prior P(S) + (1 - prior) (1 - Q(S)) under P <= e^epsilon Q +
    delta and Q <= e^epsilon P + delta, a linear programme with three corners (Wasserman, Zhou 2010;
    Kairouz, Oh, Viswanath 2015, section 2). Raises ShoalError CONFIG for bad numbers.
    """
    _check(epsilon, delta, prior)
    # (e + delta) / (1 + e), written so that a large epsilon does not overflow.
    small = math.exp(-epsilon)
    corner = (1.0 + delta * small) / (1.0 + small)
    one_sided = max((1.0 - prior) + prior * delta, prior + (1.0 - prior) * delta)
    return min(1.0, max(corner, one_sided) * (1.0 + _UP))


def membership_success(epsilon: float, delta: float) -> float:
    """The largest share of right guesses "is this answer in the data, or another in its place?",
    both equally likely beforehand.

    (e^epsilon + delta) / (1 + e^epsilon): ``best_guess`` with prior 1/2. Direction: upper bound, in
    [0.5, 1]. Source: as ``best_guess``.
    """
    return best_guess(epsilon, delta)


def membership_sum(epsilon: float, delta: float) -> float:
    """p + q <= 2 (e^epsilon + delta) / (1 + e^epsilon), p = P(guess "in" | in), q = P(guess "out" |
    out). Direction: upper bound.

    1 is what guessing blindly gives, 2 is certainty. The sum of the two lines of
    ``least_missed_detection`` at their crossing.
    """
    return min(2.0, 2.0 * best_guess(epsilon, delta))


def membership_advantage(epsilon: float, delta: float) -> float:
    """P(guess "in" | in) - P(guess "in" | out) <= (e^epsilon - 1 + 2 delta) / (e^epsilon + 1).
    Direction: upper bound, in [0, 1].

    It is ``membership_sum`` - 1, computed without that difference: for a small epsilon all digits
    are right. Called the membership advantage by Yeom, Giacomelli, Fredrikson, Jha, "Privacy Risk
    in Machine Learning" (CSF 2018).
    """
    _check(epsilon, delta, 0.5)
    small = math.exp(-epsilon)
    return min(1.0, (-math.expm1(-epsilon) + 2.0 * delta * small) / (1.0 + small) * (1.0 + _UP))


def least_missed_detection(false_alarm: float, epsilon: float, delta: float) -> float:
    """The smallest P(no alarm | the one answer) of any test that raises a false alarm with
    probability at most ``false_alarm``.

    max(0, 1 - delta - e^epsilon P_FA, e^-epsilon (1 - delta - P_FA)), P_FA = P(alarm | the other
    answer): with S = "alarm" the definition reads P_MD >= 1 - delta - e^epsilon P_FA, with S = "no
    alarm" e^epsilon P_MD >= 1 - delta - P_FA. Nothing better holds: each of these points is reached
    by some test of some mechanism (Kairouz, Oh, Viswanath, "The Composition Theorem for
    Differential Privacy", ICML 2015, section 2). Direction: lower bound, in [0, 1]. Raises
    ShoalError CONFIG for bad numbers.
    """
    _check(epsilon, delta, 0.5)
    if not 0.0 <= false_alarm <= 1.0:
        raise ShoalError(
            Kind.CONFIG,
            f"a false alarm rate is a probability between 0 and 1, got {false_alarm}: 0.05 is "
            "usual",
        )
    left = _remainder(delta)
    if false_alarm == 0.0:
        return left
    # Beyond the largest exponent 0 is a lower bound too, and hardly ever a worse one.
    steep = (
        left - math.exp(epsilon) * false_alarm * (1.0 + _UP) - _ULP
        if epsilon <= _LARGEST_EXPONENT
        else 0.0
    )
    flat = (left - false_alarm - _ULP) * math.exp(-epsilon) * (1.0 - _UP)
    return max(0.0, steep, flat)


def error_region(epsilon: float, delta: float) -> tuple[tuple[float, float], ...]:
    """The lower left boundary of the reachable (P_FA, P_MD): its corners, from no false alarm to no
    missed detection.

    (0, 1 - delta), (c, c) with c = (1 - delta) / (1 + e^epsilon), (1 - delta, 0). No test lies
    below the lines between them; above, up to the same corners mirrored at (1/2, 1/2), is what
    tests can reach. Each coordinate is rounded down, so the region drawn from them contains the
    true one. Source as ``least_missed_detection``.
    """
    _check(epsilon, delta, 0.5)
    left, small = _remainder(delta), math.exp(-epsilon)
    both = left * small / (1.0 + small) * (1.0 - _UP)
    return (0.0, left), (both, both), (left, 0.0)


def _remainder(delta: float) -> float:
    """1 - delta, rounded down."""
    return 1.0 if delta == 0.0 else math.nextafter(1.0 - delta, 0.0)


@dataclass(frozen=True, slots=True)
class Posterior:
    """After seeing the release the probability is at most ``at_most``, except with probability
    ``except_with`` over the noise.
    """

    at_most: float
    except_with: float


def posterior(epsilon: float, delta: float, prior: float) -> Posterior:
    """How sure anybody can become that a device gave the first of two answers, having held it
    likely with ``prior``.

    The odds grow by at most e^epsilon for delta = 0. Otherwise by at most e^(epsilon + 0.01) except
    on outcomes of probability at most delta / (1 - e^-0.01) < 101 delta: outcomes S with P >
    e^(epsilon + 0.01) Q have P(S) <= e^epsilon Q(S) + delta <= e^-0.01 P(S) + delta. Direction:
    upper bounds. Raises ShoalError CONFIG for bad numbers.
    """
    _check(epsilon, delta, prior)
    reach = epsilon + (_EXTRA if delta > 0.0 else 0.0)
    exception = delta / -math.expm1(-_EXTRA) if delta > 0.0 else 0.0
    if prior == 0.0:
        return Posterior(0.0, min(1.0, exception * (1.0 + _UP)))
    # Rounding of the sum ``reach`` changes the exponential by as much, absolutely.
    shrink = math.exp(-reach) * (1.0 - _UP - reach * _ULP) if math.isfinite(reach) else 0.0
    at_most = prior / (prior + (1.0 - prior) * max(0.0, shrink))
    return Posterior(min(1.0, at_most * (1.0 + _UP)), min(1.0, exception * (1.0 + _UP)))


def sentences(guarantee: Guarantee) -> list[str]:
    """What shuffled reports are guaranteed, in plain words, one sentence per item, for the demo,
    the report page and the device's owner.

    Every figure is rounded to the side that promises less. No sentence speaks of more than this one
    batch: what several releases give away together is the business of composition.
    """
    c, together = guarantee, guarantee.remaining.together
    # delta counts in both: the epsilon0 of an approximately private report is one at this delta.
    guess = best_guess(c.epsilon_upper, c.delta)
    missed = least_missed_detection(_FALSE_ALARM, c.epsilon_upper, c.delta)
    learned = posterior(c.epsilon_upper, c.delta, _SUSPICION)
    lines = [
        "Somebody who sees this release, knows everybody else's answers and holds two answers of "
        "a device equally likely "
        f"guesses the right one at most {percent_text(guess)} of the time (blind guessing: 50 %).",
        f"Somebody who held an answer of a device {100 * _SUSPICION:g} % likely before can hold it "
        "at most "
        f"{percent_text(learned.at_most)} likely afterwards, whatever the release shows "
        f"(except with probability {bound_text(learned.except_with, digits=2)}).",
        f"A test for one particular answer that wrongly suspects {100 * _FALSE_ALARM:g} % of the "
        "devices without it "
        + (
            f"misses at least {percent_text(missed, up=False)} of those"
            if missed >= 0.001
            else "may find nearly all of those"
        )
        + f" with it (drawing lots: it misses {100 * (1 - _FALSE_ALARM):g} %).",
        f"That is epsilon <= {bound_text(c.epsilon_upper)} at delta = {c.delta:g}, proven for "
        f"{c.n_honest} honest reports among {c.n}.",
    ]
    if c.epsilon_lower > 0.0:
        lines.append(
            "No better accounting can bring it below epsilon = "
            f"{bound_text(c.epsilon_lower, up=False)}: "
            "a randomizer that fits the description, on real datasets, gives that much away."
        )
    if math.isinf(together):
        lines.append(
            "If shuffler and analyzer worked together, they would see the answer itself: nothing "
            "would remain."
        )
        return lines
    lines.append(
        f"If shuffler and analyzer worked together, epsilon0 = {bound_text(together)} would "
        "remain: "
        f"at most {percent_text(best_guess(together, c.delta))} right guesses."
    )
    lines.append(
        "For comparison: randomized response with two coins (heads: the truth; tails: whatever the "
        "second coin says) is "
        'epsilon0 = ln 3 and 75 % right guesses. What is "at most" is rounded up in its last '
        'digit, and what is "at least" down: '
        "those 75 % may be shown as 75.1 %."
    )
    return lines


def bet(epsilon: float, delta: float, results: int) -> str:
    """The odds that ``results`` releases about the same devices allow, epsilon and delta composed
    over them: one sentence, without its full stop. Rounded up. Raises ShoalError CONFIG for bad
    numbers.
    """
    seen = "the result" if results == 1 else f"all {results} results"
    return (
        "Somebody who knows every other device's answers and would bet 50:50 on one answer of "
        f"yours is right at most {percent_text(best_guess(epsilon, delta))} of the time after "
        f"seeing {seen}"
    )


def above_a_limit(epsilon: float, delta: float, limit: float, seen: str) -> list[str]:
    """What an owner accepts who lets a report of ``epsilon`` pass a limit that is lower: what is
    possible then, and what the limit would hold it to. ``seen``: what somebody sees for it, in
    words that follow "somebody who". Rounded up. Raises ShoalError CONFIG for bad numbers.
    """
    guess, held = best_guess(epsilon, delta), best_guess(limit, delta)
    kept = (
        f"Your limit of epsilon {bound_text(limit)} holds that to {percent_text(held)} (blind "
        "guessing: 50 %)."
    )
    if not math.isfinite(epsilon):
        return [
            f"Somebody who {seen}, may read your answer in it: epsilon has no bound here, and a "
            "bet on it may always be won.",
            kept,
        ]
    return [
        f"Somebody who {seen}, and would bet 50:50 between two answers of yours, "
        f"is right at most {percent_text(guess)} of the time: epsilon {bound_text(epsilon)}.",
        kept,
    ]


def of_all_spent(epsilon: float) -> str:
    """What a device's whole expense means, ``epsilon`` as it adds up: one sentence. The deltas of
    single charges are not in it, and it says so. Rounded up. Raises ShoalError CONFIG.
    """
    return (
        f"In all, epsilon {bound_text(epsilon)} counts as spent then: somebody who would bet 50:50 "
        "between two ways in which you could have answered everything is right at most "
        f"{percent_text(best_guess(epsilon, 0.0))} of the time, but for the small deltas that the "
        "ledger names."
    )


def sum_sentences(
    epsilon_upper: float, delta: float, honest: int, together: float | None, mode: str
) -> list[str]:
    """The same for a sum by secure aggregation: ``honest`` survivors are guaranteed, ``together``
    is what holds against shuffler and analyzer together (None: nothing), ``mode`` that of the task.

    As with ``sentences``, what is said is of one release: several windows and tasks add up.
    """
    guess = best_guess(epsilon_upper, delta)
    lines = [
        "Somebody who sees this release and every round's sum, knows everybody else's vectors and "
        "holds two vectors of a device equally "
        f"likely guesses the right one at most {percent_text(guess)} of the time (blind guessing: "
        "50 %).",
        f"That is epsilon <= {bound_text(epsilon_upper)} at delta = {delta:g}, by noise that "
        f"{honest} honest devices of each round add "
        "together.",
        "The analyzer sees the sum of each round and nothing else of a vector; that a device took "
        "part is not hidden from the shuffler.",
    ]
    if together is not None and together <= epsilon_upper:
        lines.append(
            f"Mode {mode}: the same holds if shuffler and analyzer work together, as long as "
            "neither runs the enrolment."
        )
    else:
        lines.append(
            f"Mode {mode}: if shuffler and analyzer worked together, they could read each device's "
            "vector with its own share of the noise."
        )
    return lines


def _check(epsilon: float, delta: float, prior: float) -> None:
    """Raises CONFIG for an epsilon below 0, a delta outside [0, 1) or a prior outside [0, 1]."""
    if not epsilon >= 0.0:
        raise ShoalError(
            Kind.CONFIG,
            f"epsilon must be a number of at least 0, got {epsilon}: give a certificate's",
        )
    if not 0.0 <= delta < 1.0:
        raise ShoalError(
            Kind.CONFIG, f"delta must lie in [0, 1), got {delta}: give a certificate's"
        )
    if not 0.0 <= prior <= 1.0:
        raise ShoalError(
            Kind.CONFIG, f"a prior is a probability between 0 and 1, got {prior}: 0.5 is usual"
        )


def percent_text(probability: float, *, up: bool = True) -> str:
    """One decimal, rounded up, or down for a lower bound (``up`` False); more where 0.0 or 100.0 %
    would be shown for something else.
    """
    for digits in (1, 2, 4, 6):
        scale = 10.0 ** (digits + 2)
        steps = (
            math.ceil(probability * scale * (1.0 - _UP))
            if up
            else math.floor(probability * scale * (1.0 + _UP))
        )
        shown = steps / 10.0**digits
        if 0.0 < shown < 100.0 or probability in {0.0, 1.0}:
            return f"{shown:.{digits}f} %"
    return "almost 100 %" if up else "hardly any"


def bound_text(value: float | None, *, up: bool = True, digits: int = 4) -> str:
    """``digits`` significant digits, rounded in the direction of the bound: an upper bound is never
    printed too small.

    A value that is such a decimal but for float noise (an epsilon0 of 4.000000000000007) is printed
    as that decimal. None is "none": there is no bound.
    """
    if value is None:
        return "none"
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = digits - 1 - math.floor(math.log10(abs(value)))
    steps = value * 10.0**exponent
    whole = round(steps)
    if abs(steps - whole) > 1e-13 * abs(steps):
        whole = math.ceil(steps) if up else math.floor(steps)
    return f"{whole / 10.0**exponent:.{digits}g}"

"""What (epsilon, delta) means for a person: how well anybody can guess, in numbers and in plain sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.accounting.certificate import Certificate
from shoal.errors import Kind, ShoalError

# Relative slack of the few float operations below: every bound is moved up by it.
_UP = 1e-14
# How far beyond e^epsilon the odds may move in ``posterior`` when delta > 0; the exception is delta / (1 - e^-this).
_EXTRA = 0.01


def best_guess(epsilon: float, delta: float, prior: float = 0.5) -> float:
    """The largest probability of guessing right which of two answers a device gave, seeing the release. Direction: upper bound.

    ``prior``: the adversary's probability of the first answer, in [0, 1]. The adversary may know everybody else's answers.
    For prior 1/2 this is (e^epsilon + delta) / (1 + e^epsilon). In general it is the largest value of
    prior P(S) + (1 - prior) (1 - Q(S)) under P <= e^epsilon Q + delta and Q <= e^epsilon P + delta, a linear programme with
    three corners (Wasserman, Zhou 2010; Kairouz, Oh, Viswanath 2015, section 2). Raises ShoalError CONFIG for bad numbers.
    """
    _check(epsilon, delta, prior)
    # (e + delta) / (1 + e), written so that a large epsilon does not overflow.
    small = math.exp(-epsilon)
    corner = (1.0 + delta * small) / (1.0 + small)
    one_sided = max((1.0 - prior) + prior * delta, prior + (1.0 - prior) * delta)
    return min(1.0, max(corner, one_sided) * (1.0 + _UP))


@dataclass(frozen=True, slots=True)
class Posterior:
    """After seeing the release the probability is at most ``at_most``, except with probability ``except_with`` over the noise."""

    at_most: float
    except_with: float


def posterior(epsilon: float, delta: float, prior: float) -> Posterior:
    """How sure anybody can become that a device gave the first of two answers, having held it likely with ``prior``.

    The odds grow by at most e^epsilon for delta = 0. Otherwise by at most e^(epsilon + 0.01) except on outcomes of
    probability at most delta / (1 - e^-0.01) < 101 delta: outcomes S with P > e^(epsilon + 0.01) Q have
    P(S) <= e^epsilon Q(S) + delta <= e^-0.01 P(S) + delta. Direction: upper bounds. Raises ShoalError CONFIG for bad numbers.
    """
    _check(epsilon, delta, prior)
    reach = epsilon + (_EXTRA if delta > 0.0 else 0.0)
    exception = delta / -math.expm1(-_EXTRA) if delta > 0.0 else 0.0
    if prior == 0.0:
        return Posterior(0.0, min(1.0, exception * (1.0 + _UP)))
    at_most = prior / (prior + (1.0 - prior) * math.exp(-reach))
    return Posterior(min(1.0, at_most * (1.0 + _UP)), min(1.0, exception * (1.0 + _UP)))


def sentences(certificate: Certificate) -> list[str]:
    """The certificate in plain words, one sentence per item, for the demo, the report page and the device's owner."""
    c = certificate
    guess, alone = best_guess(c.epsilon_upper, c.delta), best_guess(c.epsilon0, 0.0)
    lines = [
        f"Somebody who sees this release, knows everybody else's answers and holds two answers of a device equally likely "
        f"guesses the right one at most {percent_text(guess)} of the time (blind guessing: 50 %).",
        f"That is epsilon <= {bound_text(c.epsilon_upper)} at delta = {c.delta:g}, proven for {c.n_honest} honest reports among {c.n}.",
    ]
    if c.epsilon_lower > 0.0:
        lines.append(
            f"No better accounting can bring it below epsilon = {bound_text(c.epsilon_lower, up=False)}: "
            "a randomizer that fits the description, on real datasets, gives that much away."
        )
    lines.append(
        f"If shuffler and analyzer worked together, epsilon0 = {bound_text(c.epsilon0)} would remain: "
        f"at most {percent_text(alone)} right guesses."
    )
    lines.append(
        "For comparison: randomized response with two coins (heads: the truth; tails: whatever the second coin says) is "
        "epsilon0 = ln 3 = 1.0987, at most 75.0 % right guesses."
    )
    return lines


def _check(epsilon: float, delta: float, prior: float) -> None:
    if not epsilon >= 0.0:
        raise ShoalError(Kind.CONFIG, f"epsilon must be a number of at least 0, got {epsilon}")
    if not 0.0 <= delta < 1.0:
        raise ShoalError(Kind.CONFIG, f"delta must lie in [0, 1), got {delta}")
    if not 0.0 <= prior <= 1.0:
        raise ShoalError(Kind.CONFIG, f"a prior is a probability between 0 and 1, got {prior}")


def percent_text(probability: float) -> str:
    """One decimal, rounded up; more where 100.0 % would be shown for something below it."""
    for digits in (1, 2, 4, 6):
        scale = 10.0 ** (digits + 2)
        shown = math.ceil(probability * scale * (1.0 - _UP)) / 10.0**digits
        if shown < 100.0 or probability >= 1.0:
            return f"{shown:.{digits}f} %"
    return "almost 100 %"


def bound_text(value: float, *, up: bool = True, digits: int = 4) -> str:
    """``digits`` significant digits, rounded in the direction of the bound: an upper bound is never printed too small.

    A value that is such a decimal but for float noise (an epsilon0 of 4.000000000000007) is printed as that decimal.
    """
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = digits - 1 - math.floor(math.log10(abs(value)))
    steps = value * 10.0**exponent
    whole = round(steps)
    if abs(steps - whole) > 1e-13 * abs(steps):
        whole = math.ceil(steps) if up else math.floor(steps)
    return f"{whole / 10.0**exponent:.{digits}g}"

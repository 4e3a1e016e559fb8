"""A plan for each column, such that all of them together keep the guarantee; and how many rows it
would want where there are too few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from shoal.accounting.accountant import simplest, upper_curve
from shoal.accounting.composition.compose import compose, release_law
from shoal.analyzer.planner import Frequencies, Plan, Question, Request, plan
from shoal.analyzer.planner.order import TellProgress
from shoal.cli.trial.asked import AskedColumn
from shoal.cli.trial.overruled import Sort
from shoal.domain import Numeric
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

HONEST = Fraction(9, 10)  # of the reports in a batch, as in the sample of a task
_BLIND = 0.25  # a standard error of so much of all says nothing
_USEFUL = 0.05  # ... and this much does
_ALIKE = 0.02  # a total so close below what was asked is the answer
_MOST_LOOKS = 5
_NEAR = 1.2  # so close are the numbers of rows between which the answer lies
# the others count a device without an answer as the middle of the range
_TELL_WHO_ANSWERED = ("kmean", "square_wave")


@dataclass(frozen=True, slots=True)
class TrialTerms:
    """The guarantee of everything together, and how many devices are asked."""

    epsilon: float
    delta: float
    devices: int


def plans_of(asked: Sequence[AskedColumn], terms: TrialTerms, tell: TellProgress) -> list[Plan]:
    """One each, in their order. Raises CONFIG for numbers that no plan keeps, and for so few rows
    that the answer would be noise alone: it says how many would do.
    """
    count = len(asked)
    delta = terms.delta / count  # deltas of several releases add up
    target = terms.epsilon / math.sqrt(count)
    made = [_plan(one.question, terms.devices, target, delta, tell, _fit(one)) for one in asked]
    least = terms.epsilon / count  # epsilons add up, whatever else: this is always within
    for look in range(_MOST_LOOKS if count > 1 else 0):
        together = _together(made, terms.delta)
        if together <= terms.epsilon and (
            together >= terms.epsilon * (1.0 - _ALIKE) or look == _MOST_LOOKS - 1
        ):
            break
        target = max(least, target * terms.epsilon / together * (1.0 - _ALIKE / 4))
        if look == _MOST_LOOKS - 1:
            target = least
        made = [
            _plan(
                _as_chosen(one),
                terms.devices,
                target,
                delta,
                tell,
                (one.choice.candidate.mechanism,),
            )
            for one in made
        ]
    for one, chosen in zip(asked, made, strict=True):
        _refuse_noise(one, chosen, terms.devices)
    return made


def _fit(asked: AskedColumn) -> tuple[str, ...]:
    """Mechanisms to choose among, empty for all: where some don't answer, those alone that tell."""
    missing = asked.sort is Sort.MEAN and asked.answered < len(asked.values)
    return _TELL_WHO_ANSWERED if missing else ()


def _plan(
    question: Question,
    devices: int,
    epsilon: float,
    delta: float,
    tell: TellProgress | None,
    mechanisms: tuple[str, ...] = (),
) -> Plan:
    request = Request(
        question,
        devices,
        delta,
        epsilon,
        honest_fraction=HONEST,
        mechanisms=mechanisms,
    )
    return plan(request, tell)


def _together(made: Sequence[Plan], delta: float) -> float:
    """Epsilon of all releases, as the analyzer composes them."""
    laws = [
        release_law(
            upper_curve,
            simplest(one.choice.candidate.build(one.choice.epsilon0).privacy()),
            one.request.n_honest,
            one.request.delta,
        )
        for one in made
    ]
    added = math.fsum(one.choice.epsilon_upper for one in made)
    return min(added, compose([(law, 1) for law in laws], delta).epsilon_upper)


def _as_chosen(made: Plan) -> Question:
    """The question with the number of levels that was chosen, so that planning again is quick."""
    question, domain = made.request.question, made.choice.candidate.domain
    if isinstance(question, Frequencies):
        return question
    levels = domain.levels if isinstance(domain, Numeric) else domain.size - 1
    return replace(question, levels=(levels,))


def _refuse_noise(asked: AskedColumn, made: Plan, devices: int) -> None:
    share = _error_share(made)
    if share <= _BLIND:
        return
    needed = _enough(made)
    raise ShoalError(
        Kind.CONFIG,
        f'{devices:,} rows are too few for column "{asked.column}" at epsilon '
        f"{made.request.epsilon:.3g}: an estimate would be off by {share:.0%} of all, one standard "
        f"error. {needed}, or a larger --epsilon",
    )


def _error_share(made: Plan) -> float:
    """The predicted standard error as a share of all devices, or of the number's range."""
    errors, question = made.choice.errors, made.request.question
    if errors is None or not math.isfinite(errors.ranked):
        return 0.0
    if isinstance(question, Frequencies):
        return errors.ranked / made.request.n
    return errors.ranked / (question.high - question.low)


def _enough(made: Plan) -> str:
    """How many rows would do for a useful answer, to a fifth or so."""

    def useful(n: int) -> bool:
        return _error_share(_again(made, n)) <= _USEFUL

    below, above = made.request.n, 2 * made.request.n
    while not useful(above):
        below, above = above, 2 * above
        if above > LIMITS.batch_rows:
            return "No number of rows would do: give fewer categories"
    while above > _NEAR * below:
        middle = round(math.sqrt(below * above))
        below, above = (below, middle) if useful(middle) else (middle, above)
    step = 10 ** max(0, len(str(above)) - 2)
    return f"About {-(-above // step) * step:,} rows would bring that to {_USEFUL:.0%}: give more"


def _again(made: Plan, n: int) -> Plan:
    """The same mechanism for more rows."""
    request, mechanism = made.request, made.choice.candidate.mechanism
    question = _as_chosen(made)
    return _plan(question, n, request.epsilon or 1.0, request.delta, None, (mechanism,))

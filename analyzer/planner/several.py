"""What mechanisms of several messages would do for a question: their errors, and what they cost.

They have no epsilon0, so they can't be ranked among mechanisms that have one: whoever asks decides
whether owners will agree to a task whose answers shuffler and analyzer together can read. They are
found with the design that a task file gets (``design_several``): noise for (epsilon, delta) in each
release, split over the devices that are sure to be honest in the smallest batch, cut off for all
releases. Where the target is of all releases together, the epsilon of each is the largest (to 1 %)
whose exact laws of losses compose to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shoal.accounting.accountant import LARGEST_EPSILON0
from shoal.accounting.composition.compose import compose
from shoal.accounting.several_messages.of_domain import design_several, serves
from shoal.accounting.several_messages.of_mechanism import losses_of
from shoal.analyzer.planner.candidates import Unsuited
from shoal.analyzer.planner.predict import frame_bytes
from shoal.analyzer.planner.question import Frequencies, Request, wrong
from shoal.errors import ShoalError
from shoal.mechanisms.several.names import NAMES
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create
from shoal.task import MechanismSpec

_NEAR = 1.01  # how near to the largest the epsilon of one of several releases is found
_STEP = 1.4


@dataclass(frozen=True, slots=True)
class SeveralOption:
    """A mechanism of several messages for a request.

    ``epsilon``: of each release, at the request's delta. ``error``: standard error of every count
    with the request's n devices, whatever they answer. ``mean_messages``, ``messages``: of a
    report, on average (of a batch of min_batch's honest devices) and at most. ``message_bytes``: of
    one; ``frame_bytes``: what a device sends.
    """

    spec: MechanismSpec
    epsilon: float
    error: float
    mean_messages: float
    messages: int
    message_bytes: int
    frame_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; epsilon0 is infinite, which JSON has no number for."""
        return {
            "mechanism": self.spec.name,
            "parameters": dict(self.spec.parameters),
            "epsilon0": None,
            "epsilon_upper": self.epsilon,
            "error": self.error,
            "mean_messages": self.mean_messages,
            "messages": self.messages,
            "message_bytes": self.message_bytes,
            "frame_bytes": self.frame_bytes,
        }


def several_options(
    request: Request,
) -> tuple[tuple[SeveralOption, ...], tuple[Unsuited, ...]]:
    """Every mechanism of several messages that can serve ``request``, the least error first, and
    why others can't. Raises CONFIG for a question without cells, and for a target error.
    """
    question = request.question
    if not isinstance(question, Frequencies):
        raise wrong("several messages answer yes_no and categories: leave --several-messages out")
    if request.epsilon is None:
        raise wrong("several messages are planned for an --epsilon: give one in place of --error")
    found, unsuited = list[SeveralOption](), list[Unsuited]()
    for name in NAMES:
        if not serves(name, question.domain):
            continue
        try:
            found.append(_option(request, question, name, request.epsilon))
        except ShoalError as error:
            unsuited.append(Unsuited(name, error.message))
    return tuple(sorted(found, key=lambda option: option.error)), tuple(unsuited)


def _option(request: Request, question: Frequencies, name: str, target: float) -> SeveralOption:
    """Raises CONFIG where the request's limits or the design rule it out."""
    if request.memoized:
        raise wrong("its reports can't be repeated: leave --memoized out")
    if request.most_epsilon0 < LARGEST_EPSILON0:
        raise wrong(f"no --max-epsilon0 allows it ({request.most_epsilon0:g}): it has no epsilon0")
    total = request.total
    epsilon = target if total is None else _of_each(request, question, name, total)
    made = _made(request, question, name, epsilon)
    if made.messages > request.most_messages:
        raise wrong(f"a report has up to {made.messages} messages, {request.most_messages} allowed")
    if (size := made.messages * made.report_size) > request.most_bytes:
        raise wrong(f"a report has up to {size} bytes, {request.most_bytes} allowed")
    return SeveralOption(
        made.spec,
        epsilon,
        made.expected_stderr(request.n),
        float(made.mean_messages),
        made.messages,
        made.report_size,
        frame_bytes(made),
    )


def _made(request: Request, question: Frequencies, name: str, epsilon: float) -> Several:
    spec = design_several(
        name, question.domain, request.n_honest, epsilon, request.delta, windows=request.rounds
    )
    return create(spec, question.domain)


def _of_each(request: Request, question: Frequencies, name: str, total: float) -> float:
    """The largest epsilon of one release with which all together are at most ``total``. Raises
    CONFIG where not even the plain share of each will do.
    """

    def keeps(epsilon: float) -> bool:
        try:
            made = _made(request, question, name, epsilon)
        except ShoalError:
            return False
        losses = losses_of(made, request.n_honest, request.delta)
        if losses is None:
            return False
        return compose([(losses, request.rounds)], request.delta).epsilon_upper <= total

    low, least = total, 0.9 * total / request.rounds
    while not keeps(low):
        low /= _STEP
        if low < least:
            raise wrong(
                f"no noise of it keeps {request.rounds} releases together at {total:g}: give a "
                "larger --epsilon, or --per-window"
            )
    high = min(total, low * _STEP)
    while high > low * _NEAR:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low

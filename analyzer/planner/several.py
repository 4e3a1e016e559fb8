"""What mechanisms of several messages would do for a question: their errors, and what they cost.

Most have no epsilon0, so they can't be ranked among mechanisms that have one: whoever asks decides
whether owners will agree to a task whose answers shuffler and analyzer together can read. With
``epsilon0_if_colluding`` the true messages are randomized, and devices keep that much. The draws
add a variance of about n e^-epsilon0 (an empty cell) to twice that (one cell of k), so it is a good
trade from about ``least_worthwhile`` on, and below that costs more than all of the noise. They are
found with the design that a task file gets (``design_several``): noise for (epsilon, delta) in each
release, split over the devices that are sure to be honest in the smallest batch, cut off for all
releases. Where the target is of all releases together, the epsilon of each is the largest (to 1 %)
whose exact laws of losses compose to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from shoal.accounting.accountant import LARGEST_EPSILON0
from shoal.accounting.several_messages.of_domain import design_several, serves
from shoal.accounting.several_messages.of_windows import epsilon_of_each
from shoal.analyzer.planner.candidates import Unsuited
from shoal.analyzer.planner.predict import frame_bytes, profile
from shoal.analyzer.planner.question import Frequencies, Request, wrong
from shoal.errors import ShoalError
from shoal.mechanisms.several.names import NAMES
from shoal.mechanisms.several.protocol import Noisy
from shoal.mechanisms.several.registry import create
from shoal.task import MechanismSpec


@dataclass(frozen=True, slots=True)
class SeveralOption:
    """A mechanism of several messages for a request.

    ``epsilon``: of each release, at the request's delta. ``epsilon0``: of what a device sends;
    math.inf where a message is the value. ``error``: standard error of every count with the
    request's n devices, whatever they answer; with an epsilon0 that at the question's answers (root
    mean square, or at the worst ones). ``mean_messages``, ``messages``: of a
    report, on average (of a batch of min_batch's honest devices) and at most. ``message_bytes``: of
    one; ``frame_bytes``: what a device sends.
    """

    spec: MechanismSpec
    epsilon: float
    epsilon0: float
    error: float
    mean_messages: float
    messages: int
    message_bytes: int
    frame_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; an infinite epsilon0 is None, as JSON has no number for it."""
        return {
            "mechanism": self.spec.name,
            "parameters": dict(self.spec.parameters),
            "epsilon0": self.epsilon0 if math.isfinite(self.epsilon0) else None,
            "epsilon_upper": self.epsilon,
            "error": self.error,
            "mean_messages": self.mean_messages,
            "messages": self.messages,
            "message_bytes": self.message_bytes,
            "frame_bytes": self.frame_bytes,
        }


def least_worthwhile(n: int) -> float:
    """The epsilon0_if_colluding from which on the draws of ``n`` devices add no more than the noise
    does, about.
    """
    return math.log(max(n, 20) / 10)


def several_options(
    request: Request, epsilon0_if_colluding: float | None = None
) -> tuple[tuple[SeveralOption, ...], tuple[Unsuited, ...]]:
    """Every mechanism of several messages that can serve ``request``, the least error first, and
    why others can't; as they are, and with that epsilon0 if one is given. Raises CONFIG for a
    question without cells, and for a target error.
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
        kinds = [None] if epsilon0_if_colluding is None else [None, epsilon0_if_colluding]
        for epsilon0 in kinds:
            what = name if epsilon0 is None else f"{name}, randomized"
            try:
                found.append(_option(request, _Design(name, question, epsilon0), request.epsilon))
            except ShoalError as error:
                unsuited.append(Unsuited(what, error.message))
    return tuple(sorted(found, key=lambda option: option.error)), tuple(unsuited)


@dataclass(frozen=True, slots=True)
class _Design:
    """What a task file asks for; ``epsilon0``: if colluding."""

    name: str
    question: Frequencies
    epsilon0: float | None

    def made(self, request: Request, epsilon: float) -> Noisy:
        """Raises CONFIG."""
        domain = self.question.domain
        spec = design_several(
            self.name,
            domain,
            request.n_honest,
            epsilon,
            request.delta,
            windows=request.rounds,
            epsilon0_if_colluding=self.epsilon0,
        )
        made = create(spec, domain)
        if not isinstance(made, Noisy):
            raise wrong(f"{self.name} is not planned for")
        return made


def _error(request: Request, question: Frequencies, made: Noisy) -> float:
    n = request.n
    if made.truth_law is None:
        return made.expected_stderr(n)
    if question.worst:
        return made.stderr_of(n, question.heavy * n)
    squares = [made.stderr_of(n, held) ** 2 for held in profile(question, n).tolist()]
    return math.sqrt(math.fsum(squares) / len(squares))


def _option(request: Request, design: _Design, target: float) -> SeveralOption:
    """Raises CONFIG where the request's limits or the design rule it out."""
    if request.memoized:
        raise wrong("its reports can't be repeated: leave --memoized out")
    most = request.most_epsilon0
    if design.epsilon0 is None and most < LARGEST_EPSILON0:
        raise wrong(f"no --max-epsilon0 allows it ({most:g}): it has no epsilon0")
    if design.epsilon0 is not None and design.epsilon0 > most:
        raise wrong(f"--max-epsilon0 allows {most:g}: give no more as --epsilon0-if-colluding")
    total = request.total
    epsilon = target if total is None else _of_each(request, design, total)
    made = design.made(request, epsilon)
    if made.messages > request.most_messages:
        raise wrong(f"a report has up to {made.messages} messages, {request.most_messages} allowed")
    if (size := made.messages * made.report_size) > request.most_bytes:
        raise wrong(f"a report has up to {size} bytes, {request.most_bytes} allowed")
    return SeveralOption(
        made.spec,
        epsilon,
        made.epsilon0,
        _error(request, design.question, made),
        float(made.mean_messages),
        made.messages,
        made.report_size,
        frame_bytes(made),
    )


def _of_each(request: Request, design: _Design, total: float) -> float:
    """The largest epsilon of one release with which all together are at most ``total``. Raises
    CONFIG where there is none.
    """
    try:
        return epsilon_of_each(
            partial(design.made, request), request.n_honest, total, request.delta, request.rounds
        )
    except ShoalError as error:
        raise wrong(f"{error.message}: give a larger --epsilon, or --per-window") from None

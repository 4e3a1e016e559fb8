"""What mechanisms of several messages would do for a question: their errors, and what they cost.

Most have no epsilon0, so they can't be ranked among mechanisms that have one: whoever asks decides
whether owners will agree to a task whose answers shuffler and analyzer together can read. With
``epsilon0_if_colluding`` the true messages are randomized, and devices keep that much. The draws
add a variance of about n e^-epsilon0 (an empty cell) to twice that (one cell of k), so it is a good
trade from about ``least_worthwhile`` on, and below that costs more than all of the noise. They are
found with the design that a task file gets (``design_several``): noise for (epsilon, delta) in each
release, split over the devices that are sure to be honest in the smallest batch, cut off for all
releases. Where the target is of all releases together, the epsilon of each is the largest (to 1 %)
whose exact laws of losses compose to it. Where an error is the target, the smallest epsilon that
reaches it is looked for (``least_epsilon``), and what counts is the certificate of what comes out.

**Quantiles** are answered by ``ranges``, whose release has any range too (``frontier.ranges``).

**Means.** With more levels rounding adds less, and the noise, a curator's, no more: from 1,001 on,
the first number of levels (``_LEVELS``) with which rounding adds 2 % to the error at most, or as
many as the mechanism allows. With ``--levels`` only those.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from shoal.accounting.accountant import LARGEST_EPSILON0
from shoal.accounting.of_task import guaranteed_several
from shoal.accounting.several_messages.liars import moved_by_liar
from shoal.accounting.several_messages.of_domain import design_several, serves
from shoal.accounting.several_messages.of_windows import epsilon_of_each
from shoal.analyzer.planner.candidates import Unsuited
from shoal.analyzer.planner.frontier.costs import analyzer_seconds, radio_seconds
from shoal.analyzer.planner.frontier.least_epsilon import least_epsilon, rounded_up
from shoal.analyzer.planner.frontier.option import SeveralOption
from shoal.analyzer.planner.frontier.ranges import levels_of, quantiles_error
from shoal.analyzer.planner.predict import frame_bytes, profile
from shoal.analyzer.planner.question import (
    LEVELS,
    Frequencies,
    Mean,
    Quantiles,
    Question,
    Request,
    Sum,
    wrong,
)
from shoal.domain import Domain
from shoal.errors import ShoalError
from shoal.mechanisms.several.names import (
    CANCELLING,
    DUMMIES,
    NAMES,
    RANGES,
    SIGNED_COUNT,
    SPLIT_MIX,
)
from shoal.mechanisms.several.protocol import Noisy, Several
from shoal.mechanisms.several.ranges import Ranges
from shoal.mechanisms.several.registry import create
from shoal.mechanisms.several.shuffler_noise import ShufflerNoise
from shoal.task import SHUFFLER_NOISE

_OF_MEANS = (SPLIT_MIX,)  # the others serve numbers too, and count their levels
# The least error first where one release is all there is, for a look at what could be had.
_FOREMOST = (SIGNED_COUNT, SPLIT_MIX, CANCELLING, DUMMIES)
_LEVELS = (1_001, 2_001, 5_001, 10_001, 20_001, 50_001)
_DIGITS = 6  # of a certified epsilon, rounded up
_CLEARLY = 1.05
_FINE = 25  # rounding is at most this part of the variance


def least_worthwhile(n: int) -> float:
    """The epsilon0_if_colluding from which on the draws of ``n`` devices add no more than the noise
    does, about.
    """
    return math.log(max(n, 20) / 10)


def several_options(
    request: Request, epsilon0_if_colluding: float | None = None, *, trusting: bool = False
) -> tuple[tuple[SeveralOption, ...], tuple[Unsuited, ...]]:
    """Every mechanism of several messages that can serve ``request``, the least error first (or the
    least epsilon, where an error is the target), and why others can't; as they are, and with that
    epsilon0 if one is given. ``trusting``: noise that the shuffler is trusted to add is among them.
    Raises CONFIG for a question without cells.
    """
    every = tuple(every_option(request, epsilon0_if_colluding, trusting=trusting))
    found = sorted(
        (each for each in every if isinstance(each, SeveralOption)),
        key=lambda option: option.error if request.error is None else option.epsilon,
    )
    return tuple(found), tuple(each for each in every if isinstance(each, Unsuited))


def every_option(
    request: Request, epsilon0_if_colluding: float | None = None, *, trusting: bool = False
) -> Iterator[SeveralOption | Unsuited]:
    """What ``several_options`` finds, one after the other as it is found."""
    question = request.question
    for name in protocols(request, trusting=trusting):
        drawn = epsilon0_if_colluding is not None and name != SHUFFLER_NOISE
        kinds = [None, epsilon0_if_colluding] if drawn else [None]
        for epsilon0 in kinds:
            what = name if epsilon0 is None else f"{name}, randomized"
            try:
                yield _found(request, question, name, epsilon0)
            except ShoalError as error:
                yield Unsuited(what, error.message)


def protocols(request: Request, *, trusting: bool = False) -> tuple[str, ...]:
    """The names of those that are looked at for ``request``. Raises CONFIG for a question without
    cells.
    """
    names = _names(request.question)
    return tuple(name for name in names if trusting or name != SHUFFLER_NOISE)


def option_at(request: Request, option: SeveralOption, epsilon: float) -> SeveralOption:
    """What ``option`` would be with ``epsilon`` in each release, its other numbers as they are.
    Raises CONFIG where its design refuses.
    """
    epsilon0 = option.epsilon0 if math.isfinite(option.epsilon0) else None
    asked = replace(request, epsilon=epsilon, error=None, together=False)
    return _option(asked, _Design(option.spec.name, option.domain, epsilon0), epsilon)


def foremost(request: Request) -> SeveralOption | None:
    """The mechanism of several messages that errs least, by one design if limits on a report allow
    that one: for a plan in which nobody asked for them. None where none is within the limits, and
    where it would take long: of several releases together, and for a target error.
    """
    if request.total is not None or request.epsilon is None:
        return None
    question = request.question
    names = _names(question)
    for name in _FOREMOST:
        if name in names:
            with contextlib.suppress(ShoalError):  # too many messages, say: the next one has fewer
                return _tried(request, question, name, None, request.epsilon)
    return None


def _names(question: Question) -> tuple[str, ...]:
    if isinstance(question, Mean):
        return _OF_MEANS
    if isinstance(question, Quantiles):
        return (RANGES,)
    return tuple(name for name in NAMES if name != RANGES and serves(name, question.domain))


def _found(
    request: Request, question: Question, name: str, epsilon0: float | None
) -> SeveralOption:
    """For the request's target, whichever it is. Raises CONFIG."""
    if request.epsilon is not None:
        return _tried(request, question, name, epsilon0, request.epsilon)
    _check_limits(request, epsilon0)  # no epsilon would help
    outdone = _Outdone()
    option = least_epsilon(
        lambda epsilon: _tried(request, question, name, epsilon0, epsilon, outdone),
        request.error or math.nan,
    )
    made = create(option.spec, option.domain)
    bound = guaranteed_several(made, request.min_batch, request.honest_fraction, request.delta)
    return replace(option, epsilon=rounded_up(bound.epsilon_upper, _DIGITS))


def _tried(
    request: Request,
    question: Question,
    name: str,
    epsilon0: float | None,
    target: float,
    outdone: _Outdone | None = None,
) -> SeveralOption:
    """``outdone``: by earlier tries. Raises CONFIG."""
    _check_limits(request, epsilon0)
    if isinstance(question, Frequencies):
        return _option(request, _Design(name, question.domain, epsilon0), target)
    best: SeveralOption | None = None
    why = wrong("no number of levels was given")
    every, first = _levels(request, question, target)
    found = dict[int, float]()
    for levels in every:
        if outdone is not None and outdone.passes(levels, target):
            continue
        try:
            option = _option(request, _Design(name, question.domain(levels), epsilon0), target)
        except ShoalError as error:
            why = error
            continue
        found[levels] = option.error
        best = option if best is None or option.error < best.error else best
        if first:
            break
    if outdone is not None:
        outdone.see(found, target)
    if best is None:
        raise why
    return best


class _Outdone:
    """Numbers of levels that are not tried again below an epsilon where fewer levels erred less: by
    so much more noise that they did worse, although rounding does less to them. With a smaller
    epsilon there is more noise still.
    """

    def __init__(self) -> None:
        self._below = dict[int, float]()

    def passes(self, levels: int, epsilon: float) -> bool:
        """Whether they need not be tried."""
        return epsilon < self._below.get(levels, 0.0)

    def see(self, errors: dict[int, float], epsilon: float) -> None:
        """What they erred by, each number of levels."""
        for levels, error in errors.items():
            fewer = (other for less, other in errors.items() if less < levels)
            if _CLEARLY * min(fewer, default=math.inf) <= error:
                self._below[levels] = max(epsilon, self._below.get(levels, 0.0))


def _levels(
    request: Request, question: Mean | Quantiles, target: float
) -> tuple[tuple[int, ...], bool]:
    """Numbers of levels to try, and whether the first that can be had is taken. Those that nobody
    chose begin with the first that is fine enough, and go down from it: noise at epsilon for a
    change of 2 (L - 1) half steps has a variance of 8 (L - 1)^2 / epsilon^2, and rounding adds n at
    most (half steps squared).
    """
    if isinstance(question, Quantiles):
        return levels_of(question), False
    if question.levels != LEVELS:
        return question.levels, False
    enough = target * math.sqrt(_FINE * request.n / 8.0)
    last = next((at for at, levels in enumerate(_LEVELS) if levels > enough), len(_LEVELS) - 1)
    return (*reversed(_LEVELS[: last + 1]), 501, 201, 101), True


@dataclass(frozen=True, slots=True)
class _Design:
    """What a task file asks for; ``epsilon0``: if colluding."""

    name: str
    domain: Domain
    epsilon0: float | None

    def made(self, request: Request, epsilon: float) -> Several:
        """Raises CONFIG."""
        spec = design_several(
            self.name,
            self.domain,
            request.n_honest,
            epsilon,
            request.delta,
            windows=request.rounds,
            epsilon0_if_colluding=self.epsilon0,
        )
        return create(spec, self.domain)


def _error(request: Request, made: Several) -> float:
    n, question = request.n, request.question
    if isinstance(question, Quantiles) and isinstance(made, Ranges):
        return quantiles_error(question, made, n)
    if not isinstance(question, Frequencies):
        return made.expected_stderr(n) * (n if isinstance(question, Sum) else 1)
    if not isinstance(made, Noisy) or made.truth_law is None:
        return made.expected_stderr(n)
    if question.worst:
        return made.stderr_of(n, question.heavy * n)
    squares = [made.stderr_of(n, held) ** 2 for held in profile(question, n).tolist()]
    return math.sqrt(math.fsum(squares) / len(squares))


def _check_limits(request: Request, epsilon0: float | None) -> None:
    """Raises CONFIG where the request's limits rule it out, whatever its integers are."""
    if request.memoized:
        raise wrong("its reports can't be repeated: leave --memoized out")
    most = request.most_epsilon0
    if epsilon0 is None and most < LARGEST_EPSILON0:
        raise wrong(f"no --max-epsilon0 allows it ({most:g}): it has no epsilon0")
    if epsilon0 is not None and epsilon0 > most:
        raise wrong(f"--max-epsilon0 allows {most:g}: give no more as --epsilon0-if-colluding")


def _option(request: Request, design: _Design, target: float) -> SeveralOption:
    """Raises CONFIG where the request's limits or the design rule it out."""
    total = request.total
    epsilon = target if total is None else _of_each(request, design, total)
    made = design.made(request, epsilon)
    if made.messages > request.most_messages:
        raise wrong(f"a report has up to {made.messages} messages, {request.most_messages} allowed")
    if (size := made.messages * made.report_size) > request.most_bytes:
        raise wrong(f"a report has up to {size} bytes, {request.most_bytes} allowed")
    frame = frame_bytes(made)
    return SeveralOption(
        made.spec,
        design.domain,
        epsilon,
        made.epsilon0,
        _error(request, made),
        float(made.mean_messages),
        made.messages,
        made.report_size,
        frame,
        radio_seconds(frame),
        analyzer_seconds(request.n * float(made.mean_messages) + _added(made)),
        math.nan if isinstance(request.question, Quantiles) else moved_by_liar(made),
        epsilon,
        made.range_stderr(request.n) if isinstance(made, Ranges) else None,
    )


def _added(made: Several) -> float:
    """Messages that the shuffler adds to a batch, on average: half of the most, by symmetry."""
    return made.most_added / 2.0 if isinstance(made, ShufflerNoise) else 0.0


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

"""Accuracy first: how far off a figure may be, and what epsilon that costs with each mechanism.

``answers`` is an *anytime* search: it yields what is known so far, from the first candidate on.
Every option in every answer is a real mechanism with the bound that the accountant proves for its
integers, so the smallest epsilon so far is never below what the search ends with: a coarse answer
errs to the safe side (but for the 0.5 % within which epsilons are alike, and the smaller report
wins). The last answer has ``plan``, the same choice, certificate and figures that
``shoal plan --error`` has for the same candidates.

Counts: every setting of every family is tried. Numbers: each family's numbers of levels are
climbed on a ladder until two in a row cost more, or four as much; of k-ary responses, which are
quick, those between the neighbours of the best come too.

An error is the half width of an interval that holds the true figure 95 times in a hundred: 1.96
standard errors of the worst count wherever the devices are (``worst``), of a mean or a sum at its
worst value, or of the quantile that errs most, however smoothly numbers are spread. A quantile has
bias too: the same multiple of its root mean square then holds it at least as often.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from shoal.accounting.accountant import LARGEST_EPSILON0
from shoal.analyzer.planner.accuracy.central import Z95, Central, central
from shoal.analyzer.planner.accuracy.sweep import ErrorCurve, curves_of
from shoal.analyzer.planner.accuracy.worst import ALL_TRIED
from shoal.analyzer.planner.candidates import COLLIDE, Candidate, Unsuited, of_family
from shoal.analyzer.planner.choose import (
    NOT_FORESEEN,
    certified,
    chosen,
    compared,
    foreseen,
)
from shoal.analyzer.planner.predict import ranked
from shoal.analyzer.planner.quantiles import heaped_error
from shoal.analyzer.planner.question import (
    Frequencies,
    Quantiles,
    Question,
    Request,
    half_range,
    wrong,
)
from shoal.analyzer.planner.reasons import why_it_loses
from shoal.analyzer.planner.repeated import permanently, repeated
from shoal.analyzer.planner.result import Option, Plan
from shoal.domain import Numeric
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY
from shoal.privacy import KaryLaw

# Looked at first: they are quick, and hardly ever beaten by much.
_FIRST = ("binary_rr", "krr", "kmean", "unary", "one_bit_mean")
_LAST = ("laplace", "gaussian", "rappor", "exponential", "planar")  # their tables are slow
_BY_PLACE = frozenset(
    {"rappor", "exponential", "planar"}
)  # which cell it is matters, and their tables are slow
_LADDER = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_GAIN = 0.99
_PATIENCE = 2.0  # rungs in a row that cost more, before a family's ladder ends
_ALIKE = 0.5  # of such a rung is one that costs as much: some ladders begin with a landing
_AHEAD = 1.1
_CLOSE = 1.05  # of the best of all: then the numbers of levels beside a family's best are tried too
_BETWEEN = 6  # of them at most
_POINTS, _FEWER = 11, 7  # of a curve
# An answer that nothing reaches with so many devices is not looked for among more.
MOST_DEVICES = 100_000_000


@dataclass(frozen=True, slots=True)
class Reach:
    """What there is where an error can't be reached: the least one that can, and what it is of.
    ``devices``: how many would be needed for the one that was asked for; None where more don't
    help.
    """

    error: float
    title: str
    devices: int | None


@dataclass(frozen=True, slots=True)
class AccuracyAnswer:
    """What is known so far. ``options``: what is chosen so far, then the cheapest of each other
    family that reaches the error, the smallest epsilon first. ``curves``: by family. ``central``:
    at the epsilon of the choice. ``tried`` of ``of`` families. ``plan``: at the end, None before,
    and if nothing reaches the error: then ``reach`` says what could be. ``kept``: of a memoized
    question, the epsilon0 of all its windows together. ``heaped``: of the plan's quantiles, what
    they would be off by if half of the devices had one number.
    """

    options: tuple[Option, ...] = ()
    curves: dict[str, ErrorCurve] = field(default_factory=dict)
    central: Central | None = None
    tried: int = 0
    of: int = 0
    plan: Plan | None = None
    reach: Reach | None = None
    unsuited: tuple[Unsuited, ...] = ()
    kept: float | None = None
    heaped: float | None = None

    def drawn(self, family: str) -> str:
        """Of which candidate the family's curve is; "" if there is none yet."""
        return self.curves[family].title if family in self.curves else ""

    @property
    def done(self) -> bool:
        """Whether the search is over: before, what is shown is coarse."""
        return self.plan is not None or self.reach is not None


def request_for(
    question: Question,
    n: int,
    error: float,
    delta: float,
    honest_fraction: Fraction = Fraction(1),
    windows: int = 1,
    most_epsilon0: float = LARGEST_EPSILON0,
    mechanisms: tuple[str, ...] = (),
    memoized: bool = False,
    changes: int = 0,
) -> Request:
    """``error``: of the 95 % interval, to each side, in the question's unit. Raises CONFIG."""
    if not (math.isfinite(error) and error > 0.0):
        raise wrong(f"how far off a figure may be is a finite number above 0, got {error:g}")
    if error >= (most := half_range(question, n)):
        raise wrong(
            f"an error of {error:g} asks nothing: the middle of all answers is within {most:g}: "
            "ask for less"
        )
    return Request(
        replace(question, worst=True),
        n,
        delta,
        None,
        error / Z95,
        honest_fraction=honest_fraction,
        windows=windows,
        most_epsilon0=most_epsilon0,
        mechanisms=mechanisms,
        memoized=memoized,
        changes=changes,
        together=False,
    )


def half_width(option: Option) -> float:
    """What an option's figures are off by at most, 95 times in a hundred."""
    return math.nan if option.errors is None else Z95 * option.errors.ranked


def answers(request: Request) -> Iterator[AccuracyAnswer]:
    """What is known, better and better; the last one is ``done``. Raises CONFIG for a question that
    no mechanism answers.
    """
    names = _order(request)
    found: list[Option] = []
    unsuited: list[Unsuited] = []
    every: list[Candidate] = []
    answer = AccuracyAnswer(of=len(names))
    for tried, name in enumerate(names, 1):
        members, why = _members(request, name)
        every += members
        unsuited += [] if why is None else [why]
        for option in _of_family(request, members, found):
            found.append(option)
            if option.errors is not None:
                answer = _with(answer, request, found, every)
                yield answer
        answer = replace(answer, tried=tried)
        yield answer
        if members and not answer.curves:
            answer = yield from _with_curve(answer, request, name, _POINTS)
    if not every:
        why_not = "; ".join(f"{each.mechanism}: {each.reason}" for each in unsuited)
        raise wrong(f"no mechanism answers this question: {why_not}")
    if not answer.options:
        yield replace(answer, reach=_reach(request, every))
        return
    for option in answer.options:
        if option.candidate.title != answer.drawn(option.candidate.mechanism):
            name = option.candidate.mechanism
            answer = yield from _with_curve(answer, request, name, _FEWER)
    made = _plan(request, every, found, tuple(unsuited))
    yield replace(answer, plan=made, heaped=_heaped(request, made.choice))


def _order(request: Request) -> list[str]:
    """Families by name: those that are quick, then the registry's order, then those that are slow.
    Those whose estimates have errors that are not predicted are left out.
    """
    names = [
        name
        for name in REGISTRY
        if name not in COLLIDE and name in (request.mechanisms or REGISTRY)
    ]
    first = [name for name in _FIRST if name in names]
    last = [name for name in _LAST if name in names]
    return first + [name for name in names if name not in {*first, *last}] + last


def _members(request: Request, name: str) -> tuple[list[Candidate], Unsuited | None]:
    """A family's candidates; or none, and why."""
    question = request.question
    if isinstance(question, Frequencies) and question.domain.size > ALL_TRIED and name in _BY_PLACE:
        return [], Unsuited(
            name,
            "its counts err differently in different cells, of which there "
            f"are more than {ALL_TRIED}",
        )
    try:
        members = of_family(name, question, all_settings=False)
        if isinstance(question, Quantiles) and not foreseen(members[0]):
            return [], Unsuited(name, NOT_FORESEEN)
        return members, None
    except ShoalError as error:
        if error.kind is not Kind.INVALID:
            raise
        return [], Unsuited(name, str(error))


def _of_family(request: Request, members: list[Candidate], found: list[Option]) -> Iterator[Option]:
    """The family's candidates that are worth a look, each compared."""
    if isinstance(request.question, Frequencies):
        for candidate in members:
            yield compared(request, candidate)
        return
    for setting in dict.fromkeys(each.setting for each in members):
        mine = {_levels(each): each for each in members if each.setting == setting}
        yield from _climb(request, mine, found)


def _climb(
    request: Request, by_levels: dict[int, Candidate], found: list[Option]
) -> Iterator[Option]:
    """A ladder of numbers of levels, then those beside its best rung."""
    tried: dict[int, Option] = {}
    worse = 0.0
    for levels in [rung for rung in _LADDER if rung in by_levels] or sorted(by_levels):
        least = min(tried.values(), key=_cost, default=None)
        if least is not None and _dearer(request, by_levels[levels], least):
            worse += 1
        else:
            tried[levels] = compared(request, by_levels[levels])
            yield tried[levels]
            change = 1.0 if least is None else _ratio(tried[levels], least)
            # of few levels rounding alone may err more than is wanted: that is no reason to stop
            better = change <= _GAIN or all(map(math.isinf, map(_cost, tried.values())))
            worse = 0.0 if better else worse + (_ALIKE if change * _GAIN <= 1.0 else 1.0)
        if worse >= _PATIENCE:
            break
    best = min(tried, key=lambda levels: _cost(tried[levels]))
    so_far = min(map(_cost, found), default=math.inf)
    if not (_cost(tried[best]) <= so_far * _CLOSE and _is_kary(by_levels[best])):
        return
    ladder = [0, *(rung for rung in _LADDER if rung in by_levels), max(by_levels) + 1]
    below = max(rung for rung in ladder if rung < best)
    above = min(rung for rung in ladder if rung > best)
    between = [each for each in sorted(by_levels) if below < each < above and each not in tried]
    for levels in between[:: max(1, -(-len(between) // _BETWEEN))]:
        yield compared(request, by_levels[levels])


def _cost(option: Option) -> float:
    return option.epsilon_upper if option.errors is not None else math.inf


def _ratio(option: Option, least: Option) -> float:
    cost, before = _cost(option), _cost(least)
    return cost / before if math.isfinite(before) else 1.0 if math.isinf(cost) else 0.0


def _is_kary(candidate: Candidate) -> bool:
    return isinstance(candidate.build(1.0).privacy(), KaryLaw)


def _dearer(request: Request, candidate: Candidate, than: Option) -> bool:
    """Whether a candidate with other levels wants a far larger epsilon0 than one that reaches the
    error. k-ary responses are asked: more levels hide more at one epsilon0.
    """
    if than.errors is None or _is_kary(candidate):
        return False
    return _error_at(request, candidate, than.epsilon0 * _AHEAD) > (request.error or math.nan)


def _levels(candidate: Candidate) -> int:
    """Or bins."""
    domain = candidate.domain
    return domain.levels if isinstance(domain, Numeric) else domain.size - 1


def _heaped(request: Request, choice: Option) -> float | None:
    if not isinstance(request.question, Quantiles):
        return None
    candidate = choice.candidate
    mechanism = candidate.build(choice.epsilon0)
    return Z95 * heaped_error(request.question, mechanism, candidate.domain, request.n)


def _with(
    answer: AccuracyAnswer, request: Request, found: list[Option], every: list[Candidate]
) -> AccuracyAnswer:
    """The answer with the choice so far, the cheapest option of each other family, and the central
    line at the choice's epsilon.
    """
    reaching = [option for option in _placed(found, every) if option.errors is not None]
    choice = chosen(request, reaching)
    cheapest = {choice.candidate.mechanism: choice}
    for option in sorted(reaching, key=_cost):
        cheapest.setdefault(option.candidate.mechanism, option)
    rest = sorted((each for each in cheapest.values() if each is not choice), key=_cost)
    line = None
    if not isinstance(request.question, Quantiles):
        line = central(request.question, request.n, choice.epsilon_upper, request.delta)
    kept = None
    if request.memoized:
        candidate = choice.candidate
        mechanism = candidate.build(choice.epsilon0)
        kept = permanently(request, mechanism, candidate.domain.size)[2]
    return replace(answer, options=(choice, *rest), central=line, kept=kept)


def _placed(found: list[Option], every: list[Candidate]) -> list[Option]:
    """In the order of the candidates."""
    places = {candidate: place for place, candidate in enumerate(every)}
    return sorted(found, key=lambda option: places[option.candidate])


def _with_curve(
    answer: AccuracyAnswer, request: Request, family: str, most: int
) -> Generator[AccuracyAnswer, None, AccuracyAnswer]:
    """Yields the answer with more and more of the curve of a family's option; returns it with all
    of it.
    """
    option = next((each for each in answer.options if each.candidate.mechanism == family), None)
    if option is None:
        return answer
    for curve in curves_of(request, option.candidate, option.epsilon0, most):
        answer = replace(answer, curves={**answer.curves, family: curve})
        yield answer
    return answer


def _plan(
    request: Request,
    every: list[Candidate],
    found: list[Option],
    unsuited: tuple[Unsuited, ...],
) -> Plan:
    """By the planner's own rule, with the certificate that a task's lint will compute."""
    options = _placed(found, every)
    reaching = [option for option in options if option.errors is not None]
    choice, guarantee = certified(request, chosen(request, reaching))
    losers = sorted(
        (each for each in reaching if each.candidate != choice.candidate),
        key=lambda option: option.epsilon_upper,
    )
    others = tuple(replace(each, reason=why_it_loses(each, choice, request)) for each in losers)
    rest = tuple(option for option in options if option.errors is None)
    return Plan(
        request,
        choice,
        guarantee,
        (*others, *rest),
        unsuited,
        request.min_batch,
        repeated(request, choice),
    )


def _reach(request: Request, every: list[Candidate]) -> Reach:
    """The least error at the largest epsilon0 that is allowed."""
    least, best = math.inf, every[0]
    for candidate in every:
        error = _error_at(request, candidate, request.most_epsilon0)
        if error < least:
            least, best = error, candidate
    return Reach(Z95 * least, best.title, _devices(request, best, least))


def _error_at(
    request: Request, candidate: Candidate, epsilon0: float, n: int | None = None
) -> float:
    """The standard error; infinite where there is no such mechanism."""
    try:
        mechanism = candidate.build(min(epsilon0, request.most_epsilon0))
        return ranked(request.question, mechanism, candidate.domain, n or request.n)
    except ShoalError:
        return math.inf


def _devices(request: Request, best: Candidate, least: float) -> int | None:
    """How many there must be for the error; of counts and sums the same share of all of them."""
    error = request.error or math.nan
    of_all = request.question.unit == "devices" or request.question.what == "sum"
    n = request.n
    for _ in range(4):
        if not math.isfinite(least) or n > MOST_DEVICES:
            return None
        wanted = error * n / request.n if of_all else error
        if least <= wanted:
            return n
        n = math.ceil(n * (least / wanted) ** 2 * 1.001)
        least = _error_at(request, best, request.most_epsilon0, n)
    return None

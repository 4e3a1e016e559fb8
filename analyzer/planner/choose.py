"""``plan_window``: the mechanism and its integers for the shuffled guarantee, and how all others
compare.

For every candidate the largest epsilon0 is found whose certificate keeps the central target at the
smallest batch (or, with an error as target, the smallest epsilon0 that reaches it, and what that
costs centrally), and its error is predicted. The least error wins; errors within 0.5 % are alike,
and then the smaller report does. Candidates that provably can't win are searched coarsely, and
still listed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from shoal.accounting.accountant import proves, simplest, upper_bound
from shoal.accounting.guarantee import Guarantee
from shoal.accounting.numerics.curve import QUICK_EFFORT
from shoal.accounting.of_task import guaranteed
from shoal.accounting.solving.solve import smallest_n
from shoal.analyzer.planner.candidates import Candidate, candidates
from shoal.analyzer.planner.order import TellProgress, compare_all
from shoal.analyzer.planner.predict import frame_bytes, least, predict, ranked
from shoal.analyzer.planner.question import Frequencies, Quantiles, Request, wrong
from shoal.analyzer.planner.reasons import ALIKE, every_reason, over_limits, times, why_it_loses
from shoal.analyzer.planner.repeated import repeated
from shoal.analyzer.planner.result import Option, Plan, Standing
from shoal.analyzer.planner.search import guess, largest, smallest
from shoal.domain import Domain
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Mechanism
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.privacy import KaryLaw, epsilon0_upper
from shoal.task import MechanismSpec

# A setting whose other integers are the same from so far below a proven epsilon0 to just above it
# is taken not to jump thereabouts.
_WIDER = 1.1
# Of numbers there are hundreds of candidates, a family with every number of levels: those that err
# by more than this, even at an epsilon0 above what is proven, get no row of their own.
_BEATEN = 1.2
NOT_FORESEEN = (
    "its quantiles' errors are drawn and not computed: ask for an epsilon instead of an error "
    "(shoal plan quantiles --epsilon)"
)
_AHEAD = 1.05


def plan_window(request: Request, tell: TellProgress | None = None) -> Plan:
    """``total.plan`` for a target that is of one window."""
    every, unsuited = candidates(request)
    comparison = _Comparison(request)
    compare_all(comparison, every, tell)
    places = {candidate: place for place, candidate in enumerate(every)}
    options = sorted(comparison.options, key=lambda option: places[option.candidate])
    tried = [option for option in options if option.errors is not None]
    if not tried:
        why = every_reason(options)
        raise wrong(f"nothing can be planned within these limits: {why}")
    choice = chosen(request, tried)
    choice, guarantee = certified(request, choice)
    others = sorted(
        (option for option in tried if option.candidate != choice.candidate),
        key=partial(_rank, request),
    )
    losers = tuple(
        replace(option, reason=why_it_loses(option, choice, request)) for option in others
    )
    rest = tuple(option for option in options if option.errors is None)
    return Plan(
        request,
        choice,
        guarantee,
        (*losers, *rest),
        unsuited,
        least_batch(request, choice),
        repeated(request, choice),
    )


def compared(request: Request, candidate: Candidate) -> Option:
    """One candidate by itself, for a request that names an error: nothing depends on the others."""
    return _Comparison(request).add(candidate)


@dataclass(slots=True)
class _Comparison:
    """Options so far, and the best error (or epsilon, where an error is the target) among those
    that were searched to the end.
    """

    request: Request
    options: list[Option]
    best: float
    # (family, setting or "") -> the epsilon0 found last, to start the next search from
    near: dict[tuple[str, str], float]
    # integers at a common epsilon0 -> whose they were first
    seen: dict[tuple[MechanismSpec, Domain], str]

    foreseen: dict[tuple[Candidate, float], float]  # errors at epsilon0s that nothing was proven of
    errors: dict[tuple[MechanismSpec, Domain], float]

    def __init__(self, request: Request) -> None:
        self.request, self.options, self.best, self.near, self.seen = request, [], math.inf, {}, {}
        self.foreseen, self.errors = {}, {}

    @property
    def best_levels(self) -> int:
        """How many cells but "no answer" the best so far has; 16 if there is none."""
        best = self._best()
        return best.candidate.domain.size - 1 if best else 16

    @property
    def best_epsilon0(self) -> float:
        """That of the best so far; a guess if there is none."""
        best = self._best()
        return (
            best.epsilon0
            if best
            else guess(self.request.epsilon or 1.0, self.request.delta, self.request.n_honest)
        )

    def _best(self) -> Option | None:
        seen = [option for option in self.options if option.errors is not None and option.settled]
        return min(seen, key=partial(_rank, self.request)) if seen else None

    def promising(self, every: tuple[Candidate, ...]) -> list[Candidate]:
        """In the order of their errors at one and the same guessed epsilon0: an early good one
        saves the others' searches.
        """
        request = self.request
        if request.epsilon is None:
            return list(every)
        common = min(guess(request.epsilon, request.delta, request.n_honest), request.most_epsilon0)

        def error(candidate: Candidate) -> float:
            try:
                return ranked(
                    request.question, candidate.build(common), candidate.domain, request.n
                )
            except ShoalError:
                return math.inf

        return sorted(every, key=error)

    def expected(self, candidate: Candidate, epsilon0: float) -> float:
        """Its error at an epsilon0 that nothing was proven of; infinite where there is no
        mechanism.
        """
        key = candidate, epsilon0
        if key not in self.foreseen:
            try:
                mechanism = candidate.build(min(epsilon0, most_epsilon0(self.request, candidate)))
                self.foreseen[key] = self._error(candidate, mechanism)
            except ShoalError as error:
                if error.kind is not Kind.INVALID:
                    raise
                self.foreseen[key] = math.inf
        return self.foreseen[key]

    def add(self, candidate: Candidate) -> Option:
        try:
            option = self._compared(candidate)
        except ShoalError as error:
            if error.kind is not Kind.INVALID:
                raise
            option = Option(candidate, Standing.IMPOSSIBLE, str(error))
        self.options.append(option)
        if option.errors is not None and option.settled:
            self.best = min(self.best, _rank(self.request, option))
        return option

    def skip(self, option: Option) -> None:
        self.options.append(option)

    def _compared(self, candidate: Candidate) -> Option:
        request = self.request
        limit = self._limit(self._any(candidate))
        if limit:
            return Option(candidate, Standing.OVER_LIMIT, limit)
        if request.epsilon is not None:
            return self._for_epsilon(candidate, request.epsilon)
        return self._for_error(candidate, request.error or math.nan)

    def _any(self, candidate: Candidate) -> Mechanism:
        """The mechanism of some epsilon0: of one that is looked at anyway, if there is one. Raises
        INVALID.
        """
        request, most = self.request, most_epsilon0(self.request, candidate)
        floor = min(request.epsilon or 1.0, most)
        if request.epsilon is not None and not isinstance(request.question, Frequencies):
            try:
                return candidate.build(
                    min(max(self._start(candidate, request.epsilon), floor) * _AHEAD, most)
                )
            except ShoalError:
                pass
        return candidate.build(floor)

    def _limit(self, mechanism: Mechanism) -> str:
        """Why a report may not be so large; "" if it may. Sizes don't depend on epsilon0."""
        if self.request.memoized and mechanism.messages != 1:
            return f"a report has {mechanism.messages} messages, and only one may be memoized"
        limit = over_limits(mechanism.messages, mechanism.report_size, self.request)
        if limit:
            return limit
        try:
            frame_bytes(mechanism)
        except ShoalError as error:
            return str(error)
        return ""

    def _error(self, candidate: Candidate, mechanism: Mechanism) -> float:
        """Of one mechanism worked out once: a search asks for that of both ends at every step."""
        key = mechanism.spec, candidate.domain
        if key not in self.errors:
            request = self.request
            self.errors[key] = ranked(request.question, mechanism, candidate.domain, request.n)
        return self.errors[key]

    def _start(self, candidate: Candidate, target: float) -> float:
        """An epsilon0 near the one that is looked for: that of its setting with other levels, of
        its family, or a guess.
        """
        near = self.near.get((candidate.mechanism, candidate.setting)) or self.near.get(
            (candidate.mechanism, "")
        )
        return near or guess(target, self.request.delta, self.request.n_honest)

    def twin(self, candidate: Candidate) -> str:
        """The title of another one that was looked at and has the same integers at a common
        epsilon0; "" if there is none.
        """
        request = self.request
        common = min(
            guess(request.epsilon or 1.0, request.delta, request.n_honest), request.most_epsilon0
        )
        try:
            spec = candidate.build(common).spec
        except ShoalError:
            return ""
        if not spec.parameters:
            return ""
        first = self.seen.setdefault((spec, candidate.domain), candidate.title)
        return first if first != candidate.title else ""

    def twin_of(self, option: Option) -> str:
        """The same by the integers that reach an error: others tell nothing of it."""
        alike = (
            each.candidate.title
            for each in self.options
            if each is not option
            and option.spec is not None
            and (each.spec, each.candidate.domain) == (option.spec, option.candidate.domain)
        )
        return next(alike, "")

    def _beaten(self, candidate: Candidate, start: float, target: float) -> Option | None:
        """That a candidate loses by far, seen without a search: at the largest epsilon0 allowed, or
        at one that is not proven.
        """
        request = self.request
        if isinstance(request.question, Frequencies) or not math.isfinite(self.best):
            return None
        most = most_epsilon0(request, candidate)
        ahead = min(max(start, target) * _AHEAD, most)
        for epsilon0, what in (
            (ahead, f"even at an epsilon0 of {ahead:.4g}, above what is proven,"),
            (most, "at any epsilon0"),
        ):
            try:
                mechanism = candidate.build(epsilon0)
            except ShoalError:
                continue
            error = least(request.question, mechanism, candidate.domain, request.n)
            if error <= self.best * _BEATEN:
                error = self._error(candidate, mechanism)
            if error <= self.best * _BEATEN:
                return None
            if epsilon0 < most and proves(
                simplest(mechanism.privacy()),
                request.n_honest,
                request.delta,
                target,
                QUICK_EFFORT,
            ):
                continue
            reason = f"{what} its error is at least {times(error / self.best)} as large"
            return Option(candidate, Standing.BEATEN, reason, best_case=error, settled=False)
        return None

    def _for_epsilon(self, candidate: Candidate, target: float) -> Option:
        request, key = self.request, (candidate.mechanism, candidate.setting)
        most = most_epsilon0(request, candidate)
        start = self._start(candidate, target)
        beaten = self._beaten(candidate, start, target)
        if beaten is not None:
            return beaten
        largest_epsilon0 = largest(
            candidate,
            target,
            request.delta,
            request.n_honest,
            most=most,
            start=start,
            beaten=lambda mechanism: self._error(candidate, mechanism) > self.best * (1.0 + ALIKE),
        )
        self.near[key] = self.near[key[0], ""] = largest_epsilon0.epsilon0
        option = _option(request, candidate, largest_epsilon0.epsilon0, target)
        if largest_epsilon0.settled or option.errors is None:
            return option
        floor = min(target, most)
        ends = [
            candidate.build(epsilon0)
            for epsilon0 in (max(largest_epsilon0.epsilon0 / _WIDER, floor), largest_epsilon0.above)
        ]
        jumps = len({_small_integers(mechanism) for mechanism in ends}) > 1
        best_case = (
            math.nan if jumps else min(option.errors.ranked, self._error(candidate, ends[-1]))
        )
        return replace(option, settled=False, best_case=best_case)

    def _for_error(self, candidate: Candidate, error: float) -> Option:
        request, most = self.request, most_epsilon0(self.request, candidate)
        if isinstance(request.question, Quantiles) and not foreseen(candidate):
            raise ShoalError(Kind.INVALID, NOT_FORESEEN)
        epsilon0 = smallest(
            candidate, lambda mechanism: self._error(candidate, mechanism) <= error, most=most
        )
        if epsilon0 is None:
            reason = f"its error stays above {error:g} up to epsilon0 = {most:g}"
            return Option(candidate, Standing.IMPOSSIBLE, reason)
        law = simplest(candidate.build(epsilon0).privacy())
        bound, _ = upper_bound(law, request.n_honest, request.delta, QUICK_EFFORT)
        return _option(request, candidate, epsilon0, bound)


def foreseen(candidate: Candidate) -> bool:
    """Whether errors of quantiles can be computed at every epsilon0: of k-ary responses. What is
    decoded by EM says the middle of the range at epsilon 0, whatever devices answer, and would look
    exact under a shape whose quantile lies there.
    """
    return isinstance(simplest(candidate.build(1.0).privacy()), KaryLaw)


def most_epsilon0(request: Request, candidate: Candidate) -> float:
    """The largest epsilon0 of one report that devices accept: in a memoized task they go by what is
    kept, the lifetime epsilon of a mechanism with a memory. Raises INVALID where the setting has no
    mechanism at the epsilon0 asked for.
    """
    most = request.most_epsilon0
    if not request.memoized or not isinstance(
        candidate.build(min(request.epsilon or 1.0, most)), Longitudinal
    ):
        return most
    while isinstance(mechanism := candidate.build(most), Longitudinal):
        lifetime = epsilon0_upper(mechanism.permanent())
        if lifetime <= request.most_epsilon0:
            break
        most *= request.most_epsilon0 / lifetime * (1.0 - 1e-12)
    return most


def _small_integers(mechanism: Mechanism) -> tuple[int, ...]:
    """The integers of a mechanism that are no probabilities: numbers of hash values, of blocks, of
    values in a subset.
    """
    return tuple(value for _, value in mechanism.spec.parameters if value < 1 << 32)


def _option(
    request: Request, candidate: Candidate, epsilon0: float, epsilon_upper: float
) -> Option:
    mechanism = candidate.build(epsilon0)
    errors = predict(request.question, mechanism, candidate.domain, request.n)
    return Option(
        candidate,
        Standing.LOSES,
        "",
        spec=mechanism.spec,
        epsilon0=epsilon0_upper(mechanism.privacy()),
        epsilon_upper=epsilon_upper,
        errors=errors,
        best_case=errors.ranked,
        messages=mechanism.messages,
        message_bytes=mechanism.report_size,
        frame_bytes=frame_bytes(mechanism),
    )


def _rank(request: Request, option: Option) -> float:
    if option.errors is None:
        return math.inf
    return option.epsilon_upper if request.epsilon is None else option.errors.ranked


def chosen(request: Request, tried: list[Option]) -> Option:
    """Of those that are as good as the best, the smallest report; then the first in the registry's
    order, which is that of ``tried``.
    """
    settled = [option for option in tried if option.settled]
    least = min(_rank(request, option) for option in settled)
    alike = [option for option in settled if _rank(request, option) <= least * (1.0 + ALIKE)]
    return min(alike, key=lambda option: (option.report_bytes, option.messages))


def certified(request: Request, choice: Option) -> tuple[Option, Guarantee]:
    """The choice with the certificate that a task's lint will compute. Its bound is an inversion,
    and may stop 1e-9 above what one evaluation proved: then epsilon0 is lowered by as little as is
    needed.
    """
    candidate, epsilon0, step = choice.candidate, choice.epsilon0, 1e-9
    while True:
        law = candidate.build(epsilon0).privacy()
        guarantee = guaranteed(law, request.min_batch, request.honest_fraction, request.delta)
        if request.epsilon is None or guarantee.epsilon_upper <= request.epsilon:
            option = _option(request, candidate, epsilon0, guarantee.epsilon_upper)
            return replace(
                option,
                standing=Standing.CHOSEN,
                reason="least error" if request.epsilon else "least epsilon",
            ), guarantee
        # A report of the target's own epsilon needs no shuffling: there it ends.
        epsilon0, step = (
            max(epsilon0 * (1.0 - step), min(request.epsilon, most_epsilon0(request, candidate))),
            step * 4.0,
        )


def least_batch(request: Request, choice: Option) -> int:
    """The smallest min_batch for the target; where epsilon0 was not capped that is the batch that
    it was chosen for.
    """
    if request.epsilon is None or choice.epsilon0 < most_epsilon0(request, choice.candidate) * (
        1.0 - 1e-3
    ):
        return request.min_batch
    law = choice.candidate.build(choice.epsilon0).privacy()
    smallest = smallest_n(
        law, request.epsilon, request.delta, honest_fraction=request.honest_fraction
    )
    return max(2, min(smallest, request.min_batch))

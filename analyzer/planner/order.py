"""In which order candidates are compared, and which of them need not be.

Numbers (means, sums, quantiles) may be cut into any number of levels, so a family has dozens of
candidates for every setting.

k-ary responses, which are cheap, are looked at with all numbers of levels for quantiles. For means
and sums it is those of a grid, whose neighbours differ by a quarter at most, and then every number
between the neighbours of the best: errors fall and then rise with it.

For the others, whose tables take long to certify, a few numbers of levels are tried first. A finer
table has about the epsilon0 of a coarser one, or far less beyond the size up to which the
accountant looks into tables: so its error at the epsilon0 of the next coarser one that was tried,
which costs no certificate, tells whether it can win. Those that can are tried, the least of these
errors first, until none is left. (With an error as target, and for quantiles: those near the best
probe.) The rest are listed as not tried, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from shoal.analyzer.planner.candidates import Candidate
from shoal.analyzer.planner.question import Frequencies, Mean, Quantiles, Request
from shoal.analyzer.planner.reasons import ALIKE, times
from shoal.analyzer.planner.result import Option, Standing
from shoal.domain import Numeric
from shoal.errors import ShoalError
from shoal.privacy import KaryLaw

# (candidates done, of how many, what comes next)
TellProgress = Callable[[int, int, str], None]

_MANY = 8  # numbers of levels: fewer are all tried
# Neighbours differ by a quarter at most from 4 on, which costs a k-ary response less than 2 % near
# its best.
_GRID = {2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 36, 40, 48, 56, 64}
_GRID |= {80, 96, 112, 128, 160, 192, 224, 256}
_BETWEEN = 1.03  # of the best: then the numbers between those of the grid are tried
_PROBES = {2, 4, 8, 16, 32, 64, 128}
_TRIES = 8  # beyond the probes of a setting
_UNSETTLED = 1.02  # how far an epsilon0 may be above what an unsettled search stopped at
_FINER = 1.5  # what sends more than a level errs least at more levels than the best so far
_REACH = 2.1
_NEAR = 1.05  # of the best: then all numbers of levels are tried
_SLOW = 24.0
_FAR = 1.15  # two probes that err by so much end a setting's trial
_ENOUGH = 2
_ENOUGH_FORESEEN = 3  # on both sides of the best so far


class Comparison(Protocol):
    """What the order of trials asks of a comparison of candidates: ``choose`` has the one that is
    used. ``best``: the least rank so far, infinite before any candidate did what is asked.
    """

    request: Request
    best: float

    @property
    def best_levels(self) -> int:
        """Cells but "no answer" of the best so far; a guess if there is none."""
        ...

    @property
    def best_epsilon0(self) -> float:
        """That of the best so far; a guess if there is none."""
        ...

    def promising(self, every: tuple[Candidate, ...]) -> list[Candidate]:
        """The same candidates, those first that are expected to err least."""
        ...

    def twin(self, candidate: Candidate) -> str:
        """The title of another one that was looked at and has the same integers near a target
        epsilon; "" if there is none.
        """
        ...

    def twin_of(self, option: Option) -> str:
        """The same for what reached a target error, with the integers that reach it."""
        ...

    def expected(self, candidate: Candidate, epsilon0: float) -> float:
        """The error at an epsilon0 that nothing was proven of; infinite where there is no
        mechanism.
        """
        ...

    def add(self, candidate: Candidate) -> Option:
        """Compare the candidate, and keep what came of it; one that cannot do what is asked is
        IMPOSSIBLE.
        """
        ...

    def skip(self, option: Option) -> None:
        """Keep a candidate that was not compared, with its reason."""
        ...


def compare_all(
    comparison: Comparison, every: tuple[Candidate, ...], tell: TellProgress | None
) -> None:
    """Every candidate is added to the comparison, or skipped with its reason."""
    first = _cheap(comparison.request, every)
    done = 0

    def next_is(candidate: Candidate) -> None:
        nonlocal done
        if tell is not None:
            tell(done, len(every), candidate.title)
        done += 1

    cheap = tuple(candidate for candidate in every if candidate in first)
    on_grid = _on_grid(comparison.request, cheap)
    tried: dict[tuple[str, str], list[Option]] = {}
    for candidate in comparison.promising(on_grid):
        next_is(candidate)
        tried.setdefault((candidate.mechanism, candidate.setting), []).append(
            comparison.add(candidate)
        )
    off_grid = set(cheap).difference(on_grid)
    for key, options in tried.items():
        rest = [
            other
            for other in cheap
            if other in off_grid and (other.mechanism, other.setting) == key
        ]
        _compare_between(comparison, options, rest, next_is)
    groups: dict[tuple[str, str, type], list[Candidate]] = {}
    for candidate in every:
        if candidate not in first:
            groups.setdefault(
                (candidate.mechanism, candidate.setting, type(candidate.domain)), []
            ).append(candidate)
    for group in groups.values():
        _compare_levels(comparison, group, next_is)
    if tell is not None:
        tell(len(every), len(every), "")


def _cheap(request: Request, every: tuple[Candidate, ...]) -> set[Candidate]:
    """Those of which all are compared."""
    question = request.question
    if isinstance(question, Frequencies) or len(question.levels) <= _MANY:
        return set(every)
    kary: dict[str, bool] = {}  # by the first candidate of each family, which has the fewest levels
    for candidate in every:
        if candidate.mechanism not in kary:
            kary[candidate.mechanism] = _is_kary(candidate)
    return {candidate for candidate in every if kary[candidate.mechanism]}


def _on_grid(request: Request, cheap: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Of means and sums those of which each setting is tried first; all where the grid holds none
    of a setting.
    """
    if not isinstance(request.question, Mean) or len(request.question.levels) <= _MANY:
        return cheap
    held = {
        (candidate.mechanism, candidate.setting)
        for candidate in cheap
        if _levels(candidate) in _GRID
    }
    return tuple(
        candidate
        for candidate in cheap
        if _levels(candidate) in _GRID or (candidate.mechanism, candidate.setting) not in held
    )


def _compare_between(
    comparison: Comparison,
    tried: list[Option],
    rest: list[Candidate],
    next_is: Callable[[Candidate], None],
) -> None:
    """Those of ``rest`` whose numbers of levels lie between the tried neighbours of the best of
    ``tried``.
    """
    least = min(tried, key=lambda option: _ratio(option, comparison))
    near, middle = _ratio(least, comparison) <= _BETWEEN, _levels(least.candidate)
    numbers = [_levels(option.candidate) for option in tried]
    below = max((number for number in numbers if number < middle), default=0)
    above = min((number for number in numbers if number > middle), default=math.inf)
    for candidate in rest:
        next_is(candidate)
        if near and below < _levels(candidate) < above:
            comparison.add(candidate)
        else:
            reason = (
                _why_not([least], comparison)
                if not near
                else f"{middle} levels err least, and the numbers near it were tried"
            )
            comparison.skip(Option(candidate, Standing.NOT_TRIED, reason))


def _is_kary(candidate: Candidate) -> bool:
    try:
        return isinstance(candidate.build(1.0).privacy(), KaryLaw)
    except ShoalError:
        return False


def _compare_levels(
    comparison: Comparison, group: list[Candidate], next_is: Callable[[Candidate], None]
) -> None:
    """One setting with many numbers of levels."""
    middle = _FINER * comparison.best_levels
    if isinstance(comparison.request.question, Quantiles):
        middle = min(middle, _SLOW)  # decoders take long with many levels
    probes = [each for each in group if _levels(each) in _PROBES] or group
    probes.sort(key=lambda each: abs(math.log(_levels(each) / middle)))
    tried: list[Option] = []
    foreseen = (
        isinstance(comparison.request.question, Mean) and comparison.request.epsilon is not None
    )
    far = 0
    for candidate in probes:
        if foreseen and tried and _expected(comparison, candidate, tried) > _FAR:
            far += 1
            if far >= _ENOUGH_FORESEEN:
                break
            continue
        next_is(candidate)
        if comparison.request.epsilon is not None and (twin := comparison.twin(candidate)):
            _skip_like(comparison, [candidate], group, tried, twin)
            return
        tried.append(comparison.add(candidate))
        if comparison.request.epsilon is None and (twin := comparison.twin_of(tried[-1])):
            _skip_like(comparison, [], group, tried, twin)
            return
        far += _ratio(tried[-1], comparison) > _FAR
        if foreseen and far >= _ENOUGH_FORESEEN:
            break
        if (
            not foreseen
            and len(tried) >= _ENOUGH
            and min(_ratio(option, comparison) for option in tried) > _FAR
        ):
            break
    if foreseen:
        _compare_foreseen(comparison, tried, group, next_is)
    else:
        _compare_near(comparison, tried, group, next_is)


def _skip_like(
    comparison: Comparison,
    alike: list[Candidate],
    group: list[Candidate],
    tried: list[Option],
    twin: str,
) -> None:
    """The rest of a setting of which one, ``alike`` or tried last, has the integers of ``twin``."""
    seen = {option.candidate for option in tried}
    for other in (*alike, *(one for one in group if one not in seen and one not in alike)):
        like = twin if other in alike else twin.partition(",")[0]
        reason = f"near this target, the same integers as {like}"
        comparison.skip(Option(other, Standing.NOT_TRIED, reason))


def _compare_near(
    comparison: Comparison,
    tried: list[Option],
    group: list[Candidate],
    next_is: Callable[[Candidate], None],
) -> None:
    """Those near the best of ``tried``, where that comes near the best so far."""
    least = min(_ratio(option, comparison) for option in tried)
    middle = _levels(min(tried, key=lambda option: _ratio(option, comparison)).candidate)
    seen = {option.candidate for option in tried}
    rest = [candidate for candidate in group if candidate not in seen]
    on_grid = set(_on_grid(comparison.request, tuple(rest)))
    for candidate in rest:
        if candidate not in on_grid:
            continue
        next_is(candidate)
        if least <= _NEAR and 1.0 / _REACH <= _levels(candidate) / middle <= _REACH:
            tried.append(comparison.add(candidate))
        else:
            reason = _why_not(tried, comparison)
            comparison.skip(Option(candidate, Standing.NOT_TRIED, reason))
    _compare_between(comparison, tried, [other for other in rest if other not in on_grid], next_is)


def _compare_foreseen(
    comparison: Comparison,
    tried: list[Option],
    group: list[Candidate],
    next_is: Callable[[Candidate], None],
) -> None:
    """Those near the best of ``tried`` that would err less than the best so far at the epsilon0 of
    a coarser one.
    """
    seen = {option.candidate for option in tried}
    rest = [candidate for candidate in group if candidate not in seen]
    best = min(tried, key=lambda option: _ratio(option, comparison))
    near: list[Candidate] = []
    if _ratio(best, comparison) <= _FAR:
        middle = _levels(best.candidate)
        near = [other for other in rest if 1.0 / _REACH <= _levels(other) / middle <= _REACH]
    for _ in range(_TRIES):
        hopes = [
            (_expected(comparison, candidate, tried), number)
            for number, candidate in enumerate(near)
        ]
        hope, number = min(hopes, default=(math.inf, 0))
        if hope >= 1.0:
            break
        candidate = near.pop(number)
        rest.remove(candidate)
        next_is(candidate)
        tried.append(comparison.add(candidate))
    reason = _why_not(tried, comparison)
    for candidate in rest:
        next_is(candidate)
        comparison.skip(Option(candidate, Standing.NOT_TRIED, reason))


def _expected(comparison: Comparison, candidate: Candidate, tried: list[Option]) -> float:
    """Its error, against the best so far, at the epsilon0 of the next coarser one that was tried.

    Where none was: at that of the best so far, or of a finer one if that is larger."""
    number = _levels(candidate)
    known = [option for option in tried if option.errors is not None]
    coarser = [option for option in known if _levels(option.candidate) <= number]
    if coarser:
        like = max(coarser, key=lambda option: _levels(option.candidate))
        epsilon0 = like.epsilon0 * (1.0 if like.settled else _UNSETTLED)
    else:
        epsilon0 = max([comparison.best_epsilon0, *(option.epsilon0 for option in known)])
    return comparison.expected(candidate, epsilon0) / comparison.best


def _why_not(tried: list[Option], comparison: Comparison) -> str:
    best = min(tried, key=lambda option: _ratio(option, comparison))
    ratio = _ratio(best, comparison)
    if not math.isfinite(ratio):
        return best.reason
    numbers = ", ".join(str(_levels(option.candidate)) for option in tried)
    if ratio <= 1.0 + ALIKE:
        return (
            f"of {numbers} levels {_levels(best.candidate)} err least, and those that might err "
            "less were tried"
        )
    return f"with {numbers} levels it errs at least {times(ratio)} as much"


def _levels(candidate: Candidate) -> int:
    return (
        candidate.domain.levels
        if isinstance(candidate.domain, Numeric)
        else candidate.domain.size - 1
    )


def _ratio(option: Option, comparison: Comparison) -> float:
    """What is left at best, against the best seen: of errors, or of epsilons where an error is the
    target.
    """
    if comparison.request.epsilon is None:
        return option.epsilon_upper / comparison.best if option.errors is not None else math.inf
    error = (
        option.best_case
        if math.isfinite(option.best_case) or option.errors is None
        else option.errors.ranked
    )
    return error / comparison.best if math.isfinite(error) else math.inf

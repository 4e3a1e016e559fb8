"""Why an alternative loses, in plain words with its number. Nothing here knows a mechanism by name:
the numbers say what happened.
"""

from __future__ import annotations

import math

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.predict import Errors
from shoal.analyzer.planner.question import Frequencies, Quantiles, Request
from shoal.analyzer.planner.result import Option
from shoal.domain import Numeric

# Errors this close are alike: epsilon0 is searched to 0.05 %, which moves an error by 0.3 % or so.
ALIKE = 5e-3
_MOSTLY = 0.5
_NAMED = 3  # candidates that fail alike, before the others are only counted


def why_it_loses(option: Option, choice: Option, request: Request) -> str:
    """Why ``choice`` was taken and not ``option``, in a phrase: how many times as large its epsilon
    or error is, and whence; an option without errors keeps its own reason.
    """
    if option.errors is None or choice.errors is None:
        return option.reason
    if option.spec == choice.spec and option.candidate.domain == choice.candidate.domain:
        return f"the same integers as {choice.candidate.title}"
    if request.epsilon is None:
        ratio, what = _ratio(option.epsilon_upper, choice.epsilon_upper), "epsilon"
    elif option.settled or math.isnan(option.best_case):
        ratio, what = _ratio(option.errors.ranked, choice.errors.ranked), "error"
    else:
        ratio, what = _ratio(option.best_case, choice.errors.ranked), "error at least"
    if ratio <= 1.0 + ALIKE:
        return _alike(option, choice)
    return f"{what} {times(ratio)} as large: {_source(option, choice, request)}"


def _ratio(value: float, best: float) -> float:
    """1e308 at most: beside an error that vanishes in the floats others are not infinite."""
    return min(value / best, 1e308) if best > 0.0 else 1.0 if value == 0.0 else 1e308


def _alike(option: Option, choice: Option) -> str:
    if option.report_bytes > choice.report_bytes:
        return (
            f"as accurate, but a report is {_bytes(option.report_bytes)}, not "
            f"{_bytes(choice.report_bytes)}"
        )
    if option.messages > choice.messages:
        return f"as accurate, but a report has {option.messages} messages, not {choice.messages}"
    if (
        option.candidate.mechanism == choice.candidate.mechanism
        and option.candidate.domain != choice.candidate.domain
    ):
        return "as accurate: the fewer levels were taken"
    return "as accurate: the one that is registered first was taken"


def _source(option: Option, choice: Option, request: Request) -> str:
    errors = option.errors
    if errors is None or choice.errors is None:
        return option.reason
    if isinstance(request.question, Frequencies):
        if errors.spread >= _MOSTLY:
            return f"{_percent(errors.lost)} of every count is thinned away"
        return f"noise of {errors.light:,.3g} on an empty cell, against {choice.errors.light:,.3g}"
    if isinstance(request.question, Quantiles):
        return _of_quantiles(option, errors, choice)
    if not (
        isinstance(option.candidate.domain, Numeric)
        and isinstance(choice.candidate.domain, Numeric)
    ):
        return "more noise"
    levels, chosen = option.candidate.domain.levels, choice.candidate.domain.levels
    same = option.candidate.mechanism == choice.candidate.mechanism
    if errors.spread >= _MOSTLY or (
        levels < chosen and (same or _rounds_more(errors, choice.errors))
    ):
        return (
            f"rounding to {levels} levels makes {_percent(errors.spread)} of its variance "
            f"({_percent(choice.errors.spread)} with {chosen})"
        )
    if same and levels > chosen:
        return f"{levels} levels spread the randomizer's noise wider than finer rounding saves"
    return (
        f"the randomizer's noise alone is {_noise(errors):,.3g}, against "
        f"{_noise(choice.errors):,.3g}"
    )


def _of_quantiles(option: Option, errors: Errors, choice: Option) -> str:
    size, chosen = option.candidate.domain.size - 1, choice.candidate.domain.size - 1
    if errors.spread >= _MOSTLY:
        return (
            f"{_percent(errors.spread)} of its squared error is bias, which more devices don't mend"
        )
    if option.candidate.mechanism == choice.candidate.mechanism and size > chosen:
        return f"the randomizer's noise is in {size} bins, not in {chosen}"
    if option.candidate.mechanism == choice.candidate.mechanism and size < chosen:
        return f"{size} bins leave more to interpolation than {chosen}"
    return (
        f"more noise in the shares that quantiles are read from ({option.candidate.mechanism} "
        f"against {choice.candidate.mechanism})"
    )


def _noise(errors: Errors) -> float:
    return errors.ranked * math.sqrt(max(0.0, 1.0 - errors.spread))


def _rounds_more(errors: Errors, chosen: Errors) -> bool:
    """Whether rounding makes more of what the variance is above the chosen one's than the
    randomizer's noise does.
    """
    return (
        errors.spread * errors.ranked**2 - chosen.spread * chosen.ranked**2
        > _noise(errors) ** 2 - _noise(chosen) ** 2
    )


def every_reason(options: list[Option]) -> str:
    """Why each of them failed, the titles of those that failed alike together; a line that can be
    read for dozens of them.
    """
    alike: dict[str, list[str]] = {}
    for option in options:
        alike.setdefault(option.reason, []).append(option.candidate.title)
    return "; ".join(f"{_listed(titles)}: {reason}" for reason, titles in alike.items())


def _listed(titles: list[str]) -> str:
    first = ", ".join(titles[:_NAMED])
    return first if len(titles) <= _NAMED else f"{first} and {len(titles) - _NAMED} more"


def over_limits(messages: int, size: int, request: Request) -> str:
    """The limit that a report breaks; "" if none."""
    if messages > request.most_messages:
        return f"{messages} messages per report are above the limit of {request.most_messages}"
    if messages * size > request.most_bytes:
        return (
            f"a report of {_bytes(messages * size)} is above the limit of "
            f"{_bytes(request.most_bytes)}"
        )
    return ""


def times(ratio: float) -> str:
    """ "3.14 times", rounded down: it stands behind "at least" too."""
    if 999.5 <= ratio < 1e9:
        return f"{math.floor(ratio):,} times"
    return f"{bound_text(ratio, up=False, digits=3 if ratio >= 1.02 else 4)} times"


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %" if share < 0.995 else "nearly all"


def _bytes(size: int) -> str:
    return (
        f"{size:,} byte"
        if size == 1
        else f"{size:,} bytes"
        if size < 1024
        else f"{size / 1024:,.3g} KiB"
    )

"""From what an analyst says of a question to the domain of a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from shoal.arrays import np
from shoal.domain import Categories, Domain, Numeric, Words, YesNo
from shoal.limits import LIMITS
from shoal.questions.answers import text_of
from shoal.study.arguments import about, number, whole, wrong_type, wrong_value

LEVELS = 16
_LABELS = "give the possible answers as a list, as ['never', 'weekly', 'daily']"


class QuestionKind(StrEnum):
    """What a question asks for, in the words of a task file."""

    YES_NO = "yes_no"
    CATEGORIES = "categories"
    NUMERIC = "numeric"
    WORDS = "words"


def domain_of_question(
    labels: Iterable[object] | None = None,
    *,
    kind: str | None = None,
    low: object = None,
    high: object = None,
    levels: object = None,
    lower_bounds: Iterable[int] | None = None,
    clip: bool = True,
    unit: str = "",
) -> Domain:
    """The domain. ``kind`` follows from the rest where it is not given: labels make categories, low
    and high a number, nothing at all a yes or no. Errors name the argument.
    """
    which = _kind(kind, labels, low, high)
    _only(which, labels=labels, low=low, high=high, levels=levels, lower_bounds=lower_bounds)
    if which is QuestionKind.YES_NO:
        return YesNo()
    if which is QuestionKind.NUMERIC:
        ends = [
            number(name, end, "give both ends of the range: low=0, high=100")
            for name, end in (("low", low), ("high", high))
        ]
        if not ends[0] < ends[1]:
            raise wrong_value("high", f"give an end above low ({ends[0]:g}), got {ends[1]:g}")
        cut = whole("levels", LEVELS if levels is None else levels, 2, LIMITS.cells - 1)
        if not isinstance(clip, bool):
            raise wrong_type("clip", "give True or False")
        if not isinstance(unit, str):
            raise wrong_type("unit", "give a text, as 'hours', or leave it out")
        with about("low, high"):
            return Numeric(ends[0], ends[1], cut, clip, unit)
    names = _names(labels)
    with about("labels"):
        return (
            Words(names)
            if which is QuestionKind.WORDS
            else Categories(names, _bounds(lower_bounds, names))
        )


def _kind(kind: str | None, labels: object, low: object, high: object) -> QuestionKind:
    kinds = ", ".join(f"'{each}'" for each in QuestionKind)
    if kind is None:
        if labels is not None:
            return QuestionKind.CATEGORIES
        return QuestionKind.YES_NO if low is None and high is None else QuestionKind.NUMERIC
    if not isinstance(kind, str):
        raise wrong_type("kind", f"give one of {kinds}, or leave it out")
    if kind not in set(QuestionKind):
        raise wrong_value("kind", f"give one of {kinds}, or leave it out")
    return QuestionKind(kind)


_TAKES = {
    QuestionKind.YES_NO: frozenset[str](),
    QuestionKind.CATEGORIES: frozenset({"labels", "lower_bounds"}),
    QuestionKind.NUMERIC: frozenset({"low", "high", "levels"}),
    QuestionKind.WORDS: frozenset({"labels"}),
}


def _only(kind: QuestionKind, **given: object) -> None:
    for name, value in given.items():
        if value is not None and name not in _TAKES[kind]:
            raise wrong_value(name, f"it is not for a question of kind '{kind}': leave it out")


def _names(labels: object) -> tuple[str, ...]:
    if isinstance(labels, str | bytes | Mapping) or not isinstance(labels, Iterable):
        raise wrong_type("labels", _LABELS)
    names = []
    for label in labels:
        plain = label.item() if isinstance(label, np.generic) else label
        text = text_of(plain) if isinstance(plain, str | int | float) else None
        if text is None:
            raise wrong_type("labels", f"texts or numbers, none missing (dropna): {_LABELS}")
        names.append(text)
    return tuple(names)


def _bounds(lower_bounds: object, names: tuple[str, ...]) -> tuple[int, ...]:
    if lower_bounds is None:
        return ()
    if isinstance(lower_bounds, str) or not isinstance(lower_bounds, Iterable):
        raise wrong_type("lower_bounds", "give a list of whole numbers, one per label")
    bounds = tuple(whole("lower_bounds", each, -(1 << 53), 1 << 53) for each in lower_bounds)
    with about("lower_bounds"):
        Categories(names, bounds)
    return bounds

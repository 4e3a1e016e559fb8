"""From answers to the cells of a question: the same law as a device's ``encode``, for many people
at once.
"""

from __future__ import annotations

from shoal.arrays import NDArray, np
from shoal.domain import Domain, Numeric, Vector
from shoal.entropy import Entropy
from shoal.mechanisms.parts.sampling import bernoulli
from shoal.questions.answers import Value
from shoal.study.arguments import wrong_value
from shoal.study.columns import Column


def cells_of(
    domain: Domain, column: Column, entropy: Entropy, *, unknown_is_missing: bool = False
) -> NDArray[np.int64]:
    """int64[n]. A missing answer has the cell of "no answer" (of a yes/no question: "no").

    Raises an error about ``values`` for answers that the question does not know, unless they count
    as missing too. It says how many there are and where the first one stands, never what it is.
    """
    if isinstance(domain, Numeric):
        numbers = numbers_of(domain, column, unknown_is_missing=unknown_is_missing)
        return levels_of(domain, numbers, entropy)
    values = column.values if column.floats is None else _whole(column.floats)
    known: dict[tuple[type, Value], tuple[int, bool]] = {}
    for key in {(type(value), value) for value in values}:
        known[key] = domain.encode(key[1]), key[1] is None or domain.understands(key[1])
    found = [known[type(value), value] for value in values]
    _refuse(domain, np.array([not each for _, each in found]), unknown_is_missing)
    return np.array([cell for cell, _ in found], dtype=np.int64)


def numbers_of(
    domain: Numeric, column: Column, *, unknown_is_missing: bool = False
) -> NDArray[np.float64]:
    """float64[n]: the numbers as they count, NaN for a missing answer: one beyond the range is
    moved to its end, or is missing where the domain does not clip. Raises as ``cells_of``.
    """
    floats, strange = _numbers(domain, column)
    _refuse(domain, strange, unknown_is_missing)
    answered = np.isfinite(floats)
    if not domain.clip:
        answered &= (floats >= domain.low) & (floats <= domain.high)
    return np.where(answered, np.clip(floats, domain.low, domain.high), np.nan)


def _refuse(domain: Domain, strange: NDArray[np.bool_], unknown_is_missing: bool) -> None:
    if strange.any() and not unknown_is_missing:
        accepted = "" if isinstance(domain, Vector) else f"give {domain.accepted}, "
        raise wrong_value(
            "values",
            f"{int(strange.sum()):,} of {strange.size:,} are no answer to this question, the first "
            f"at position {int(strange.argmax())}: {accepted}None for a missing answer, or "
            "unknown='missing'",
        )


def levels_of(domain: Numeric, values: NDArray[np.float64], entropy: Entropy) -> NDArray[np.int64]:
    """int64[n]: each number at a level beside it, rounded at random as ``Numeric.encode`` does; NaN
    has no answer.
    """
    answered = np.isfinite(values)
    if not domain.clip:
        answered &= (values >= domain.low) & (values <= domain.high)
    inside = np.where(answered, np.clip(values, domain.low, domain.high), domain.low)
    places = (inside - domain.low) / domain.step
    below = np.minimum(places.astype(np.int64), domain.levels - 1)
    up = bernoulli(((places - below) * 2.0**64).astype(np.uint64), entropy)
    cells = np.minimum(below + up, domain.levels - 1)
    return np.where(answered, cells, domain.levels)


def _numbers(domain: Numeric, column: Column) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """float64[n] with NaN for a missing answer, and which answers are no numbers."""
    if column.floats is not None:
        return column.floats, np.isinf(column.floats)
    numbers = np.full(len(column.values), np.nan)
    strange = np.zeros(len(column.values), dtype=np.bool_)
    always = Numeric(domain.low, domain.high, domain.levels)  # a number beyond the range is one
    for at, value in enumerate(column.values):
        if value is None:
            continue
        if always.understands(value):
            numbers[at] = _float(value)
        else:
            strange[at] = True
    return numbers, strange


def _float(value: Value) -> float:
    from shoal.questions.answers import number_of

    try:
        return float(number_of(value) or 0)
    except OverflowError:  # a whole number beyond every range
        return np.finfo(np.float64).max * (-1.0 if int(str(value).split(".")[0]) < 0 else 1.0)


def _whole(floats: NDArray[np.float64]) -> list[Value]:
    """Numbers as values: whole ones as integers, as a column with missing answers had them."""
    return [
        None if np.isnan(value) else int(value) if float(value).is_integer() else float(value)
        for value in floats.tolist()
    ]

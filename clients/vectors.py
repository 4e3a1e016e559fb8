"""A vector that one device answers with: from what its owner, or a source, gives to the integers
that are randomized. Until then it is kept as its text, a JSON list, as every other value is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from shoal.arrays import NDArray, np
from shoal.clients.owner.rules import Rule
from shoal.domain import Value, Vector
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.quantize import check_vector, quantize
from shoal.task import Task

VectorValue: TypeAlias = "Value | Sequence[float] | NDArray[np.float64]"


def read_vector(value: VectorValue) -> Sequence[float] | NDArray[np.float64] | None:
    """A vector as the owner gives it: numbers, their text as a JSON list, or None for no answer.
    Raises INVALID.
    """
    numbers: object = value
    if isinstance(value, str):
        try:
            numbers = json.loads(value)
        except (ValueError, RecursionError):
            numbers = value
    if numbers is None:
        return None
    if isinstance(numbers, np.ndarray) or (
        isinstance(numbers, Sequence) and not isinstance(numbers, str | bytes)
    ):
        return numbers
    raise ShoalError(
        Kind.INVALID, "this task asks for a vector: give a list of numbers, as text [1.5, 0, -2]"
    )


def settle_vector(
    rules: Iterable[Rule], task: Task, domain: Vector, value: VectorValue, otherwise: str | None
) -> Value:
    """The vector as a JSON list; None, which is the zero vector, for no answer and where a rule
    concerns the task: rules are for single answers, and none may be passed by.

    What is no vector of the task's (another length, NaN, infinity, no numbers) is refused where
    somebody typed it (``otherwise`` None), INVALID, and is no answer where a device reads it by
    itself. Never quotes the value.
    """
    if any(rule.concerns(task) for rule in rules):
        return None
    try:
        numbers = read_vector(value)
        if numbers is None:
            return None
        return json.dumps(check_vector(numbers, domain).tolist())
    except ShoalError as error:
        if error.kind is not Kind.INVALID or otherwise is None:
            raise
        return None


def quantized(domain: Vector, value: Value, entropy: Entropy) -> NDArray[np.int64]:
    """int64[dimension]: the text of ``settle_vector`` clipped and rounded to the domain's grid, at
    random and without bias. Raises INVALID for another text.
    """
    return quantize(read_vector(value), domain, entropy).vector

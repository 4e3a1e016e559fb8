"""What a window of sums cost, as bytes, so that it can be composed with later windows without its
task's file: the noise and the bounds that its certificate rests on.

Layout: version (1 byte, 2), then four whole numbers in decimal, with a space between: numerator and
denominator of the variance, d1, d2 squared (``skellam.SkellamRound``). Exact; equal rounds have
equal bytes. The version differs from that of a law of losses (``composition.loss_bytes``), so that
neither is taken for the other.
"""

from __future__ import annotations

from fractions import Fraction

from shoal.accounting.sums.pairwise import SKELLAM, Shift
from shoal.accounting.sums.skellam import SkellamRound
from shoal.accounting.sums.sum_task import check_sum
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.quantize import bounds
from shoal.task import Task

_VERSION = b"\x02"
_MOST = 400  # bytes: numbers of a task have 20 digits, their squares 40
_NUMBERS = 4


def spent_by(task: Task) -> bytes | None:
    """What every window of the task costs, at the honest survivors that it guarantees; None for
    noise whose windows compose no better than their epsilons. Raises as ``check_sum`` does.
    """
    certificate = check_sum(task)
    if task.mechanism.name != SKELLAM:
        return None
    shift = Shift.of(bounds(task.domain), task.domain.size)  # type: ignore[arg-type] # a vector
    have = Fraction(certificate.honest, task.mechanism.get("shares"))
    variance = task.mechanism.get("variance") * have
    return to_bytes(SkellamRound(variance, shift.l1, shift.l2_squared))


def to_bytes(spent: SkellamRound) -> bytes:
    """The round, exactly."""
    numbers = (spent.variance.numerator, spent.variance.denominator, spent.d1, spent.d2_squared)
    return _VERSION + " ".join(map(str, numbers)).encode()


def from_bytes(data: bytes) -> SkellamRound | None:
    """The round that ``to_bytes`` wrote; None for bytes of another kind. Raises INVALID for bytes
    of this kind that are none.
    """
    if data[:1] != _VERSION:
        return None
    numbers = data[1:].split(b" ")
    if len(data) > _MOST or len(numbers) != _NUMBERS or not all(map(bytes.isdigit, numbers)):
        raise _bad()
    above, below, d1, d2_squared = map(int, numbers)
    if min(above, below, d1, d2_squared) < 1:
        raise _bad()
    return SkellamRound(Fraction(above, below), d1, d2_squared)


def _bad() -> ShoalError:
    return ShoalError(Kind.INVALID, "these bytes do not say what a window of sums cost")

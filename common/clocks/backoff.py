"""Pauses between attempts that fail: one rule for devices, services and connections."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.entropy import Entropy, uniform
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

_MOST_DOUBLINGS = 60  # beyond this 2.0 ** n times any first pause is longer than any longest one


@dataclass(frozen=True, slots=True)
class Backoff:
    """The length of a pause doubles from ``first_s`` to ``most_s``; a pause is uniform on
    [least * length, largest * length), so that those who failed together don't come back together.

    ``least``: 0 is full jitter; ``largest`` is above 1 where ``most_s`` is a mean. ``obeyed_s``:
    the longest pause that a failure may ask for. Raises INVALID unless 0 < first_s <= most_s,
    0 <= least <= largest and obeyed_s >= 0.
    """

    first_s: float
    most_s: float
    least: float = 0.0
    largest: float = 1.0
    obeyed_s: float = LIMITS.retry_after_most_s

    def __post_init__(self) -> None:
        if not (0.0 < self.first_s <= self.most_s and 0.0 <= self.least <= self.largest):
            raise ShoalError(
                Kind.INVALID, "a backoff wants 0 < first_s <= most_s, and 0 <= least <= largest"
            )
        if not self.obeyed_s >= 0.0:
            raise ShoalError(Kind.INVALID, "a backoff obeys pauses of at least 0 seconds")

    def length(self, failures: int) -> float:
        """Seconds after ``failures`` >= 1 in a row, before they are spread."""
        return min(self.most_s, self.first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))

    def pause(self, failures: int, entropy: Entropy, asked_s: float = 0.0) -> float:
        """Seconds before the next attempt, after ``failures`` >= 1 in a row.

        ``asked_s``: what the failure asked to wait (``ShoalError.retry_after_s``). It is never less
        than that, and up to a quarter more. Who asks for more than ``obeyed_s`` is not obeyed:
        nobody may park a device, or a batch.
        """
        drawn = uniform(entropy)
        asked = min(asked_s, self.obeyed_s)
        spread = self.least + (self.largest - self.least) * drawn
        return max(self.length(failures) * spread, asked * (1.0 + drawn / 4.0))


def spread(seconds: float, entropy: Entropy) -> float:
    """A quarter less to a quarter more: those who were told the same don't come back at once."""
    return seconds * (0.75 + uniform(entropy) / 2.0)

"""How several replicas fill a window to exactly its capacity without asking each other for every
report: pure accounting.

A seat is the right to store one report. The window's row in the database counts the seats that were
given out, never more than the capacity; a replica takes a slice of them and spends one for every
report that is new *to it*. Two replicas may both spend a seat on the same one, so when all seats
are gone that does not mean that the window is full: whoever finds none left counts, while nothing
is under way, what is really there. The count becomes the seats that are given out, and a new
*epoch* begins: seats that anybody still had from before, also a replica that died, are void,
because every report is stored only in the epoch in which its seat was taken. So at any time

    distinct reports <= reports that had a seat <= seats given out <= capacity.
"""

from __future__ import annotations

from dataclasses import dataclass

_SLICE = 8  # a slice is at most this part of what is left: the last seats go one by one


@dataclass(slots=True)
class SeatSlice:
    """What one replica holds of a window: ``left`` seats of ``epoch``."""

    epoch: int = 0
    left: int = 0

    def spend(self, seats: int) -> bool:
        """Whether there were as many; then they are spent, whatever becomes of the commit."""
        if seats > self.left:
            return False
        self.left -= seats
        return True

    def take_all(self) -> int:
        """Whoever asks for more begins with what is left: nobody else may spend it meanwhile."""
        left, self.left = self.left, 0
        return left

    def follow(self, epoch: int) -> None:
        """The window's epoch as it was just read: seats of one before are void."""
        if epoch > self.epoch:
            self.epoch, self.left = epoch, 0

    def add(self, epoch: int, seats: int) -> None:
        """Seats that were given to this replica in that epoch."""
        self.follow(epoch)
        if epoch == self.epoch:
            self.left += seats


def grant(given: int, limit: int, need: int) -> int:
    """Seats for a replica that asks for ``need`` (at least 1): a slice, as long as any are left,
    which may be fewer than it asks for. ``given``: out of ``limit``.
    """
    free = max(0, limit - given)
    return min(free, max(need, free // _SLICE))

"""What the connections of a server share: each may hold as much as is still free for others."""

from __future__ import annotations


def fits(total: float, used: float, held: float, amount: float) -> bool:
    """Whether somebody who holds ``held`` may take ``amount`` more of ``total``, of which ``used``
    is taken.

    Nobody may hold more than what nobody holds. Alone a connection gets half; n greedy ones whose
    calls come and go get total / (n + 1) each, and as much stays free for whoever comes next. Who
    holds nothing may take all that is free. (Dynamic thresholds with alpha = 1: Choudhury and
    Hahne, IEEE/ACM Transactions on Networking 6(2), 1998.)
    """
    free = total - used
    return amount <= free and (held <= 0 or held + amount <= free)


class Fair:
    """``total`` of something that is counted: calls, or bytes.

    ``who`` stands for a connection while it holds something, and is forgotten with it.
    """

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0
        self._held: dict[str, int] = {}

    def take(self, who: str, amount: int) -> bool:
        """False, and nothing is taken, if that would be more than its share."""
        held = self._held.get(who, 0)
        if not fits(self.total, self.used, held, amount):
            return False
        self._held[who] = held + amount
        self.used += amount
        return True

    def give(self, who: str, amount: int) -> None:
        """Back what was taken, or a part of it."""
        self.used -= amount
        left = self._held.pop(who, 0) - amount
        if left > 0:
            self._held[who] = left

    def held(self, who: str) -> int:
        """How much ``who`` holds now."""
        return self._held.get(who, 0)

    @property
    def holders(self) -> int:
        """How many hold anything."""
        return len(self._held)

"""In a worker: from the number of a loan to the window's key. The analyzer names this function in
what it orders; there it knows no loan.
"""

from __future__ import annotations

from shoal.analyzer.machines.sealing import Lent
from shoal.errors import Kind, ShoalError

# What opens lent keys, per connection with an analyzer.
CONNECTIONS: list[Lent] = []


def redeem_loan(ticket: bytes) -> bytes:
    """See ``key_delivery.Redeem``: the key of a loan that this worker's analyzer made. Raises
    UNAVAILABLE once it was taken back.
    """
    for lent in tuple(CONNECTIONS):
        if lent.has(ticket):
            return lent.redeem(ticket)
    raise ShoalError(Kind.UNAVAILABLE, "a window's key was taken back from this worker")

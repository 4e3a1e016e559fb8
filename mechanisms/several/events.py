"""The noise that one device adds, drawn exactly: how many events, then of each its kind and size
and its cell. So the cost does not depend on the number of cells.

The number of events of all kinds and cells is Poisson with the rate ``NoiseLaw.event_rate``, a
rational, drawn by exact inversion (``noise.exact``: the law is the stated one, no rounding). Each
event is independently of a kind with probability proportional to its integer weight, and in a
uniform cell; both are drawn by rejection, so exactly. By the splitting of a Poisson process the
numbers of events of each kind in each cell are then independent Poisson numbers with the rates that
``NoiseLaw`` states: the law that is accounted for, with no approximation anywhere.

Which words are drawn, and how many, depends on the noise alone, never on a value: the true message
is not known here.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from shoal.mechanisms.noise.exact import WORD, SmallSampler
from shoal.mechanisms.noise.skellam import Poisson
from shoal.mechanisms.several.noise_law import NoiseKind, NoiseLaw

if TYPE_CHECKING:
    from shoal.entropy import Entropy

PLUS, MINUS = 0, 1  # the lowest bit of a signed message
_SIGNS = {
    NoiseKind.PLUS: (PLUS,),
    NoiseKind.MINUS: (MINUS,),
    NoiseKind.FLOOD: (PLUS, MINUS),
    NoiseKind.EMPTY: None,
}


def empty_of(law: NoiseLaw) -> int:
    """The number of an empty message: the one after those of all cells."""
    return 2 * law.cells


def numbers_of(law: NoiseLaw) -> int:
    """Messages that there are: of each cell one, or two of both signs, and an empty one where sizes
    are hidden.
    """
    return law.cells * (2 if law.signed else 1) + law.hidden


class Events:
    """Draws the events of one device after the other. Immutable: safe to share between threads."""

    __slots__ = ("_cells", "_empty", "_kinds", "_number", "_sums", "_total")

    def __init__(self, law: NoiseLaw) -> None:
        """Builds the table of the number of events: milliseconds, once."""
        rates = law.rates()
        self._number, self._cells = SmallSampler(Poisson(law.event_rate)), law.cells
        self._empty = empty_of(law)
        self._sums = list(accumulate(rate.weight for rate in rates))
        self._total = self._sums[-1]
        self._kinds = [(_SIGNS[rate.kind], rate.size) for rate in rates]

    def draw(self, entropy: Entropy) -> list[int]:
        """The messages of one device's noise, in the order of its events: 2 * cell + sign, and 2 *
        cells if empty. A cell is drawn for an empty event too: all draw alike.
        """
        messages = list[int]()
        for _ in range(self._number.draw(entropy)):
            signs, size = self._kinds[bisect_right(self._sums, below(self._total, entropy))]
            cell = 2 * below(self._cells, entropy)
            if signs is None:
                messages += [self._empty] * size
                continue
            for sign in signs:
                messages += [cell + sign] * size
        return messages


def below(bound: int, entropy: Entropy) -> int:
    """An exactly uniform integer in [0, bound), ``bound`` >= 1, of any size: the lowest bits of
    whole words, drawn again until they are below.
    """
    bits = (bound - 1).bit_length()
    if not bits:
        return 0
    size = -(-bits // WORD) * 8
    while True:
        drawn = int.from_bytes(entropy.bytes(size), "little") & (1 << bits) - 1
        if drawn < bound:
            return drawn


@lru_cache(maxsize=16)
def events_of(law: NoiseLaw) -> Events:
    """One ``Events`` for each law."""
    return Events(law)

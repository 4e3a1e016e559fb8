"""Three cells of local hashing, for lower bounds: what one report says of two of them while all
others hold the third.

Of three cells in arithmetic progression, 0, 1 and 2, the hashes (``local_hash``) are the top bits
of c, c + m and c + 2 m, all mod 2^32, for c and m independent and uniform over 2^32. Let S = 2^32 /
g, the number of words of one hash value, and c = r above the first of its value, 0 <= r < S. All
three agree iff m and 2 m, taken as signed steps, lie in -r .. S - 1 - r. A step of at most S <=
2^31 in size, doubled, does not come round into that range. So it is enough that 2 m lies there: r /
2 and (S - 1 - r) / 2, both rounded down, and 1 for m = 0, which are S / 2 steps, as S is even. So
with probability (S / 2) / 2^32 = 1 / (2 g) all three hashes agree; under an ideal hash it would be
1 / g^2. Any two agree with probability 1/g, as they are independent. The rest follows: two agree
and the third does not with probability 1/g - 1/(2 g), for each of the three.

This is why a third cell that is near to both hides little: where its hash is that of one of them,
it mostly is that of both, and then the report told nothing anyhow. **Checked** by counting all
words of few bits (tests/unit/mechanisms/parts/test_hash_triple.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from shoal.mechanisms.parts.laws import table_of
from shoal.privacy import FiniteLaw

CELLS = (0, 2, 1)  # the pair, and what the others hold


@dataclass(frozen=True, slots=True)
class HashTriple:
    """Cells 0, 2 and 1 of a task with a hash to ``g`` values and e^epsilon0 = ``ratio``
    (``privacy.RealPair``).
    """

    g: int
    ratio: Fraction

    def law(self) -> FiniteLaw:
        """Three rows: the output law of a report under each of the three cells, exactly."""
        total = self.ratio + self.g - 1
        agrees, differs = self.g * self.ratio / total, self.g / total
        return table_of(
            tuple(chance * (agrees if bit else differs) for bit in bits)
            for bits, chance in self.supports()
        )

    def supports(self) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        """How likely a seed with a uniform value supports just these of the three cells."""
        one = Fraction(1, self.g)
        by_count = {3: one / 2 * one, 2: one / 2 * one, 1: (1 - 3 * one / 2) * one}
        none = 1 - by_count[3] - 3 * by_count[2] - 3 * by_count[1]
        for bits in product((1, 0), repeat=3):
            chance = by_count.get(sum(bits), none)
            if chance:
                yield bits, chance

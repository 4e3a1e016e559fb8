"""The lazy inversion against exact values: tables entry by entry, words at, below and above every
boundary, refinement by script.

Oracles: a law with rational pmf in exact fractions, and the production laws in mpmath with 500
bits, from closed forms (log-gamma and exponentials) that the production code does not use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import count, islice, pairwise

import mpmath
import numpy as np
import pytest

from shoal.entropy import SeededEntropy
from shoal.mechanisms.noise.exact import ExactSampler, Weights, boundaries, decide
from shoal.mechanisms.noise.polya import Polya
from shoal.mechanisms.noise.skellam import Poisson
from shoal.mechanisms.parts.sampling import BLOCK
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.tapes import DryError, Tape

WORDS = 1 << 64
PRECISION = 500


@dataclass(frozen=True)
class Thirds:
    """P(k) = 2 / 3^(k + 1): F(k) = 1 - 3^-(k+1) is never a binary fraction. A ``Law``; ``asked``
    logs the precisions.
    """

    asked: list[int] = field(default_factory=list)
    # the first so many requests are answered with an error that reaches the 64th bit
    clumsy: int = 0

    def weights(self, bits: int) -> Weights:
        self.asked.append(bits)
        length = bits + 4
        values = [2 * (1 << bits) // 3 ** (k + 1) for k in range(length)]
        return Weights(0, values, 1 << bits - 66 if len(self.asked) <= self.clumsy else length + 1)

    @staticmethod
    def cdf(k: int) -> Fraction:
        return 1 - Fraction(1, 3 ** (k + 1))


def poisson_cdf(rate: Fraction) -> Iterator[mpmath.mpf]:
    """F(0), F(1), ... by closed forms; exact zeros where the pmf is below e^-400."""
    a, total = mpmath.mpf(rate.numerator) / rate.denominator, mpmath.mpf(0)
    start = max(0, int(rate - 30 * (float(rate) ** 0.5 + 1)))
    yield from (total for _ in range(start))
    pmf = mpmath.exp(start * mpmath.log(a) - a - mpmath.loggamma(start + 1))
    for k in count(start):
        total += pmf
        yield total
        pmf *= a / (k + 1)


def polya_cdf(shares: int, scale: int) -> Iterator[mpmath.mpf]:
    r, p = mpmath.mpf(1) / shares, mpmath.exp(-mpmath.mpf(65_536) / scale)
    total = mpmath.mpf(0)
    pmf = (1 - p) ** r
    for k in count():
        total += pmf
        yield total
        pmf *= p * (k + r) / (k + 1)


def cdf_of(law: Poisson | Polya) -> Iterator[mpmath.mpf]:
    return poisson_cdf(law.rate) if isinstance(law, Poisson) else polya_cdf(law.shares, law.scale)


LAWS: list[Poisson | Polya] = [
    Poisson(Fraction(1, 2_000_000)),
    Poisson(Fraction(1, 120)),
    Poisson(Fraction(1)),
    Poisson(Fraction(7, 3)),
    Poisson(Fraction(39)),
    Poisson(Fraction(10**6, 1440)),
    Poisson(Fraction(10 ** size(4, 6) + 1, 3)),
    Polya(1, 65_536),
    Polya(60, 65_536),
    Polya(7, 4_096),
    Polya(720, 65_536 * 20),
    Polya(10**6, 65_536 * size(30, 200) + 1),
]


@cache
def floors_of(law: Poisson | Polya) -> tuple[list[int], list[int]]:
    """floor(2^64 F(k)) and floor(2^128 F(k)) for k = 0, 1, ... well past the table's end."""
    first, table = boundaries(law)
    with mpmath.workprec(PRECISION):
        fine = [
            int(mpmath.floor(mpmath.ldexp(f, 128)))
            for f in islice(cdf_of(law), first + table.size + 40)
        ]
    return [v >> 64 for v in fine], fine


@for_each("law", LAWS, ids=str)
def test_tables_are_the_floors_of_the_distribution_function(law: Poisson | Polya) -> None:
    """Every entry, exactly, and nothing missing: all before the first is 0, the last is the first
    2^64 - 1.

    Planted: ratio rate / k for rate / (k + 1) (off by one) -> fails. Planted: rounding F to float64
    -> fails.
    """
    floors, _ = floors_of(law)
    first, table = boundaries(law)
    assert table.tolist() == floors[first : first + table.size]
    assert first == 0 or floors[first] == 0
    assert table[-1] == WORDS - 1
    assert table.size == 1 or (table[-2] < WORDS - 1 and table[1] > 0)


@for_each("law", LAWS, ids=str)
@for_each("bits", [96, 160])
def test_weights_keep_their_promise(law: Poisson | Polya, bits: int) -> None:
    """values <= c pmf, and c less their sum at most the error, for the c of the largest value
    (which both laws start from, exact).

    And the error is small enough to be of use. Planted: the error without either tail; without the
    roundings (Poisson; for Polya the tail's bound is wider than that); a weight rounded up -> each
    fails.
    """
    weights = law.weights(bits)
    total, error = sum(weights.values), weights.error
    assert error << bits - 24 <= total
    with mpmath.workprec(PRECISION):
        ends = [mpmath.mpf(0), *islice(cdf_of(law), weights.first + len(weights.values))][
            weights.first :
        ]
        pmf = [after - before for before, after in pairwise(ends)]
        largest = max(range(len(pmf)), key=weights.values.__getitem__)
        c = weights.values[largest] / pmf[largest]
        assert all(
            value <= c * p * (1 + mpmath.ldexp(1, -PRECISION // 2))
            for value, p in zip(weights.values, pmf, strict=True)
        )
        assert 0 <= c - total <= error


@for_each("law", LAWS, ids=str)
def test_words_beside_a_boundary_need_no_second(law: Poisson | Polya) -> None:
    """w = B(k) - 1 gives at most k, w = B(k) + 1 more than k; with as many words as draws, and no
    more.

    Planted: <= for < in the count, a table shifted by one entry, and a first value forgotten ->
    each fails.
    """
    floors, _ = floors_of(law)
    sampler = ExactSampler(law)
    known = set(floors)
    words = sorted(
        {w for b in floors for w in (b - 1, b + 1) if 0 <= w < WORDS and w not in known}
    )[:BLOCK]
    tape = Tape(np.array(words, dtype="<u8").tobytes())
    assert sampler.draw(len(words), tape).tolist() == [bisect_right(floors, w) for w in words]
    assert tape.done()


@for_each("law", LAWS, ids=str)
def test_a_word_on_a_boundary_is_decided_by_the_next_words(law: Poisson | Polya) -> None:
    """The first word equals B(k): the second decides against 2^128 F(k); where it is equal too, the
    third does.

    The end words 0 and 2^64 - 1 with many k's in their cell, and the tail beyond the table, are
    among the cases. Planted: no refinement (always the count of boundaries) -> fails. Planted: the
    table's k instead of a search -> fails at the ends.
    """
    floors, fine = floors_of(law)
    sampler = ExactSampler(law)
    known = set(fine)
    stride = max(1, len(fine) // size(12, 40))
    cases = {
        v + shift
        for v in [*fine[::stride], *fine[-50:-30]]
        for shift in (-(1 << 40), -1, 1, 1 << 40)
    } - known
    cases = {u for u in cases if 0 <= u < 1 << 128 and u >> 64 in set(floors) and u < fine[-1]}
    assert len(cases) > 10
    for u in cases:
        tape = Tape((u >> 64).to_bytes(8, "little"), (u % WORDS).to_bytes(8, "little"))
        assert sampler.draw(1, tape).tolist() == [bisect_right(fine, u)]
        assert tape.done()


def test_three_words_where_two_are_equal() -> None:
    """Planted: the low end of U's words compared with F(k), or their high end with F(k - 1) ->
    fails. (Enclosures: below.)
    """
    sampler = ExactSampler(Thirds())
    for k in (0, 1, 5, 30, 45):
        value = int(Thirds.cdf(k) * (1 << 192))  # floor
        for u, found in ((value, k), (value + 1, k + 1)):
            words = [(u >> shift) % WORDS for shift in (128, 64, 0)]
            tape = Tape(*(w.to_bytes(8, "little") for w in words))
            # The last word equals the boundary's third when u = value: a fourth decides it.
            if u == value:
                with pytest.raises(DryError):
                    sampler.draw(1, tape)
                fourth = int(Thirds.cdf(k) * (1 << 256)) % WORDS
                for word, decided in ((fourth - 1, k), (fourth + 1, k + 1)):
                    again = Tape(*(w.to_bytes(8, "little") for w in [*words, word]))
                    assert sampler.draw(1, again).tolist() == [decided]
            else:
                assert sampler.draw(1, tape).tolist() == [found]
                assert tape.done()


def test_the_rational_law_against_fractions() -> None:
    """Thirds, whose F is known exactly: its table, and ``decide`` for every 8-bit U against coarse
    and fine enclosures.
    """
    first, table = boundaries(Thirds())
    assert first == 0
    assert table.tolist() == [int(Thirds.cdf(k) * WORDS) for k in range(table.size)]
    for bits in (10, 16, 40):
        weights = Thirds().weights(bits)
        for u in range(1 << 8):
            low, high = Fraction(u, 1 << 8), Fraction(u + 1, 1 << 8)
            possible = {
                k for k in range(60) if Thirds.cdf(k) > low and (k == 0 or Thirds.cdf(k - 1) < high)
            }
            decided = decide(weights, u, 8)
            assert decided is None or {decided} == possible
            if bits == 40 and len(possible) == 1 and u < (1 << 8) - 1:
                assert decided in possible


def test_nothing_is_decided_that_the_shortfall_leaves_open() -> None:
    """Weights of 100 and 100 that may be 8 too few, wherever: F(0) lies in 100 to 108 out of 208,
    F(1) at 200 or above, no more is known.

    Planted: the error left out of the comparison with F(k), or of that with F(k - 1) -> fails.
    """
    decided = [decide(Weights(0, [100, 100], 8), u, 8) for u in range(1 << 8)]
    assert set(decided) == {0, 1, None}
    for u, found in enumerate(decided):
        assert found != 0 or Fraction(u + 1, 1 << 8) <= Fraction(100, 208)
        assert found != 1 or Fraction(108, 208) <= Fraction(u, 1 << 8) < Fraction(
            u + 1, 1 << 8
        ) <= Fraction(200, 208)


def test_a_useless_enclosure_asks_for_more_bits() -> None:
    """Planted: the floors of the lower ends taken without looking at the upper ends -> wrong table,
    and this fails.
    """
    law = Thirds(clumsy=2)
    first, table = boundaries(law)
    assert (first, table.tolist()) == (0, boundaries(Thirds())[1].tolist())
    assert law.asked == [96, 160, 224]


def test_draws_span_blocks_and_take_one_word_each() -> None:
    """Fresh words for every block; the number of words is the number of draws."""
    sampler = ExactSampler(Poisson(Fraction(50)))
    n = 2 * BLOCK + 17
    words = SeededEntropy("blocks").words(n)
    chunks = [words[i : i + BLOCK].astype("<u8").tobytes() for i in range(0, n, BLOCK)]
    tape = Tape(*chunks)
    drawn = sampler.draw(n, tape)
    assert tape.done()
    floors = [int(b) for b in sampler.boundaries]
    assert drawn.tolist() == [sampler.first + bisect_right(floors, int(w)) for w in words]
    assert drawn.dtype == np.int64
    assert sampler.draw(0, Tape()).tolist() == []


@for_each("entries", [1, 2, 3, 4, 7, 8, 9, 15, 16, 17])
def test_the_search_at_every_table_length(entries: int) -> None:
    """Tables of 2^s - 1, 2^s and 2^s + 1 entries, at words around each boundary. Planted: a step
    too few -> fails.
    """
    law = Uneven(entries)
    sampler = ExactSampler(law)
    assert sampler.boundaries.size == entries
    floors = [int(b) for b in sampler.boundaries]
    words = sorted({w for b in floors for w in (b - 1, b + 1) if 0 <= w < WORDS - 1} - set(floors))
    drawn = sampler.draw(len(words), Tape(np.array(words, dtype="<u8").tobytes()))
    assert drawn.tolist() == [bisect_right(floors, w) for w in words]


@dataclass(frozen=True)
class Uneven:
    """Equal weights but for a tail too thin for 64 bits: its table has ``entries`` entries."""

    entries: int

    def weights(self, bits: int) -> Weights:
        each = (1 << bits) // 3
        return Weights(0, [*[each] * self.entries, each >> 70], 1)

"""From the output law of any finite randomizer to expectations E[(L_1 + ... + L_n)_+] / n of i.i.d.
values with few cells.

Both bounds of this package have that form, with L = first - e second and e = exp(epsilon):

*Upper, the privacy blanket* (Balle, Bell, Gascon, Nissim, "The Privacy Blanket of the Shuffle
Model", CRYPTO 2019, Lemma 5.3). Let w_y be any positive numbers with w_y <= P(y | z) for **every**
input z, not only for x and x'. Then P(. | z) = w + (a positive rest), so a report is drawn from w /
gamma with probability gamma = sum_y w_y whatever its input is. Give the adversary the others'
reports that came from the rest: the real view is a post-processing of that, so what remains bounds
it from above. It is the victim's report among M' ~ Bin(n - 1, gamma) draws from w / gamma at a
uniformly random place, whose density with respect to m = M' + 1 draws is the mean of gamma P(y_i |
x) / w(y_i). With Bin(n-1, gamma)(m-1) = Bin(n, gamma)(m) m / (n gamma) this is

    delta(epsilon) <= E[(L_1 + ... + L_n)_+] / n, L_i = (P(y | x) - e P(y | x')) / w_y with
    probability w_y for every y,  0 with probability 1 - gamma.

Nothing in the proof asks that w_y be the *largest* such number: a smaller w is sound too, and only
looser. w_y above the probability of y under some third input is not: a device with that input would
not hide the victim as assumed.

*Lower, real datasets* (docs/ACCOUNTING.md, section 4). If the n - 1 others all answer z, the
divergence *is* E[(L_1 + ... + L_n)_+] / n with L_i = (P(y | x) - e P(y | x')) / P(y | z) with
probability P(y | z).

Outputs whose (first, second) coincide are one cell, exactly: L does not distinguish them.
Everything is a fraction.

**Checked** at small n in exact rationals: the blanket above, and the datasets below, the truth over
all datasets; every dataset sum as an identity; the blanket as the published expectation
(tests/unit/accounting/numerics/test_cells.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from math import gcd

from shoal.accounting.numerics.binomial import Floats
from shoal.accounting.numerics.convex_order import Line, undominated
from shoal.arrays import np
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, KaryLaw, SymmetricLaw

# A blanket is offered for tables of at most this many different rows (all ordered pairs are tried)
# ...
_MOST_INPUTS = 16
# ... and at most this many cells over all pairs: one evaluation of the curves then stays below a
# second or two.
_MOST_CELLS = 20_000
# Lower bounds: tables of at most this many different rows are searched over all pairs, ...
_SMALL_TABLE = 12
# ... and so many views are kept by each way of ranking them. Each is a valid lower bound; more can
# only be tighter.
_MOST_VIEWS = 3
# Of larger tables (entries times inputs) few triples are climbed to, so many times at most, ...
_LARGE_TABLE, _CLIMBS = 4_000_000, 2
# ... by pairs of all of their rows only where these are not very many, ...
_MOST_ROWS = 2_048
# ... and tables of more entries are not searched at all.
_LARGEST_TABLE = 2_000_000


@dataclass(frozen=True, slots=True)
class Cell:
    """With probability ``mass`` (> 0) one report adds L = first - e second (both >= 0), e =
    exp(epsilon).
    """

    mass: Fraction
    first: Fraction
    second: Fraction

    def __post_init__(self) -> None:
        if self.mass <= 0 or self.first < 0 or self.second < 0:
            raise ShoalError(Kind.INVALID, "a cell wants mass > 0, first >= 0 and second >= 0")


@dataclass(frozen=True, slots=True)
class CellSum:
    """delta(epsilon) = E[(L_1 + ... + L_n)_+] / n for n >= 1 independent reports; the masses of the
    cells sum to 1.
    """

    n: int
    cells: tuple[Cell, ...]

    def __post_init__(self) -> None:
        if self.n < 1 or sum(cell.mass for cell in self.cells) != 1:
            raise ShoalError(
                Kind.INVALID, "a sum of cells wants n >= 1 and masses that add up to 1"
            )


def kary_classes(law: KaryLaw) -> SymmetricLaw:
    """k-ary randomized response in classes of outputs: x, x', a third value z, and (from k = 4 on)
    all others.
    """
    same, other = law.same, law.other
    if law.k == 2:
        return SymmetricLaw(one=(same, other), two=(other, same), least=(other, other))
    rest = ((law.k - 3) * other,) if law.k > 3 else ()
    return SymmetricLaw(
        one=(same, other, other, *rest),
        two=(other, same, other, *rest),
        third=(other, other, same, *rest),
        least=(other, other, other, *rest),
    )


def blanket_sums(law: FiniteLaw | SymmetricLaw | KaryLaw, n: int) -> tuple[CellSum, ...]:
    """Blanket sums, one for every ordered pair of inputs that could be the worst: the largest of
    them bounds delta from above.

    Both directions are among them: a pair and its exchange are different sums unless their cells
    coincide. Pairs that another one is proven to exceed at every epsilon are left out
    (``convex_order``). Empty if the table has too many inputs or cells: the caller then falls back
    to clones. Raises INVALID for n < 1.
    """
    return tuple(CellSum(n, cells) for cells in _blankets(law))


@lru_cache(
    maxsize=32
)  # n has no part in it, and one law is asked for several n, targets and routes in a row
def _blankets(law: FiniteLaw | SymmetricLaw | KaryLaw) -> tuple[tuple[Cell, ...], ...]:
    """The cells of each of ``blanket_sums``. Pairs are compared as integers: fractions are made of
    those that are left.
    """
    if isinstance(law, KaryLaw):
        law = kary_classes(law)
    if isinstance(law, SymmetricLaw):
        return (_cells(_lines(law.one, law.two, law.least, law.total), law.total),)
    sums = _pairs_of_rows(law)
    return tuple(
        _cells(sums[at], law.total)
        for at in (undominated(sums, law.max_ratio) if len(sums) > 1 else range(len(sums)))
    )


@lru_cache(maxsize=32)  # as ``_blankets``
def _pairs_of_rows(law: FiniteLaw) -> tuple[tuple[Line, ...], ...]:
    """The lines of every ordered pair of inputs that no mixture stands for; none if the table has
    too many inputs or cells.
    """
    rows = worst_rows(law)
    pairs = len(rows) * (len(rows) - 1)
    if len(rows) > _MOST_INPUTS or pairs * len(rows[0]) > _MOST_CELLS:
        return ()
    least, total = [min(column) for column in zip(*law.rows, strict=True)], law.total
    if pairs == 0:
        # One row, whatever the input: nothing to tell apart.
        return (_lines(rows[0], rows[0], least, total),)
    # Lines in another order are the same cells.
    by_lines = {
        frozenset(lines): lines
        for row_x, row_x2 in permutations(rows, 2)
        for lines in (_lines(row_x, row_x2, least, total),)
    }
    return tuple(by_lines.values())


def has_blanket(law: FiniteLaw | SymmetricLaw | KaryLaw) -> bool:
    """Whether ``blanket_sums`` are any, without making them."""
    return not isinstance(law, FiniteLaw) or bool(_pairs_of_rows(law))


def likely_worst(law: FiniteLaw | SymmetricLaw | KaryLaw, n: int, epsilon: float) -> CellSum | None:
    """One of the sums of a table before any is left out: that of the largest variance at
    ``epsilon``, which mostly is the largest. Where it is above delta, the blanket proves nothing,
    and no pairs need to be compared. None where nothing would be left out.
    """
    sums = _pairs_of_rows(law) if isinstance(law, FiniteLaw) else ()
    if len(sums) < 2:
        return None
    e, t = math.exp(epsilon), law.total

    def variance(lines: Iterable[Line]) -> float:  # shares first: floats hold no large squares
        return sum((a / t - e * (b / t)) ** 2 / (w / t) for a, b, w in lines)

    try:
        return CellSum(n, _cells(max(sums, key=variance), t))
    except (OverflowError, ZeroDivisionError):
        return None


def dataset_sums(law: FiniteLaw | SymmetricLaw | KaryLaw, n: int) -> tuple[CellSum, ...]:
    """The exact divergences of real pairs of datasets, the others all answering one input: each
    bounds delta from below.

    For a table the most promising (x, x', z), by the information of one report and of coarse views
    of it; outputs are not merged unless their L coincides. Empty for tables too large to search.
    Raises INVALID for n < 1.
    """
    if isinstance(law, KaryLaw):
        law = kary_classes(law)
    if isinstance(law, SymmetricLaw):
        thirds = (law.one, law.two) if law.third is None else (law.third, law.one, law.two)
        return tuple(
            dict.fromkeys(_dataset(law.one, law.two, third, law.total, n) for third in thirds)
        )
    rows = sorted(set(law.rows))
    if len(rows) < 2 or len(rows) * len(law.rows[0]) > _LARGEST_TABLE:
        return ()
    large = len(rows) * len(law.rows[0]) * len(rows) > _LARGE_TABLE
    triples = (_climbed if large else _triples)(rows, law.total)
    return tuple(
        dict.fromkeys(
            _dataset(rows[x], rows[other], rows[z], law.total, n) for x, other, z in triples
        )
    )


def named_sums(law: FiniteLaw, n: int) -> tuple[CellSum, ...]:
    """``dataset_sums`` of two answers that are named, the first two rows, in both directions: the
    others all answer one further row, if there is one, or one of the two.
    """
    one, two, *third = law.rows
    return tuple(
        dict.fromkeys(
            _dataset(*pair, z, law.total, n)
            for z in (*third, one, two)
            for pair in ((one, two), (two, one))
        )
    )


def worst_rows(law: FiniteLaw) -> list[tuple[int, ...]]:
    """Different rows of which all others are mixtures: with two outputs the extreme two, else those
    that are no mixture of a neighbour before and one after them (the levels of a number, where
    probabilities rise in a straight line).

    The divergence of the blanket's views is jointly convex in the victim's two rows (w does not
    depend on them), so that mixtures are never worse than what they are made of.
    """
    if len(law.rows[0]) == 2:
        rows = sorted(set(law.rows))
        return [rows[0], rows[-1]] if len(rows) > 2 else rows
    kept: list[tuple[int, ...]] = []
    for row in dict.fromkeys(law.rows):
        while len(kept) > 1 and _between(kept[-2], kept[-1], row):
            kept.pop()
        kept.append(row)
    return kept


def _between(before: tuple[int, ...], row: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether ``row`` lies on the segment between two others: (row - before) and (after - row) have
    one direction. Exact.
    """
    first, second = (
        [b - a for a, b in zip(before, row, strict=True)],
        [b - a for a, b in zip(row, after, strict=True)],
    )
    at = next((i for i, step in enumerate(first) if step), None)
    if at is None or first[at] * second[at] <= 0:
        return False
    return all(a * second[at] == b * first[at] for a, b in zip(first, second, strict=True))


def _lines(
    row_x: Sequence[int], row_x2: Sequence[int], least: Sequence[int], total: int
) -> tuple[Line, ...]:
    """Outputs of one proportion (a : b : w) joined; and, as (0, 0, rest), the reports that say
    nothing. Integers, and exact.
    """
    joined: dict[Line, Line] = {}
    for a, b, w in zip(row_x, row_x2, least, strict=True):
        common = gcd(a, b, w)
        key = (a // common, b // common, w // common)
        known = joined.get(key)
        joined[key] = (a, b, w) if known is None else (known[0] + a, known[1] + b, known[2] + w)
    idle = total - sum(least)
    return (*joined.values(), *([(0, 0, idle)] if idle else []))


def _cells(lines: Iterable[Line], total: int) -> tuple[Cell, ...]:
    """What each line stands for, in one order: equal laws give equal tuples."""
    cells = (Cell(Fraction(w, total), Fraction(a, w), Fraction(b, w)) for a, b, w in lines)
    return tuple(sorted(cells, key=lambda cell: (cell.first, cell.second)))


def _dataset(
    row_x: Sequence[int], row_x2: Sequence[int], row_z: Sequence[int], total: int, n: int
) -> CellSum:
    """The exact divergence of two rows while all others answer a third: each output adds its
    weights, divided by those of ``row_z``.
    """
    return CellSum(n, _cells(_lines(row_x, row_x2, row_z, total), total))


def _triples(rows: Sequence[tuple[int, ...]], total: int) -> list[tuple[int, int, int]]:
    """(x, x', z) worth evaluating, by the chi-squared information of one report; any choice is
    sound.

    Ranked thrice: by the whole report, by its extreme outputs alone, and by the sign of its
    log-ratio; and apart for z = x, z = x' and a third z. Which is the right one depends on n, delta
    and direction: others who answer x hide differently from those who answer z.
    """
    table = np.array([[float(Fraction(weight, total)) for weight in row] for row in rows])
    ranked: dict[tuple[int, int], list[tuple[float, int, int, int]]] = defaultdict(list)
    for x, other in _pairs(table):
        ratio = table[x] / table[other]
        ends = np.where(ratio == ratio.max(), 0, np.where(ratio == ratio.min(), 1, 2))
        sides = np.where(ratio > 1.0, 0, np.where(ratio < 1.0, 1, 2))
        for number, view in enumerate((table, table @ np.eye(3)[ends], table @ np.eye(3)[sides])):
            score = np.divide(
                (view[x] - view[other]) ** 2, view, out=np.zeros_like(view), where=view > 0.0
            ).sum(axis=1)
            for z, value in enumerate(score):
                ranked[number, 0 if z == x else 1 if z == other else 2].append(
                    (-float(value), x, other, z)
                )
    kept = [entry[1:] for entries in ranked.values() for entry in sorted(entries)[:_MOST_VIEWS]]
    return list(dict.fromkeys(kept))


def _climbed(rows: Sequence[tuple[int, ...]], total: int) -> list[tuple[int, int, int]]:
    """``_triples`` for tables whose pairs are too many to be ranked, by the same information: from
    the two rows that differ most in one output, the best z, then the best x and x' for it, and so
    on. It may end at a lower top than the highest.
    """
    table = np.array([[weight / total for weight in row] for row in rows])
    table = table[:, table.min(axis=0) > 0.0]
    if not table.size:  # shares too small for floats, which decide tightness alone
        return []
    apart = table.max(axis=0) / table.min(axis=0)
    output = int(apart.argmax())
    x, other = int(table[:, output].argmax()), int(table[:, output].argmin())
    found = list[tuple[int, int, int]]()
    for _ in range(_CLIMBS):
        z = int(((table[x] - table[other]) ** 2 / table).sum(axis=1).argmax())
        found += [(x, other, z), (other, x, z)]
        seen = table / np.sqrt(table[z])
        x, other = _furthest(seen)
    return list(dict.fromkeys(found))


def _furthest(rows: Floats) -> tuple[int, int]:
    """The two rows that are furthest apart; of very many, of those that are extreme in some entry:
    all pairs would take gigabytes.
    """
    looked = np.arange(len(rows))
    if len(rows) > _MOST_ROWS:
        looked = np.unique(np.concatenate([rows.argmax(axis=0), rows.argmin(axis=0)]))[:_MOST_ROWS]
    kept = rows[looked]
    own = (kept**2).sum(axis=1)
    spread = own[:, None] + own[None, :] - 2.0 * kept @ kept.T
    x, other = divmod(int(spread.argmax()), len(kept))
    return int(looked[x]), int(looked[other])


def _pairs(table: Floats) -> list[tuple[int, int]]:
    """Ordered pairs of rows worth ranking: all, or for many rows those that are extreme in some
    output.
    """
    if len(table) <= _SMALL_TABLE:
        return list(permutations(range(len(table)), 2))
    high, low = table.argmax(axis=0), table.argmin(axis=0)
    order = np.argsort(-(table.max(axis=0) / table.min(axis=0)), kind="stable")[:_SMALL_TABLE]
    extreme = [(int(high[y]), int(low[y])) for y in order if high[y] != low[y]]
    return list(dict.fromkeys([*extreme, *((b, a) for a, b in extreme)]))

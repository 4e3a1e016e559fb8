"""The output laws of the mechanisms that are known here, from the integers of a signed task.

Written from the mechanisms' definitions in docs/MECHANISMS.md, not from their code. Weights are
exact fractions. One pair of answers stands for all where all pairs look alike; else every pair is
looked at.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from shoal.checker.errors import UnreadableError
from shoal.checker.two_outputs import Coin

MOST_ROWS = 64  # answers of a law of which every pair is looked at
_MOST_CELLS = 10_000  # of laws with large integers, and of tables
_MOST_WORK = 100_000  # pairs of answers times outputs, where no pair stands for all
_WORDS = 1 << 64  # probabilities are integers out of 2^64


@dataclass(frozen=True, slots=True)
class Outputs:
    """Outputs whose probabilities stand in one proportion, taken together: probabilities of all of
    them after the answer x, after x', and after a third one z (None: there are only two answers).

    ``least``: of the sum, over these outputs, of a weight that is at most the probability after
    *any* answer. ``fourth``: after an answer that goes with x and x' in another way than z does;
    None where there is no such answer.
    """

    first: Fraction
    second: Fraction
    least: Fraction
    third: Fraction | None
    fourth: Fraction | None = None

    @property
    def after(self) -> tuple[Fraction, ...]:
        """After every answer that is looked at: x, x', and those that others may give."""
        every = self.first, self.second, self.third, self.fourth
        return tuple(chance for chance in every if chance is not None)


@dataclass(frozen=True, slots=True)
class OutputLaw:
    """What one report says after each answer.

    ``outputs``: of one pair of answers that stands for all; ``rows`` where no pair does: P(output |
    answer) in full. ``answers``: how many there are (0: not said). ``coin``: where a report has two
    outputs. ``table``: P(output | answer), where it is small enough to be listed. ``ratio``: the
    largest ratio of an output's probabilities, e^epsilon0. ``alike``: whatever others answer, they
    look like the third answer of ``outputs``; else like the third one or like the fourth one.
    ``listed``: whether that is so; False: others may answer what ``outputs`` does not have, and the
    pair stands for all in the blanket's expectation alone.
    """

    outputs: tuple[Outputs, ...]
    ratio: Fraction
    coin: Coin | None = None
    table: tuple[tuple[Fraction, ...], ...] | None = None
    rows: tuple[tuple[Fraction, ...], ...] = ()
    answers: int = 0
    alike: bool = True
    listed: bool = True

    def pairs(self) -> Iterator[tuple[Outputs, ...]]:
        """Every ordered pair of answers that has to be looked at, as a third one the second."""
        if not self.rows:
            yield self.outputs
            return
        least = [min(column) for column in zip(*self.rows, strict=True)]
        for first, second in itertools.permutations(self.rows, 2):
            yield tuple(
                Outputs(a, b, low, b) for a, b, low in zip(first, second, least, strict=True)
            )


def law_of(mechanism: str, parameters: Mapping[str, int]) -> OutputLaw | None:
    """None for a mechanism that is not known here. Raises UnreadableError for integers that a
    mechanism can't have.
    """
    known = {
        "binary_rr": _binary,
        "hadamard": _hadamard,
        "krr": _kary,
        "kmean": _kary,
        "one_bit_mean": _one_bit,
        "piecewise": _piecewise,
        "privunit": _privunit,
        "projective": _projective,
        "subset": _subset,
        "unary": _unary,
    }
    if mechanism not in known:
        return None
    try:
        return known[mechanism](parameters)
    except KeyError as missing:
        raise UnreadableError(f"the task's {mechanism} has no parameter {missing}") from None


def _binary(parameters: Mapping[str, int]) -> OutputLaw:
    yes, no = (Fraction(parameters[name], _WORDS) for name in ("yes_if_yes", "yes_if_no"))
    if not 0 < no < yes < 1:
        raise UnreadableError("binary_rr wants 0 < yes_if_no < yes_if_yes < 2^64")
    ratio = max(yes / no, (1 - no) / (1 - yes))
    return OutputLaw((), ratio, Coin(yes, no), ((1 - no, no), (1 - yes, yes)))


def _kary(parameters: Mapping[str, int]) -> OutputLaw:
    """With probability uniform / 2^64 a uniform cell, else the true one."""
    k, uniform = parameters["k"], Fraction(parameters["uniform"], _WORDS)
    if not (k >= 2 and 0 < uniform < 1):
        raise UnreadableError("k-ary randomized response wants k >= 2 and 0 < uniform < 2^64")
    other = uniform / k
    same = 1 - uniform + other
    if k == 2:
        return OutputLaw((), same / other, Coin(same, other), ((same, other), (other, same)))
    rest = (k - 3) * other
    outputs = (
        Outputs(same, other, other, other),
        Outputs(other, same, other, other),
        Outputs(other, other, other, same),
        Outputs(rest, rest, rest, rest),
    )
    table = tuple(tuple(same if x == y else other for y in range(k)) for x in range(min(k, 64)))
    return OutputLaw(
        tuple(one for one in outputs if one.least),
        same / other,
        table=table if k <= 64 else None,
        answers=k,
    )


def _one_bit(parameters: Mapping[str, int]) -> OutputLaw:
    """One bit: 1 with probability 1/2 + slope (2 i - (L - 1)) / 2^64 after level i of L, and 1/2
    without an answer.

    That is even steps between the ends. So the bit after any answer is the bit after the highest or
    after the lowest level, whichever a coin says. A divergence is convex: it is no larger than the
    largest of those that the coins may choose. The two ends stand for all answers.
    """
    levels, slope = parameters["k"] - 1, parameters["slope"]
    reach = Fraction(slope * (levels - 1), _WORDS)
    if not (levels >= 2 and 0 < reach < Fraction(1, 2)):
        raise UnreadableError("one_bit_mean wants k >= 3 and 0 < slope (k - 2) < 2^63")
    high, low = Fraction(1, 2) + reach, Fraction(1, 2) - reach
    return OutputLaw((), high / low, Coin(high, low), ((high, low), (low, high)))


def _hadamard(parameters: Mapping[str, int]) -> OutputLaw:
    """An index l, of 2^m alike, and the parity of l & cell, wrong with probability flip / 2^64.

    Of three cells the parities are right or wrong together as three coins would be: l & (x ^ x')
    and l & (x ^ z) are odd for half of all l each, and both for a quarter. Which of the three a
    report is right about tells the answers apart. It is never less probable than a wrong one.
    """
    k, flip = parameters["k"], Fraction(parameters["flip"], _WORDS)
    if not (k >= 2 and 0 < flip < Fraction(1, 2)):
        raise UnreadableError("hadamard wants k >= 2 and 0 < flip < 2^63")
    cells = min(k, 3)
    share = Fraction(1, 1 << (cells - 1))  # of the indices
    outputs = []
    for right in itertools.product((0, 1), repeat=cells):
        after = [share * (1 - flip if one else flip) for one in right]
        least = min(after) if k <= cells else share * flip
        outputs.append(Outputs(after[0], after[1], least, after[2] if cells == 3 else None))
    return OutputLaw(tuple(outputs), (1 - flip) / flip, answers=k)


def _unary(parameters: Mapping[str, int]) -> OutputLaw:
    """One bit a cell: 1 with probability p = one_if_one for the true cell's, q = one_if_zero for
    any other.

    The bits of the cells x, x' and z tell the answers apart; all others look alike. A report is at
    least (1 - p) / (1 - q) as probable after any answer as with all bits drawn with q, since p / q
    is more than 1 and (1 - p) / (1 - q) less.
    """
    k = parameters["k"]
    p, q = (Fraction(parameters[name], _WORDS) for name in ("one_if_one", "one_if_zero"))
    if not (k >= 2 and 0 < q < p < 1):
        raise UnreadableError("unary wants k >= 2 and 0 < one_if_zero < one_if_one < 2^64")
    cells = min(k, 3)
    outputs = []
    for bits in itertools.product((0, 1), repeat=cells):
        after = [_bits(bits, cell, p, q) for cell in range(cells)]
        least = min(after) if k <= cells else _bits(bits, None, p, q) * (1 - p) / (1 - q)
        outputs.append(Outputs(after[0], after[1], least, after[2] if cells == 3 else None))
    return OutputLaw(tuple(outputs), p * (1 - q) / (q * (1 - p)), answers=k)


def _piecewise(parameters: Mapping[str, int]) -> OutputLaw:
    """One of m bins. A window of b bins moves evenly over them, by J = m - b in all, as the number
    moves over its L levels; "no answer" stands half way.

    With U = 2 (L - 1) a covered bin weighs U gain more, one of which w / U is covered w gain more,
    out of 2^64. What is left of 2^64 is shared evenly, and what that leaves over goes to the first
    bins, one each.
    """
    levels, bins = parameters["k"] - 1, parameters["outputs"]
    window, gain = parameters["window"], parameters["gain"]
    if not (1 <= levels < MOST_ROWS and 1 <= window < bins <= _MOST_CELLS and gain >= 1):
        raise UnreadableError("piecewise wants k of 2 to 64, 1 <= window < outputs and a gain")
    if levels * (levels + 1) * bins > _MOST_WORK:
        raise UnreadableError("so many pairs of answers, and outputs, are not looked at here")
    steps = 2 * (levels - 1)
    base, over = divmod(_WORDS - window * steps * gain, bins)
    if base < 1 or steps < 2:
        raise UnreadableError("piecewise wants every bin to be possible after every answer")
    places = [*range(0, steps + 1, 2), steps // 2]
    rows = []
    for place in places:
        left = Fraction(place * (bins - window), steps)  # where the window begins, in bins
        covered = [_overlap(bin_, left, window) for bin_ in range(bins)]
        weights = [base + (bin_ < over) + part * steps * gain for bin_, part in enumerate(covered)]
        rows.append(tuple(weight / _WORDS for weight in weights))
    ratio = max(max(column) / min(column) for column in zip(*rows, strict=True))
    return OutputLaw((), ratio, rows=tuple(rows))


def _overlap(bin_: int, left: Fraction, window: int) -> Fraction:
    """How much of a bin the window covers, of 1."""
    end, begin = min(Fraction(bin_ + 1), left + window), max(Fraction(bin_), left)
    return max(Fraction(0), end - begin)


def _privunit(parameters: Mapping[str, int]) -> OutputLaw:
    """A seed that looks at nothing, and one of its K candidates: with probability uniform / 2^64
    any, else one of the t that a public order, which the vector chooses, puts first.

    *epsilon0.* Every vector has exactly t near candidates of every seed. So a report has one of two
    probabilities, and their ratio is the largest; nothing is asked of the candidates.

    *The pair that stands for all.* Given a seed let two vectors share c near candidates. With r the
    ratio, e >= 1 and u / K, which every candidate has after every vector, as the blanket's weight,
    (P - e Q) over that weight is r - e and 1 - e r on t - c candidates each, r (1 - e) on c, 1 - e
    on K - 2 t + c. Moving c from {r (1 - e), 1 - e} to {r - e, 1 - e r} keeps the sum, and both
    old values lie between the new ones: the law is larger in convex order. The positive part of a
    sum is convex in each summand, so its mean is largest with c = 0, at every seed, and on average
    over the seeds of all summands. Two vectors of opposite directions have c = 0: their orders are
    the reverse of one another, and 2 t <= K. They are real answers, so that what they exceed is
    wrong. A third vector's c with each depends on the seed: none is looked at.
    """
    many, near = parameters["candidates"], parameters["inside"]
    uniform = Fraction(parameters["uniform"], _WORDS)
    if not (near >= 1 and 2 * near <= many <= _WORDS and 0 < uniform < 1):
        raise UnreadableError("privunit wants 1 <= inside, 2 inside <= candidates, 0 < uniform")
    other = uniform * near / many
    same = 1 - uniform + other
    rest = uniform - 2 * other
    outputs = (
        Outputs(same, other, other, None),
        Outputs(other, same, other, None),
        Outputs(rest, rest, rest, None),
    )
    return OutputLaw(
        tuple(one for one in outputs if one.least), same / other, alike=False, listed=False
    )


def _projective(parameters: Mapping[str, int]) -> OutputLaw:
    """A point y of a projective space over the numbers modulo a prime q: of those with <x, y> = 0,
    x the point of the answer, with probability include / 2^64, else of the others; uniform.

    K points are the lines through 0 of q^t vectors, t from 2 on the least with K >= k. Of points
    whose vectors are independent, j say, (q^(t - j) - 1) / (q - 1) y have a product of 0 with all.
    Any two are independent. The least cells are all points whose vectors begin with 0, and one more
    at least: together they span everything, so no y has a product of 0 with every cell, and after
    some cell each is as rare as can be.

    A third answer is independent of x and x', or on the line through both: the sum of two multiples
    of them, neither of them 0. These are multiples that may as well be x and x' themselves. So with
    u = <x, y>, v = <x', y> and w the product with an independent answer, that of an answer on the
    line is u + v. All (u, v, w) come from equally many vectors y. For t = 2 there is the line
    alone. Else both kinds are among the cells: points that begin with 0 make whole lines.
    """
    k, q, held = parameters["k"], parameters["field"], Fraction(parameters["include"], _WORDS)
    prime = 2 <= q <= _MOST_CELLS and all(q % low for low in range(2, math.isqrt(q) + 1))
    if not (prime and k >= 3 and 0 < held < 1):
        raise UnreadableError("projective wants a prime field, k >= 3 and 0 < include < 2^64")
    width = 2
    while points_of(q, width) < k:
        width += 1
    with_it = held / points_of(q, width - 1)
    without = (1 - held) / math.prod([q] * (width - 1))
    if with_it <= without:
        raise UnreadableError("projective wants points of the support to be the more probable ones")
    outputs = []
    for bits, points in _kinds_of_points(q, width):
        first, second, line, *independent = (points * (with_it if bit else without) for bit in bits)
        third, fourth = (independent[0], line) if independent else (line, None)
        outputs.append(Outputs(first, second, points * without, third, fourth))
    return OutputLaw(tuple(outputs), with_it / without, answers=k, alike=False)


def _kinds_of_points(q: int, width: int) -> Iterator[tuple[tuple[bool, ...], int]]:
    """(whether u, v, u + v and w are 0, how many points) of all that there are; of two numbers a
    vector without w.
    """
    pairs = {
        (True, True, True): 1,
        (True, False, False): q - 1,
        (False, True, False): q - 1,
        (False, False, True): q - 1,
        (False, False, False): (q - 1) * (q - 2),
    }
    free = math.prod([q] * max(0, width - 3))  # vectors of one (u, v, w)
    for bits, ways in pairs.items():
        kinds: list[tuple[tuple[bool, ...], int]] = [(bits, ways)]
        if width > 2:
            kinds = [((*bits, True), ways * free), ((*bits, False), ways * (q - 1) * free)]
        for every, vectors in kinds:
            points = (vectors - all(every)) // (q - 1)  # the vector 0 is no point
            if points:
                yield every, points


def points_of(q: int, width: int) -> int:
    """Lines through 0 among the vectors of so many numbers."""
    return sum(math.prod([q] * place) for place in range(width))


def _subset(parameters: Mapping[str, int]) -> OutputLaw:
    """A set of d of the k cells. It holds the true cell with probability include / 2^64, and is
    uniform over all sets that do, or over all that don't.

    Which of x, x' and z are in the set tells the answers apart. Every set lacks some cell, after
    which it is least probable.
    """
    k, d = parameters["k"], parameters["d"]
    held = Fraction(parameters["include"], _WORDS)
    if not 1 <= d < k <= _MOST_CELLS or not 0 < held < 1:
        raise UnreadableError(f"subset wants 1 <= d < k <= {_MOST_CELLS} and 0 < include < 2^64")
    with_it, without = held / math.comb(k - 1, d - 1), (1 - held) / math.comb(k - 1, d)
    if with_it <= without:
        raise UnreadableError("subset wants sets with the true cell to be the more probable ones")
    cells = min(k, 3)
    outputs = []
    for bits in itertools.product((0, 1), repeat=cells):
        others = d - sum(bits)
        sets = math.comb(k - cells, others) if others >= 0 else 0
        if sets:
            after = [sets * (with_it if bit else without) for bit in bits]
            third = after[2] if cells == 3 else None
            outputs.append(Outputs(after[0], after[1], sets * without, third))
    return OutputLaw(tuple(outputs), with_it / without, answers=k)


def _bits(bits: tuple[int, ...], cell: int | None, p: Fraction, q: Fraction) -> Fraction:
    chance = Fraction(1)
    for at, bit in enumerate(bits):
        one = p if at == cell else q
        chance *= one if bit else 1 - one
    return chance

"""The exact law of every randomizer's output, by enumeration, and what ``privacy()`` says of it.

``randomize``, and then ``randomize_one``, is driven by a script of random words instead of an
entropy source. A member states, per draw, where its code may decide differently (``draws``). The
suite plays the first and the last word of every interval between those points, checks that the
report is the same at both, and adds up the interval's length: the sum is the exact output law in
integers, with no sampling, and must equal ``privacy()`` in integers. Of several draws all first
words are played together, and all last words; at full size every mixture of the two.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import gcd, prod

import mpmath
import numpy as np

from shoal.entropy import Entropy, SeededEntropy
from shoal.mechanisms import Mechanism
from shoal.privacy import FiniteLaw, KaryLaw, PureLaw, SymmetricLaw
from tests.cases import for_each
from tests.conformance.mechanisms.checks.case import Case, Draw, Table, every_case, once, table
from tests.conformance.mechanisms.checks.classes import Classes
from tests.sizes import FULL, size
from tests.worlds.tapes import DryError, Tape, Tapes

_AT_ONCE = 4_096  # devices of an array whose words are the corners of boxes


def by_array(mechanism: Mechanism, cell: int, entropy: Entropy) -> bytes:
    """One report as the draw for whole arrays makes it."""
    return mechanism.randomize(np.array([cell]), entropy).tobytes()


def by_one(mechanism: Mechanism, cell: int, entropy: Entropy) -> bytes:
    """One report as a device draws it."""
    report = mechanism.randomize_one(cell, entropy)
    assert type(report) is tuple
    assert [(type(message), len(message)) for message in report] == [
        (bytes, mechanism.report_size)
    ] * mechanism.messages
    return b"".join(report)


Box = tuple[tuple[int, int], ...]
"""A half-open interval of words for every draw."""
Way = Callable[[Mechanism, int, Entropy], bytes]
BOTH = for_each("way", [by_array, by_one])


def corners(box: Box) -> list[tuple[int, ...]]:
    """The words of a box that are played."""
    if FULL:
        return list(itertools.product(*(sorted({low, high - 1}) for low, high in box)))
    return sorted({tuple(low for low, _ in box), tuple(high - 1 for _, high in box)})


def spread(choices: Sequence[Sequence[bytes]], most: int) -> Iterator[tuple[bytes, ...]]:
    """One of each of ``choices``: all combinations, or ``most`` of them, in even steps through
    all.
    """
    total = prod(len(each) for each in choices)
    step = round(total * 0.618)
    while gcd(step, total) != 1:
        step += 1
    for at in range(min(total, most)):
        place, chosen = at * step % total, []
        for each in reversed(choices):
            place, index = divmod(place, len(each))
            chosen.append(each[index])
        yield tuple(reversed(chosen))


def play(way: Way, mechanism: Mechanism, cell: int, tape: Tape) -> bytes | None:
    """The report of one device under a script; None if the code refused the last word and asked for
    another.
    """
    try:
        report = way(mechanism, cell, tape)
    except DryError:
        return None
    assert tape.done(), "the code drew less than stated"
    return report


class LawSuite:
    """The part of ``MechanismSuite`` that enumerates."""

    MANY = size(20_000, 1_000_000)  # reports that are drawn at once: more than one block of them

    # --- what a member states ---------------------------------------------------------------------

    def draws(self, case: Case) -> tuple[Draw, ...]:
        """The draws of one device, in order, with the words that are refused and drawn again."""
        raise NotImplementedError

    def stated(self, case: Case) -> Table:
        """The integer weights P(y | x), rows are the listed cells. A member with too many outputs
        to list in ``privacy`` writes them out here from its paper, for cases that are small enough:
        apart from the code that it tests.
        """
        return table(case.mechanism.privacy())

    def output(self, case: Case, index: int) -> bytes:
        """The report that column ``index`` of ``stated`` stands for."""
        return index.to_bytes(case.mechanism.report_size, "big")

    def alike(self, case: Case, count: int) -> Iterator[tuple[int, ...]]:
        """The ordered choices of ``count`` different cells that a law of classes is said to be the
        law of: all. A member whose law is that of some pairs, and bounds the others, chooses those
        here and has a test of its own for the others. By their rows in ``stated``.
        """
        return itertools.permutations(range(len(case.listed)), count)

    def shows_classes(self, case: Case) -> bool:
        """Whether ``alike`` has pairs to compare a law of classes with; a member says where not."""
        return True

    @once
    def table_of(self, case: Case) -> Table:
        """``stated``, made once."""
        return self.stated(case)

    @once
    def reports_of(self, case: Case) -> tuple[bytes, ...]:
        """The report of every column of ``stated``, made once."""
        return tuple(self.output(case, index) for index in range(len(self.table_of(case)[0])))

    @every_case
    @BOTH
    def test_the_output_law_is_exactly_what_privacy_says(self, case: Case, way: Way) -> None:
        """Enumerated from the production code; weights compared as integers.

        Planted: word % k for the uniform cell; the uniform cell drawn from the others only; the
        true cell kept whenever the uniform cell is smaller; <= for < at a threshold; swapped
        yes_if_yes and yes_if_no -> each fails here.
        """
        mechanism, draws = case.mechanism, self.draws(case)
        stated = self.table_of(case)
        index = {report: y for y, report in enumerate(self.reports_of(case))}
        enumerated, totals = [], set()
        for cell in case.cells:
            weights, total = self._enumerate(way, mechanism, cell, draws, index)
            row = stated[case.listed.index(cell)]
            scale = sum(row)
            assert all(w * scale == s * total for w, s in zip(weights, row, strict=True))
            enumerated.append(weights)
            totals.add(total)
        assert len(totals) == 1, "the draws are the same for every cell"
        ends = {(max(column), min(column)) for column in zip(*enumerated, strict=True)}
        assert max(Fraction(*pair) for pair in ends) == mechanism.privacy().max_ratio

    @every_case
    def test_a_law_of_classes_is_that_of_every_pair(self, case: Case) -> None:
        """For every ordered pair x, x', and every third cell if the law says something of one: the
        table's outputs, gathered by the proportions of their weights under x, x', z and the least
        over all cells, are exactly the classes of ``privacy()``. (Members with a table pass.) The
        least weight may be stated smaller than it is, never larger, output by output.

        Planted: p and q exchanged in the law, a class left out, the collisions of a hash counted as
        0 -> each fails. A third stated at k = 2, where there are no three cells to compare it with;
        the mean of least weights that differ within a class (reports that support all cells, and
        others) -> fails. ``alike`` said of the hash of ``local_hash``, of whose threes nothing is
        known -> fails.
        """
        law, stated = case.mechanism.privacy(), self.table_of(case)
        if not self.shows_classes(case):
            return
        if not isinstance(law, SymmetricLaw):
            assert isinstance(law, KaryLaw | FiniteLaw | PureLaw)
            return
        assert law.third is None or len(stated) > 2, (
            "a law over two cells says something of a third"
        )
        count = 3 if law.third is not None else 2
        choices = list(self.alike(case, count))
        assert not law.alike or (
            (count == 3 or len(stated) == 2)
            and choices == list(itertools.permutations(range(len(case.listed)), count))
        ), "a law says that all answers look alike, and not all are compared"
        assert choices, "no pair of cells is looked at"
        columns = [(column, min(column)) for column in zip(*stated, strict=True)]
        for chosen in choices:
            seen, claimed = Classes(), Classes()
            alike = Counter((least, *map(column.__getitem__, chosen)) for column, least in columns)
            for (least, *weights), count in alike.items():
                seen.add(weights, least, sum(stated[0]), count)
            for at, least in enumerate(law.least):
                rows = (
                    (law.one, law.two, law.third) if law.third is not None else (law.one, law.two)
                )
                claimed.add([row[at] for row in rows], least, law.total)
            assert claimed.masses() == seen.masses()
            assert claimed.claims_no_more_than(seen)

    @every_case
    @BOTH
    def test_refused_words_are_replaced_by_fresh_ones(self, case: Case, way: Way) -> None:
        """After refused words in the place of any draw the report is the one that the next word
        gives. (Members that refuse nothing pass.) Planted: a refused word's own cell kept -> fails.
        """
        draws = self.draws(case)
        for at, draw in enumerate(draws):
            before = itertools.islice(
                itertools.product(*(self._corners(other)[:6] for other in draws[:at])), 24
            )
            after = [self._corners(other)[-1] for other in draws[at + 1 :]]
            refused = [draw.word(word) for low, high in draw.refused for word in {low, high - 1}]
            for prefix, word, fresh in itertools.product(
                before, refused[:2], self._corners(draw)[:20]
            ):
                report = play(way, case.mechanism, case.cells[0], Tape(*prefix, fresh, *after))
                assert report is not None
                assert (
                    play(
                        way, case.mechanism, case.cells[0], Tape(*prefix, word, word, fresh, *after)
                    )
                    == report
                )

    @every_case
    def test_frequencies_follow_the_law(self, case: Case) -> None:
        """Chi-square of the vectorised path (many blocks; reduced, a few), cells with few expected
        reports pooled. Over seeds each input's test would fail with probability 1e-6; the seed is
        fixed.
        """
        mechanism, count = case.mechanism, self.MANY
        stated = self.table_of(case)
        for cell in case.cells[:4]:
            reports = mechanism.randomize(
                np.full(count, cell), SeededEntropy(f"{case.name} {cell}")
            )
            seen = self._count(reports)
            row = stated[case.listed.index(cell)]
            expected = [count * weight / sum(row) for weight in row]
            observed = [seen.pop(report, 0) for report in self.reports_of(case)]
            assert not seen, "a report that the law does not know"
            assert chi_square_p(observed, expected) > 1e-6

    # --- helpers ----------------------------------------------------------------------------------

    def _count(self, reports: np.ndarray) -> Counter[bytes]:
        rows = reports.reshape(len(reports), -1)
        listed, counts = np.unique(rows.view(f"V{rows.shape[1]}"), return_counts=True)
        return Counter(dict(zip(map(bytes, listed), counts.tolist(), strict=True)))

    def _corners(self, draw: Draw) -> list[bytes]:
        """The first and the last word of every interval that is not refused."""
        return [draw.word(w) for low, high in draw.kept() for w in {low, high - 1}]

    def _corner_scripts(self, case: Case) -> Iterator[tuple[bytes, ...]]:
        """Corners of all draws, and refused words of the last."""
        *before, last = self.draws(case)
        ends = [*self._corners(last)[:40], *(last.word(word) for word, _ in last.refused)][:60]
        return spread([*(self._corners(draw)[:40] for draw in before), ends], size(100, 400))

    def _enumerate(
        self,
        way: Way,
        mechanism: Mechanism,
        cell: int,
        draws: tuple[Draw, ...],
        index: dict[bytes, int],
    ) -> tuple[list[int], int]:
        """(weight per output, weight of all words that are not refused) of one input, over all
        words of all draws.
        """
        weights, total = [0] * len(index), 1
        for draw in draws:
            total *= sum(high - low for low, high in draw.kept())
        boxes = itertools.product(*(draw.kept() for draw in draws))
        at_once = max(_AT_ONCE >> (len(draws) if FULL else 1), 1)
        while some := list(itertools.islice(boxes, at_once)):
            for box, report in zip(
                some, self._constants(way, mechanism, cell, draws, some), strict=True
            ):
                scale = 1
                for low, high in box:
                    scale *= high - low
                weights[index[report]] += scale
        for at, draw in enumerate(draws):
            for low, high in draw.refused:
                box = (*(other.kept()[0] for other in draws[:at]), (low, high))
                assert self._constant(way, mechanism, cell, draws[: at + 1], box) is None, (
                    "a word is kept that the member states as refused"
                )
        assert sum(weights) == total
        return weights, total

    def _constants(
        self,
        way: Way,
        mechanism: Mechanism,
        cell: int,
        draws: tuple[Draw, ...],
        boxes: list[Box],
    ) -> list[bytes]:
        """The report of every box of words, none of which is refused. Of an array the corners of
        all boxes are devices side by side: what one device's words do to another's report shows.
        """
        if way is not by_array:
            reports = [self._constant(way, mechanism, cell, draws, box) for box in boxes]
            assert None not in reports, (
                "a word is refused that the member does not state as refused"
            )
            return [report for report in reports if report is not None]
        played = [corners(box) for box in boxes]
        scripts = [words for of_box in played for words in of_box]
        tapes = Tapes(
            [
                np.frombuffer(b"".join(map(draw.word, words)), dtype=np.uint8).reshape(
                    -1, draw.width
                )
                for draw, words in zip(draws, zip(*scripts, strict=True), strict=True)
            ]
        )
        try:
            rows = iter(mechanism.randomize(np.full(len(scripts), cell), tapes))
        except DryError:
            raise AssertionError(
                "a word is refused that the member does not state as refused"
            ) from None
        assert tapes.done(), "the code drew less than stated"
        found = [{next(rows).tobytes() for _ in of_box} for of_box in played]
        assert all(len(reports) == 1 for reports in found), (
            "the code decides differently inside an interval"
        )
        return [reports.pop() for reports in found]

    def _constant(
        self,
        way: Way,
        mechanism: Mechanism,
        cell: int,
        draws: tuple[Draw, ...],
        box: Box,
    ) -> bytes | None:
        """The report that the corners of a box of words agree on."""
        reports = {
            play(
                way, mechanism, cell, Tape(*(d.word(w) for d, w in zip(draws, corner, strict=True)))
            )
            for corner in corners(box)
        }
        assert len(reports) == 1, "the code decides differently inside an interval"
        return reports.pop()


def chi_square_p(observed: list[int], expected: list[float]) -> float:
    """The p-value; cells that expect fewer than 10 are pooled, and dropped if the pool is still
    below 1e-3 and empty.
    """
    pairs = [(o, e) for o, e in zip(observed, expected, strict=True) if e >= 10]
    pool_o = sum(o for o, e in zip(observed, expected, strict=True) if e < 10)
    pool_e = sum(e for e in expected if e < 10)
    if pool_e >= 10:
        pairs.append((pool_o, pool_e))
    else:
        # Poisson tail of the pool alone: P(N >= pool_o).
        tail = float(mpmath.gammainc(pool_o, 0, pool_e, regularized=True)) if pool_o else 1.0
        if tail < 1e-6:
            return tail
    if len(pairs) < 2:
        return 1.0
    statistic = sum((o - e) ** 2 / e for o, e in pairs)
    return float(mpmath.gammainc((len(pairs) - 1) / 2, statistic / 2, mpmath.inf, regularized=True))

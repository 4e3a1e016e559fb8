"""What every registered randomizer must keep. A new one subclasses ``MechanismSuite``, states its
cases and its draws.

The heart is exact enumeration: the production ``randomize``, and then ``randomize_one``, is driven
by a script of random words instead of an entropy source. A member states, per draw, where its code
may decide differently (``draws``). The suite plays the first and the last word of every interval
between those points, checks that the report is the same at both, and adds up the interval's length:
the sum is the exact output law in integers, with no sampling, and must equal ``privacy()`` in
integers.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import mpmath
import numpy as np
import pytest

from shoal.domain import Domain, Words
from shoal.entropy import Entropy, SeededEntropy, SystemEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Mechanism, create, design
from shoal.mechanisms.parts.sampling import BLOCK
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, PureLaw, SymmetricLaw, epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.conformance.mechanisms.classes import Classes
from tests.conformance.mechanisms.statistics import StatisticsSuite
from tests.sizes import size
from tests.worlds.tapes import DryError, Tape

_GRID = (float(10**exponent) for exponent in np.linspace(-3, np.log10(20), 40))
ASKED = (*_GRID, 0.5, 1.0, float(np.log(3)), 2.0, 4.0, 8.0, 20.0)


@dataclass(frozen=True)
class Case:
    name: str
    spec: MechanismSpec
    domain: Domain
    # cells to enumerate; all when empty, which of an open vocabulary nobody can
    inputs: tuple[int, ...] = ()

    @property
    def mechanism(self) -> Mechanism:
        return create(self.spec, self.domain)

    @property
    def cells(self) -> tuple[int, ...]:
        return self.inputs or tuple(range(self.domain.size))

    @property
    def listed(self) -> tuple[int, ...]:
        """The cells that have a row in ``stated``: all, but of an open vocabulary ``inputs``
        alone.
        """
        return self.inputs if isinstance(self.domain, Words) else tuple(range(self.domain.size))

    def tiled(self, places: np.ndarray) -> np.ndarray:
        """int64[n]: the listed cells at these places, modulo their number."""
        return np.asarray(np.array(self.listed, dtype=np.int64)[places % len(self.listed)])


@dataclass(frozen=True)
class Draw:
    """One request of ``width`` bytes, read as a little-endian word, and the words at which the code
    may decide anew.

    ``refused``: half-open intervals of words that the code refuses; it then asks for another word
    before it draws anything else.
    """

    width: int
    edges: tuple[int, ...]
    refused: tuple[tuple[int, int], ...] = ()

    def intervals(self) -> list[tuple[int, int]]:
        """Half-open intervals that cover all words; a refused one is one of them."""
        points = sorted({0, *self.edges, *itertools.chain(*self.refused)} - {1 << (8 * self.width)})
        assert all(0 <= p < 1 << (8 * self.width) for p in points)
        return list(itertools.pairwise([*points, 1 << (8 * self.width)]))

    def kept(self) -> list[tuple[int, int]]:
        """The intervals of words that are not refused."""
        return [
            (low, high)
            for low, high in self.intervals()
            if not any(start <= low < end for start, end in self.refused)
        ]

    def word(self, value: int) -> bytes:
        return value.to_bytes(self.width, "little")


def uniform_draw(k: int) -> Draw:
    """A 32-bit word by multiply-and-shift: a new cell at ceil(cell * 2^32 / k), whose first word
    may be refused.
    """
    starts = [-(-(cell << 32) // k) for cell in range(k)]
    refused = tuple((start, start + 1) for start in starts if start * k % (1 << 32) < (1 << 32) % k)
    return Draw(4, tuple(starts), refused)


Table = tuple[tuple[int, ...], ...]


def table(law: LocalPrivacy) -> Table:
    """The integer weights P(y | x), rows are inputs."""
    match law:
        case KaryLaw():
            return tuple(
                tuple(law.same if x == y else law.other for y in range(law.k)) for x in range(law.k)
            )
        case FiniteLaw():
            return law.rows
        case _:
            raise AssertionError(
                "a law of classes lists no outputs: the member writes its table out in stated()"
            )


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


Way = Callable[[Mechanism, int, Entropy], bytes]
BOTH = for_each("way", [by_array, by_one])


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


every_case = for_each("case", lambda suite: suite.CASES, ids=lambda case: case.name)
"""Stands above each test of a member that takes a ``case``: it runs for all of the class's."""


class MechanismSuite(StatisticsSuite):
    """Subclass as Test<Name>: it inherits every test below, and those of ``statistics``."""

    NAME: ClassVar[str]
    CASES: ClassVar[tuple[Case, ...]]

    # --- what a member states ---------------------------------------------------------------------

    def draws(self, case: Case) -> tuple[Draw, ...]:
        """The draws of one device, in order, with the words that are refused and drawn again."""
        raise NotImplementedError

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        """The same spec with one integer step less noise, or None at the end of the range."""
        raise NotImplementedError

    def truth(self, case: Case, values: np.ndarray) -> np.ndarray:
        """What the estimate of these cells should be on average, label by label; NaN where the
        estimate doesn't try.
        """
        return np.bincount(values, minlength=case.domain.size).astype(float)

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

    def known(self, case: Case, listed: list[bytes]) -> Container[bytes]:
        """The reports that the mechanism could write: ``listed``, which ``stated`` has a column
        for. A member whose ``draws`` play some words only, because its reports are too many to
        list, says here what it would write under the others.
        """
        return set(listed)

    # --- shape ------------------------------------------------------------------------------------

    @every_case
    @for_each("count", [0, 1, 5, BLOCK + 3])
    def test_reports_have_one_shape_and_size(self, case: Case, count: int) -> None:
        mechanism = case.mechanism
        values = case.tiled(np.arange(count))
        reports = mechanism.randomize(values, SeededEntropy(1))
        assert reports.dtype == np.uint8
        assert reports.shape == (count, mechanism.messages, mechanism.report_size)
        rows = reports.reshape(-1, mechanism.report_size)
        assert mechanism.valid(rows).shape == (count * mechanism.messages,)
        assert mechanism.valid(rows).all()
        assert mechanism.tally(rows).rows == count * mechanism.messages
        assert np.array_equal(values, case.tiled(np.arange(count))), (
            "the caller's values are left alone"
        )

    @every_case
    def test_the_spec_comes_back(self, case: Case) -> None:
        assert case.mechanism.spec == case.spec
        assert case.mechanism.name == case.spec.name == self.NAME

    @every_case
    def test_values_outside_the_domain_are_refused(self, case: Case) -> None:
        """Planted: checking only the largest value -> -1 indexes from the end and this fails."""
        for bad in (-1, case.domain.size, 2**63 - 1, -(2**63)):
            with pytest.raises(ShoalError) as caught:
                case.mechanism.randomize(np.array([0, bad, 1]), SeededEntropy(1))
            assert caught.value.kind is Kind.INVALID
            assert str(bad) not in str(caught.value).replace(f"0 to {case.domain.size - 1}", "")
        for wrong in (np.array([0.0]), np.array([[0]]), np.array([0], dtype=np.uint64)):
            with pytest.raises(ShoalError):
                # that is the point
                case.mechanism.randomize(wrong, SeededEntropy(1))  # type: ignore[arg-type]

    @every_case
    @BOTH
    def test_randomness_used_does_not_depend_on_the_value(self, case: Case, way: Way) -> None:
        """Same requests for every value and every coin. Planted: the uniform cell drawn only when
        the coin asks -> fails.
        """
        asked = set()
        for cell, chunks in itertools.product(case.cells[:8], self._corner_scripts(case)):
            tape = Tape(*chunks)
            if play(way, case.mechanism, cell, tape) is not None:
                asked.add(tuple(tape.asked))
        assert len(asked) == 1

    # --- one report -------------------------------------------------------------------------------

    @every_case
    def test_one_report_is_that_of_an_array_of_one(self, case: Case) -> None:
        """Every cell, many seeds: the same bytes, and the same stream afterwards.

        Planted: ``OneDevice``'s uniform cell from 64-bit words, or by remainder; its words read
        big-endian; its report in the other byte order (two bytes and more); the coin drawn after
        the cell -> each fails.
        """
        mechanism, seeds = case.mechanism, size(40, 400) if len(case.listed) <= 32 else 3
        for cell, seed in itertools.product(case.listed, range(seeds)):
            ours, theirs = (SeededEntropy(f"{case.name} {cell} {seed}") for _ in range(2))
            assert by_one(mechanism, cell, ours) == by_array(mechanism, cell, theirs)
            assert ours.bytes(8) == theirs.bytes(8)

    @every_case
    def test_one_report_is_that_of_an_array_of_one_wherever_the_code_decides(
        self, case: Case
    ) -> None:
        """Under the first and the last word of every interval: the same report, refusal and
        requests.

        Planted: <= for < at a threshold or at the limit of rejection of ``OneDevice`` -> fails.
        """
        for cell, chunks in itertools.product(case.cells[:8], self._corner_scripts(case)):
            ours, theirs = Tape(*chunks), Tape(*chunks)
            assert play(by_one, case.mechanism, cell, ours) == play(
                by_array, case.mechanism, cell, theirs
            )
            assert ours.asked == theirs.asked

    @every_case
    def test_one_value_outside_the_domain_is_refused(self, case: Case) -> None:
        """In the words of ``randomize``, before anything is drawn. Planted: no check in
        ``one_report``; <= for < -> fails.
        """
        for bad in (-1, case.domain.size, 2**63 - 1, -(2**63)):
            refusals = []
            for way in (by_array, by_one):
                tape = Tape()
                with pytest.raises(ShoalError) as caught:
                    way(case.mechanism, bad, tape)
                refusals.append((caught.value.kind, caught.value.message, tape.asked))
            assert refusals[0] == refusals[1]
            assert refusals[0][0] is Kind.INVALID
        for wrong in (2**64, -(2**70), True, 0.0, "0", None, np.int64(0)):
            with pytest.raises(ShoalError) as caught:
                # that is the point
                case.mechanism.randomize_one(wrong, Tape())  # type: ignore[arg-type]
            assert caught.value.kind is Kind.INVALID

    # --- hostile rows -----------------------------------------------------------------------------

    @every_case
    def test_hostile_rows_are_flagged(self, case: Case) -> None:
        """Random bytes, and 0x00.. and 0xff..: valid exactly if the law knows the report; invalid
        rows are never counted.
        """
        mechanism = case.mechanism
        listed = sorted({self.output(case, y) for y in range(len(self.stated(case)[0]))})
        known = self.known(case, listed)
        noise = np.frombuffer(
            SeededEntropy("hostile").bytes(4_000 * mechanism.report_size), dtype=np.uint8
        ).reshape(4_000, -1)
        ends = np.array(
            [[0] * mechanism.report_size, [255] * mechanism.report_size], dtype=np.uint8
        )
        beyond = np.frombuffer(b"".join(listed), dtype=np.uint8).reshape(len(listed), -1)
        rows = np.concatenate([noise, ends, beyond])
        expected = [row.tobytes() in known for row in rows]
        flags = mechanism.valid(rows)
        assert flags.dtype == np.bool_
        assert flags.tolist() == expected
        if not all(expected):
            with pytest.raises(ShoalError) as caught:
                mechanism.tally(rows)
            assert caught.value.kind is Kind.INVALID
        assert mechanism.tally(rows[flags]).rows == sum(expected)

    @every_case
    def test_another_width_is_refused(self, case: Case) -> None:
        for width in (0, case.mechanism.report_size + 1):
            rows = np.zeros((3, width), dtype=np.uint8)
            for act in (case.mechanism.valid, case.mechanism.tally):
                with pytest.raises(ShoalError) as caught:
                    act(rows)
                assert caught.value.kind is Kind.INVALID

    # --- tally and estimate -----------------------------------------------------------------------

    @every_case
    def test_tallies_are_additive(self, case: Case) -> None:
        mechanism = case.mechanism
        rows = mechanism.randomize(case.tiled(np.arange(3_001)), SeededEntropy(2)).reshape(
            -1, mechanism.report_size
        )
        whole = mechanism.tally(rows)
        for cut in (0, 1, 1_500, len(rows)):
            assert mechanism.tally(rows[:cut]) + mechanism.tally(rows[cut:]) == whole
        assert mechanism.tally(rows[::-1]) == whole

    @every_case
    def test_a_tally_of_other_cells_is_refused(self, case: Case) -> None:
        mechanism = case.mechanism
        tally = mechanism.tally(np.zeros((0, mechanism.report_size), dtype=np.uint8))
        wider = type(tally)(np.append(tally.counts, 0), 0)
        with pytest.raises(ShoalError) as caught:
            mechanism.estimate(wider)
        assert caught.value.kind is Kind.INVALID

    @every_case
    def test_an_empty_batch_has_a_finite_estimate(self, case: Case) -> None:
        mechanism = case.mechanism
        estimate = mechanism.estimate(
            mechanism.tally(np.zeros((0, mechanism.report_size), dtype=np.uint8))
        )
        assert len(estimate.labels) == len(set(estimate.labels)) == estimate.values.size
        assert (estimate.ci_low <= estimate.values).all()
        assert (estimate.values <= estimate.ci_high).all()

    @every_case
    def test_the_estimate_is_unbiased(self, case: Case) -> None:
        """Over many runs of fixed values the mean estimate is within 5 of its standard errors of
        the truth, for every label (false alarm over seeds: 6e-7 per label), also far beyond the
        range [0, n] that a clipped estimate would keep.

        Planted: clipping at 0 -> "almost noise" fails. Planted: n q left out, or p - q with p for
        it -> every case fails.
        """
        mechanism, runs, count = case.mechanism, size(250, 400), size(3_000, 20_000)
        values = case.tiled(
            np.sort(np.arange(count) ** 2 % (3 * len(case.listed)) % len(case.listed))
        )  # uneven shares
        truth, entropy = self.truth(case, values), SeededEntropy(f"unbiased {case.name}")
        estimates = [
            mechanism.estimate(
                mechanism.tally(
                    mechanism.randomize(values, entropy).reshape(-1, mechanism.report_size)
                )
            )
            for _ in range(runs)
        ]
        mean = np.mean([estimate.values for estimate in estimates], axis=0)
        error = np.mean([estimate.stderr for estimate in estimates], axis=0) / np.sqrt(runs)
        known = ~np.isnan(truth)
        # A standard error of 1e-6 or less (T = 1: no report ever differs) leaves the float rounding
        # of n.
        assert (np.abs(mean - truth)[known] <= 5 * error[known] + 1e-9 * count).all()

    # --- the law ----------------------------------------------------------------------------------

    @every_case
    @BOTH
    def test_the_output_law_is_exactly_what_privacy_says(self, case: Case, way: Way) -> None:
        """Enumerated from the production code; weights compared as integers.

        Planted: word % k for the uniform cell; the uniform cell drawn from the others only; the
        true cell kept whenever the uniform cell is smaller; <= for < at a threshold; swapped
        yes_if_yes and yes_if_no -> each fails here.
        """
        mechanism, draws = case.mechanism, self.draws(case)
        stated = self.stated(case)
        index = {self.output(case, y): y for y in range(len(stated[0]))}
        enumerated = {}
        for cell in case.cells:
            weights, total = self._enumerate(way, mechanism, cell, draws, index)
            row = stated[case.listed.index(cell)]
            scale = sum(row)
            assert all(w * scale == s * total for w, s in zip(weights, row, strict=True))
            enumerated[cell] = [Fraction(w, total) for w in weights]
        columns = list(zip(*enumerated.values(), strict=True))
        assert max(max(column) / min(column) for column in columns) == mechanism.privacy().max_ratio

    @every_case
    def test_a_law_of_classes_is_that_of_every_pair(self, case: Case) -> None:
        """For every ordered pair x, x', and every third cell if the law says something of one: the
        table's outputs, gathered by the proportions of their weights under x, x', z and the least
        over all cells, are exactly the classes of ``privacy()``. (Members with a table pass.) The
        least weight may be stated smaller than it is, never larger, output by output.

        Planted: p and q exchanged in the law, a class left out, the collisions of a hash counted as
        0 -> each fails. A third stated at k = 2, where there are no three cells to compare it with;
        the mean of least weights that differ within a class (reports that support all cells, and
        others) -> fails.
        """
        law, stated = case.mechanism.privacy(), self.stated(case)
        if not self.shows_classes(case):
            return
        if not isinstance(law, SymmetricLaw):
            assert isinstance(law, KaryLaw | FiniteLaw | PureLaw)
            return
        assert law.third is None or len(stated) > 2, (
            "a law over two cells says something of a third"
        )
        choices = list(self.alike(case, 3 if law.third is not None else 2))
        assert choices, "no pair of cells is looked at"
        for chosen in choices:
            seen, claimed = Classes(), Classes()
            for column in zip(*stated, strict=True):
                seen.add([column[cell] for cell in chosen], min(column), sum(stated[0]))
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
        """Chi-square of the vectorised path (many blocks), cells with few expected reports pooled.
        Over seeds each input's test would fail with probability 1e-6; the seed is fixed.
        """
        mechanism, count = case.mechanism, size(40_000, 1_000_000)
        stated = self.stated(case)
        for cell in case.cells[:4]:
            reports = mechanism.randomize(
                np.full(count, cell), SeededEntropy(f"{case.name} {cell}")
            )
            seen = self._count(reports)
            row = stated[case.listed.index(cell)]
            expected = [count * weight / sum(row) for weight in row]
            observed = [seen.pop(self.output(case, y), 0) for y in range(len(expected))]
            assert not seen, "a report that the law does not know"
            assert chi_square_p(observed, expected) > 1e-6

    # --- epsilon0 ---------------------------------------------------------------------------------

    @every_case
    def test_designed_epsilon0_is_never_above_the_asked(self, case: Case) -> None:
        """For 47 asked values from 1e-3 to 20: below or equal, checked with 60 digits too, and
        within 1e-12 of it or one integer step. Planted: floor instead of search from the safe side
        (one step less noise) -> fails.
        """
        for asked in ASKED:
            spec = design(self.NAME, case.domain, asked)
            privacy = create(spec, case.domain).privacy()
            assert epsilon0_upper(privacy) <= asked
            with mpmath.workdps(60):
                assert mpmath.log(
                    mpmath.mpf(privacy.max_ratio.numerator) / privacy.max_ratio.denominator
                ) <= mpmath.mpf(asked)
            if epsilon0_upper(privacy) < asked * (1 - 1e-12):
                less = self.less_noise(spec)
                assert less is None or epsilon0_upper(create(less, case.domain).privacy()) > asked

    @every_case
    @for_each("asked", [0.0, -1.0, float("nan"), float("inf"), 1e-21])
    def test_impossible_epsilon0_is_refused(self, case: Case, asked: float) -> None:
        with pytest.raises(ShoalError, match="epsilon0") as caught:
            design(self.NAME, case.domain, asked)
        assert caught.value.kind is Kind.INVALID

    @every_case
    @BOTH
    def test_a_device_uses_the_system_entropy_afresh(self, case: Case, way: Way) -> None:
        """Eight designs at epsilon0 1e-3 are almost pure noise: 200 reports of one value are not
        all alike (chance < 2^-190).
        """
        mechanism = create(design(self.NAME, case.domain, 1e-3), case.domain)
        reports = [way(mechanism, 0, SystemEntropy()) for _ in range(200)]
        assert len(set(reports)) > 1

    # --- helpers ----------------------------------------------------------------------------------

    def _count(self, reports: np.ndarray) -> Counter[bytes]:
        data, width = reports.tobytes(), reports.shape[1] * reports.shape[2]
        return Counter(data[at : at + width] for at in range(0, len(data), width))

    def _corners(self, draw: Draw) -> list[bytes]:
        """The first and the last word of every interval that is not refused."""
        return [draw.word(w) for low, high in draw.kept() for w in {low, high - 1}]

    def _corner_scripts(self, case: Case) -> Iterator[tuple[bytes, ...]]:
        """Corners of all draws, and refused words of the last."""
        *before, last = self.draws(case)
        ends = [*self._corners(last)[:40], *(last.word(word) for word, _ in last.refused)][:60]
        return itertools.islice(
            itertools.product(*(self._corners(draw)[:40] for draw in before), ends), 400
        )

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
        for box in itertools.product(*(draw.kept() for draw in draws)):
            report = self._constant(way, mechanism, cell, draws, box)
            assert report is not None, "a word is refused that the member does not state as refused"
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

    def _constant(
        self,
        way: Way,
        mechanism: Mechanism,
        cell: int,
        draws: tuple[Draw, ...],
        box: tuple[tuple[int, int], ...],
    ) -> bytes | None:
        """The report that all corners of a box of words agree on."""
        corners = itertools.product(*(sorted({low, high - 1}) for low, high in box))
        reports = {
            play(
                way, mechanism, cell, Tape(*(d.word(w) for d, w in zip(draws, corner, strict=True)))
            )
            for corner in corners
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

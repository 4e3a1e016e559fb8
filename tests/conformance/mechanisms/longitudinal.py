"""What every mechanism with a memory must keep besides: that a report is the chain of its parts,
and what the permanent part gives away.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction
from math import lcm, prod

import numpy as np
import pytest

from shoal.entropy import Entropy, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Mechanism
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.privacy import FiniteLaw, SymmetricLaw
from tests.conformance.mechanisms.checks.case import Case, Draw, every_case, once, table
from tests.conformance.mechanisms.checks.classes import Classes
from tests.conformance.mechanisms.checks.law import Way, corners
from tests.conformance.mechanisms.suite import MechanismSuite
from tests.sizes import size
from tests.worlds.tapes import Tape

Law = dict[bytes, Fraction]
_MOST_PLAYS = 6_000  # of whole reports, for one cell


def longitudinal(case: Case) -> Longitudinal:
    mechanism = case.mechanism
    assert isinstance(mechanism, Longitudinal)
    return mechanism


def kept(mechanism: Longitudinal, cell: int, entropy: Entropy) -> tuple[bytes, bytes]:
    """(choice, permanent answer) of a new device that holds a cell."""
    choice = mechanism.choose_one(entropy)
    return choice, mechanism.remember_one(choice, mechanism.key_of(choice, cell), entropy)


def enumerated(make: Callable[[Entropy], bytes], draws: tuple[Draw, ...]) -> Law:
    """The exact law of ``make`` over all words of ``draws`` that it does not refuse, from the
    corners of every box of words (reduced: two opposite ones).
    """
    weights: dict[bytes, int] = defaultdict(int)
    total = prod(sum(high - low for low, high in draw.kept()) for draw in draws)
    for box in itertools.product(*(draw.kept() for draw in draws)):
        found = set()
        for words in corners(box):
            tape = Tape(*(draw.word(word) for draw, word in zip(draws, words, strict=True)))
            found.add(make(tape))
            assert tape.done(), "the code drew less than stated"
        assert len(found) == 1, "the code decides differently inside an interval"
        weights[found.pop()] += prod(high - low for low, high in box)
    assert sum(weights.values()) == total
    return {made: Fraction(weight, total) for made, weight in weights.items()}


class LongitudinalSuite(MechanismSuite):
    """Subclass as Test<Name> in the place of ``MechanismSuite``, and state the draws of each part
    instead of ``draws``.
    """

    def choice_draws(self, case: Case) -> tuple[Draw, ...]:
        raise NotImplementedError

    def permanent_draws(self, case: Case) -> tuple[Draw, ...]:
        raise NotImplementedError

    def report_draws(self, case: Case) -> tuple[Draw, ...]:
        raise NotImplementedError

    def draws(self, case: Case) -> tuple[Draw, ...]:
        return (*self.choice_draws(case), *self.permanent_draws(case), *self.report_draws(case))

    # --- laws -------------------------------------------------------------------------------------

    @once
    def kept_law(self, case: Case, cell: int) -> dict[tuple[bytes, bytes], Fraction]:
        """The exact law of (choice, permanent answer) of a device that holds ``cell``."""
        mechanism, pairs = longitudinal(case), {}

        def make(entropy: Entropy) -> bytes:
            pair = kept(mechanism, cell, entropy)
            pairs[b"".join(pair)] = pair
            return b"".join(pair)

        law = enumerated(make, (*self.choice_draws(case), *self.permanent_draws(case)))
        return {pairs[joined]: chance for joined, chance in law.items()}

    @once
    def report_law(self, case: Case, choice: bytes, remembered: bytes) -> Law:
        """The exact law of one window's report of a device that kept these. No cell has a part in
        it.
        """
        mechanism = longitudinal(case)
        return enumerated(
            lambda entropy: b"".join(mechanism.report_one(choice, remembered, entropy)),
            self.report_draws(case),
        )

    def _enumerate(
        self,
        way: Way,
        mechanism: Mechanism,
        cell: int,
        draws: tuple[Draw, ...],
        index: dict[bytes, int],
    ) -> tuple[list[int], int]:
        """Where there are too many words to play: the chain of the parts' laws, each enumerated.
        That both draws of a whole report are this chain is shown by
        ``test_a_report_is_the_chain_of_its_parts``, and by their byte identity under the suite's
        scripts.
        """
        if prod(2 * len(draw.kept()) for draw in draws) <= _MOST_PLAYS:
            return super()._enumerate(way, mechanism, cell, draws, index)
        case = next(each for each in self.CASES if each.spec == mechanism.spec)
        chances = [Fraction(0)] * len(index)
        for (choice, remembered), chance in self.kept_law(case, cell).items():
            for report, share in self.report_law(case, choice, remembered).items():
                chances[index[report]] += chance * share
        total = prod(sum(high - low for low, high in draw.kept()) for draw in draws)
        weights = [chance * total for chance in chances]
        assert all(weight.denominator == 1 for weight in weights)
        return [int(weight) for weight in weights], total

    # --- promises ---------------------------------------------------------------------------------

    @every_case
    def test_a_report_is_the_chain_of_its_parts(self, case: Case) -> None:
        """Choice, key, permanent answer, report, drawn in this order from the same words: byte for
        byte ``randomize_one``. Every window's report of what was kept is one that the analyzer
        takes; kept bytes are of one length.

        Planted: the report's words drawn before the permanent ones; the report's noise on the true
        cell's bits -> fails.
        """
        mechanism, lengths = longitudinal(case), set()
        for cell, seed in itertools.product(case.cells, range(size(20, 200))):
            ours, theirs = (SeededEntropy(f"{case.name} {cell} {seed}") for _ in range(2))
            choice, remembered = kept(mechanism, cell, ours)
            assert mechanism.report_one(choice, remembered, ours) == mechanism.randomize_one(
                cell, theirs
            )
            assert ours.bytes(8) == theirs.bytes(8)
            again = mechanism.report_one(choice, remembered, ours)
            assert mechanism.valid(
                np.frombuffer(b"".join(again), dtype=np.uint8).reshape(mechanism.messages, -1)
            ).all()
            lengths.add((len(choice), len(remembered)))
            assert 0 <= mechanism.key_of(choice, cell) < mechanism.keys
        assert len(lengths) == 1

    @every_case
    def test_choice_and_permanent_answer_have_the_law_that_is_stated(self, case: Case) -> None:
        """Enumerated from the production code; every ordered pair of cells in the classes of
        ``permanent()``, or its table's largest ratio. The choice is the same under every cell.

        Planted: the permanent answer drawn with the report's probabilities; ``permanent`` stating
        the report's law -> fails. A choice that always has the value's bucket -> fails.
        """
        cells = range(case.domain.size)
        found = [self.kept_law(case, cell) for cell in cells]
        choices: list[dict[bytes, Fraction]] = [defaultdict(Fraction) for _ in found]
        for chances, one in zip(choices, found, strict=True):
            for (choice, _), chance in one.items():
                chances[choice] += chance
        assert all(chances == choices[0] for chances in choices)
        law = longitudinal(case).permanent()
        assert all(one.keys() == found[0].keys() for one in found)
        scale = lcm(*(p.denominator for one in found for p in one.values()))
        columns = Counter(tuple(int(one[output] * scale) for one in found) for output in found[0])
        ratio = max(Fraction(max(column), min(column)) for column in columns)
        assert ratio == law.max_ratio
        if isinstance(law, FiniteLaw):
            assert len(table(law)) == len(found)
        if not isinstance(law, SymmetricLaw):
            return
        for chosen in itertools.permutations(cells, 3 if law.third is not None else 2):
            seen, claimed = Classes(), Classes()
            for column, alike in columns.items():
                seen.add([column[cell] for cell in chosen], min(column), scale, alike)
            rows = (law.one, law.two, law.third) if law.third is not None else (law.one, law.two)
            for at, least in enumerate(law.least):
                claimed.add([row[at] for row in rows], least, law.total)
            assert claimed.masses() == seen.masses()
            assert claimed.claims_no_more_than(seen)

    @every_case
    def test_one_report_alone_never_costs_more_than_what_is_kept(self, case: Case) -> None:
        assert case.mechanism.privacy().max_ratio <= longitudinal(case).permanent().max_ratio

    @every_case
    def test_three_windows_of_an_unchanged_value_stay_within_the_permanent_law(
        self, case: Case
    ) -> None:
        """In rationals, for every pair of values and every triple of reports. (Cases of few
        outputs.)

        Planted: each window's noise on the true cell's own permanent *probabilities*, which is a
        permanent answer drawn anew (the law of a report, three times) -> more than ``permanent`` in
        every case in which a report has noise of its own, and this fails.
        """
        if len(self.table_of(case)[0]) > 4:
            return
        laws = []
        for cell in range(case.domain.size):
            seen: dict[tuple[bytes, ...], Fraction] = defaultdict(Fraction)
            for (choice, remembered), chance in self.kept_law(case, cell).items():
                one = self.report_law(case, choice, remembered)
                for three in itertools.product(one, repeat=3):
                    seen[three] += chance * prod(one[report] for report in three)
            laws.append(dict(seen))
        worst = max(
            one[view] / two.get(view, Fraction(0))
            for one, two in itertools.permutations(laws, 2)
            for view in one
        )
        assert (
            case.mechanism.privacy().max_ratio <= worst <= longitudinal(case).permanent().max_ratio
        )

    @every_case
    def test_what_no_device_could_have_kept_is_refused(self, case: Case) -> None:
        """A choice, a key and a permanent answer of other lengths or ranges, before anything is
        drawn.
        """
        mechanism = longitudinal(case)
        choice, remembered = kept(mechanism, 0, SeededEntropy(3))
        for bad in (choice + b"\0", b"\xff" * (len(choice) or 1)):
            self._refused(mechanism.key_of, bad, 0)
            self._refused(mechanism.remember_one, bad, 0, Tape())
            self._refused(mechanism.report_one, bad, remembered, Tape())
        for key in (-1, mechanism.keys, True, 0.0):
            self._refused(mechanism.remember_one, choice, key, Tape())
        for cell in (-1, case.domain.size):
            self._refused(mechanism.key_of, choice, cell)
        for answer in (remembered + b"\0", remembered[:-1], b"\xff" * len(remembered) * 2):
            self._refused(mechanism.report_one, choice, answer, Tape())

    def _refused(self, act: Callable[..., object], *given: object) -> None:
        with pytest.raises(ShoalError) as caught:
            act(*given)
        assert caught.value.kind is Kind.INVALID

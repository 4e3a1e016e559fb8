"""What every registered randomizer must keep. A new one subclasses ``MechanismSuite``, states its
cases and its draws. The heart is the exact enumeration of its law: see ``law``.
"""

from __future__ import annotations

import itertools
from collections.abc import Container
from typing import ClassVar

import mpmath
import numpy as np
import pytest

from shoal.domain import Domain
from shoal.entropy import SeededEntropy, SystemEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create, design
from shoal.mechanisms.parts.sampling import BLOCK
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.conformance.mechanisms.checks.case import Case, every_case, every_domain
from tests.conformance.mechanisms.checks.law import LawSuite, by_array, by_one, play
from tests.conformance.mechanisms.checks.statistics import StatisticsSuite
from tests.sizes import size
from tests.worlds.tapes import Tape

_GRID = (float(10**exponent) for exponent in np.linspace(-3, np.log10(20), size(7, 40)))
_AT_ONCE = 25  # runs of devices that answer together
ASKED = (*_GRID, 0.5, 1.0, float(np.log(3)), 2.0, 4.0, 8.0, 20.0)


class MechanismSuite(LawSuite, StatisticsSuite):
    """Subclass as Test<Name>: it inherits every test below, and those of ``law`` and of
    ``statistics``.
    """

    NAME: ClassVar[str]
    CASES: ClassVar[tuple[Case, ...]]

    # --- what a member states ---------------------------------------------------------------------

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        """The same spec with one integer step less noise, or None at the end of the range."""
        raise NotImplementedError

    def truth(self, case: Case, values: np.ndarray) -> np.ndarray:
        """What the estimate of these cells should be on average, label by label; NaN where the
        estimate doesn't try.
        """
        return np.bincount(values, minlength=case.domain.size).astype(float)

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
    def test_randomness_used_does_not_depend_on_the_value(self, case: Case) -> None:
        """Same requests for every value and every coin; an array of one makes the same, see
        "wherever the code decides". Planted: the uniform cell drawn only when the coin asks ->
        fails.
        """
        asked = set()
        cells = case.cells[: size(4, 8)]
        for cell, chunks in itertools.product(cells, self._corner_scripts(case)):
            tape = Tape(*chunks)
            if play(by_one, case.mechanism, cell, tape) is not None:
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
        mechanism, seeds = case.mechanism, size(12, 400) if len(case.listed) <= 32 else 3
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
        cells = case.cells[: size(4, 8)]
        for cell, chunks in itertools.product(cells, self._corner_scripts(case)):
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
        listed = sorted(set(self.reports_of(case)))
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
        mechanism, runs, count = case.mechanism, size(200, 400), size(500, 20_000)
        values = case.tiled(
            np.sort(np.arange(count) ** 2 % (3 * len(case.listed)) % len(case.listed))
        )  # uneven shares
        truth, entropy = self.truth(case, values), SeededEntropy(f"unbiased {case.name}")
        estimates = []
        for _ in range(runs // _AT_ONCE):
            reports = mechanism.randomize(np.tile(values, _AT_ONCE), entropy)
            for part in np.split(reports.reshape(-1, mechanism.report_size), _AT_ONCE):
                estimates.append(mechanism.estimate(mechanism.tally(part)))
        mean = np.mean([estimate.values for estimate in estimates], axis=0)
        error = np.mean([estimate.stderr for estimate in estimates], axis=0) / np.sqrt(runs)
        known = ~np.isnan(truth)
        # A standard error of 1e-6 or less (T = 1: no report ever differs) leaves the float rounding
        # of n.
        assert (np.abs(mean - truth)[known] <= 5 * error[known] + 1e-9 * count).all()

    # --- epsilon0 ---------------------------------------------------------------------------------

    @every_domain
    def test_designed_epsilon0_is_never_above_the_asked(self, domain: Domain) -> None:
        """For 47 asked values from 1e-3 to 20 (reduced: 14): below or equal, checked with 60 digits
        too, and within 1e-12 of it or one integer step. Planted: floor instead of search from the
        safe side (one step less noise) -> fails.
        """
        for asked in ASKED:
            spec = design(self.NAME, domain, asked)
            privacy = create(spec, domain).privacy()
            assert epsilon0_upper(privacy) <= asked
            with mpmath.workdps(60):
                assert mpmath.log(
                    mpmath.mpf(privacy.max_ratio.numerator) / privacy.max_ratio.denominator
                ) <= mpmath.mpf(asked)
            if epsilon0_upper(privacy) < asked * (1 - 1e-12):
                less = self.less_noise(spec)
                assert less is None or epsilon0_upper(create(less, domain).privacy()) > asked

    @every_domain
    @for_each("asked", [0.0, -1.0, float("nan"), float("inf"), 1e-21])
    def test_impossible_epsilon0_is_refused(self, domain: Domain, asked: float) -> None:
        with pytest.raises(ShoalError, match="epsilon0") as caught:
            design(self.NAME, domain, asked)
        assert caught.value.kind is Kind.INVALID

    @every_domain
    def test_a_device_uses_the_system_entropy_afresh(self, domain: Domain) -> None:
        """Designs at epsilon0 1e-3 are almost pure noise: 200 reports of one value, reduced 64, are
        not all alike (chance < 2^-60).
        """
        mechanism = create(design(self.NAME, domain, 1e-3), domain)
        for way in (by_array, by_one):
            reports = {way(mechanism, 0, SystemEntropy()) for _ in range(size(64, 200))}
            assert len(reports) > 1, way.__name__

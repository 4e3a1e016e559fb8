"""Means from tables: what the standard error is on the average report, without any chance in it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from shoal.domain import Numeric
from shoal.errors import ShoalError
from shoal.mechanisms import create, design
from shoal.mechanisms.base import Tally
from shoal.mechanisms.numbers.means import TableMean, estimate, places
from shoal.mechanisms.parts.tables import MEAN_OF_ALL
from tests.cases import for_each

N = 10**12


def made(name: str, levels: int, epsilon0: float, setting: str = "") -> TableMean:
    domain = Numeric(-3, 5, levels)
    mechanism = create(design(name, domain, epsilon0, setting), domain)
    assert isinstance(mechanism, TableMean)
    return mechanism


def on_average(mechanism: TableMean, held: list[int]) -> tuple[float, float, float]:
    """(value, standard error, expected standard error) from the expected counts of N devices in
    these proportions.
    """
    counts = np.array(held) * (N // sum(held))
    reports = counts @ mechanism.table.probabilities()
    scores = np.array([float(score) for score in mechanism.scores])
    found = estimate(mechanism.domain, mechanism.table, scores, reports)
    return (
        float(found.values[0]),
        float(found.coins[0]),
        float(mechanism.expected_stderr(counts)[0]),
    )


def test_places_are_even_and_no_answer_is_the_middle() -> None:
    assert places(Numeric(0, 9, 4)) == tuple(Fraction(third, 3) for third in (-3, -1, 1, 3, 0))


@for_each("name, setting", [("piecewise", "m=16"), ("hybrid", "m=16"), ("one_bit_mean", "")])
@for_each("held", [[1, 0, 0, 0, 0, 0], [3, 1, 0, 0, 9, 2], [0, 0, 1, 0, 0, 1]])
def test_five_levels_of_the_table_are_told_apart_or_the_error_is_too_large(
    name: str, setting: str, held: list[int]
) -> None:
    """Five independent rows tell the variance, so the error is right; one bit's is right where all
    hold one value, else too large.

    Planted: the sample variance alone -> the second is too large, fails. The fit without its raise
    -> one bit's is too small, fails.
    """
    mechanism = made(name, 5, 2.0, setting)
    value, reported, expected = on_average(mechanism, held)
    levels = np.array([-3, -1, 1, 3, 5, 1])
    assert value == pytest.approx(np.average(levels, weights=held))
    assert reported >= expected * (1 - 1e-6)
    if name != "one_bit_mean" or np.ptp(levels[np.array(held) > 0]) == 0:
        assert reported == pytest.approx(expected, rel=1e-3)


@for_each("levels, epsilon0", [(101, 1.0), (101, 3.0), (24, 4.0), (41, 6.0)])
def test_between_anchors_the_error_is_at_most_5_percent_too_large(
    levels: int, epsilon0: float
) -> None:
    """Both ends and no answer, which are anchors if J is even; evenly over all levels; all at one.

    Planted: no limit to what is not told of the variance -> (24, 4.0) fails.
    """
    mechanism = made("piecewise", levels, epsilon0)
    ends = [1, *[0] * (levels - 2), 1, 1]
    for held in (ends, [1] * (levels + 1), *np.eye(levels + 1, dtype=np.int64)[1:3].tolist()):
        _, reported, expected = on_average(mechanism, held)
        assert expected * (1 - 1e-6) <= reported <= 1.05 * expected


def test_without_reports_nothing_is_known_but_the_domain() -> None:
    mechanism = made("one_bit_mean", 3, 1.0)
    found = mechanism.estimate(Tally(np.zeros(2, dtype=np.int64), 0))
    assert found.labels == (MEAN_OF_ALL,)
    assert [
        float(each[0]) for each in (found.values, found.stderr, found.ci_low, found.ci_high)
    ] == [1.0, 4.0, -3.0, 5.0]
    assert mechanism.expected_stderr(np.zeros(4, dtype=np.int64)).tolist() == [4.0]
    for wrong in (np.zeros(3, dtype=np.int64), np.array([1, -1, 0, 0])):
        with pytest.raises(ShoalError):
            mechanism.expected_stderr(wrong)


def test_one_report_has_a_finite_error() -> None:
    """Planted: the sample variance divided by 0 -> fails."""
    mechanism = made("piecewise", 5, 1.0)
    for output in range(mechanism.table.outputs):
        found = mechanism.estimate(
            Tally(np.eye(mechanism.table.outputs, dtype=np.int64)[output], 1)
        )
        assert 0 < found.stderr[0] < 100

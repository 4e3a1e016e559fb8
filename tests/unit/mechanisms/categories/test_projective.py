"""Projective geometry response: its errors in exact arithmetic, its design, and domains that the
suite does not list.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.accounting.accountant import certify
from shoal.domain import YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, create, design
from shoal.mechanisms.categories import subset
from shoal.mechanisms.categories.projective import (
    ProjectiveResponse,
    best_field,
    fields,
    most_include,
    ratio,
    variance,
)
from shoal.mechanisms.parts.projective_space import Space
from shoal.privacy import PureLaw, epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.unit.mechanisms.categories.of_cells import (
    WORDS,
    check_errors,
    check_large,
    domain,
    labels,
)


@for_each(
    "k, field, include",
    [(5, 2, WORDS // 2), (6, 3, WORDS - 1), (9, 2, WORDS // 2 + 10**15), (4, 5, WORDS // 3)],
)
def test_mean_and_variance_are_those_of_the_law(k: int, field: int, include: int) -> None:
    """The estimate is linear in the reports: its mean and variance in rationals, output by output,
    with the probabilities of the paper. Planted: 1 / (q + 1) for 1 / q in ``chances`` -> fails.
    """
    mechanism = ProjectiveResponse(labels(k), field, include)
    space = mechanism.space
    every = space.vector(np.arange(space.points))
    inside = Fraction(include, WORDS * space.support)
    outside = Fraction(WORDS - include, WORDS * space.others)

    def chances(cell: int) -> list[Fraction]:
        meets = (space.product(every, np.full_like(every, every[cell])) == 0).tolist()
        return [inside if each else outside for each in meets]

    check_errors(mechanism, k, space.points, chances)


@for_each("epsilon0", [1.0, 2.0, 3.0, 4.0])
def test_it_errs_as_subset_selection_does(epsilon0: float) -> None:
    """k = 1,024: the average variance is at most 3 % above that of the best set size (the next
    prime is not quite e^epsilon0 + 1), in 2 bytes for 128. Planted: the prime of most
    variance of the three -> fails.
    """
    k = 1024
    field = best_field(k, epsilon0)
    space = Space.of(field, k)
    ours = variance(space, most_include(space, epsilon0), k)
    d = subset.best_d(k, epsilon0)
    theirs = subset.variance(k, d, subset.most_include(k, d, epsilon0))
    assert 1 <= ours / theirs < 1.03
    assert create(design("projective", domain(k), epsilon0), domain(k)).report_size == 2


@for_each("k", [5, 16, 200])
@for_each("epsilon0", [0.5, 1.0, 2.5, 7.0])
def test_no_other_field_errs_less(k: int, epsilon0: float) -> None:
    """Of all fields. For few cells the least is not next to e^epsilon0 + 1. Planted: the two primes
    around that number -> k = 5 and k = 16 fail.
    """

    def error(field: int) -> Fraction:
        space = Space.of(field, k)
        return variance(space, most_include(space, epsilon0), k)

    assert error(best_field(k, epsilon0)) == min(map(error, fields(k)))


@for_each("k, field", [(3, 2), (16, 7), (1024, 37)])
@for_each("epsilon0", [1e-9, 1.0, 5.0, 20.0, 40.0])
def test_one_step_less_noise_would_break_the_promise(k: int, field: int, epsilon0: float) -> None:
    """Planted: one more of 2^64 included -> the first assertion fails."""
    space = Space.of(field, k)
    include = most_include(space, epsilon0)
    assert epsilon0_upper(PureLaw(ratio(space, include))) <= epsilon0
    assert include == WORDS - 1 or epsilon0_upper(PureLaw(ratio(space, include + 1))) > epsilon0


@for_each("k, field, width", [(5, 2, 1), (300, 17, 2), (4_096, 61, 3), (65_536, 3, 3)])
def test_large_domains_are_found_again(k: int, field: int, width: int) -> None:
    """Planted: the support of the next cell -> fails."""
    mechanism = ProjectiveResponse(labels(k), field, most_include(Space.of(field, k), 4.0))
    assert mechanism.report_size == width
    cells, reports = check_large(mechanism, k)
    tally = mechanism.tally(reports)
    supported = [int(mechanism.supports(reports, cell).sum()) for cell in cells.tolist()]
    assert (
        supported
        == mechanism.space.sums(tally.counts.astype(np.float64), tally.rows)[cells].tolist()
    )


@for_each(
    "k, field, include, said",
    [
        (2, 2, WORDS - 1, "wants 3 cells or more: take binary_rr"),
        (4, 4, WORDS - 1, "give a prime"),
        (300, 257, WORDS - 1, "smaller field"),
        (4, 2, WORDS * 3 // 7, '"include"'),
        (4, 2, 0, '"include"'),
        (4, 2, WORDS, '"include"'),
    ],
)
def test_other_integers_are_refused(k: int, field: int, include: int, said: str) -> None:
    with pytest.raises(ShoalError) as caught:
        ProjectiveResponse(labels(k), field, include)
    assert caught.value.kind is Kind.INVALID
    assert said in str(caught.value)


def test_settings_by_number_leave_out_what_is_randomized_response() -> None:
    """q + 1 < k, and no more than 2^24 vectors. Planted: q to k + 2 -> fails."""
    family = REGISTRY["projective"]
    assert [each.name for each in family.settings(domain(13))] == [
        "standard",
        *("q=2", "q=3", "q=5", "q=7", "q=11"),
    ]
    assert [each.name for each in family.settings(domain(4))] == ["standard", "q=2"]
    assert [each.name for each in family.settings(domain(3))] == ["standard", "q=2"]
    with pytest.raises(ShoalError, match="3 cells or more"):
        family.settings(YesNo())
    assert 251 not in fields(65_536)
    with pytest.raises(ShoalError, match='"k" is 5'):
        create(MechanismSpec.of("projective", k=5, field=2, include=WORDS - 1), domain(4))
    for wrong in (0.0, math.nan):
        with pytest.raises(ShoalError, match="epsilon0"):
            design("projective", domain(9), wrong)


@for_each(
    "k, field, others",
    [
        (3, 2, (2,)),
        (5, 2, (3, 2)),
        (14, 2, (3, 2)),
        (6, 3, (4, 2)),
        (4, 5, (2,)),
        (40, 5, (6, 2)),
        (60, 7, (8, 2)),
    ],
)
def test_lower_bounds_are_of_some_of_the_cells(k: int, field: int, others: tuple[int, ...]) -> None:
    """Rows of cells 0, 1, one off their line and one on it, point by point from their products,
    joined where their proportions are alike. Planted: the law of three that share as many points as
    two do -> fails; one in q of the points for one in q - 1 -> fails.
    """
    mechanism = ProjectiveResponse(labels(k), field, 3 * (WORDS // 4))
    law, space = mechanism.privacy(), mechanism.space
    assert law.real is not None
    every = space.vector(np.arange(space.points))
    supported = [
        (space.product(every, np.full_like(every, space.vector(cell))) == 0).tolist()
        for cell in (0, 1, *others)
    ]
    inside, outside = 3 * space.others, space.support
    rows = len(supported)
    expected: dict[tuple[bool, ...], list[int]] = {}
    for point in zip(*supported, strict=True):
        row = expected.setdefault(point, [0] * rows)
        for at, meets in enumerate(point):
            row[at] += inside if meets else outside
    told = law.real.law()
    scale = Fraction(told.total, sum(row[0] for row in expected.values()))
    joined: dict[Fraction | tuple[Fraction, ...], list[int]] = {}
    for row in expected.values():
        key = tuple(Fraction(weight, row[2]) for weight in row)
        joined[key] = [a + b for a, b in zip(joined.get(key, [0] * rows), row, strict=True)]
    assert sorted(zip(*told.rows, strict=True)) == sorted(
        tuple(weight * scale for weight in row) for row in joined.values()
    )


@for_each(
    "k, field, include, n",
    [(40, 5, 7 * (WORDS // 8), 20_000), (16, 2, 3 * (WORDS // 4), 10**6), (3, 2, WORDS // 2, 500)],
)
def test_a_certificate_is_nearly_two_sided(k: int, field: int, include: int, n: int) -> None:
    """Others on the line hide least. Planted: no cell 2 among those that others may answer -> 12
    and 25 % apart, fails.
    """
    found = certify(ProjectiveResponse(labels(k), field, include).privacy(), n, 1e-6)
    assert found.epsilon_lower <= found.epsilon_upper <= 1.005 * found.epsilon_lower

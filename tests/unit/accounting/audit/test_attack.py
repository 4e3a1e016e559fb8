"""Attacks on reports that are no cells: what a report says of a cell agrees with the mechanism's
own counting.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from shoal.accounting.audit.attack import estimate_views, furthest_answers, views_of
from shoal.accounting.audit.audit import audit
from shoal.domain import Categories, Domain, Numeric, Places, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, Mechanism, create, design, serves
from shoal.mechanisms.base import Supporting
from shoal.privacy import FiniteLaw, KaryLaw, epsilon0_upper
from tests.cases import for_each
from tests.sizes import FULL, size

DOMAINS: tuple[Domain, ...] = (
    YesNo(),
    Categories(tuple("abcdefghij")),
    Categories(tuple(f"c{i}" for i in range(300))),
    Numeric(0, 1, 7),
    Places(0, 0, 400, 400, 3, 4),
)
# whose reports support a cell by degrees: how many of its filter's bits are set
BY_ESTIMATES = {"rappor"}
CASES = [
    (name, setting.name, domain)
    for name in sorted(REGISTRY)
    for domain in DOMAINS
    if serves(name, domain)
    for setting in REGISTRY[name].settings(domain)[: size(2, 3)]
]
# By the estimates alone: a mean of one report is none where nobody answered (kmean), or lies at an
# end of the domain (square_wave), and the estimates of neighbours from one report swing too far to
# say which cell it was (exponential).
BLIND = {"exponential", "kmean", "square_wave"}
SEEN = sorted(set(REGISTRY) - BLIND) if FULL else ["dbitflip", "krr", "laplace", "rappor"]


def built(name: str, setting: str, domain: Domain) -> Mechanism:
    return create(design(name, domain, 1.5, setting), domain)


def test_every_registered_randomizer_has_a_domain_here() -> None:
    """Planted: no map among them -> planar has none."""
    assert {name for name, _, _ in CASES} == set(REGISTRY)


@for_each("name, setting, domain", CASES)
def test_what_supports_a_cell_is_what_the_mechanism_counts_for_it(
    name: str, setting: str, domain: Domain
) -> None:
    """The estimate from one report is above its average for the cells that it supports, and only
    for them.

    Planted: bit i % 8 instead of 7 - i % 8; the hash's seed read little-endian; a row of Hadamard
    response without its + 1 -> fails.
    """
    mechanism = built(name, setting, domain)
    if not isinstance(mechanism, Supporting) and name in BY_ESTIMATES:
        return
    if not isinstance(mechanism, Supporting):
        assert isinstance(mechanism.privacy(), KaryLaw | FiniteLaw), (
            "its reports are no cells of a table, and nothing is known of them"
        )
        return
    rows = mechanism.randomize(
        np.arange(size(8, 60)) % domain.size, SeededEntropy(f"supports {name}")
    )[:, 0]
    for row in rows:
        values = mechanism.estimate(mechanism.tally(row[None])).values
        found = [bool(mechanism.supports(row[None], cell)[0]) for cell in range(domain.size)]
        if any(found):
            assert np.array_equal(found, np.isclose(values, values.max()) & (values > 0)), (
                name,
                setting,
            )
        else:
            assert (values <= 0).all()


@for_each(
    "name, domain, ends",
    [
        ("laplace", DOMAINS[3], (0, 6)),
        ("exponential", DOMAINS[1], (0, 9)),
        ("krr", DOMAINS[1], (0, 1)),
        ("unary", DOMAINS[1], (0, 1)),
    ],
)
def test_the_two_cells_that_reports_tell_apart_best_are_attacked(
    name: str, domain: Domain, ends: tuple[int, int]
) -> None:
    """Of an order its ends, not neighbours. Planted: the nearest two -> fails."""
    assert furthest_answers(built(name, "", domain).privacy()) == ends


@for_each("name", SEEN)
def test_the_estimates_alone_are_an_attack_too(name: str) -> None:
    """What a randomizer that is not known here gets: it refutes a claim of a fifth, and not the
    true one. (Of a tenth for gaussian, which reaches its epsilon0 in rare reports alone.)

    False alarm: 1e-6 each. Planted: the victim left out -> measures 0.
    """
    domain = next(domain for domain in DOMAINS if serves(name, domain))
    mechanism = built(name, "", domain)
    claim = epsilon0_upper(mechanism.privacy())
    ends = furthest_answers(mechanism.privacy())
    result = audit(
        estimate_views(mechanism, domain.size, 1, SeededEntropy(7), answers=ends),
        claim,
        0.0,
        size(1_000, 2_000),
    )
    assert (0.1 if name == "gaussian" else 0.2) * claim < result.epsilon_measured_lower < claim


def test_a_randomizer_of_which_nothing_is_known_is_attacked_by_its_estimates() -> None:
    mechanism = built("rappor", "", DOMAINS[1])
    names = set(views_of(mechanism, DOMAINS[1].size, 3, SeededEntropy(1))(0, 2))
    assert names == {"the difference of the estimates", "the first estimate", "the second estimate"}


@for_each("name", ["unary", "local_hash", "krr", "hadamard"])
def test_the_likelihood_ratio_is_that_of_the_law(name: str) -> None:
    """Alone, a report's statistic is +-ln of the law's ratio, or 0. Planted: the ratio of the
    square root -> fails.
    """
    domain = DOMAINS[1]
    mechanism = built(name, "", domain)
    found = views_of(mechanism, domain.size, 1, SeededEntropy(2))(1, 3_000)["log likelihood ratio"]
    ratio = float(np.log(float(Fraction(mechanism.privacy().max_ratio))))
    assert set(found) <= set(np.round([-ratio, 0.0, ratio], 9))
    assert len(set(found)) >= 3


@pytest.mark.parametrize("answers", [(0, 0), (0, 11), (-1, 1)])
def test_answers_are_two_cells_of_the_domain(answers: tuple[int, int]) -> None:
    mechanism = built("unary", "", DOMAINS[1])
    for make in (views_of, estimate_views):
        with pytest.raises(ShoalError, match="cells 0 to 10") as caught:
            make(mechanism, 11, 5, SeededEntropy(1), answers=answers)
        assert caught.value.kind is Kind.INVALID

"""Certificates against independently measured values (tests/vectors/accounting/reference.json holds
their provenance).
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from shoal.accounting import routes
from shoal.accounting.accountant import certify, compare
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.laws import named

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors" / "accounting" / "reference.json").read_text()
)


def alone(method: str, law: str, n: int, epsilon0: float, delta: float) -> float | None:
    """One route's value: the certificate may be below it, for two outputs below the blanket's."""
    found = compare(named(law, epsilon0), n, delta)
    return {value.method: value.epsilon for value in found}[method]


blanket, clones = partial(alone, routes.BLANKET), partial(alone, routes.CLONES)


@for_each("law, quantity, n, epsilon0, delta, epsilon", VECTORS["rows"][:: size(3, 1)])
def test_measured_values(
    law: str, quantity: str, n: int, epsilon0: float, delta: float, epsilon: float
) -> None:
    """Each to 1e-5, but for the reference's coarser k-RR blanket (it may be larger) and projection
    (it may be smaller).

    Planted: clone probability 2/(e^epsilon0 + 1) for unknown randomizers -> the "clones" rows fail.
    Planted: only the case "others answer x" in ``kary_datasets`` -> the "projection" rows fail.
    """
    found = certify(named(law, epsilon0), n, delta)
    if quantity == "clones":
        assert clones(law, n, epsilon0, delta) == pytest.approx(epsilon, rel=1e-5)
        assert found.epsilon_upper < epsilon
    elif quantity == "blanket":
        assert found.epsilon_upper <= epsilon * (1 + 1e-5)
        assert found.epsilon_upper >= found.epsilon_lower
        if law == "krr2":
            assert blanket(law, n, epsilon0, delta) == pytest.approx(epsilon, rel=1e-5)
    elif quantity == "others-all-equal":
        # One dataset of many: never above the truth, and within half a percent of it.
        assert epsilon * (1 - 1e-5) <= found.epsilon_lower <= found.epsilon_upper <= 1.006 * epsilon
    else:
        assert epsilon * (1 - 1e-5) <= found.epsilon_lower <= found.epsilon_upper


@for_each("law, quantity, n, epsilon0, delta, epsilon", VECTORS["large"][:: size(2, 1)])
def test_measured_values_at_a_million_and_more(
    law: str, quantity: str, n: int, epsilon0: float, delta: float, epsilon: float
) -> None:
    """To the four digits recorded. Planted: clone probability 2/(e^epsilon0 + 1) -> the "clones"
    rows fail.
    """
    found = certify(named(law, epsilon0), n, delta)
    if quantity in {"blanket", "clones"}:
        method = {"blanket": routes.BLANKET, "clones": routes.CLONES}[quantity]
        assert alone(method, law, n, epsilon0, delta) == pytest.approx(epsilon, rel=1e-3)
    else:
        assert found.epsilon_lower == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize(
    ("law", "quantity", "n", "epsilon0", "delta", "low", "high"), VECTORS["bracket"]
)
def test_published_bracket(
    law: str, quantity: str, n: int, epsilon0: float, delta: float, low: float, high: float
) -> None:
    """The numerical bound published with the clones theorem brackets ours. Planted: clone
    probability 2/(e^epsilon0 + 1) in ``clones`` -> this fails.
    """
    assert quantity == "clones"
    assert low <= (clones(law, n, epsilon0, delta) or 0.0) <= high


def test_both_ends_meet_for_kary_responses() -> None:
    """The interval is nearly a point: below 1.002 from n = 1000 on. Planted: lower bounds from x2 =
    x alone -> this fails.
    """
    for k, epsilon0, n in [
        (3, 0.5, 1000),
        (16, 4.0, 1000),
        (1024, 1.0, 10_000),
        (7, 2.0, 100_000),
        (16, 4.0, 1_000_000),
    ]:
        found = certify(named(f"krr{k}", epsilon0), n, 1e-8)
        assert found.epsilon_upper <= 1.002 * found.epsilon_lower

"""Chained unary encoding beside the conformance suite: what is designed for many windows, and which
integers are refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from shoal.domain import Categories, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create, design
from shoal.mechanisms.longitudinal.l_unary import FAMILY, ChainedUnary, chain
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each

WORDS = 1 << 64
FIVE = Categories(("a", "b", "c", "d"))
GOOD = {
    "permanent_if_one": WORDS // 2,
    "permanent_if_zero": WORDS // 4,
    "report_if_one": WORDS // 3,
    "report_if_zero": WORDS // 5,
}


@for_each(
    "setting, alpha",
    [
        ("l_osue", 0.5),
        ("l_sue", 0.5),
        ("l_oue", 0.5),
        ("l_soue", 0.5),
        ("alpha=0.25", 0.25),
        ("alpha=0.75", 0.75),
    ],
)
def test_the_lifetime_epsilon_is_what_the_setting_says(setting: str, alpha: float) -> None:
    """At most epsilon0 / alpha, and nearly that. Planted: the permanent bits designed for epsilon0
    -> half of it, and this fails.
    """
    for asked in (0.01, 1.0, 6.0):
        mechanism = create(design("l_unary", FIVE, asked, setting), FIVE)
        assert isinstance(mechanism, Longitudinal)
        assert (
            0.999 * asked / alpha
            < epsilon0_upper(mechanism.permanent())
            <= asked / alpha * (1 + 1e-15)
        )
        assert 0.999 * asked < epsilon0_upper(mechanism.privacy()) <= asked
    assert [one.name for one in FAMILY.settings(FIVE)] == [
        "l_osue",
        "l_sue",
        "l_oue",
        "l_soue",
        "alpha=0.25",
        "alpha=0.75",
    ]


def test_the_probabilities_are_the_papers() -> None:
    """Arcolezi et al. 2022: L-OSUE has p1 = 1/2, q1 = 1 / (e^inf + 1), and a symmetric second
    round; basic RAPPOR two symmetric ones, the first at e^(inf / 2). The chain is a matrix product.
    """
    osue, sue = (
        dict(design("l_unary", FIVE, 1.0, name).parameters) for name in ("l_osue", "l_sue")
    )
    assert osue["permanent_if_one"] == WORDS // 2
    assert osue["permanent_if_zero"] / WORDS == pytest.approx(1 / (math.exp(2.0) + 1), rel=1e-12)
    assert sue["permanent_if_zero"] / WORDS == pytest.approx(1 / (math.exp(1.0) + 1), rel=1e-12)
    for one in (osue, sue):
        assert one["report_if_one"] + one["report_if_zero"] == WORDS
        p1, q1, p2, q2 = (one[name] / WORDS for name in GOOD)
        product = np.array([[p1, 1 - p1], [q1, 1 - q1]]) @ np.array([[p2, 1 - p2], [q2, 1 - q2]])
        found = [chance / WORDS**2 for chance in chain(*(one[name] for name in GOOD))]
        assert product[:, 0] == pytest.approx(found, rel=1e-12)
        p, q = found
        assert math.log(p * (1 - q) / (q * (1 - p))) == pytest.approx(1.0, rel=1e-9)


@for_each(
    "change",
    [
        {"permanent_if_zero": WORDS // 2},
        {"report_if_zero": WORDS // 3},
        {"report_if_one": WORDS // 6},
        {"permanent_if_one": 0},
        {"k": 6},
    ],
)
def test_other_integers_are_refused(change: dict[str, Any]) -> None:
    create(MechanismSpec.of("l_unary", k=5, **GOOD), FIVE)
    with pytest.raises(ShoalError, match="l_unary") as caught:
        create(MechanismSpec.of("l_unary", **{"k": 5, **GOOD, **change}), FIVE)
    assert caught.value.kind is Kind.INVALID


def test_domains_beyond_a_report_are_refused() -> None:
    many = Categories(tuple(map(str, range(40_000))))
    for act in (lambda: FAMILY.settings(many), lambda: design("l_unary", many, 1.0)):
        with pytest.raises(ShoalError) as caught:
            act()
        assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError):
        ChainedUnary(("alone",), *GOOD.values())
    assert create(design("l_unary", YesNo(), 1.0), YesNo()).report_size == 1

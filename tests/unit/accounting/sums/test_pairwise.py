"""Certificates of sums: against every pair of small vectors, with the honest survivors counted
right, and turned around.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

import shoal.accounting
from shoal.accounting.guarantee import Remaining
from shoal.accounting.sums.pairwise import (
    Bounds,
    Shift,
    SumBound,
    calibrate,
    certify_sum,
    spread,
)
from shoal.accounting.sums.skellam import skellam_epsilon
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.quantize import SensitivityBounds
from shoal.secagg import Mode
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.unit.accounting.noise_laws import (
    Table,
    polya_pmf,
    product,
    skellam_log_pmf,
    true_epsilon,
)

NINE_TENTHS = Fraction(9, 10)


@dataclass(frozen=True)
class Given:
    l1: int
    l2_squared: int
    linf: int

    @property
    def certain_squared(self) -> int:
        """Every vector within the bounds is sent as it is."""
        return self.l2_squared


def skellam(variance: int, shares: int) -> MechanismSpec:
    return MechanismSpec.of("skellam", variance=variance, shares=shares)


def laplace(scale: int, shares: int) -> MechanismSpec:
    return MechanismSpec.of("discrete_laplace", scale=scale, shares=shares)


def certified(
    spec: MechanismSpec,
    bounds: Bounds,
    dimension: int,
    *,
    survivors: int = 20,
    fraction: Fraction | float = NINE_TENTHS,
    delta: float = 1e-6,
    mode: Mode = Mode.DEFAULT,
) -> SumBound:
    return certify_sum(
        spec,
        bounds,
        dimension,
        survivors=survivors,
        honest_fraction=fraction,
        delta=delta,
        mode=mode,
    )


def worst(law: Table, bounds: Given, dimension: int, delta: float) -> float:
    """The true epsilon: the worst of all pairs of whole vectors within the bounds, the law on a box
    large enough.
    """
    box = range(-bounds.linf, bounds.linf + 1)
    inside = [
        v
        for v in itertools.product(box, repeat=dimension)
        if sum(map(abs, v)) <= bounds.l1 and sum(x * x for x in v) <= bounds.l2_squared
    ]
    shifts = {
        tuple(sorted(abs(a - b) for a, b in zip(v, w, strict=True)))
        for v in inside
        for w in inside
        if v != w
    }
    joint = product(law, dimension)
    return max(true_epsilon(joint, shift, delta) for shift in shifts)


SMALL = [
    (Given(1, 1, 1), 1),
    (Given(3, 9, 3), 1),
    (Given(1, 1, 1), 2),
    (Given(2, 2, 1), 2),
    (Given(2, 4, 2), 2),
    (Given(4, 5, 2), 2),
    (Given(2, 2, 1), 3),
]


@for_each("bounds, dimension", SMALL)
@for_each("delta", [1e-2, 1e-5])
def test_skellam_against_every_pair_of_vectors(bounds: Given, dimension: int, delta: float) -> None:
    """lower <= truth <= upper, with the noise of the honest survivors. Planted: sensitivity not
    doubled -> this fails.
    """
    certificate = certified(skellam(6, 36), bounds, dimension, delta=delta)
    law = np.exp(skellam_log_pmf(6 * 18 / 36, 34))
    truth = worst(law, bounds, dimension, delta)
    assert certificate.epsilon_lower <= truth * (1 + 1e-8)
    assert truth <= certificate.epsilon_upper
    if dimension == 1:
        assert certificate.epsilon_lower >= truth * (1 - 1e-6)
        assert certificate.epsilon_upper <= truth * (1 + 1e-6)
    assert certificate.method == ("skellam-exact" if dimension == 1 else "skellam-rdp")


@for_each("bounds, dimension", SMALL)
@for_each("shares", [18, 36, 9])
def test_laplace_against_every_pair_of_vectors(bounds: Given, dimension: int, shares: int) -> None:
    """All shares, half of them, and twice as many. Planted: sensitivity not doubled -> this fails;
    r inverted -> shares = 36 fails.
    """
    certificate = certified(laplace(3 << 16, shares), bounds, dimension)
    law = polya_pmf(3 << 16, 18 / shares, 36 if dimension < 3 else 30)
    truth = worst(law, bounds, dimension, 1e-6)
    assert certificate.epsilon_lower <= truth * (1 + 1e-8)
    assert truth <= certificate.epsilon_upper * (1 + 1e-9)
    if shares == 18:
        assert certificate.epsilon_upper == pytest.approx(
            Shift.of(bounds, dimension).l1 / 3, rel=1e-12
        )
        assert certificate.epsilon_lower >= 0.65 * truth


def test_honest_survivors_are_what_counts() -> None:
    """floor(0.9 * 805) = 724: fewer, more, or other survivors with as many honest. Planted:
    survivors for honest -> this fails.
    """
    bounds = Given(1000, 4096, 64)
    spec = skellam(10**6, 724)
    certificate = certified(spec, bounds, 100, survivors=805)
    assert (certificate.honest, certificate.survivors) == (724, 805)
    assert certificate.epsilon_upper == skellam_epsilon(Fraction(10**6), 1280, 16384, 1e-6)
    assert (
        certified(spec, bounds, 100, survivors=724, fraction=1).epsilon_upper
        == certificate.epsilon_upper
    )
    assert certified(spec, bounds, 100, survivors=804).epsilon_upper > certificate.epsilon_upper
    assert certified(spec, bounds, 100, survivors=1000).epsilon_upper < certificate.epsilon_upper
    # A float is taken at its exact binary value, just below 0.7.
    assert certified(spec, bounds, 100, survivors=10, fraction=0.7).honest == 6


@pytest.mark.parametrize("spec", [skellam(500, 18), laplace(20 << 16, 18)])
def test_modes(spec: MechanismSpec) -> None:
    """Who is held off: strict mode alone promises epsilon_upper against both. Planted: the modes
    exchanged -> this fails.
    """
    bounds = Given(4, 16, 4)
    for mode in Mode:
        certificate = certified(spec, bounds, 3, mode=mode)
        alone = certified(spec, bounds, 3, survivors=1, fraction=1)
        assert certificate.epsilon0 == alone.epsilon_upper > certificate.epsilon_upper
        assert certificate.remaining.analyzer == certificate.epsilon_upper
        assert certificate.remaining.together == (
            certificate.epsilon_upper if mode is Mode.STRICT else certificate.epsilon0
        )
        text = " ".join(certificate.assumptions)
        assert ("shuffler alone sees to it" in text) is (mode is Mode.HELPER)
        assert ("holds against shuffler and analyzer together" in text) is (mode is Mode.STRICT)
        assert "at least 18" in text
        assert "fewer than 20" in text


def test_lower_below_upper_everywhere() -> None:
    """Construction refuses anything else, so that building is the test: sizes from 1 to 2^40,
    dimensions to 100,000.
    """
    for dimension, size_, variance in itertools.product(
        (1, 3, 100_000), (1, 10, 1 << 20), (1, 1000, 1 << 34, (1 << 64) - 1)
    ):
        for delta in (1e-12, 0.3):
            bounds = Given(size_ * dimension, size_**2 * dimension, size_)
            cube = certified(skellam(variance, 18), bounds, dimension, delta=delta)
            ball = certified(
                skellam(variance, 18), Given(size_ * 10, size_**2, size_), dimension, delta=delta
            )
            assert ball.epsilon_upper <= cube.epsilon_upper
            pure = certified(
                laplace(max(4096, min(variance, 1 << 31)), 18), bounds, dimension, delta=delta
            )
            assert pure.epsilon_lower <= pure.epsilon_upper


def test_shift_doubles_and_cuts() -> None:
    """Twice the norms, four times the square, and each cut to what the others allow. Planted:
    l2_squared doubled -> this fails.
    """
    assert Shift.of(Given(10, 30, 5), 100) == Shift(20, 120, 10, 100)
    assert Shift.of(Given(1000, 1000, 5), 2) == Shift(20, 200, 10, 2)
    assert Shift.of(Given(1000, 9, 1000), 4) == Shift(12, 36, 6, 4)
    assert Shift.of(Given(1000, 2, 1000), 1000) == Shift(8, 8, 2, 1000)


def test_shift_of_what_is_certain() -> None:
    """The same cuts, of the shorter vector; nothing longer than what is possible. Planted:
    ``certain_squared`` alone -> the last line fails.
    """
    assert Shift.certain(SensitivityBounds(10, 30, 5, 25), 100) == Shift(20, 100, 10, 100)
    assert Shift.certain(SensitivityBounds(1000, 16, 4, 4), 4) == Shift(8, 16, 4, 4)
    assert Shift.certain(SensitivityBounds(10, 30, 5, 99), 100) == Shift(20, 120, 10, 100)


def test_spread_is_a_pair_within_the_bounds() -> None:
    for l1, l2, linf, count in itertools.product((1, 7, 50), (1, 9, 80), (1, 3, 20), (1, 2, 5)):
        half = spread(Shift.of(Given(l1, l2, linf), 5), count) // 2
        assert half <= linf
        assert count * half <= l1
        assert count * half**2 <= l2


@for_each("name", ["skellam", "discrete_laplace"])
@for_each("epsilon", [0.01, 0.37, 1.0, 8.0])
@for_each(
    "bounds, dimension",
    [(Given(1, 1, 1), 1), (Given(150, 4096, 64), 1000), (Given(30, 900, 30), 30)],
)
def test_calibrate_is_the_smallest(
    name: str, epsilon: float, bounds: Given, dimension: int
) -> None:
    """Enough, one less is not, and made for floor(0.9 * 805) honest. Planted: ``low`` returned,
    shares = survivors -> this fails.
    """
    spec = calibrate(
        name,
        bounds,
        dimension,
        epsilon=epsilon,
        delta=1e-8,
        survivors=805,
        honest_fraction=NINE_TENTHS,
    )
    assert spec.get("shares") == 724
    assert certified(spec, bounds, dimension, survivors=805, delta=1e-8).epsilon_upper <= epsilon
    parameter = "variance" if name == "skellam" else "scale"
    least = 1 if name == "skellam" else 4096
    if spec.get(parameter) > least:
        less = MechanismSpec.of(name, **{parameter: spec.get(parameter) - 1, "shares": 724})
        assert certified(less, bounds, dimension, survivors=805, delta=1e-8).epsilon_upper > epsilon


def test_calibrate_out_of_reach() -> None:
    """A grid too fine for the noise that a device can draw; few survivors make it worse."""
    huge = Given(1 << 47, 1 << 94, 1 << 47)
    for name in ("skellam", "discrete_laplace"):
        with pytest.raises(ShoalError, match="coarser grid") as caught:
            calibrate(name, huge, 1, epsilon=1.0, delta=1e-6, survivors=10, honest_fraction=1)
        assert caught.value.kind is Kind.INVALID


@for_each(
    "changed, match",
    [
        ({"epsilon": 0.0}, "target epsilon"),
        ({"epsilon": math.inf}, "target epsilon"),
        ({"epsilon": math.nan}, "target epsilon"),
        ({"survivors": 1}, "below 1"),
        ({"name": "gaussian"}, "choose skellam"),
        ({"bounds": Given(0, 1, 1)}, "at least 1"),
        ({"dimension": 0}, "at least 1"),
    ],
)
def test_calibrate_refuses(changed: dict[str, object], match: str) -> None:
    given: dict[str, object] = {
        "name": "skellam",
        "bounds": Given(1, 1, 1),
        "dimension": 1,
        "epsilon": 1.0,
        "survivors": 10,
    }
    call = {**given, **changed}
    with pytest.raises(ShoalError, match=match) as caught:
        calibrate(
            call.pop("name"),  # type: ignore[arg-type]
            call.pop("bounds"),  # type: ignore[arg-type]
            call.pop("dimension"),  # type: ignore[arg-type]
            delta=1e-6,
            honest_fraction=NINE_TENTHS,
            **call,  # type: ignore[arg-type]
        )
    assert caught.value.kind is Kind.INVALID


@for_each(
    "spec, survivors, match",
    [
        (MechanismSpec.of("krr", k=2), 20, "choose skellam"),
        (MechanismSpec.of("skellam", variance=5), 20, "shares"),
        (skellam(0, 18), 20, "variance"),
        (skellam(5, 0), 20, "shares"),
        (laplace(0, 18), 20, "scale"),
        (skellam(5, 18), 1, "below 1"),
    ],
)
def test_certify_refuses(spec: MechanismSpec, survivors: int, match: str) -> None:
    with pytest.raises(ShoalError, match=match) as caught:
        certified(spec, Given(1, 1, 1), 1, survivors=survivors)
    assert caught.value.kind is Kind.INVALID


def test_certify_refuses_numbers() -> None:
    for wrong in (
        {"survivors": 0},
        {"fraction": Fraction(0)},
        {"fraction": 1.5},
        {"delta": 0.0},
        {"delta": 1.0},
    ):
        with pytest.raises(ShoalError) as caught:
            certified(skellam(5, 18), Given(1, 1, 1), 1, **wrong)
        assert caught.value.kind is Kind.CONFIG


@for_each(
    "wrong",
    [
        {
            "epsilon_upper": math.inf,
            "epsilon0": math.inf,
            "remaining": Remaining(math.inf, math.inf),
        },
        {"epsilon_upper": math.nan},
        {"epsilon_lower": -0.1},
        {"epsilon_lower": 99.0},
        {"epsilon0": 0.0},
        {"remaining": Remaining(0.0, 0.0)},
        {"remaining": Remaining(0.0, 99.0)},
        {"honest": 17},
        {"method": ""},
        {"assumptions": ()},
        {"relation": "add-one"},
    ],
)
def test_a_certificate_checks_itself(wrong: dict[str, object]) -> None:
    good = certified(skellam(500, 18), Given(4, 16, 4), 3)
    with pytest.raises(ShoalError) as caught:
        replace(good, **wrong)  # type: ignore[arg-type]
    assert caught.value.kind is Kind.INVALID


def test_json_and_export() -> None:
    """Infinity is no JSON: None. The names are exported."""
    good = certified(skellam(500, 18), Given(4, 16, 4), 3)
    shown = replace(
        good, epsilon0=math.inf, remaining=Remaining(good.epsilon_upper, math.inf)
    ).to_json()
    assert (shown["epsilon0"], shown["epsilon_together"]) == (None, None)
    assert (shown["honest"], shown["relation"], shown["epsilon_upper"]) == (
        18,
        "replace-one",
        good.epsilon_upper,
    )
    assert shoal.accounting.certify_sum is certify_sum
    assert shoal.accounting.calibrate is calibrate
    assert shoal.accounting.SumBound is SumBound

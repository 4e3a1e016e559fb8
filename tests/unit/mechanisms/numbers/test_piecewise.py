"""The piecewise mechanism on a grid: unbiased in fractions, its closed forms, the paper's variance
as the limit and as the yardstick.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, create, design
from shoal.mechanisms.numbers.means import TableMean, places
from shoal.mechanisms.numbers.piecewise import LikelyWindow, PiecewiseShape, most_gain
from shoal.task import MechanismSpec
from tests.cases import for_each

WORDS = 1 << 64
EPSILONS = (0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)


def exact(mechanism: TableMean) -> list[tuple[Fraction, Fraction]]:
    """(mean, variance) of the score under every cell."""
    found = []
    for row in mechanism.table.rows:
        mean = (
            sum(
                (score * weight for score, weight in zip(mechanism.scores, row, strict=True)),
                Fraction(0),
            )
            / WORDS
        )
        square = (
            sum(
                (score**2 * weight for score, weight in zip(mechanism.scores, row, strict=True)),
                Fraction(0),
            )
            / WORDS
        )
        found.append((mean, square - mean**2))
    return found


def paper(epsilon0: float, place: float) -> float:
    """N. Wang et al. 2019, equation 9: t^2 / (e^(eps/2) - 1) + (e^(eps/2) + 3) / (3 (e^(eps/2) -
    1)^2).
    """
    root = math.exp(epsilon0 / 2)
    return place**2 / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)


def made(levels: int, epsilon0: float, outputs: int = 0, window: int = 0) -> TableMean:
    domain = Numeric(0, 1, levels)
    spec = design("piecewise", domain, epsilon0)
    if outputs:
        gain = most_gain(levels, outputs, window, WORDS, epsilon0)
        spec = MechanismSpec.of(
            "piecewise", k=levels + 1, outputs=outputs, window=window, gain=gain
        )
    mechanism = create(spec, domain)
    assert isinstance(mechanism, TableMean)
    return mechanism


@for_each("levels", [2, 3, 4, 8])
@for_each("outputs, window", [(2, 1), (5, 2), (8, 3), (9, 3), (7, 6)])
def test_every_level_is_estimated_without_bias_and_errs_as_the_closed_form_says(
    levels: int, outputs: int, window: int
) -> None:
    """The mean is the place, as fractions are; the variance is the module's to 11 digits, and
    nowhere above ``PiecewiseShape.worst``. So is the largest ratio. Planted: the scores without the
    pull of what is left over -> the means differ in the last of 64 bits, this fails.
    """
    mechanism = made(levels, 1.0, outputs, window)
    shape, moves = PiecewiseShape.of(outputs, window, 1.0), outputs - window
    for place, (mean, variance) in zip(places(mechanism.domain), exact(mechanism), strict=True):
        assert mean == place
        anchor = (place + 1) / 2 * moves
        part = anchor - math.floor(anchor)
        q = place**2 + part * (1 - part) * Fraction(2, moves) ** 2
        assert float(variance) == pytest.approx(
            shape.flat + float(q) / shape.telling - float(place) ** 2, rel=1e-11
        )
        assert float(variance) <= shape.worst() * (1 + 1e-11)
    assert float(exact(mechanism)[-1][1]) == pytest.approx(shape.middle, rel=1e-11)
    window_of = LikelyWindow(levels, outputs, window, mechanism.spec.get("gain"))
    assert window_of.ratio == mechanism.privacy().max_ratio


@for_each("share", [0.2, 0.6, 1.0])
@for_each("outputs, window", [(3, 1), (8, 3), (9, 2)])
def test_the_worst_place_is_found(outputs: int, window: int, share: float) -> None:
    """Against 1,201 places. Planted: the middle left out, which is the worst where the share is
    small -> fails.
    """
    shape, moves = PiecewiseShape.of(outputs, window, 2.0), outputs - window

    def variance(place: Fraction) -> float:
        anchor = (place + 1) / 2 * moves
        part = anchor - math.floor(anchor)
        q = place**2 + part * (1 - part) * Fraction(2, moves) ** 2
        return share * (shape.flat + float(q) / shape.telling) + 0.3 - float(place) ** 2

    assert max(variance(Fraction(at, 600) - 1) for at in range(1_201)) == pytest.approx(
        shape.worst(share, 0.3), rel=1e-5
    )


@pytest.mark.parametrize("epsilon0", [0.5, 1.0, 3.0])
def test_with_many_outputs_and_its_window_it_is_the_papers(epsilon0: float) -> None:
    """400 bins: within 1 % at every level. Planted: the window of half the length -> fails."""
    mechanism = made(5, epsilon0, 400, round(400 / (1 + math.exp(epsilon0 / 2))))
    for place, (_, variance) in zip(places(mechanism.domain), exact(mechanism), strict=True):
        assert float(variance) == pytest.approx(paper(epsilon0, float(place)), rel=0.01)


@for_each("epsilon0", EPSILONS)
def test_the_standard_setting_errs_no_more_than_the_paper_but_for_1_percent(
    epsilon0: float,
) -> None:
    """In the middle and at the worst of 21 levels. From epsilon0 = 3 on the worst is at least 15 %
    below the paper's.

    Planted: always 8 outputs -> fails from epsilon0 = 6 on. The least worst case of all windows ->
    fails in the middle.
    """
    variances = [float(variance) for _, variance in exact(made(21, epsilon0))]
    assert variances[-1] <= 1.01 * paper(epsilon0, 0.0)
    assert max(variances) <= (1.01 if epsilon0 < 3 else 0.85) * paper(epsilon0, 1.0)


def test_settings_are_those_whose_tables_fit() -> None:
    """Planted: every size offered -> the table of the last is refused, this fails."""
    names = [setting.name for setting in REGISTRY["piecewise"].settings(Numeric(0, 1, 600))]
    assert names == ["standard", "m=8", "m=16", "m=32", "m=64"]
    for name in names:
        create(design("piecewise", Numeric(0, 1, 600), 20.0, name), Numeric(0, 1, 600))


@for_each(
    "domain, integers, message",
    [
        (YesNo(), (8, 2, 1), "numeric domain"),
        (Categories(("a", "b", "c")), (8, 2, 1), "numeric domain"),
        (Numeric(0, 1, 5), (8, 8, 1), '"window" is 1 to 7'),
        (Numeric(0, 1, 5), (8, 2, WORDS // 16), '"gain" is 1 to'),
        (Numeric(0, 1, 9_000), (8, 2, 1), "use fewer levels"),
    ],
)
def test_what_does_not_fit_is_refused(
    domain: Domain, integers: tuple[int, int, int], message: str
) -> None:
    outputs, window, gain = integers
    with pytest.raises(ShoalError, match=message) as caught:
        create(
            MechanismSpec.of("piecewise", k=domain.size, outputs=outputs, window=window, gain=gain),
            domain,
        )
    assert caught.value.kind is Kind.INVALID
    if gain == 1 and window == 2:
        with pytest.raises(ShoalError, match=message):
            design("piecewise", domain, 1.0)
    with pytest.raises(ShoalError, match='"k" is 9, but the domain has 6 cells'):
        create(MechanismSpec.of("piecewise", k=9, outputs=8, window=2, gain=1), Numeric(0, 1, 5))

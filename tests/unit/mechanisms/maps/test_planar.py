"""Places on a map: estimates, settings and refusals. The law is in the conformance suite."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.domain import Categories
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.maps.planar import PlanarResponse
from shoal.privacy import epsilon0_upper
from shoal.questions.places import Places
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size

TOWN = Places(48_100_000, 11_500_000, 48_136_000, 11_554_000, 4, 4)
WORDS = 1 << 64


def made(epsilon0: float, setting: str = "cut", domain: Places = TOWN) -> PlanarResponse:
    mechanism = create(design("planar", domain, epsilon0, setting), domain)
    assert isinstance(mechanism, PlanarResponse)
    return mechanism


def changed(spec: MechanismSpec, **other: int) -> MechanismSpec:
    return MechanismSpec.of(spec.name, **{**dict(spec.parameters), **other})


@for_each("setting", ["cut", "clamped"])
def test_expected_reports_give_the_devices_back(setting: str) -> None:
    """Planted: the table's rows taken for its columns -> fails."""
    mechanism, held = made(4.0, setting), np.arange(17) ** 2 * 10.0
    reports = held @ mechanism.response.table.probabilities()
    assert reports @ mechanism.scores() == pytest.approx(held, abs=1e-8)


def test_a_block_errs_as_its_covariance_says() -> None:
    """The four cells of a corner together, over many runs: mean square error within 5 standard
    deviations of a chi-square (a false alarm in 10^6). Planted: the diagonal alone -> fails.
    """
    mechanism, runs = made(6.0), size(300, 4_000)
    held = np.full(17, 100)
    block, values = [0, 1, 4, 5], np.repeat(np.arange(17), held)
    entropy, errors, said = SeededEntropy("block"), [], []
    for _ in range(runs):
        tally = mechanism.tally(mechanism.randomize(values, entropy)[:, 0])
        errors.append(mechanism.estimate(tally).values[block].sum() - 400)
        said.append(mechanism.covariance(tally)[np.ix_(block, block)].sum())
    assert np.mean(np.square(errors)) / np.mean(said) == pytest.approx(
        1.0, abs=5 * np.sqrt(2 / runs)
    )


def test_maps_of_256_and_1024_cells() -> None:
    """The largest serve; reports of two bytes name a cell."""
    domain = Places(48_100_000, 11_500_000, 48_172_000, 11_608_000, 16, 16)
    mechanism = made(6.0, "clamped", domain)
    assert 5.99 < epsilon0_upper(mechanism.privacy()) <= 6.0
    (report,) = mechanism.randomize_one(256, SeededEntropy(1))
    assert len(report) == mechanism.report_size == 2
    large = Places(48_100_000, 11_500_000, 48_172_000, 11_608_000, 32, 32)
    spec = changed(mechanism.spec, rows=32, columns=32, width=248_000, height=248_000)
    assert create(spec, large).randomize_one(1023, SeededEntropy(1))


def test_a_map_that_cannot_be_counted_is_refused_when_it_is_designed() -> None:
    """Given as integers it is refused with the first estimate: a device needs no inverse."""
    domain = Places(48_100_000, 11_500_000, 48_172_000, 11_608_000, 12, 12)
    with pytest.raises(ShoalError, match="fewer rows and columns") as caught:
        design("planar", domain, 1e-7, "clamped")
    assert caught.value.kind is Kind.INVALID
    mechanism = create(changed(design("planar", TOWN, 1.0), decay=WORDS - 1), TOWN)
    with pytest.raises(ShoalError, match="fewer rows and columns"):
        mechanism.estimate(Tally(np.full(17, 10), 170))


def test_what_does_not_fit_is_refused() -> None:
    """Cells stated larger than they are would promise too much per kilometre; smaller ones promise
    too little, and are taken. Planted: no look at the width, or at the border -> fails.
    """
    spec = design("planar", TOWN, 2.0)
    width, height = spec.get("width"), spec.get("height")
    assert create(changed(spec, width=width - 500), TOWN).spec.get("width") == width - 500
    for wrong, words in (
        ({"width": width + 2}, f"set width = {width + 1}"),  # a task states a millimetre less
        ({"height": height + 2}, f"set height = {height + 1}"),
        ({"rows": 5}, "set rows = 4"),
        ({"columns": 3}, "set rows = 4, columns = 4"),
        ({"border": 2000}, '"border" is 0 to 1024'),
        ({"border": 5}, "set border = 4"),
    ):
        with pytest.raises(ShoalError, match=words) as caught:
            create(changed(spec, **wrong), TOWN)
        assert caught.value.kind is Kind.INVALID
    for domain, words in (
        (Categories(("a", "b")), "wants places on a map"),
        (Places(0, 0, 9, 9, 1, 1), "2 to 1,024 cells"),
        (Places(0, 0, 9_000, 9_000, 33, 32), "2 to 1,024 cells"),
        (Places(0, -175_000_000, 10, 175_000_000, 2, 2), "171 degrees"),
    ):
        with pytest.raises(ShoalError, match=words) as caught:
            design("planar", domain, 1.0)
        assert caught.value.kind is Kind.INVALID

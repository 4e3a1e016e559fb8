"""The exponential mechanism: counts, their covariance, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.domain import Categories, Numeric, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.categories.exponential import ExponentialResponse
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec
from tests.sizes import size

SIZES = Categories(("S", "M", "L", "XL"))
WORDS = 1 << 64


def made(epsilon0: float, setting: str = "line") -> ExponentialResponse:
    mechanism = create(design("exponential", SIZES, epsilon0, setting), SIZES)
    assert isinstance(mechanism, ExponentialResponse)
    return mechanism


def test_expected_reports_give_the_devices_back() -> None:
    """Planted: the table's rows taken for its columns -> this fails, as the rows have different
    sums of powers.
    """
    mechanism, held = made(1.0), np.array([500.0, 0.0, 200.0, 100.0, 300.0])
    reports = held @ mechanism.response.table.probabilities()
    assert reports @ mechanism.scores() == pytest.approx(held, abs=1e-9)


def test_the_tight_decay_is_smaller_than_the_theorems() -> None:
    """The theorem's e^(-epsilon0 / (2 max d)) would give an epsilon0 that is a good deal lower than
    asked.
    """
    for setting, furthest in (("line", 3), ("circle", 2)):
        decay = made(1.0, setting).spec.get("decay")
        theorem = int(np.exp(-1.0 / (2 * furthest)) * 2.0**64)
        assert decay < theorem
        loose = create(
            MechanismSpec.of("exponential", k=5, circle=int(setting == "circle"), decay=theorem),
            SIZES,
        )
        assert epsilon0_upper(loose.privacy()) < 0.75


def test_a_range_errs_as_its_covariance_says() -> None:
    """The total of "M" and "L" over many runs: mean square error within 5 standard deviations of a
    chi-square (a false alarm in 10^6).

    Planted: the covariance without what is taken off its diagonal, or the diagonal alone -> this
    fails.
    """
    mechanism, runs = made(2.0), size(400, 4000)
    values, true = np.repeat(np.arange(5), [300, 200, 200, 100, 200]), 400.0
    entropy, errors, said = SeededEntropy("range"), [], []
    for _ in range(runs):
        tally = mechanism.tally(mechanism.randomize(values, entropy)[:, 0])
        errors.append(mechanism.estimate(tally).values[1:3].sum() - true)
        said.append(mechanism.covariance(tally)[1:3, 1:3].sum())
    assert np.mean(np.square(errors)) / np.mean(said) == pytest.approx(
        1.0, abs=5 * np.sqrt(2 / runs)
    )
    assert np.diag(mechanism.covariance(tally)) == pytest.approx(
        mechanism.estimate(tally).stderr ** 2, rel=0.1
    )


def test_a_table_that_cannot_be_solved_is_refused_when_it_is_designed() -> None:
    """A circle of 100 cells at epsilon0 0.001. Given as integers it is refused with the first
    estimate: a device needs no inverse.
    """
    domain = Categories(tuple(f"c{i}" for i in range(100)))
    with pytest.raises(ShoalError, match="fewer categories") as caught:
        design("exponential", domain, 0.001, "circle")
    assert caught.value.kind is Kind.INVALID
    mechanism = create(MechanismSpec.of("exponential", k=5, circle=0, decay=WORDS - 1), SIZES)
    with pytest.raises(ShoalError, match="fewer categories"):
        mechanism.estimate(Tally(np.full(5, 10), 50))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ShoalError, match="ordered categories") as caught:
        design("exponential", YesNo(), 1.0)
    assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError, match="set k = 5"):
        create(MechanismSpec.of("exponential", k=6, circle=0, decay=5), SIZES)
    with pytest.raises(ShoalError, match="use fewer levels"):
        design("exponential", Numeric(0, 1, 300), 1.0)
    with pytest.raises(ShoalError, match='"circle" is 0 to 1'):
        create(MechanismSpec.of("exponential", k=5, circle=2, decay=5), SIZES)

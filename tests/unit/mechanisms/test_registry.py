"""The registry: what a task may say of its mechanism, and a light import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shoal.mechanisms
from shoal.domain import Categories, Norm, Vector, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, create, design
from shoal.task import MechanismSpec
from tests.cases import for_each

DOMAIN = Categories(("a", "b", "c"))
WORDS = 1 << 64


@for_each(
    "spec, said",
    [
        (MechanismSpec.of("nothing", k=4), ", ".join(sorted(REGISTRY))),
        (MechanismSpec.of("krr", k=4), 'lacks the parameter "uniform"'),
        (MechanismSpec.of("krr"), 'lacks the parameter "k", "uniform"'),
        (
            MechanismSpec.of("krr", k=4, uniform=5, epsilon0=1),
            'no parameter "epsilon0": it takes "k", "uniform"',
        ),
        (MechanismSpec.of("krr", k=4, uniform=0), '"uniform" is 1 to 18446744073709551615'),
        (MechanismSpec.of("krr", k=1, uniform=5), '"k" is 2 to 65536'),
        (MechanismSpec.of("krr", k=65_537, uniform=5), '"k" is 2 to 65536'),
        (MechanismSpec.of("krr", k=5, uniform=5), "set k = 4"),
    ],
)
def test_a_spec_that_does_not_fit_is_refused_by_name(spec: MechanismSpec, said: str) -> None:
    with pytest.raises(ShoalError) as caught:
        create(spec, DOMAIN)
    assert caught.value.kind is Kind.INVALID
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@for_each(
    "yes, no, said",
    [
        (1, 1, '"yes_if_yes" is 2'),
        (5, 0, '"yes_if_no" is 1'),
        (5, 6, "<"),
        (5, WORDS - 1, '"yes_if_no" is'),
    ],
)
def test_binary_thresholds_are_checked(yes: int, no: int, said: str) -> None:
    with pytest.raises(ShoalError) as caught:
        create(MechanismSpec.of("binary_rr", yes_if_yes=yes, yes_if_no=no), YesNo())
    assert said in str(caught.value)


def test_an_unknown_name_can_not_be_designed() -> None:
    with pytest.raises(ShoalError, match=", ".join(sorted(REGISTRY))):
        design("nothing", DOMAIN, 1.0)


def test_names_and_parameters_are_told() -> None:
    for name, family in REGISTRY.items():
        assert family.name == name
        assert family.summary
        assert [p.name for p in family.parameters] == sorted(p.name for p in family.parameters)
        assert all(p.meaning and 0 <= p.low <= p.high < WORDS for p in family.parameters)


def test_the_registry_is_read_only() -> None:
    with pytest.raises(TypeError):
        REGISTRY["other"] = REGISTRY["krr"]  # type: ignore[index]


def test_the_package_is_light_and_its_names_resolve() -> None:
    """``import shoal.mechanisms`` loads neither numpy nor any randomizer's file. Planted: ``np.pi``
    at the end of mechanisms/base.py; an import of krr in registry.py -> fails.
    """
    script = """
import sys, shoal.mechanisms
assert "numpy" not in sys.modules
assert "shoal.mechanisms.categories.krr" not in sys.modules
from shoal.mechanisms import REGISTRY, create, design
assert callable(create) and callable(design) and REGISTRY
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert all(getattr(shoal.mechanisms, name) is not None for name in shoal.mechanisms.__all__)


@for_each("name", [*sorted(REGISTRY), "skellam", "nothing"])
def test_vectors_are_not_randomized_cell_by_cell(name: str) -> None:
    """Whatever the mechanism's name: the reader is told where vectors go. Planted: no such check ->
    krr asks for k = 2 cells, and fails.
    """
    domain = Vector(2, Norm.L2, 1.0, 100)
    for attempt in (
        lambda: create(MechanismSpec.of(name, k=2, uniform=1), domain),
        lambda: design(name, domain, 1.0),
    ):
        with pytest.raises(ShoalError, match="aggregator pairwise") as caught:
            attempt()
        assert caught.value.kind is Kind.INVALID

"""Every registered randomizer has a class of its own in this folder, which inherits the suite."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from shoal.domain import Categories, Numeric, Places, Words, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, create, design, serves
from shoal.mechanisms.base import SERVE_WORDS
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.conformance.mechanisms.suite import MechanismSuite

_DOMAINS = (YesNo(), Categories(("a", "b", "c")), Numeric(0, 4, 5), Places(0, 0, 20, 30, 2, 3))


def test_every_member_of_the_registry_keeps_the_suite() -> None:
    """Planted: one more name in the registry without a class here -> this fails."""
    for path in Path(__file__).parent.glob("test_*.py"):
        import_module(f"tests.conformance.mechanisms.{path.stem}")

    def names(suite: type[MechanismSuite]) -> set[str]:
        return {getattr(suite, "NAME", "")}.union(*(names(sub) for sub in suite.__subclasses__()))

    assert names(MechanismSuite) - {""} == set(REGISTRY)


@for_each("name", sorted(REGISTRY))
def test_every_setting_keeps_the_epsilon0_that_was_asked_for(name: str) -> None:
    """Whatever setting, on every domain that the family serves; and the first is the one that
    nobody has to name.

    Planted: a setting that asks its law for twice the epsilon0 -> this fails.
    """
    served = [domain for domain in _DOMAINS if serves(name, domain)]
    assert served
    for domain in served:
        settings = REGISTRY[name].settings(domain)
        assert len({setting.name for setting in settings}) == len(settings) >= 1
        assert design(name, domain, 1.5) == design(name, domain, 1.5, settings[0].name)
        for setting in settings:
            for asked in (0.01, 1.5, 6.0):
                mechanism = create(design(name, domain, asked, setting.name), domain)
                assert 0.9 * asked < epsilon0_upper(mechanism.privacy()) <= asked


@for_each("name", sorted(REGISTRY))
def test_an_unknown_setting_is_refused_with_the_known_ones(name: str) -> None:
    domain = next(domain for domain in _DOMAINS if serves(name, domain))
    with pytest.raises(ShoalError, match=REGISTRY[name].settings(domain)[0].name) as caught:
        design(name, domain, 1.0, "no such setting")
    assert caught.value.kind is Kind.INVALID


@for_each("name", sorted(REGISTRY))
def test_an_open_vocabulary_is_served_or_refused_before_its_cells_are_listed(name: str) -> None:
    """Planted: a family's own code run first -> krr asks for memory for 2^62 names, and this
    fails.
    """
    words, family = Words(("flu", "cold")), REGISTRY[name]
    if family.words:
        assert name in SERVE_WORDS
        assert serves(name, words)
        return
    assert not serves(name, words)
    integers = MechanismSpec.of(
        name, **{parameter.name: parameter.low for parameter in family.parameters}
    )
    for refused in (
        lambda: create(integers, words),
        lambda: design(name, words, 1.0),
        lambda: family.settings(words),
    ):
        with pytest.raises(
            ShoalError, match=f"{name} lists .* choose {' or '.join(SERVE_WORDS)}"
        ) as caught:
            refused()
        assert caught.value.kind is Kind.INVALID

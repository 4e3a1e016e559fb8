"""What an owner reads about each mechanism, and about one with a memory."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.accounting.meaning import bound_text, percent_text
from shoal.clients.core import Assignment
from shoal.clients.owner.explain import explain
from shoal.clients.owner.explain_draws import _ANY
from shoal.domain import Numeric, Places, YesNo
from shoal.mechanisms import REGISTRY, serves
from shoal.privacy import KaryLaw
from tests.cases import for_each
from tests.worlds.devices.clients import VISITS
from tests.worlds.devices.explained import assignment_of, config_of, small_world, text_of

TOWN = Places(48_100_000, 11_500_000, 48_136_000, 11_540_000, 4, 3)


@for_each("name", sorted(REGISTRY))
def test_every_mechanism_is_told_in_words_of_its_own(name: str) -> None:
    """What is drawn, and how much likelier it is under one answer than under another, rounded up.

    Planted: a mechanism registered without its words; e^epsilon0 rounded down; "nearly as likely"
    for a factor of 12 -> fails.
    """
    domain = next(
        domain for domain in (VISITS, YesNo(), Numeric(0, 4, 5), TOWN) if serves(name, domain)
    )
    one = assignment_of(small_world(domain=domain, mechanism=name, epsilon0=2.5))
    lines = explain(one, config_of(small_world()))
    (line,) = [line for line in lines if line.startswith("On this device it is randomized")]
    assert f"({name})" in line
    assert _ANY not in line
    assert one.mechanism is not None
    if isinstance(law := one.mechanism.privacy(), KaryLaw):
        assert percent_text(law.same / law.total) in line
        return
    (told,) = re.findall(r"at most ([0-9.]+) times as likely", line)
    assert law.max_ratio <= Fraction(told) <= law.max_ratio * Fraction(102, 100)


def test_an_unknown_draw_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.clients.owner.explain_draws._DRAWN", {})
    assert _ANY in text_of(
        explain(assignment_of(small_world(mechanism="unary")), config_of(small_world()))
    )


@pytest.mark.parametrize(
    ("name", "linked"), [("local_hash", True), ("unary", True), ("krr", False)]
)
def test_memoized_reports_that_may_be_unique_are_told(name: str, linked: bool) -> None:
    """Planted: silence -> fails for a permanent report with a seed of its own, which names its
    device.
    """
    one = assignment_of(small_world(mechanism=name))
    plain, memoized = (
        text_of(explain(_memoized(one, flag), config_of(small_world()))) for flag in (False, True)
    )
    assert "can't be linked" not in plain
    assert ("can't be linked" in memoized) is linked


def test_a_mechanism_with_a_memory_is_told_with_both_epsilons() -> None:
    """Planted: the lifetime epsilon alone, or the epsilon of one report alone; "the report is the
    same"; the lifetime epsilon as "what one report promises by itself" -> fails.
    """
    world = small_world(mechanism="l_unary", epsilon0=1.0)
    world.task = replace(world.task, memoized=True)
    world.sign()
    one = assignment_of(world)
    assert one.epsilon_first is not None
    text = text_of(explain(one, config_of(world)))
    assert (
        f"(lifetime epsilon = {bound_text(one.epsilon0)}; one report by itself: "
        f"{bound_text(one.epsilon_first)})" in text
    )
    assert f"each permanent answer that is drawn costs epsilon {bound_text(one.epsilon0)}" in text
    assert "What the reports are drawn from is the same in every window" in text
    assert "can't be linked" in text
    assert "The report is the same" not in text
    together = text[text.index("that shuffler and analyzer do not work together") :]
    assert f"of one report by itself epsilon0 = {bound_text(one.epsilon_first)} is left" in together
    assert f"an unchanged value the lifetime epsilon = {bound_text(one.epsilon0)}" in together


def test_a_memory_without_noise_of_its_own_in_reports_has_one_epsilon() -> None:
    """Planted: no word on what the lifetime epsilon is, of which the promise speaks -> fails."""
    world = small_world(mechanism="dbitflip", epsilon0=1.0)
    world.task = replace(world.task, memoized=True)
    world.sign()
    one = assignment_of(world)
    assert one.epsilon_first is None
    text = text_of(explain(one, config_of(world)))
    assert f"(lifetime epsilon, and that of one report, = {bound_text(one.epsilon0)})" in text
    assert (
        f"what one report promises by itself is left: epsilon0 = {bound_text(one.epsilon0)}" in text
    )


def _memoized(one: Assignment, flag: bool) -> Assignment:
    return replace(one, trusted=replace(one.trusted, task=replace(one.task, memoized=flag)))

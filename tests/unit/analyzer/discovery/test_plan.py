"""A discovery planned, and played with made-up devices by the production code."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.analyzer.discovery.drawn import at_a_window
from shoal.analyzer.discovery.plan import (
    DiscoveryPlan,
    DiscoveryRequest,
    found_from,
    plan_discovery,
)
from shoal.analyzer.discovery.played import (
    LevelDone,
    Population,
    check_words,
    simulate_discovery,
    words_of,
)
from shoal.entropy import SeededEntropy, part_of
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.several.levels import FALSE_WORDS, chance_of
from shoal.questions.spelling import shown
from tests.cases import for_each
from tests.sizes import size

FRESH = DiscoveryRequest(400, 4.0, 1e-4, same=False, first=1, longest=5, most=8)


@pytest.fixture(scope="module")
def fresh() -> DiscoveryPlan:
    return plan_discovery(FRESH)


@pytest.fixture(scope="module")
def same() -> DiscoveryPlan:
    return plan_discovery(replace(FRESH, n=2_000, epsilon=8.0, same=True))


def test_the_noise_is_what_a_second_implementation_found() -> None:
    """62.1 dummies in a cell at central (1, 1e-8): of Poisson dummies in one release, by a program
    in floating point that was written apart from this one. Planted: delta of each level a tenth ->
    68.
    """
    made = plan_discovery(DiscoveryRequest(65_000, 1.0, 1e-8, same=False))
    assert made.dummies == pytest.approx(62.1, rel=0.002)
    assert made.epsilon <= 1.0
    assert made.together == 1
    assert made.discovery.levels == 10


def test_levels_of_the_same_devices_cost_their_epsilon_together(same: DiscoveryPlan) -> None:
    """Planted: the epsilon of one level as that of all -> fails."""
    assert same.together == same.discovery.levels == 5
    assert 2 * same.epsilon_level < same.epsilon <= same.request.epsilon
    assert same.epsilon <= 5 * same.epsilon_level


def test_a_word_of_found_from_devices_is_found_with_95_percent(same: DiscoveryPlan) -> None:
    """The fewest, at all five levels; and played: one word alone, so many devices have it, the
    others have none. Of 100 runs a right figure is found in fewer than 86 with probability 1e-4
    (binomial). Planted: .95 for each level -> fails; the threshold as the figure -> half are found.
    """
    n = 400
    plan = replace(same, found_from=found_from(same.made, same.threshold, n, 5))
    all_come = [
        chance_of(same.made, same.request.n, same.found_from - less, same.threshold)
        for less in (0, 1)
    ]
    assert all_come[0] ** 5 >= 0.95 > all_come[1] ** 5
    words = Population.of(same.discovery, {"word": plan.found_from, "": n - plan.found_from})
    runs, found = size(100, 400, 1_000), 0
    for run in range(runs):
        # at the threshold of the largest level, of which the figure is
        done = played(same, words, run, least=same.threshold)
        found += any(shown(one.symbols) == "word" for one, _ in words_of(done))
    assert found >= 0.86 * runs


def played(
    plan: DiscoveryPlan, words: Population, run: int, least: int | None = None
) -> list[LevelDone]:
    """One run of a seed."""
    entropy = part_of(SeededEntropy(18), f"run {run}")
    return simulate_discovery(plan, words, entropy, least=least)


def test_false_beginnings_are_as_rare_as_is_said(same: DiscoveryPlan) -> None:
    """Of devices that have nothing, all that is followed is false: at most half of one expected in
    a run. In 60 runs more than 48 have a probability of 1e-3 if 30 are expected (Poisson). Planted:
    a threshold that is one level's -> some 150.
    """
    words, runs = Population.of(same.discovery, {"": 300}), size(60, 200, 500)
    false = sum(len(done.found) for run in range(runs) for done in played(same, words, run))
    assert false <= FALSE_WORDS * runs + 3.3 * (FALSE_WORDS * runs) ** 0.5


HELD = Counter({"salt": 90, "sand": 70, "Sea": 60, "shoals": 80, "fish": 50, "": 40, "rare": 1})


def test_the_words_of_many_devices_are_found_with_their_counts(same: DiscoveryPlan) -> None:
    """And no others, of this seed. "shoals" is one symbol too long. Planted: dummies not
    subtracted -> counts are far off; a level that forgets words that ended -> "sea" is missing.
    """
    words = Population.of(same.discovery, HELD)
    done = played(same, words, 1)
    found = {shown(one.symbols): (one, true) for one, true in words_of(done)}
    assert set(found) == {"salt", "sand", "sea", "shoal\u2026", "fish"}
    for label, (one, true) in found.items():
        assert true == HELD[{"sea": "Sea", "shoal\u2026": "shoals"}.get(label, label)]
        assert abs(one.value - true) < 5 * one.stderr
    assert [level.n for level in done] == [391] * 5
    assert sum(done[0].counts) == 391


def test_with_fresh_devices_each_answers_at_one_level(fresh: DiscoveryPlan) -> None:
    """Planted: all of them at every level -> five times as many answers."""
    words = Population.of(fresh.discovery, {word: 10 * count for word, count in HELD.items()})
    done = played(fresh, words, 1)
    assert sum(level.n for level in done) == words.n
    assert all(level.n > at_a_window(words.n, 5) for level in done)
    assert {shown(one.symbols) for one, _ in words_of(done)} >= {"salt", "sand", "sea", "fish"}


def test_spare_windows_take_their_part_of_the_devices() -> None:
    """And none of the epsilon: a device answers in one window, whichever that is. Planted: levels
    alone are drawn -> all devices answer.
    """
    made = plan_discovery(replace(FRESH, spare=5))
    assert made == replace(plan_discovery(FRESH), request=made.request)
    words = Population.of(made.discovery, {word: 10 * count for word, count in HELD.items()})
    answered = sum(level.n for level in played(made, words, 1))
    assert abs(answered - words.n / 2) < 6 * (words.n / 4) ** 0.5
    assert replace(made.request, devices=words.n).withheld is not None


def test_the_same_seed_plays_the_same(same: DiscoveryPlan) -> None:
    words = Population.of(same.discovery, HELD)
    one, two = (words_of(played(same, words, 5)) for _ in range(2))
    assert one == two


def test_fewer_beginnings_are_followed_where_messages_do_not_suffice() -> None:
    """As few as fit, unless somebody asked for more. Planted: the number that was asked for halved
    too -> no refusal.
    """
    request = replace(FRESH, most=None, n=120, longest=4)
    made = plan_discovery(request)
    assert made.made.messages <= LIMITS.messages
    assert made.discovery.most < 256
    with pytest.raises(ShoalError) as refused:
        plan_discovery(replace(request, most=256))
    assert refused.value.kind is Kind.CONFIG
    assert "follow fewer" in refused.value.message


def test_noise_is_of_the_honest_devices_alone() -> None:
    """Half of them honest: each device draws twice as many dummies. Planted: n for n_honest ->
    fails.
    """
    whole, half = plan_discovery(FRESH), plan_discovery(replace(FRESH, honest=Fraction(1, 2)))
    assert half.made.noise.shares == 200
    assert half.made.noise.dummies == pytest.approx(whole.made.noise.dummies, rel=0.01)
    assert half.messages(100) - 1 == pytest.approx(2 * (whole.messages(100) - 1), rel=0.01)
    assert half.stderr > 1.4 * whole.stderr


@for_each("held", [{}, {"a": 0}, {"a": 5, "b": -1}])
def test_a_population_of_nobody_is_refused(held: dict[str, int], same: DiscoveryPlan) -> None:
    with pytest.raises(ShoalError) as refused:
        Population.of(same.discovery, held)
    assert refused.value.kind is Kind.CONFIG


def test_a_simulation_of_hours_is_refused_before_it_begins(same: DiscoveryPlan) -> None:
    with pytest.raises(ShoalError) as refused:
        check_words(same, Population.of(same.discovery, {"a": 100_000_000}))
    assert refused.value.kind is Kind.CONFIG


def test_so_many_devices_that_lie_have_a_false_beginning_followed() -> None:
    """As likely as not, and with one fewer less likely. Planted: rounded down -> fails."""
    made = plan_discovery(replace(FRESH, n=40_000, epsilon=1.0))
    pushed = [(made.liars - less) * made.made.messages for less in (0, 1)]
    often, seldom = (chance_of(made.made, 40_000, each, made.threshold) for each in pushed)
    assert made.liars > 1
    assert seldom < 0.5 < often + 0.05

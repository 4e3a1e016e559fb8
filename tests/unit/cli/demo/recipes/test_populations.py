"""Made-up devices: the same in every run, of the shape that their parameters say."""

from __future__ import annotations

from collections import Counter

from shoal.cli.demo.recipes import new_words, populations
from shoal.cli.demo.recipes.deployments import DEPLOYMENTS, deployment
from shoal.domain import Numeric
from tests.cases import for_each

N = 4_000  # drawn from fixed seeds: what holds here holds in every run


@for_each("name", [each.name for each in DEPLOYMENTS])
def test_the_same_devices_answer_in_every_run(name: str) -> None:
    """A list for each window, a value for each device, each of them an answer. Planted: the
    system's entropy -> other values, fails.
    """
    one = deployment(name)
    made = one.values(200, 3)
    assert made == one.values(200, 3)
    assert [len(each) for each in made] == [200] * 3
    if name != "new-words":
        assert all(one.recipe.domain.understands(value) for each in made for value in each)


def test_favourites_keep_a_zipf_law_and_change_now_and_then() -> None:
    """Planted: everybody draws anew -> few the same, fails; nobody -> all the same, fails."""
    names = deployment("emoji-popularity").recipe.domain.labels[:-1]
    first, second = populations.favourites(N, 2, names, "emoji")
    counts = Counter(first)
    assert 1.6 < counts[names[0]] / counts[names[1]] < 2.4
    kept = sum(one == other for one, other in zip(first, second, strict=True)) / N
    assert 0.75 < kept < 0.9


def test_app_usage_has_devices_without_and_round_numbers() -> None:
    domain = deployment("windows-app-usage").recipe.domain
    assert isinstance(domain, Numeric)
    first, second = populations.app_usage(N, 2, domain.high)
    assert 0.3 < sum(value == 0 for value in first) / N < 0.4
    assert 0.2 < sum(value > 0 and value % 300 == 0 for value in first) / N < 0.32
    assert max(first) <= domain.high
    kept = sum(one == other for one, other in zip(first, second, strict=True)) / N
    assert 0.65 < kept < 0.9


def test_a_weekend_is_no_weekday() -> None:
    """Planted: the week of six days -> Sunday like Monday, fails."""
    names = deployment("mobility-counts").recipe.domain.labels[:-1]
    week = [Counter(day)["workplaces"] / N for day in populations.places(N, 8, names)]
    assert all(0.4 < share < 0.5 for share in (*week[:5], week[7]))
    assert all(0.04 < share < 0.1 for share in week[5:7])


def test_new_words_are_none_that_a_dictionary_has() -> None:
    made = Counter(populations.words(N, new_words.NEW, new_words.KNOWN))
    assert not set(new_words.NEW) & set(new_words.KNOWN)
    assert len(set(new_words.NEW)) == len(new_words.NEW)
    assert 0.08 < sum(made[word] for word in new_words.KNOWN) / N < 0.12
    assert made.most_common(1)[0][0] == new_words.NEW[0]

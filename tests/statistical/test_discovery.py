"""The most frequent words of a large population are found, by the production randomizer."""

from __future__ import annotations

from collections import Counter

from shoal.analyzer.discovery.plan import DiscoveryRequest, plan_discovery
from shoal.analyzer.discovery.played import Population, simulate_discovery, words_of
from shoal.analyzer.planner.simulation.processes import Processes
from shoal.entropy import Entropy, SeededEntropy
from shoal.mechanisms.several.bundling import below
from shoal.questions.spelling import shown
from tests.sizes import FULL, size

_HEADS = ("s", "t", "m", "gr", "l", "pr", "n", "w", "c", "b", "st", "d", "v", "tr", "r", "f")
_VOWELS = ("a", "e", "i", "o", "u", "ea", "ou", "y")


def made_up(count: int, entropy: Entropy) -> list[str]:
    """So many different words of two to four syllables, in an order that says nothing."""
    words: dict[str, None] = {}
    while len(words) < count:
        syllables = 2 + below(3, entropy)
        words["".join(_syllable(entropy) for _ in range(syllables))] = None
    return list(words)


def _syllable(entropy: Entropy) -> str:
    return _HEADS[below(len(_HEADS), entropy)] + _VOWELS[below(len(_VOWELS), entropy)]


def zipf_of(words: list[str], devices: int) -> Counter[str]:
    """The i-th word is held by 1 / i as many devices as the first; those of less than one have no
    word.
    """
    first = devices / sum(1.0 / rank for rank in range(1, len(words) + 1))
    held = Counter({word: int(first / rank) for rank, word in enumerate(words, start=1)})
    held[""] = devices - held.total()
    return held


def test_the_top_words_of_a_zipf_population_are_found() -> None:
    """At full counts 650,000 devices with 100,000 words, central (1, 1e-8) over ten levels: of the
    32 most frequent words the 32 largest estimates are .99 in a simulation written apart from this
    one. Words at the 32nd place differ by two standard deviations of the noise, so that one may
    change places with the next; .94 allows five such changes in three runs. False beginnings: half
    of one expected in a run, most of which end before a word does. At reduced counts 20,000
    devices, 2,000 words, epsilon 6; the seeds are fixed.

    Planted: 16 beginnings followed -> fails; forty times the dummies -> fails; a threshold that
    forgets how many cells there are -> false words, fails.
    """
    runs = size(1, 3)
    devices, vocabulary, epsilon = (650_000, 100_000, 1.0) if FULL else (20_000, 2_000, 6.0)
    words = made_up(vocabulary, SeededEntropy("words"))
    held = zipf_of(words, devices)
    plan = plan_discovery(DiscoveryRequest(devices, epsilon, 1e-8))
    population = Population.of(plan.discovery, held)
    cut = Counter[str]()
    for symbols, count in zip(population.spelled, population.counts.tolist(), strict=True):
        if symbols:
            cut[shown(symbols)] = count
    top = {word for word, _ in cut.most_common(32)}
    named, false = 0, 0
    for run in range(runs):
        done = simulate_discovery(
            plan, population, SeededEntropy(f"run {run}"), engine=Processes(2)
        )
        found = [shown(one.symbols) for one, _ in words_of(done)]
        named += len(top & set(found[:32]))
        false += sum(word not in cut for word in found)
    assert named >= 0.94 * 32 * runs, (named, runs)
    assert false <= 1 + runs, (false, runs)

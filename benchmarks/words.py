"""Frequent words of 650,000 made-up devices, central (1, 1e-8): how many of the most frequent are
found, over many discoveries, by devices that answer every level and by devices that answer once.

True messages are counted; the noise of a level is drawn at once from its exact law in a cell
(``noise_of``), which is the law that the sum of what devices draw has. (That devices draw
that law, message by message, is the tests': ``tests/statistical/test_discovery.py`` plays one such
discovery so.)
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Goal, Outcome
from benchmarks.maps import noise_of
from shoal.analyzer.discovery.plan import DiscoveryPlan, DiscoveryRequest, plan_discovery
from shoal.analyzer.discovery.played import LevelDone, Population, words_of
from shoal.analyzer.results.discovered import found_in
from shoal.arrays import np
from shoal.entropy import Entropy, SeededEntropy
from shoal.mechanisms import Tally
from shoal.mechanisms.several.levels import histogram_of, threshold
from shoal.questions.discovery import DiscoveryLevel
from tests.worlds.zipf_words import made_up, zipf_of

TITLE = "frequent words: how many of the most frequent are found"
_DEVICES, _WORDS = 650_000, 100_000
_EPSILON, _DELTA = 1.0, 1e-8
_TOP, _MANY = 32, 100
_RECALL = 0.99  # of devices that answer every level
_FALSE = 0.5  # words that nobody has, expected at most


def run(bench: Bench) -> Outcome:
    """200 discoveries of each kind at full size, with 100,000 words."""
    runs, words = bench.pick(1, 20, 200), bench.pick(1_000, _WORDS, _WORDS)
    held = zipf_of(made_up(words, SeededEntropy("words")), _DEVICES)
    asked = DiscoveryRequest(_DEVICES, _EPSILON, _DELTA)
    figures, notes = list[Figure](), list[str]()
    for name, request in (("every level", asked), ("once", asked.drawing(_DEVICES))):
        plan = plan_discovery(request)
        found = _found(plan, held, runs)
        figures += _figures(name, plan, found, judged=bench.pick(False, True, True))
        notes.append(
            f"devices that answer {name}: of the {_TOP} most frequent words {found.top:.4f} +- "
            f"{found.uncertain:.4f} are the {_TOP} largest estimates, of {_MANY} {found.many:.4f} "
            f"are found, {found.false:.3f} words a run that nobody has; {runs} runs; found with 95 "
            f"% from {plan.found_in_all:,} devices on, where there is room"
        )
    return Outcome(tuple(figures), tuple(notes))


@dataclass(frozen=True, slots=True)
class _Runs:
    """Means over runs. ``top``: recall, and precision, of the most frequent by estimate."""

    top: float
    uncertain: float
    many: float
    false: float


def _figures(name: str, plan: DiscoveryPlan, found: _Runs, *, judged: bool) -> list[Figure]:
    least = Goal(at_least=_RECALL) if judged and plan.request.same else None
    return [
        Figure(f"{name}: recall and precision of the top {_TOP}", (found.top,), goal=least),
        Figure(f"  found of the {_MANY} most frequent", (found.many,)),
        Figure(
            "  words that nobody has",
            (found.false,),
            goal=Goal(at_most=_FALSE) if judged else None,
        ),
    ]


def _found(plan: DiscoveryPlan, held: Counter[str], runs: int) -> _Runs:
    population, entropy = Population.of(plan.discovery, held), SeededEntropy(f"{plan.together}")
    ranked = sorted(zip(population.counts.tolist(), population.spelled, strict=True), reverse=True)
    order = [word for _, word in ranked if word]
    held_at_all, top, many = {word for count, word in ranked if count}, list[float](), 0
    wrong = 0
    for _ in range(runs):
        found = [one.symbols for one, _ in words_of(_played(plan, population, entropy))]
        top.append(len(set(order[:_TOP]) & set(found[:_TOP])) / _TOP)
        many += len(set(order[:_MANY]) & set(found))
        wrong += sum(word not in held_at_all for word in found)
    return _Runs(
        float(np.mean(top)), float(np.std(top)) / math.sqrt(runs), many / runs / _MANY, wrong / runs
    )


def _played(plan: DiscoveryPlan, population: Population, entropy: Entropy) -> list[LevelDone]:
    """As ``simulate_discovery``, but for the noise."""
    discovery, done = plan.discovery, list[LevelDone]()
    crowds = [population] * discovery.levels
    if not plan.request.same:
        crowds = population.parted(plan.request.asked_windows, entropy)
    level: DiscoveryLevel | None = discovery.level(0)
    while level is not None:
        crowd, made = crowds[level.number], histogram_of(plan.made, level)
        counts = crowd.cells(level)
        noisy = counts + noise_of(made.noise, crowd.n, counts.size, entropy)
        tally = Tally(noisy, int(noisy.sum()))
        estimate = made.estimate(tally, crowd.n)
        findings = found_in(level, estimate, threshold(made, discovery.levels, crowd.n))
        done.append(LevelDone(level, crowd.n, findings, tally.rows, estimate, counts))
        level = discovery.after(level.number, findings.beginnings)
    return done

"""What an analyst gets from ``import shoal`` is right: estimates unbiased, intervals that cover.

One seed per run, fixed. Bias: the mean of the estimates over the runs is within five of its own
standard errors of the truth, by the errors that are reported: a false alarm in fewer than one of
10^6 seeds per figure. Coverage: the 95 % intervals of all runs together hold the truth in at least
91.5 % of the cases; 300 runs and one label have a deviation of 1.3 %, so that it is missed in fewer
than one of 10^2 seeds of one label, and of all labels together in far fewer.

Of a sketch the functions are fixed with the task: what they add is computed, and no bias.

Planted, each fails here: numbers rounded to the nearest level (bias of the mean); estimates clipped
at 0 (bias of an empty label); the standard error in place of the interval (coverage).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import shoal
from shoal.mechanisms.categories.count_sketch import CountSketch
from tests.cases import for_each
from tests.sizes import size

RUNS = size(300, 2_000)
PEOPLE = 600
CASES: list[tuple[dict[str, Any], list[Any], dict[str, float]]] = [
    ({"epsilon0": 1.5}, [True, False, False] * 200, {"yes": 200, "no": 400}),
    (
        {"labels": ["never", "weekly", "daily"], "epsilon0": 2},
        ["never", "weekly", None] * 200,
        {"never": 200, "weekly": 200, "daily": 0, "no answer": 200},
    ),
    (
        {"labels": ["a", "b", "c", "d"], "mechanism": "subset", "epsilon0": 1},
        ["a", "b", "b"] * 200,
        {"a": 200, "b": 400, "c": 0, "d": 0, "no answer": 0},
    ),
    (
        {"low": 0, "high": 10, "levels": 5, "epsilon0": 3, "mechanism": "piecewise"},
        [0.7, 3.3, 9.1] * 200,
        {"mean, no answer as the middle": 13.1 / 3},
    ),
    (
        {"low": 0, "high": 10, "levels": 5, "epsilon0": 4},
        [0.7, 3.3, 9.1] * 200,
        {"mean": 13.1 / 3},
    ),
    (
        {"labels": ["cat", "dog"], "kind": "words", "epsilon0": 3},
        ["cat", "dog", "axolotl"] * 200,
        {"cat": 200, "dog": 200},
    ),
]


def shared(question: shoal.Design, people: list[Any], label: str) -> float:
    """How much the functions of a sketch, which are the task's and so those of all runs, add to a
    label: words that share its values oftener or less often than 1 of m. Unbiased are estimates
    over the choice of functions, and their standard errors say so.
    """
    mechanism = question.mechanism
    if not isinstance(mechanism, CountSketch):
        return 0.0
    sketch = mechanism.sketch
    functions = np.arange(sketch.h)

    def values(word: str) -> Any:
        cell = int(question.domain.encode(word))
        return sketch.hash_many(functions, np.full(sketch.h, cell))

    own = values(label)
    others = [word for word in people if word != label]
    alike = sum(float((values(word) == own).mean()) for word in set(others))
    each = len(others) / len(set(others))
    return each * (alike - len(set(others)) / sketch.m) / (1 - 1 / sketch.m)


@for_each("asked, people, truth", CASES)
def test_estimates_are_right(asked: dict[str, Any], people: list[Any], truth: Any) -> None:
    question = shoal.design(**asked)
    runs = []
    for seed in range(RUNS):
        runs.append(question.estimate(question.randomize(people, simulation_seed=seed)))
    inside = 0
    for label, count in truth.items():
        true = count + shared(question, people, label)
        rows = [run.row(label) for run in runs]
        mean = float(np.mean([row.value for row in rows]))
        error = math.sqrt(float(np.mean([row.stderr**2 for row in rows])) / RUNS)
        assert abs(mean - true) <= 5 * error, (label, mean, true, error)
        inside += sum(row.ci_low <= count <= row.ci_high for row in rows)
    assert inside >= 0.915 * RUNS * len(truth), (inside, RUNS, truth)

"""What the learnt model is held against: the same model without privacy, and as a curator who sees
every row would train it with the same (epsilon, delta).

A line to compare with, and no promise: the curator's noise is Gaussian, of the least deviation for
all rounds together by the exact condition of Balle and Wang (``planner.accuracy.central``). So it
has the tightest account there is, and no honest fraction, no rounding and no Renyi bound to pay
for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from shoal.analyzer.planner.accuracy.central import deviation
from shoal.arrays import NDArray, np
from shoal.cli.demo.federated.patients import Patients
from shoal.entropy import Entropy
from shoal.questions.learning import (
    LearningPlan,
    after_round,
    begin_learning,
    gradients,
    vectors,
)
from shoal.questions.models import Model, gradients_of

OPEN_ROUNDS = 5_000
_OPEN_STEP = 2.0
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class CentralAccuracy:
    """Of several runs: shares in [0, 1] of held-out patients that are told rightly. ``by_round``:
    the mean after each round. ``mean``, ``low``, ``high`` after the last: mean, and the middle 95 %
    of the runs.
    """

    by_round: tuple[float, ...]
    mean: float
    low: float
    high: float
    runs: int


def accuracy(model: Model, weights: NDArray[np.float64], patients: Patients) -> float:
    """The share of them that the model tells rightly, in [0, 1]."""
    told = model.predict(weights, patients.rows) > 0.5
    return float((told == patients.malignant).mean())


def learnt_openly(
    model: Model, patients: Patients, rounds: int = OPEN_ROUNDS
) -> NDArray[np.float64]:
    """float64[model.size]: its weights, without clip and noise, after many small rounds."""
    weights = model.begin()
    for _ in range(rounds):
        own = gradients_of(model, weights, patients.rows, patients.malignant)
        weights = weights - _OPEN_STEP * own.mean(axis=0)
    return weights


def learnt_centrally(
    plan: LearningPlan,
    patients: Patients,
    held_out: Patients,
    spent: tuple[float, float],
    runs: int,
    entropy: Entropy,
) -> CentralAccuracy:
    """The same plan with a curator's noise. ``spent``: (epsilon, delta) of all rounds together."""
    shift = 2.0 * plan.bound * math.sqrt(plan.rounds)
    noise = deviation(shift, *spent)
    found = np.empty((runs, plan.rounds))
    for run in range(runs):
        state = begin_learning(plan)
        for at in range(plan.rounds):
            own = gradients(plan, state, patients.rows, patients.malignant)
            total = vectors(plan, state.clip, own).sum(axis=0)
            total = total + noise * _normals(plan.dimension, entropy)
            state = after_round(plan, state, total, len(patients))
            found[run, at] = accuracy(plan.model, state.weights, held_out)
    last = np.sort(found[:, -1])
    low, high = np.quantile(last, (0.025, 0.975))
    by_round = tuple(found.mean(axis=0).tolist())
    return CentralAccuracy(by_round, float(last.mean()), float(low), float(high), runs)


def _normals(count: int, entropy: Entropy) -> NDArray[np.float64]:
    """float64[count] by inversion: good enough to compare with, and for no promise."""
    uniform = ((entropy.words(count) >> np.uint64(11)) + 0.5) / 2.0**53
    return np.array([_NORMAL.inv_cdf(one) for one in uniform.tolist()])

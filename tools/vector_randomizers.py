"""Write the tables of docs/MECHANISMS.md, "Vectors of one device": what ``privunit`` errs beside
the formula of its paper, one drawn coordinate, Gaussian noise, and secure aggregation.

    PYTHONPATH=. .venv/bin/python tools/vector_randomizers.py            # the tables
    PYTHONPATH=. .venv/bin/python tools/vector_randomizers.py --learn    # prints a model's accuracy
    PYTHONPATH=. .venv/bin/python tools/vector_randomizers.py --work     # prints time and memory

Errors are of one coordinate of one device's vector of length 1, on average over its coordinates:
divide by the root of the number of devices. *Best threshold*: PrivUnitG (Asi, Feldman, Talwar,
ICML 2022) at its best p and gamma, of which ``privunit`` is the version with finitely many
candidates. *One coordinate*: drawn uniformly of d, and answered by the registered mechanism for a
number from -1 to 1 that errs least at 0. *Gaussian*: noise on every
coordinate that is (epsilon0, 1e-6)-private for any two vectors.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from functools import partial

import numpy as np

from shoal.accounting.numerics.curve import QUICK_EFFORT
from shoal.accounting.solving.solve import largest_epsilon0
from shoal.accounting.solving.solve_total import largest_epsilon0_of_rounds
from shoal.analyzer.planner.accuracy.central import deviation
from shoal.cli.demo.federated.beside import accuracy, learnt_centrally, learnt_openly
from shoal.cli.demo.federated.patients import Patients, load_patients
from shoal.cli.figures import figure
from shoal.domain import Norm, Numeric, Vector
from shoal.entropy import SYSTEM, Entropy, SeededEntropy
from shoal.mechanisms import create as create_local
from shoal.mechanisms import design as design_local
from shoal.mechanisms.quantize import quantize
from shoal.mechanisms.vectors.privunit import PrivUnit, create, design_at
from shoal.privacy import LocalPrivacy
from shoal.questions.learning import LearningPlan, after_round, begin_learning, gradients, vectors
from shoal.questions.models import Logistic
from tests.worlds.modules import ROOT

PAGE = ROOT / "docs" / "MECHANISMS.md"
BEGIN, END = "<!-- tools/vector_randomizers.py writes from here -->", "<!-- to here -->"
DELTA, TARGET = 1e-6, 1.0
LOCAL = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0)
DEVICES = (1_000, 10_000, 100_000, 1_000_000)
COUNTS = (64, 1_024, 4_096)
DIMENSIONS = (10, 1_000)
_NUMBER = Numeric(-1.0, 1.0, 5)
_MANY = 1_000_000
_NUMBERS = ("kmean", "hybrid", "piecewise", "laplace", "one_bit_mean")
_LEARNERS, _ROUNDS, _STEP, _CLIP, _EPSILON = 2_000, 12, 8.0, 1.0, (0.5, 1.0, 4.0)


def made(dimension: int, count: int, epsilon0: float) -> PrivUnit:
    """``privunit`` over a vector of length 1."""
    domain = Vector(dimension, Norm.L2, 1.0, 1 << 20)
    return create(design_at(count, domain, epsilon0), domain)


def of_ranks(count: int, epsilon0: float) -> float:
    """The error of ``privunit`` with so many candidates."""
    return 1.0 / made(1, count, epsilon0).lean


def best_threshold(epsilon0: float) -> float:
    """1 / m at the best gamma: m = (p / q - (1 - p) / (1 - q)) phi(gamma), p / q = e^epsilon0 (1 -
    p) / (1 - q).
    """
    e, most = math.exp(epsilon0), 0.0
    for step in range(1, 4_000):
        gamma = step / 500.0
        q = 0.5 * math.erfc(gamma / math.sqrt(2.0))
        p = e * q / (e * q + 1.0 - q)
        density = math.exp(-gamma * gamma / 2.0) / math.sqrt(2.0 * math.pi)
        most = max(most, (p / q - (1.0 - p) / (1.0 - q)) * density)
    return 1.0 / most


def one_coordinate(dimension: int, epsilon0: float) -> float:
    """By the best of the registered mechanisms for a number. A device is drawn for a coordinate
    with probability 1 / d, and counts d times: d v + u^2 (d - 1), of which the mean square u^2 is
    1 / d.
    """
    counts = np.array([0, 0, _MANY, 0, 0, 0])
    errors = []
    for name in _NUMBERS:
        mechanism = create_local(design_local(name, _NUMBER, epsilon0), _NUMBER)
        errors.append(float(mechanism.expected_stderr(counts)[0]))
    return math.sqrt(dimension * min(errors) ** 2 * _MANY + 1.0 - 1.0 / dimension)


def tables() -> str:
    """Both tables, as the page has them."""
    heads = [f"K = {count:,}" for count in COUNTS]
    alone = [f"one of {d:,} coordinates" for d in DIMENSIONS]
    lines = [
        "At one epsilon0:",
        "",
        f"| epsilon0 | {' | '.join(heads)} | best threshold | {' | '.join(alone)} | Gaussian |",
        "|" + "---|" * (4 + len(COUNTS) + len(DIMENSIONS) - 1),
    ]
    for epsilon0 in LOCAL:
        cells = [of_ranks(count, epsilon0) for count in COUNTS]
        cells += [best_threshold(epsilon0)]
        cells += [one_coordinate(dimension, epsilon0) for dimension in DIMENSIONS]
        cells += [deviation(2.0, epsilon0, DELTA)]
        lines.append(f"| {epsilon0:g} | {' | '.join(map(figure, cells))} |")
    lines += [
        "",
        "Of the mean of n devices at central (1, 1e-6), all honest: K = 1,024, its epsilon0, and",
        "beside it the least noise of a curator, which sums by secure aggregation come near to:",
        "",
        "| devices | epsilon0 | `privunit` | curator |",
        "|---|---|---|---|",
    ]

    def law(epsilon0: float) -> LocalPrivacy:
        return made(1, 1_024, epsilon0).privacy()

    for n in DEVICES:
        epsilon0, _ = largest_epsilon0(law, TARGET, DELTA, n, effort=QUICK_EFFORT)
        ours = of_ranks(1_024, epsilon0) / math.sqrt(n)
        cells = [epsilon0, ours, deviation(2.0, TARGET, DELTA) / n]
        lines.append(f"| {n:,} | {' | '.join(map(figure, cells))} |")
    return "\n".join(lines) + "\n"


def crowd(patients: Patients, count: int) -> Patients:
    """As many devices as are asked for, each with the row of some patient."""
    at = np.arange(count) % len(patients)
    return Patients(patients.rows[at], patients.malignant[at])


def learnt_locally(
    plan: LearningPlan, mechanism: PrivUnit, many: Patients, held_out: Patients, entropy: Entropy
) -> float:
    """Accuracy after all rounds: each device randomizes its clipped gradient, drawn by the code."""
    state, n = begin_learning(plan), len(many)
    for _ in range(plan.rounds):
        own = vectors(plan, state.clip, gradients(plan, state, many.rows, many.malignant))
        unit = own / plan.bound
        rows = np.array([quantize(row, mechanism.domain, entropy).vector for row in unit])
        reports = mechanism.randomize(rows, entropy)[:, 0]
        mean = mechanism.estimate(mechanism.tally(reports)).values * plan.bound
        state = after_round(plan, state, mean * n, n)
    return accuracy(plan.model, state.weights, held_out)


def learn() -> None:
    """Print accuracies: without privacy, a curator's, and from randomized gradients."""
    patients, held_out = load_patients()
    many, model = crowd(patients, _LEARNERS), Logistic(patients.rows.shape[1])
    plan = LearningPlan(model, rounds=_ROUNDS, step=_STEP, clip=_CLIP)
    sys.stdout.write(f"openly: {accuracy(model, learnt_openly(model, patients), held_out):.3f}\n")

    def family(dimension: int, epsilon0: float) -> LocalPrivacy:
        return made(dimension, 256, epsilon0).privacy()

    for epsilon in _EPSILON:
        central = learnt_centrally(plan, many, held_out, (epsilon, DELTA), 5, SeededEntropy("c"))
        epsilon0 = largest_epsilon0_of_rounds(
            partial(family, plan.dimension), epsilon, DELTA, _LEARNERS, _ROUNDS
        )
        mechanism = made(plan.dimension, 256, epsilon0)
        found = [
            learnt_locally(plan, mechanism, many, held_out, SeededEntropy(f"l {epsilon} {run}"))
            for run in range(3)
        ]
        shown = ", ".join(f"{one:.3f}" for one in found)
        sys.stdout.write(
            f"epsilon {epsilon:g} over {_ROUNDS} rounds of {_LEARNERS:,} devices: curator "
            f"{central.mean:.3f}; randomized (epsilon0 {epsilon0:.2f} a round) {shown}\n"
        )


def work() -> None:
    """Print what a report costs a device and the analyzer."""
    for dimension in (1_000, 4_096, 65_535):
        mechanism, vector = made(dimension, 1_024, 4.0), np.zeros(dimension, dtype=np.int64)
        mechanism.randomize_vector(vector, SYSTEM)  # the table is made once
        began = time.process_time()
        reports = mechanism.randomize(np.array([vector] * 3), SYSTEM)[:, 0]
        drawn = time.process_time()
        mechanism.tally(np.repeat(reports, 100, axis=0))
        device, each = (drawn - began) / 3.0, (time.process_time() - drawn) / 300.0
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024.0
        sys.stdout.write(
            f"{dimension:,} coordinates: {device * 1e3:.0f} ms at a device, {each * 1e6:.0f} "
            f"microseconds at the analyzer, {most:.0f} MB\n"
        )


def main() -> None:
    """Write the tables into the page, or learn, or measure."""
    if "--work" in sys.argv[1:]:
        work()
        return
    if "--learn" in sys.argv[1:]:
        learn()
        return
    text = PAGE.read_text()
    begin = text.index(BEGIN) + len(BEGIN)
    end = text.index(END, begin)
    PAGE.write_text(text[:begin] + "\n\n" + tables() + "\n" + text[end:])


if __name__ == "__main__":
    main()

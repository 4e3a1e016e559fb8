"""Thirty releases together: time to build a law of losses and to compose with it, and what a finer
lattice would have given.
"""

from __future__ import annotations

import time
from fractions import Fraction

from benchmarks.bench import Bench
from benchmarks.figures import SECONDS, Figure, Goal, Outcome
from shoal.accounting import certify, compose, upper_curve
from shoal.accounting.composition.compose import basic, renyi
from shoal.accounting.composition.losses import LossLaw, loss_law
from shoal.privacy import KaryLaw, LocalPrivacy, PureLaw, epsilon0_upper

TITLE = (
    "thirty rounds by privacy losses, against a lattice four times as fine; seconds cold and warm"
)
_ROUNDS = 30
_DELTA = 1e-8
# e^2 from below, as integers.
_SAME, _OTHER = 7_389_056_098_930, 1_000_000_000_000
_COLD, _WARM, _FINER = Goal(at_most=5.0), Goal(at_most=0.2), Goal(at_most=1.01)
# Losses beyond which this much of delta lies count as infinite.
_TAIL = 1e-6


def run(bench: Bench) -> Outcome:
    """How long composition over windows takes, and how much it saves."""
    laws: dict[str, LocalPrivacy] = {
        "binary": KaryLaw(2, _SAME, _OTHER),
        "krr, 16 cells": KaryLaw(16, _SAME, _OTHER),
        "any": PureLaw(Fraction(_SAME, _OTHER)),
    }
    figures: list[Figure] = []
    notes: list[str] = []
    for title, law in laws.items():
        for n in bench.pick((1_000,), (100_000,), (1_000, 100_000, 10_000_000)):
            begin = time.perf_counter()
            losses = _law(law, n)
            together = compose([(losses, _ROUNDS)], _DELTA).epsilon_upper
            cold = time.perf_counter() - begin
            warm = tuple(_timed(losses) for _ in range(bench.repetitions))
            finer = compose([(_law(law, n, losses.step / 4), _ROUNDS)], _DELTA).epsilon_upper
            figures.append(
                Figure(
                    f"{title}, n = {n:,}: over a finer lattice's",
                    (max(together / finer, finer / together),),
                    goal=_FINER,
                )
            )
            figures.append(Figure(f"{title}, n = {n:,}: cold", (cold,), SECONDS, _COLD))
            figures.append(Figure(f"{title}, n = {n:,}: warm", warm, SECONDS, _WARM))
            rounds = [(losses, _ROUNDS)]
            notes.append(
                f"{title}, n = {n:g}: one {certify(law, n, _DELTA).epsilon_upper:.5g}, thirty "
                f"{together:.5g} "
                f"(Renyi {renyi(rounds, _DELTA):.5g}, basic {basic(rounds, _DELTA):.5g})"
            )
    return Outcome(tuple(figures), (f"epsilon0 = 2, total delta = {_DELTA:g}", *notes))


def _law(law: LocalPrivacy, n: int, step: float | None = None) -> LossLaw:
    return loss_law(upper_curve(law, n, _DELTA), epsilon0_upper(law), _DELTA * _TAIL, step=step)


def _timed(losses: LossLaw) -> float:
    begin = time.perf_counter()
    compose([(losses, _ROUNDS)], _DELTA)
    return time.perf_counter() - begin

"""What the Planner's form asks of vectors: a list of numbers from each device."""

from __future__ import annotations

import math
from fractions import Fraction

from shoal.accounting.accountant import LARGEST_EPSILON0
from shoal.accounting.several_messages.messages import LARGEST_EPSILON
from shoal.analyzer.planner.vectors.asked import VectorRequest
from shoal.analyzer.planner.vectors.learning import ModelAsked, model_plan, of_rounds
from shoal.console.operator.planner.form import MOST_DEVICES, MOST_WINDOWS, PlannerForm
from shoal.console.operator.planner.vectors import VECTOR_WAYS, VectorsQuestion
from shoal.domain import Norm
from shoal.errors import ShoalError
from shoal.limits import LIMITS
from shoal.questions.models import MOST_WEIGHTS
from shoal.task import PPM

NORMS = {
    "l2": "length (l2)",
    "l1": "sum of the numbers without signs (l1)",
    "coordinate": "largest number (coordinate)",
}
LEARNT = {
    "": "the mean of the lists",
    "logistic": "a logistic regression over them",
    "network": "a network of one hidden layer (devices need PyTorch)",
}


def vectors_of(form: PlannerForm) -> VectorsQuestion | None:
    """What is asked; None where something is wrong, which ``form.wrong`` then says."""
    typed, wrong = form.typed, form.wrong
    learns = bool(typed["learn"])
    most = MOST_WEIGHTS if learns else LIMITS.vector_words
    dimension = form.number("dimension", 1, most, whole=True)
    clip = form.number("clip", 1e-6, 1e6)
    n = form.number("n", 2, MOST_DEVICES, whole=True)
    epsilon = form.number("epsilon", 0.001, LARGEST_EPSILON)
    windows = form.number("windows", 1, MOST_WINDOWS, whole=True)
    honest, delta = form.number("honest", 1, 100), form.number("delta", 1e-30, 0.1)
    lost = form.number("lost", 0, 95)
    step = form.number("step", 1e-6, 1e6) if learns else math.nan
    hidden = form.number("hidden", 1, 1_024, whole=True) if typed["learn"] == "network" else 0
    cap = form.number("cap", 0.01, LARGEST_EPSILON0) if typed["cap"].strip() else math.inf
    _check_choices(form)
    if wrong:
        return None
    try:
        features = VectorRequest(
            int(dimension),
            clip,
            int(n),
            epsilon,
            delta,
            Norm[typed["norm"].upper()],
            (),
            "" if learns else typed["unit"].strip(),
            honest=Fraction(math.floor(honest * 10_000), 1_000_000),
            windows=int(windows),
            drop_out=math.ceil(lost * PPM / 100.0),
            enrolled=not typed["not_enrolled"],
            several_visits=not typed["one_visit"],
            most_epsilon0=cap,
        )
        if not learns:
            return VectorsQuestion(features)
        learning = model_plan(features, ModelAsked(step, int(hidden), bool(typed["adaptive"])))
        return VectorsQuestion(of_rounds(features, learning), learning)
    except ShoalError as error:
        wrong["dimension"] = error.message
        return None


def _check_choices(form: PlannerForm) -> None:
    typed, wrong = form.typed, form.wrong
    for name, known in (("norm", NORMS), ("learn", LEARNT), ("means", VECTOR_WAYS)):
        if typed[name] not in known:
            wrong[name] = "there is no such line: choose one of the list"
    for name in ("not_enrolled", "one_visit", "adaptive"):
        if typed[name] not in ("", "yes"):
            wrong[name] = "the box is ticked or not: tick it again"
    if len(typed["unit"]) > 40 or not typed["unit"].isprintable():
        wrong["unit"] = "give at most 40 letters"
    if typed["learn"] and not wrong:
        if typed["norm"] != "l2":
            wrong["norm"] = "a model is learnt from gradients, whose length is clipped: choose l2"
        if typed["not_enrolled"]:
            wrong["not_enrolled"] = (
                "a model is learnt by sums, whose devices are enrolled: untick this, or ask for "
                "the mean"
            )

"""A device's world with a task that learns a model, and signed releases of it as files."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal import codec
from shoal.accounting.sums.sum_task import design_sum
from shoal.crypto.signing import SigningContext
from shoal.domain import Norm
from shoal.protos import release_pb2
from shoal.questions.learning import LearningPlan
from shoal.questions.models import Logistic
from shoal.secagg import Mode
from shoal.task import Admission, Aggregator
from tests.worlds.devices.clients import World, make_world

PLAN = LearningPlan(Logistic(2), rounds=4, step=8.0, clip=0.5)
NAMES = ("age", "dose")
DELTA = 1e-6


def learning_world(
    plan: LearningPlan = PLAN,
    mode: Mode = Mode.DEFAULT,
    names: tuple[str, ...] = NAMES,
    **made: Any,
) -> World:
    """Its noise is made for epsilon 2 of all rounds together, among 100 devices."""
    design = design_sum(
        dimension=plan.dimension,
        norm=Norm.L2,
        clip=plan.bound,
        noise="skellam",
        mode=mode,
        cohort_max=100,
        dropout_ppm=100_000,
        honest_fraction_ppm=900_000,
        epsilon=2.0,
        delta=DELTA,
        names=plan.names(names) if names else (),
        windows=plan.rounds,
    )
    world = make_world(min_batch=100, count=plan.rounds, **made)
    world.task = replace(
        world.task,
        name="model",
        question=f"How must a model change? {plan.words}",
        domain=design.domain,
        mechanism=design.mechanism,
        pairwise=design.plan,
        aggregator=Aggregator.PAIRWISE,
        admission=Admission.ENROLLED,
        enrolment_key=world.authority.public,
        min_batch=design.plan.survivors_min,
        report_size=design.plan.vector_bytes(plan.dimension),
        messages=1,
        delta=DELTA,
        target_epsilon=2.0,
    )
    world.sign()
    return world


def release_file(
    world: World, path: Path, window: int, totals: tuple[float, ...], **fields: Any
) -> Path:
    """One as ``shoal results export --format release`` writes it, signed by the world's analyzer;
    of 90 devices.
    """
    values = {"version": codec.VERSION, "task_id": world.task_id.raw, "window": window, "n": 90}
    release = release_pb2.Release(**{**values, **fields})
    for name, value in zip(world.task.domain.labels, totals, strict=True):
        release.estimates.add(label=name, value=value)
    data = release.SerializeToString()
    signed = {
        "release": base64.b64encode(data).decode(),
        "release_signature": base64.b64encode(
            world.services.sign(SigningContext.RELEASE, data)
        ).decode(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": "shoal-release", "version": 1, "signed": signed}))
    return path

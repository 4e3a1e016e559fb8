"""A valid task, to be changed one field at a time, and its parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.domain import (
    AnswerRecord,
    Categories,
    Domain,
    Norm,
    Numeric,
    Places,
    Vector,
    Words,
    YesNo,
)
from shoal.mechanisms.several.registry import create_any, fewest_messages
from shoal.questions.record import Attribute, all_pairs
from shoal.secagg import Mode, PairwisePlan
from shoal.task import Admission, Aggregator, MechanismSpec, Task, WindowPlan

WINDOWS = WindowPlan(start_s=1_700_000_000, length_s=3_600, count=24, grace_s=600, skew_s=60)
TASK = Task(
    salt=bytes(range(16)),
    name="visits",
    purpose="To plan how many doctors a town needs.",
    question="Did you see a doctor this year?",
    domain=YesNo(),
    mechanism=MechanismSpec.of("binary_rr", no_one=1 << 62, yes_one=3 << 62),
    windows=WINDOWS,
    min_batch=1_000,
    max_batch=0,
    honest_fraction_ppm=900_000,
    delta=1e-8,
    target_epsilon=0.5,
    key_authority=bytes([1]) * 32,
    shuffler_key=bytes([2]) * 32,
    analyzer_key=bytes([3]) * 32,
    shuffler_address="shuffler.example:7443",
    shuffler_ca=b"-----BEGIN CERTIFICATE-----\n",
    retention_s=86_400,
    report_size=1,
)
# Summed by secure aggregation: of 100 devices at least 80 survive, and 70 of them are honest.
# Epsilon 0.99 at delta 1e-8.
PLAN = PairwisePlan(Mode.DEFAULT, 100, 120, 80, 200_000, 32, 30, 60, 120, 60)
PAIRWISE = replace(
    TASK,
    name="moments",
    question="Visits to a doctor this year, and their square",
    domain=Vector(3, Norm.L2, 10.0, 1_000, ("visits", "visits squared", "answers"), "visits"),
    mechanism=MechanismSpec.of("skellam", shares=70, variance=118_000_000),
    min_batch=200,
    target_epsilon=1.0,
    admission=Admission.ENROLLED,
    enrolment_key=bytes([4]) * 32,
    aggregator=Aggregator.PAIRWISE,
    pairwise=PLAN,
    report_size=PLAN.vector_bytes(3),
)
ATTRIBUTES = (
    Attribute("age", Categories(("young", "old"), (0, 40))),
    Attribute("sex", Categories(("f", "m"))),
    Attribute("health", Categories(("good", "fair", "poor"))),
)
DOMAINS = (
    YesNo(),
    Categories(("red", "green", "blue")),
    Categories(("none", "few", "many"), (0, 1, 5)),
    Numeric(0.0, 20.0, 21, unit="visits"),
    Numeric(-1.5, 1.5, 7, clip=False),
    Words(("flu", "grippe", "\u6d41\u611f")),
    Places(48_000_000, 11_300_000, 48_300_000, 11_800_000, 4, 5),
    AnswerRecord(ATTRIBUTES, all_pairs(3)),
    AnswerRecord(ATTRIBUTES, ((0, 1, 2), (2,)), together=True),
)


def task(**changes: Any) -> Task:
    """TASK with some fields changed; raises what the constructor raises."""
    return replace(TASK, **changes)


def shaped(spec: MechanismSpec, domain: Domain, base: Task = TASK, **changes: Any) -> Task:
    """``base`` with this mechanism and question, its reports as the mechanism makes them."""
    made = create_any(spec, domain)
    return replace(
        base,
        domain=domain,
        mechanism=spec,
        report_size=made.report_size,
        messages=made.messages,
        fewest_messages=fewest_messages(made),
        **changes,
    )


def without_empties(base: Task) -> Task:
    """A task as they were before there were empty messages: the numbers of messages tell."""
    kept = dict(base.mechanism.parameters)
    for name in ("empties", "widest", "full"):
        kept.pop(name, None)
    return shaped(MechanismSpec.of(base.mechanism.name, **kept), base.domain, base)


def pairwise(**changes: Any) -> Task:
    """PAIRWISE with some fields changed."""
    return replace(PAIRWISE, **changes)


def pairwise_plan(**changes: Any) -> Task:
    """PAIRWISE with some settings of its rounds changed, and the length of its vectors with
    them.
    """
    plan = replace(PLAN, **changes)
    return replace(PAIRWISE, pairwise=plan, report_size=plan.vector_bytes(PAIRWISE.domain.size))


def window_plan(**changes: int) -> WindowPlan:
    return replace(WINDOWS, **changes)

"""The Planner's last step: the plan as a task file that wants no editing, as far as the console
knows. Words come from the form, keys and addresses from the latest signed task that it can read.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shoal.analyzer.discovery.plan import DiscoveryPlan
from shoal.analyzer.discovery.task_file import task_file
from shoal.analyzer.planner.frontier.maps import MapWay, TreeWay, chosen_task
from shoal.analyzer.planner.frontier.option import SeveralOption
from shoal.analyzer.planner.result import Plan
from shoal.analyzer.planner.task_file import Settings, file_text, name_of, task_text
from shoal.analyzer.planner.vectors.learning import names_of, told_with
from shoal.analyzer.planner.vectors.task_text import vectors_text
from shoal.analyzer.planner.vectors.way import VectorPlan
from shoal.console.operator.holdings import Holdings
from shoal.console.operator.planner.form import PlannerForm
from shoal.domain import Categories, Norm, Vector
from shoal.errors import ShoalError
from shoal.limits import LIMITS
from shoal.questions.learning import LearningPlan
from shoal.task import Admission, Task, one_line

DAYS = (1, 7, 14, 28)
CA_FILE = "ca.pem"
_DAY = 86_400


def pattern(holdings: Holdings) -> Task | None:
    """The task whose keys and addresses the next one takes: the one that begins last."""
    return max(holdings.tasks.values(), key=lambda task: task.windows.start_s, default=None)


def check_words(form: PlannerForm) -> None:
    """Say by field what is wrong with the words of the task."""
    question, purpose = form.typed["question"], form.typed["purpose"]
    if not _line(question):
        form.wrong["question"] = "say in one line what devices' owners are asked"
    elif not name_of(question):
        form.wrong["question"] = (
            "the task is named by these words: some letters from a to z, please"
        )
    if purpose.strip() and not _line(purpose):
        form.wrong["purpose"] = f"give one line of at most {LIMITS.text_chars:,} characters"
    if form.typed["days"] not in map(str, DAYS):
        form.wrong["days"] = f"choose one of {', '.join(map(str, DAYS))}"
    if form.typed["labels"].strip() and form.kind in ("categories", "vectors"):
        _check_labels(form)


def _check_labels(form: PlannerForm) -> None:
    labels = _labels(form)
    asked = form.typed["answers" if form.kind == "categories" else "dimension"].strip()
    what = "answers" if form.kind == "categories" else "names of numbers"
    if f"{len(labels)}" != asked.replace(",", ""):
        form.wrong["labels"] = (
            f"these are {len(labels)} {what}, and {asked} are planned for: change one of the two"
        )
        return
    try:
        if form.kind == "categories":
            Categories(labels)
        else:
            Vector(len(labels), Norm.L2, 1.0, 1, labels)
    except ShoalError as error:
        form.wrong["labels"] = str(error)


def written(
    plan: Plan,
    form: PlannerForm,
    model: Task | None,
    now: float,
    several: SeveralOption | None = None,
) -> tuple[str, str]:
    """(name, text) of the file, of ``several`` messages in place of the plan's choice if they were
    chosen. ``now``: Unix seconds; the first window begins at the next day.
    """
    labels = _labels(form)
    if form.kind == "categories" and labels:
        plan = _named(plan, Categories(labels))
        several = None if several is None else replace(several, domain=Categories(labels))
    told = _told(form, model, now)
    return told.texts["name"], task_text(plan, told=told, several=several)


def words_written(
    plan: DiscoveryPlan, form: PlannerForm, model: Task | None, now: float
) -> tuple[str, str]:
    """The same of a discovery."""
    told = _told(form, model, now)
    return told.texts["name"], task_file(plan, told=told, command="shoal plan words")


def places_written(
    way: MapWay | TreeWay, form: PlannerForm, model: Task | None, now: float
) -> tuple[str, str]:
    """The same of a map; of a tree the task of a discovery."""
    told = _told(form, model, now)
    if isinstance(way, TreeWay):
        text = task_file(way.plan, told=told, command="shoal discover plan --places")
    else:
        length = int(told.windows["length_s"])
        text = file_text(*chosen_task(way), length, told, "shoal places plan")
    return told.texts["name"], text


def vectors_written(
    plan: VectorPlan,
    learning: LearningPlan | None,
    form: PlannerForm,
    model: Task | None,
    now: float,
) -> tuple[str, str]:
    """The same of vectors: of a model the words of its plan stand behind the question. Raises
    CONFIG if both are too long together.
    """
    told, names = _told(form, model, now), _labels(form)
    way = plan.chosen
    if names and way.domain is not None:
        names = names if learning is None else names_of(names, learning)
        plan = replace(plan, chosen=replace(way, domain=replace(way.domain, names=names)))
    if learning is not None:
        told = told_with(told, learning)
    return told.texts["name"], vectors_text(plan, told)


def _told(form: PlannerForm, model: Task | None, now: float) -> Settings:
    """What the form and the latest task say of the next one."""
    question = form.typed["question"].strip()
    purpose = form.typed["purpose"].strip() or f"statistics on: {question}"[: LIMITS.text_chars]
    start = datetime.fromtimestamp((now // _DAY + 1) * _DAY, UTC)
    windows = {"start": start, "length_s": int(form.typed["days"]) * _DAY}
    texts: dict[str, Any] = {"name": name_of(question), "purpose": purpose, "question": question}
    keys: dict[str, str] = {}
    shuffler: dict[str, str] = {}
    if model is not None:
        keys = {
            "key_authority": model.key_authority.hex(),
            "shuffler": model.shuffler_key.hex(),
            "analyzer": model.analyzer_key.hex(),
        }
        shuffler = {"address": model.shuffler_address, "ca": CA_FILE}
        if model.admission is Admission.ENROLLED:
            texts["admission"] = "enrolled"
            keys["enrolment"] = model.enrolment_key.hex()
    return Settings(texts, windows, keys, shuffler)


def _named(plan: Plan, domain: Categories) -> Plan:
    """The same plan with the answers' own names: nothing in its integers depends on them."""
    candidate = replace(plan.choice.candidate, domain=domain)
    return replace(plan, choice=replace(plan.choice, candidate=candidate))


def _labels(form: PlannerForm) -> tuple[str, ...]:
    lines = (line.strip() for line in form.typed["labels"].splitlines())
    return tuple(line for line in lines if line)


def _line(text: str) -> bool:
    return bool(text.strip()) and one_line(text.strip()) and len(text) <= LIMITS.text_chars

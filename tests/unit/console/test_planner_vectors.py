"""Vectors on the Planner's page: every way, a model's rounds, the file, refusals."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from shoal.accounting.meaning import bound_text
from shoal.accounting.of_task import guarantee_of
from shoal.accounting.sums.windows import epsilon_of_task
from shoal.analyzer.planner.vectors.asked import VectorRequest
from shoal.analyzer.planner.vectors.choose import plan_vectors
from shoal.analyzer.planner.vectors.way import VectorPlan
from shoal.cli.main import main
from shoal.cli.task.file import read_task
from shoal.console.operator.planner.form import PlannerForm
from shoal.console.operator.planner.vector_form import vectors_of
from shoal.console.operator.planner.vectors import (
    VectorsAnswer,
    chosen_plan,
    lacking_way,
    vectors_answers,
    vectors_view,
)
from shoal.domain import Vector
from shoal.pictures.axes import number
from shoal.questions.learning import ClipRule
from shoal.questions.network import Network
from shoal.questions.plan_words import plan_of
from shoal.task import Task
from tests.cases import for_each
from tests.unit.analyzer.results.test_report_page import Page

Capture = pytest.CaptureFixture[str]
ASKED = {
    "kind": "vectors", "n": "600", "dimension": "2", "clip": "0.5", "honest": "90",
    "delta": "1e-6", "epsilon": "1", "lost": "10",
}  # fmt: skip
LEARNS = ASKED | {"learn": "logistic", "step": "8", "windows": "4"}
COMMAND = (
    "plan", "vectors", "--dimension", "2", "--clip", "0.5", "--n", "600", "--epsilon", "1",
    "--delta", "1e-6", "--honest-fraction", "0.9", "--drop-out", "0.1", "--json",
)  # fmt: skip
QUESTION = "How far did you go?"


def whole(client: TestClient, asked: dict[str, str]) -> str:
    while True:
        text = client.get(f"/planner?{urlencode(asked)}").text
        if "data-more" not in text:
            return text


def told(capsys: Capture, *more: str) -> dict[str, Any]:
    assert main([*COMMAND, *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def task_of(client: TestClient, folder: Path, asked: dict[str, str]) -> Task:
    """That of the file which the page writes; the enrolment's key is typed where it is lacking."""
    answer = client.get(f"/download/planned.toml?{urlencode(asked | {'question': QUESTION})}")
    assert answer.status_code == 200
    assert "toml" in answer.headers["content-type"]
    text = answer.text.replace('enrolment = ""', f'enrolment = "{"07" * 32}"')
    (folder / "planned.toml").write_text(text)
    (folder / "ca.pem").write_bytes(client.get("/download/ca.pem").content)
    return read_task(folder / "planned.toml")


@cache
def planned() -> VectorPlan:
    question = vectors_of(PlannerForm.of(ASKED))
    assert question is not None
    return plan_vectors(question.request)


def test_the_page_says_what_the_command_says(client: TestClient, capsys: Capture) -> None:
    """Every way with its error and epsilons, the best one named. Planted: the honest share left out
    of the request -> another plan, fails.
    """
    plan = told(capsys)
    source = whole(client, ASKED)
    shown = Page(source).text
    ways = [plan["choice"], *plan["alternatives"]]
    assert len(ways) >= 4
    for way in ways:
        assert way["title"] in shown
        assert number(float(bound_text(way["stderr"], digits=3))) in shown
        assert bound_text(way["epsilon"]) in shown
    assert f"<span>Recommended</span><b>{plan['choice']['title']}</b>" in source


def test_a_model_is_planned_with_the_epsilon_of_its_rounds(
    client: TestClient, capsys: Capture, tmp_path: Path
) -> None:
    """The words and epsilons of the command, and a file by whose task devices and analyzer follow
    the model. Planted: the features' request written in place of the gradients' -> the task is not
    asked by its plan, fails.
    """
    plan = told(capsys, "--learn", "8", "--windows", "4")
    shown = Page(whole(client, LEARNS)).text
    assert plan["learning"] in shown
    for rounds, epsilon in enumerate(plan["epsilon_by_round"], 1):
        named = "1 round" if rounds == 1 else f"{rounds} rounds"
        assert f"{named}: \u2264 {bound_text(epsilon)}" in shown
    task = task_of(client, tmp_path, LEARNS | {"labels": "age\ndose"})
    assert task.question == f"{QUESTION} {plan['learning']}"
    found = plan_of(task)
    assert (found.rounds, found.step, found.clip) == (4, 8.0, 0.5)
    assert task.domain.labels == ("age", "dose", "intercept")
    assert epsilon_of_task(task, 4, 1e-6) <= plan["epsilon_by_round"][-1] <= 1.0


def test_a_network_and_a_clip_that_follows_are_planned(client: TestClient, tmp_path: Path) -> None:
    """Planted: the tick left out of the plan -> fails."""
    asked = LEARNS | {"learn": "network", "hidden": "3", "adaptive": "yes", "labels": "a\nb"}
    shown = Page(whole(client, asked)).text
    assert "pip install 'shoal[network]'" in shown
    assert "where 70% of the gradients are within it" in shown
    task = task_of(client, tmp_path, asked | {"days": "1"})
    plan = plan_of(task)
    assert (plan.model, plan.rule) == (Network(2, 3, 1), ClipRule())
    assert task.windows.grace_s == 21_600
    assert len(task.domain.labels) == 14


@for_each("way", ["", "privunit", "helper"])
def test_the_file_is_a_task_with_the_figures_of_the_plan(
    client: TestClient, tmp_path: Path, way: str
) -> None:
    """Of the best way, or that which was chosen. Planted: the best one whatever was chosen ->
    fails.
    """
    task = task_of(client, tmp_path, ASKED | {"means": way})
    own = chosen_plan(planned(), way).chosen
    assert own.name == (way or planned().chosen.name)
    assert own.spec is not None
    assert (task.name, task.question) == ("how-far-did-you-go", QUESTION)
    assert (task.mechanism.name, isinstance(task.domain, Vector)) == (own.spec.name, True)
    assert guarantee_of(task).epsilon_upper == own.epsilon <= task.target_epsilon


def test_a_way_that_is_not_possible_is_said_in_place(client: TestClient) -> None:
    """Planted: the best one written for it -> a file, fails."""
    asked = ASKED | {"means": "strict", "not_enrolled": "yes", "question": QUESTION}
    answer = client.get(f"/download/planned.toml?{urlencode(asked)}")
    assert "text/html" in answer.headers["content-type"]
    assert "Devices of a sum have to be enrolled: choose another line" in answer.text
    assert "choose another line" in whole(client, asked)
    assert lacking_way(planned(), "strict") is None


def test_what_nothing_keeps_is_said_in_a_line(client: TestClient) -> None:
    shown = Page(whole(client, ASKED | {"dimension": "200,000", "not_enrolled": "yes"})).text
    assert "Nothing can be planned within these limits" in shown


def test_answers_come_one_after_another() -> None:
    question = vectors_of(PlannerForm.of(ASKED))
    assert question is not None
    seen = list(vectors_answers(question))
    assert [one.tried for one in seen] == [1, 2, 3, 4, 4]
    assert [one.done for one in seen] == [False] * 4 + [True]
    assert vectors_view(question, seen[0], None, "")["again_ms"]
    assert vectors_view(question, seen[-1], None, "")["again_ms"] is None
    assert vectors_view(question, VectorsAnswer(), "no", "")["again_ms"] is None


@for_each(
    "fields, wrong",
    [
        ({"dimension": "0"}, "dimension"),
        ({"dimension": "20000000"}, "dimension"),
        ({"dimension": "2000000", "learn": "logistic"}, "dimension"),
        ({"clip": "0"}, "clip"),
        ({"clip": "1e300"}, "clip"),
        ({"epsilon": "0"}, "epsilon"),
        ({"epsilon": "nan"}, "epsilon"),
        ({"n": "1"}, "n"),
        ({"n": "1e20"}, "n"),
        ({"windows": "0"}, "windows"),
        ({"delta": "1"}, "delta"),
        ({"lost": "100"}, "lost"),
        ({"norm": "l3"}, "norm"),
        ({"learn": "tree"}, "learn"),
        ({"means": "krr"}, "means"),
        ({"one_visit": "perhaps"}, "one_visit"),
        ({"unit": "m" * 41}, "unit"),
        ({"step": "0", "learn": "logistic"}, "step"),
        ({"hidden": "2000", "learn": "network"}, "hidden"),
        ({"adaptive": "perhaps", "learn": "network"}, "adaptive"),
        ({"norm": "l1", "learn": "logistic"}, "norm"),
        ({"not_enrolled": "yes", "learn": "logistic"}, "not_enrolled"),
    ],
)
def test_what_is_refused_in_place(fields: dict[str, str], wrong: str) -> None:
    """Planted: each check left out -> its case fails."""
    form = PlannerForm.of(ASKED | fields)
    assert vectors_of(form) is None
    assert list(form.wrong) == [wrong]


def test_names_are_as_many_as_the_numbers(client: TestClient) -> None:
    for labels, said in (("a", "1 names of numbers"), ("a\na", "distinct")):
        asked = ASKED | {"labels": labels, "question": QUESTION}
        answer = client.get(f"/download/planned.toml?{urlencode(asked)}")
        assert "text/html" in answer.headers["content-type"]
        assert said in answer.text


def test_what_belongs_to_other_kinds_is_not_looked_at() -> None:
    form = PlannerForm.of(ASKED | {"off": "x", "several": "yes", "memoized": "yes", "rows": "z"})
    question = vectors_of(form)
    assert question is not None
    assert isinstance(question.request, VectorRequest)
    assert question.request == planned().request

"""Words that nobody has listed on the Planner's page: the answer, the file, what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from shoal.accounting.lint.task import lint
from shoal.accounting.meaning import bound_text
from shoal.analyzer.discovery.plan import DiscoveryPlan, DiscoveryRequest
from shoal.cli.task.file import read_task
from shoal.console.operator.planner.form import PlannerForm
from shoal.console.operator.planner.words import (
    WordsAnswer,
    WordsQuestion,
    words_answers,
    words_view,
)
from shoal.mechanisms.several.levels import histogram_of, threshold
from tests.cases import for_each
from tests.unit.analyzer.results.test_report_page import Page

ASKED = {"kind": "words", "n": "2000", "off": "3", "letters": "4", "honest": "100"}
REQUEST = DiscoveryRequest(2_000, 1.0, 1e-8, longest=4, spare=2)
QUESTION = WordsQuestion(REQUEST, 60)


@cache
def answers() -> tuple[WordsAnswer, ...]:
    """All that the Planner is told, in order; once for all tests."""
    return tuple(words_answers(QUESTION))


def planned() -> DiscoveryPlan:
    """The last of them."""
    plan = answers()[-1].plan
    assert plan is not None
    return plan


@pytest.fixture(scope="module")
def text(client: TestClient) -> str:
    """The task file; it waits until all is known."""
    answer = client.get(f"/download/planned.toml?{urlencode(ASKED | {'question': 'Which word?'})}")
    assert answer.status_code == 200
    return answer.text


def test_the_page_says_what_the_planner_does(client: TestClient, text: str) -> None:
    """Epsilon of a device and of a level, from when a word is found, the threshold of every level,
    what it asks of owners. Planted: the threshold of the largest level in every row -> fails.
    """
    plan = planned()
    assert text.startswith("# Planned by `shoal plan words`: a discovery")
    shown = Page(client.get(f"/planner?{urlencode(ASKED)}").text).text
    for epsilon in (plan.epsilon, plan.epsilon_level):
        assert f"\u2264 {bound_text(epsilon)}" in shown
    assert f"{plan.found_from} devices" in shown
    assert "60 devices (3 %) is found, 95 times in a hundred" in shown
    assert "Consent by name" in shown
    first = histogram_of(plan.made, plan.discovery.level(0))
    for made in (first, plan.made):
        assert f"{threshold(made, 3, 2_000)} devices" in shown


def test_the_file_is_a_task_that_lint_takes(client: TestClient, text: str, tmp_path: Path) -> None:
    """With keys and addresses of the latest signed task, certified as it was planned. Planted: the
    grace of other tasks, a day -> lint warns that levels wait, fails.
    """
    (tmp_path / "words.toml").write_text(text)
    (tmp_path / "ca.pem").write_bytes(client.get("/download/ca.pem").content)
    task = read_task(tmp_path / "words.toml")
    plan = planned()
    assert (task.name, task.question) == ("which-word", "Which word?")
    assert task.domain == plan.discovery
    assert task.mechanism == plan.made.spec
    assert (task.windows.count, task.min_batch) == (plan.together, 2_000)
    found = lint(task)
    assert found.errors == ()
    assert not any("grace" in each.message for each in found.findings)
    assert found.guarantee is not None
    assert found.guarantee.epsilon_upper <= plan.epsilon_level * (1 + 1e-6)


def test_answers_come_one_after_another() -> None:
    told = answers()
    assert [one.done for one in told] == [False] * (len(told) - 1) + [True]
    assert words_view(QUESTION, told[0], None)["again_ms"]
    assert words_view(QUESTION, told[-1], None)["again_ms"] is None
    assert words_view(QUESTION, None, "no")["again_ms"] is None


@for_each(
    "fields, wrong",
    [
        ({"letters": "2"}, "letters"),
        ({"letters": "33"}, "letters"),
        ({"spare": "-1"}, "spare"),
        ({"off": "0.01"}, "off"),
        ({"of": "devices", "off": "3000"}, "off"),
        ({"n": "1"}, "n"),
    ],
)
def test_what_is_refused_in_place(fields: dict[str, str], wrong: str) -> None:
    """Planted: a count above the devices taken -> fails."""
    form = PlannerForm.of(ASKED | fields)
    assert form.words() is None
    assert list(form.wrong) == [wrong]


def test_what_belongs_to_other_kinds_is_not_looked_at() -> None:
    form = PlannerForm.of(ASKED | {"windows": "x", "several": "yes", "cap": "z", "memoized": "yes"})
    assert form.words() == QUESTION


def test_what_no_epsilon_finds_is_said(client: TestClient) -> None:
    answer = client.get(f"/planner?{urlencode(ASKED | {'of': 'devices', 'off': '2'})}").text
    while "data-more" in answer:
        answer = client.get(f"/planner?{urlencode(ASKED | {'of': 'devices', 'off': '2'})}").text
    assert "larger count" in answer


def test_devices_that_answer_once(client: TestClient) -> None:
    """The plan of ``DiscoveryRequest.drawing``, in devices of the whole fleet, and its file.
    Planted: the box is not looked at -> every device answers at every level, fails.
    """
    asked = ASKED | {"n": "6000", "off": "10", "fresh": "yes", "question": "Which word?"}
    request = replace(REQUEST, n=6_000).drawing(6_000)
    plan = list(words_answers(WordsQuestion(request, 600)))[-1].plan
    assert plan is not None
    text = client.get(f"/download/planned.toml?{urlencode(asked)}").text
    assert "fresh = true" in text
    assert f"min_batch = {request.n}" in text
    shown = Page(client.get(f"/planner?{urlencode(asked)}").text).text
    assert f"{plan.found_in_all} devices" in shown
    assert "of all 6,000 that have the word" in shown
    assert "600 devices (10 %) is found" in shown
    assert "in the one window that it draws of 5" in shown
    few = Page(client.get(f"/planner?{urlencode(asked | {'n': '20', 'off': '50'})}").text).text
    assert "too few for 5 windows" in few
    form = PlannerForm.of(asked | {"honest": "80"})
    assert form.words() is None
    assert set(form.wrong) == {"honest"}
    assert "1,200 of 6,000 devices may lie" in form.wrong["honest"]


def test_an_honest_share_is_rounded_down() -> None:
    """To millionths, as a task has it. Planted: rounded up -> fails."""
    found = PlannerForm.of(ASKED | {"honest": "66.66669"}).words()
    assert found is not None
    assert found.request.honest == Fraction(666_666, 1_000_000)

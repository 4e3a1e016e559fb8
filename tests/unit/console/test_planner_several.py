"""Several messages per device on the Planner's page: the frontier, the file, what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

from starlette.testclient import TestClient

from shoal.accounting.lint.task import lint
from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.accuracy.answers import answers, request_for
from shoal.analyzer.planner.accuracy.central import Z95
from shoal.analyzer.planner.frontier.lines import frontier
from shoal.analyzer.planner.frontier.option import SeveralOption
from shoal.analyzer.planner.frontier.several import _Outdone, several_options
from shoal.analyzer.planner.question import Frequencies, Request
from shoal.cli.task.file import read_task
from shoal.console.operator.planner.form import PlannerForm
from shoal.console.operator.planner.several import (
    SeveralAnswer,
    SeveralQuestion,
    chosen_line,
    several_answers,
    several_view,
)
from shoal.console.operator.planner.work import Workshop
from shoal.domain import Categories, YesNo
from shoal.pictures.axes import number
from tests.cases import for_each
from tests.unit.analyzer.results.test_report_page import Page

ASKED = {"n": "600", "off": "0.5", "delta": "1e-6", "several": "yes"}
REQUEST = request_for(Frequencies(YesNo(), heavy=1.0), 600, 3.0, 1e-6, Fraction(9, 10))


def file(client: TestClient, **fields: str) -> str:
    answer = client.get(f"/download/planned.toml?{urlencode({'question': 'Why?'} | fields)}")
    assert answer.status_code == 200
    return answer.text


def test_the_page_shows_the_frontier_of_the_planner(client: TestClient) -> None:
    """Every line of it, which one is recommended, and what that asks of owners; nothing of it
    without the tick.

    Planted: the honest fraction left out of what is asked -> other epsilons, fails; standard errors
    shown for what a figure may be off by -> fails.
    """
    file(client, **ASKED)  # waits for all of it
    text = client.get(f"/planner?{urlencode(ASKED)}").text
    assert "data-more" not in text
    *_, last = answers(REQUEST)
    assert last.plan is not None
    found = frontier(last.plan, several_options(REQUEST, trusting=True))
    shown = Page(text).text
    part = text.split('id="messages"')[1].split("</section>")[0]
    for line in found.lines:
        assert f'<span class="label">{line.title}</span>' in part
        assert f"<b>{bound_text(line.epsilon)}</b>" in part
        assert f", at most {line.messages}</td>" in part
    best = found.recommended
    assert best.title == "signed_count"
    assert f"Recommended: {best.title}, with epsilon ≤ {bound_text(best.epsilon)}." in shown
    assert "Owners have to agree to such a task by name: shuffler and analyzer together" in shown
    assert "shuffler_noise trusts the shuffler to add the noise" in shown
    assert part.count("<td>3</td>") == len([each for each in found.lines if each.error > 1.5])
    plain = client.get(f"/planner?{urlencode(ASKED | {'several': ''})}").text
    assert 'id="messages"' not in plain


@for_each(
    "choose, name",
    [("", "signed_count"), ("cancelling", "cancelling"), ("one", "binary_rr")],
)
def test_the_file_is_of_the_line_that_was_chosen(
    client: TestClient, tmp_path: Path, choose: str, name: str
) -> None:
    """With its integers, at the epsilon that lint certifies. Planted: what is recommended written
    whatever was chosen -> fails; the plan's target with those integers -> lint refuses or another
    target, fails.
    """
    path = tmp_path / f"{name}.toml"
    path.write_text(file(client, choose=choose, **ASKED))
    (tmp_path / "ca.pem").write_bytes(client.get("/download/ca.pem").content)
    task = read_task(path)
    assert task.mechanism.name == name
    result = lint(task)
    assert [each for each in result.findings if each.error] == []
    assert result.guarantee is not None
    assert 0.999 * task.target_epsilon <= result.guarantee.epsilon_upper <= task.target_epsilon
    if name == "binary_rr":
        assert "by name" not in path.read_text()
        return
    option = next(each for each in several_options(REQUEST)[0] if each.spec.name == name)
    assert task.mechanism == option.spec
    assert task.target_epsilon == option.epsilon
    assert "owners have to agree by name" in path.read_text()


QUANTILES = ASKED | {"kind": "quantiles", "n": "5,000", "off": "4", "at": "25, 50"}


def test_quantiles_are_compared_with_ranges(client: TestClient, tmp_path: Path) -> None:
    """Beside the plan of one message: what a quantile may be off by, messages, and that owners have
    to agree by name; what any range of the same release errs by. The file is of that line, and lint
    takes it.

    Planted: quantiles refused at the tick, as they were -> no table, fails; the error of a range
    left out -> fails.
    """
    path = tmp_path / "new.toml"
    path.write_text(file(client, **QUANTILES))  # waits for all of it
    part = Page(client.get(f"/planner?{urlencode(QUANTILES)}").text).text
    _, option = ranges_planned()
    assert option.spec.name == "ranges"
    assert option.range_error is not None
    assert f"Recommended: {option.title}, with epsilon ≤ {bound_text(option.epsilon)}." in part
    assert "Owners have to agree to such a task by name" in part
    assert f", at most {option.messages}" in part
    off = number(float(bound_text(Z95 * option.range_error, digits=3)))
    assert f"of any range of levels it counts the devices too, off by {off} or so" in part
    assert "one message per device, as planned above" in part
    (tmp_path / "ca.pem").write_bytes(client.get("/download/ca.pem").content)
    task = read_task(path)
    assert (task.mechanism, task.domain) == (option.spec, option.domain)
    assert [each for each in lint(task).findings if each.error] == []
    single = tmp_path / "single.toml"
    single.write_text(file(client, **QUANTILES, choose="one"))
    assert read_task(single).mechanism.name in {"kmean", "krr", "square_wave"}


def test_numbers_of_levels_that_fewer_outdo_are_not_tried_below() -> None:
    """With a smaller epsilon there is more noise still; and what is left is the best at every
    epsilon that is tried. Planted: passed over above that epsilon too -> fails; more levels
    outdoing fewer -> fails.
    """
    outdone = _Outdone()
    outdone.see({1_023: 3.0, 255: 1.0, 63: 1.02, 15: 5.0}, 2.0)
    assert [outdone.passes(levels, 1.9) for levels in (1_023, 255, 63, 15)] == [
        True,
        *[False] * 3,
    ]
    assert not outdone.passes(1_023, 2.0)
    outdone.see({255: 2.0, 63: 1.0}, 1.0)
    assert outdone.passes(1_023, 1.5)
    assert not outdone.passes(255, 1.5)
    assert outdone.passes(255, 0.9)
    request, option = ranges_planned()
    (found, _) = several_options(replace(request, epsilon=option.designed, error=None))
    assert option.error <= found[0].error * 1.001
    assert option.domain == found[0].domain


@cache
def ranges_planned() -> tuple[Request, SeveralOption]:
    request = PlannerForm.of(QUANTILES).request()
    assert request is not None
    (option,), unsuited = several_options(request, trusting=True)
    assert unsuited == ()
    return request, option


def test_the_answers_have_their_own_names(client: TestClient, tmp_path: Path) -> None:
    """Planted: the names left out of several messages' domain -> "category 1", fails."""
    fields = {"kind": "categories", "answers": "2", "labels": "tea\ncoffee", "choose": "dummies"}
    (tmp_path / "new.toml").write_text(file(client, **(ASKED | fields | {"off": "3"})))
    (tmp_path / "ca.pem").write_bytes(client.get("/download/ca.pem").content)
    task = read_task(tmp_path / "new.toml")
    assert (task.mechanism.name, task.domain) == ("dummies", Categories(("tea", "coffee")))


@for_each(
    "fields, name, said",
    [
        ({"several": "no"}, "several", "the box is ticked or not"),
        (
            {"kind": "quantiles", "memoized": "yes", "windows": "3", "off": "9"},
            "several",
            "no device repeats them",
        ),
        ({"memoized": "yes", "windows": "3"}, "several", "no device repeats them"),
        ({"cap": "3"}, "several", "no epsilon0 that could be limited"),
        ({"choose": "<b>"}, "choose", "no such mechanism"),
        ({"choose": "krr"}, "choose", "no such mechanism"),
        ({"choose": "shuffler_noise"}, "choose", "trusts the shuffler"),
        ({"choose": "cancelling", "several": ""}, "choose", "tick several messages"),
    ],
)
def test_what_they_cannot_be_planned_for_is_told_at_its_field(
    client: TestClient, fields: dict[str, str], name: str, said: str
) -> None:
    """Hand-made values too, on the page and for the file; nothing is computed. Planted: no look at
    the value -> the file of another line, fails.
    """
    form = PlannerForm.of(ASKED | fields)
    assert form.request() is None
    assert list(form.wrong) == [name]
    for path in ("/planner", "/download/planned.toml"):
        answer = client.get(f"{path}?{urlencode(ASKED | {'question': 'Why?'} | fields)}")
        assert answer.status_code == 200
        note = re.search(rf'id="{name}-wrong"[^>]*>([^<]*)<', answer.text)
        assert note is not None
        assert said.lower() in note[1].lower()
        assert 'id="messages"' not in answer.text


def test_a_line_that_the_table_lacks_is_refused(client: TestClient) -> None:
    """A mean's, of a yes or no. Planted: the recommended line in its place -> a file, fails."""
    fields = ASKED | {"question": "Why?", "choose": "split_mix"}
    answer = client.get(f"/download/planned.toml?{urlencode(fields)}")
    assert "text/html" in answer.headers["content-type"]
    assert "The table has no such line: choose one that it has" in Page(answer.text).text


def test_protocols_come_one_after_the_other_and_end_as_the_command_has_them() -> None:
    """Planted: those that are not possible left out of what was tried -> never done, fails."""
    request = request_for(Frequencies(YesNo(), heavy=1.0), 600, 1.2, 1e-6, Fraction(9, 10))
    seen = list(several_answers(SeveralQuestion(request)))
    assert [answer.tried for answer in seen] == [1, 2, 3, 4]
    assert [answer.done for answer in seen] == [False, False, False, True]
    assert (seen[-1].options, seen[-1].unsuited) == several_options(request, trusting=True)
    assert {each.mechanism for each in seen[-1].unsuited} == {"dummies"}


def test_a_frontier_of_nothing_yet_is_the_plan() -> None:
    """Planted: a line that the shuffler is trusted for taken as a choice -> fails."""
    *_, last = answers(REQUEST)
    assert last.plan is not None
    shown = several_view(SeveralAnswer(), last.plan)
    assert (shown["best"], shown["single"], len(shown["rows"])) == ("binary_rr", True, 1)
    found = frontier(last.plan, several_options(REQUEST, trusting=True))
    assert chosen_line(found, "shuffler_noise") is None
    assert chosen_line(found, "one") is not None
    assert chosen_line(found, "") == found.recommended


def test_first_answers_do_not_wait_for_several_messages() -> None:
    """The process of first answers never works at them. Planted: the queue of first answers for
    them -> the brief process has the question, fails.
    """
    workshop = Workshop()
    try:
        question = SeveralQuestion(REQUEST)
        workshop.look(question, 0.0)
        assert question not in workshop._queues[True]
        while not (worked := workshop.look(question, 5.0)).over:
            assert question not in workshop._queues[True]
        assert worked.answer is not None
        assert worked.answer.done
        again = workshop.look(question, 0.0)
        assert again.answer == worked.answer  # kept
    finally:
        workshop.close()

"""The Planner's page without a browser: what it shows, what it refuses in place, the file that it
writes, and the processes that work for it.
"""

from __future__ import annotations

import re
import tempfile
import threading
from fractions import Fraction
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from shoal.accounting.lint.task import lint
from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.accuracy.answers import answers, request_for
from shoal.analyzer.planner.question import Frequencies, Mean, Quantiles
from shoal.cli.main import main
from shoal.cli.task.file import read_task
from shoal.codec import decode_signed_task, decode_task
from shoal.console.operator.app import Sources, operator_app
from shoal.console.operator.planner.form import PlannerForm
from shoal.console.operator.planner.work import Workshop
from shoal.crypto import keyfiles
from shoal.domain import Categories, YesNo
from tests.cases import for_each
from tests.unit.analyzer.results.test_report_page import Page
from tests.worlds.console import minutes, write_data

HERE = "127.0.0.1:7450"
_BEYOND = 5  # mechanisms, that a first answer doesn't look at


def page(client: TestClient, **fields: str) -> Page:
    answer = client.get(f"/planner?{urlencode(fields)}")
    assert answer.status_code == 200
    return Page(answer.text)


def final(client: TestClient, **fields: str) -> str:
    """The page once nothing better is to come: the task file waits for that."""
    client.get(f"/download/planned.toml?{urlencode(fields | {'question': 'Why?'})}")
    text = client.get(f"/planner?{urlencode(fields)}").text
    assert "data-more" not in text
    return text


# --- the form -------------------------------------------------------------------------------------


def test_people_write_numbers_as_they_do() -> None:
    """Planted: a comma taken for a point -> 10 devices, and this fails."""
    for text in ("10000", "10,000", "10 000", "10_000", "1e4", "10'000"):
        request = PlannerForm.of({"n": text, "off": "2 %", "honest": "90%"}).request()
        assert request is not None
        assert (request.n, request.n_honest) == (10_000, 9_000)
        assert request.error == pytest.approx(200 / 1.959964, rel=1e-6)
        assert isinstance(request.question, Frequencies)
        assert request.question.worst


@for_each(
    "fields, name, said",
    [
        ({"n": "many"}, "n", "a whole number from 2 to 100,000,000"),
        ({"n": "2,5"}, "n", "a whole number from 2"),
        ({"n": "1"}, "n", "a whole number from 2"),
        ({"n": "nan"}, "n", "a whole number from 2"),
        ({"n": "9" * 400}, "n", "a whole number from 2"),
        ({"off": "0"}, "off", "a number from 0.0001 to 50"),
        ({"off": "50"}, "off", "needs no answers at all"),
        ({"of": "devices", "off": "6000"}, "off", "needs no answers at all"),
        ({"kind": "categories", "answers": "1"}, "answers", "a whole number from 2 to 1,000"),
        ({"kind": "categories", "answers": "3", "most": "20"}, "most", "25 % at least"),
        ({"kind": "mean", "low": "5", "high": "5"}, "high", "a number above 5"),
        ({"kind": "mean", "high": "much"}, "high", "give a number"),
        ({"kind": "mean", "off": "60"}, "off", "needs no answers at all"),
        ({"kind": "sum", "unit": "x" * 41}, "unit", "at most 40 letters"),
        ({"kind": "quantiles", "at": ""}, "at", "1 to 9 different numbers"),
        ({"kind": "quantiles", "at": "50, half"}, "at", "1 to 9 different numbers"),
        ({"kind": "quantiles", "at": "50; 50"}, "at", "1 to 9 different numbers"),
        ({"kind": "quantiles", "at": "0, 50"}, "at", "from 0.1 to 99.9"),
        ({"kind": "quantiles", "at": " ".join(map(str, range(1, 11)))}, "at", "1 to 9"),
        ({"kind": "quantiles", "off": "60"}, "off", "needs no answers at all"),
        ({"memoized": "yes"}, "windows", "2 or more"),
        ({"memoized": "yes", "windows": "3", "changes": "3"}, "changes", "from 0 to 2"),
        ({"windows": "0"}, "windows", "a whole number from 1 to 1,000"),
        ({"honest": "0"}, "honest", "a number from 1 to 100"),
        ({"n": "2", "honest": "50", "off": "40"}, "n", "raise min_batch"),
        ({"delta": "1"}, "delta", "a number from 1e-30 to 0.1"),
        ({"cap": "-1"}, "cap", "a number from 0.01 to 40"),
    ],
)
def test_wrong_input_is_told_at_its_field(fields: dict[str, str], name: str, said: str) -> None:
    """Planted: a comparison the other way around -> nan passes for a number, and this fails."""
    form = PlannerForm.of(fields)
    assert form.request() is None
    assert said in form.wrong[name]
    assert all(form.typed[key] == text for key, text in fields.items())  # kept as it was


def test_sliders_work_without_scripts() -> None:
    """A slider that was moved counts for more than its field, one that stayed for less. Another
    measure keeps the slider's place. Planted: the place it had not looked at -> what was typed is
    lost, and this fails.
    """
    start = PlannerForm.of({})
    off = start.sliders()["off"]
    assert off.values[off.at] == "2"
    moved = PlannerForm.of({"off": "7.7", "off_was": str(off.at), "off_at": str(off.at + 1)})
    assert moved.typed["off"] == "3"
    stayed = PlannerForm.of({"off": "7.7", "off_was": str(off.at), "off_at": str(off.at)})
    assert stayed.typed["off"] == "7.7"
    beyond = PlannerForm.of({"off": "7.7", "off_was": "3", "off_at": "99999999"})
    assert beyond.typed["off"] == "7.7"
    counted = PlannerForm.of({"off": "2", "of": "devices", "of_was": "percent"})
    assert counted.typed["off"] == "200"
    mean = PlannerForm.of({"off": "2", "kind": "mean", "kind_was": "yes_no", "high": "50"})
    assert mean.typed["off"] == "1"


# --- the page -------------------------------------------------------------------------------------


def test_the_page_shows_what_the_planner_says(client: TestClient) -> None:
    """Planted: the epsilon of the second mechanism -> fails. Planted: the honest fraction left
    out of the request -> another epsilon, and this fails.
    """
    request = request_for(Frequencies(YesNo(), heavy=1.0), 2_000, 60.0, 1e-8, Fraction(9, 10))
    *_, last = answers(request)
    assert last.plan is not None
    text = final(client, n="2,000", off="3")
    assert f"&le; {bound_text(last.plan.choice.epsilon_upper)}" in text
    for option in last.options:
        assert option.candidate.title in text
        assert bound_text(option.epsilon_upper) in text
    assert "512 bytes" in text
    assert "discrete Laplace" in text
    assert "1,800 honest reports" in text


def test_quantiles_are_planned_by_their_error(client: TestClient) -> None:
    """Their promise, and what accuracy rests on. Planted: the mean over the quantiles for the worst
    of them -> another epsilon, and this fails.
    """
    question = Quantiles(0.0, 96.0, (0.5, 0.9), unit="minutes")
    *_, last = answers(request_for(question, 2_000, 9.6, 1e-8, Fraction(9, 10)))
    assert last.plan is not None
    assert last.heaped is not None
    assert last.heaped > 9.6
    fields = {"kind": "quantiles", "high": "96", "unit": "minutes", "at": "90, 50"}
    text = final(client, **fields, n="2,000", off="9.6")
    assert f"&le; {bound_text(last.plan.choice.epsilon_upper)}" in text
    found = Page(text).text
    assert "Each of the 50 % and 90 % quantiles within 9.6 minutes" in found
    assert "shoal plan quantiles --heaps" in found
    assert bound_text(last.heaped, digits=3) in found
    assert "curator" not in found
    # what can't be planned by an error says which command has it
    assert "square_wave: its quantiles' errors are drawn and not computed" in found
    assert "shoal plan quantiles --epsilon" in found


def test_memoized_shows_what_is_left_over_the_windows(client: TestClient) -> None:
    """Planted: the windows' sum for what is kept -> fails. Planted: changes left out -> half of
    it, and this fails.
    """
    request = request_for(
        Frequencies(YesNo(), heavy=1.0), 2_000, 60.0, 1e-8, Fraction(9, 10), 5, memoized=True,
        changes=1,
    )  # fmt: skip
    *_, last = answers(request)
    assert last.plan is not None
    assert last.plan.repeated is not None
    assert last.kept == last.plan.repeated.kept_epsilon0
    assert last.kept is not None
    fields = {"n": "2,000", "off": "3", "windows": "5", "memoized": "yes"}
    found = Page(final(client, **fields, changes="1")).text
    assert f"Of all 5 windows≤ {bound_text(last.kept)}" in found.replace("\n", "")
    assert f"epsilon ≤ {bound_text(last.plan.repeated.fresh_central)} after shuffling" in found
    assert "after seeing all 5 results" in found
    once = Page(final(client, **fields)).text
    assert bound_text(last.kept / 2.0) in once


def test_a_small_epsilon_is_no_warning_and_what_cant_be_had_says_what_can(
    client: TestClient,
) -> None:
    """Planted: the class of a warning on what is found -> fails."""
    text = final(client, n="500", off="20")
    assert "Final" in text
    assert not re.search(r'class="[^"]*\b(bad|flag|warn)\b', text.split('id="answer"')[1])
    refused = final(client, n="1000", off="0.5", cap="0.5")
    assert "So near is not to be had" in refused
    assert re.search(r"With [0-9,]+ devices it would be", refused)


def test_wrong_input_keeps_what_was_typed_and_computes_nothing(client: TestClient) -> None:
    """Planted: the field's usual value shown instead -> fails."""
    found = page(client, n="a few", off="2")
    assert "a whole number from 2" in found.text
    marked = [each for tag, each in found.tags if tag == "input" and "aria-invalid" in each]
    assert [(each["name"], each["value"]) for each in marked] == [("n", "a few")]
    assert "Mend what is marked" in found.text
    assert "95 times in a hundred" not in found.text


# --- the task file --------------------------------------------------------------------------------


def test_the_file_goes_through_lint_unedited(client: TestClient, tmp_path: Path) -> None:
    """With the keys of the latest task and its CA beside it, at the epsilon of the plan. Planted:
    keys of shuffler and analyzer exchanged; the names of answers left out; the length left out ->
    fails.
    """
    labels = ("never", "now and then", "often")
    fields = {"kind": "categories", "answers": "3", "n": "2000", "off": "4", "windows": "2"}
    words = {"question": "How often do you swim?", "labels": "\r\n".join(labels), "days": "14"}
    answer = client.get(f"/download/planned.toml?{urlencode(fields | words)}")
    assert "how-often-do-you-swim.toml" in answer.headers["content-disposition"]
    assert "FILL IN" not in answer.text
    (tmp_path / "new.toml").write_text(answer.text)
    (tmp_path / "ca.pem").write_bytes(client.get("/download/ca.pem").content)
    task = read_task(tmp_path / "new.toml")
    model = minutes().task
    assert (task.shuffler_key, task.analyzer_key) == (model.shuffler_key, model.analyzer_key)
    assert task.domain == Categories(labels)
    assert (task.min_batch, task.windows.count) == (2_000, 2)
    assert task.windows.length_s == 14 * 86_400
    result = lint(task)
    assert [each for each in result.findings if each.error] == []
    assert result.guarantee is not None
    assert result.guarantee.epsilon_upper <= task.target_epsilon


@for_each(
    "fields",
    [
        {"kind": "quantiles", "high": "96", "at": "50, 90", "off": "6"},
        {"kind": "quantiles", "off": "9", "windows": "3", "memoized": "yes", "changes": "1"},
        {"kind": "categories", "answers": "3", "off": "4", "windows": "3", "memoized": "yes"},
    ],
)
def test_the_file_of_quantiles_and_of_memoized_questions_is_a_task(
    client: TestClient, tmp_path: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, str]
) -> None:
    """Linted and signed by the commands, and read again. Planted: memoized left out of the
    request -> the task is none, and this fails.
    """
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    words = {"question": "How long do you wait?", "labels": "a\nb\nc", "n": "2000"}
    answer = client.get(f"/download/planned.toml?{urlencode(fields | words)}")
    file, signed = folder / "new.toml", folder / "new.task"
    file.write_text(answer.text)
    (folder / "ca.pem").write_bytes(client.get("/download/ca.pem").content)
    keyfiles.save_signing_key(folder / "authority.key", minutes().authority)
    key = ["--key", str(folder / "authority.key"), "--out", str(signed)]
    assert main(["task", "lint", str(file)]) == 0, capsys.readouterr()
    assert main(["task", "sign", str(file), *key]) == 0, capsys.readouterr()
    task = decode_task(decode_signed_task(signed.read_bytes()).data)
    assert task.memoized == ("memoized" in fields)
    assert task.windows.count == int(fields.get("windows", "1"))


@for_each(
    "words, name, said",
    [
        ({}, "question", "say in one line"),
        ({"question": "???"}, "question", "some letters"),
        ({"question": "a\x07b"}, "question", "say in one line"),
        ({"question": "Why?", "purpose": "x" * 9_999}, "purpose", "give one line"),
        ({"question": "Why?", "days": "3"}, "days", "choose one of 1, 7"),
        ({"question": "Why?", "kind": "categories", "labels": "a\nb"}, "labels", "2 answers"),
        ({"question": "Why?", "kind": "categories", "answers": "2", "labels": "a\na"}, "labels",
         "distinct"),
    ],
)  # fmt: skip
def test_words_that_a_task_cant_have(
    client: TestClient, words: dict[str, str], name: str, said: str
) -> None:
    """Planted: the words not checked -> a file that lint refuses, and this fails."""
    answer = client.get(f"/download/planned.toml?{urlencode(words)}")
    assert "text/html" in answer.headers["content-type"]
    note = re.search(rf'id="{name}-wrong"[^>]*>([^<]*)<', answer.text)
    assert note is not None
    assert said.lower() in note[1].lower()


# --- who works ------------------------------------------------------------------------------------


def test_answers_are_shared_and_a_question_that_nobody_waits_for_is_given_up() -> None:
    """Real processes, and a clock that the test turns. Planted: no look at the clock -> the slow
    question is worked to its end, and this fails. Planted: the process that died not replaced ->
    the last question is never answered.
    """
    now = [0.0]
    workshop = Workshop(lambda: now[0])
    try:
        slow = request_for(Mean(0.0, 1.0), 1_000, 0.05, 1e-8)
        quick = request_for(Frequencies(YesNo()), 500, 50.0, 1e-8, mechanisms=("binary_rr",))
        while (seen := workshop.look(slow, 5.0, 1.0).answer) is None or seen.tried < _BEYOND:
            pass  # until the process that goes on has it
        now[0] = 1.2  # nobody looks at it any more
        while not (worked := workshop.look(quick, 5.0)).over:
            pass
        *_, last = answers(quick)
        assert worked.answer is not None
        assert worked.answer.plan == last.plan
        assert workshop.look(quick, 0.0).answer == worked.answer  # at once
        assert not workshop.look(slow, 0.0).over
        for process in workshop.processes():
            process.kill()
        other = request_for(Frequencies(YesNo()), 600, 50.0, 1e-8, mechanisms=("krr",))
        while (again := workshop.look(other, 5.0)).answer is None:
            pass  # told once that it died, then tried again
        assert again.answer.options
    finally:
        workshop.close()


def test_the_processes_start_with_any_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that whoever comes to the Planner finds them running. Planted: threads alone, whose
    processes wait for a question -> none is started, and this fails.
    """
    started: set[str] = set()
    both = threading.Event()
    spawn = Workshop._spawn

    def counted(self: Workshop, brief: bool) -> Connection:
        made = spawn(self, brief)
        started.add("brief" if brief else "whole")
        if len(started) == 2:
            both.set()
        return made

    monkeypatch.setattr(Workshop, "_spawn", counted)
    data, tasks = write_data(tmp_path, 1)
    app = operator_app(Sources(data_dir=data, tasks_dir=tasks), HERE)
    client = TestClient(app, base_url=f"http://{HERE}")
    assert not started
    assert client.get("/releases").status_code == 200
    assert both.wait(60.0)

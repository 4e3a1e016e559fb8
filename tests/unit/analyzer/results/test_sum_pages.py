"""Releases of sums as people see them: tables, CSV, JSON and the page, alone and beside shuffled
ones.
"""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.analyzer.results.files.exports import ARRAYS, Format, render
from shoal.analyzer.results.report_page import MOST_ROWS, render_report
from shoal.analyzer.rounds.sum_release import conclude_sums
from shoal.analyzer.rounds.sums import StoredSum, SumStore
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.main import main
from shoal.cli.results import command, terminal
from shoal.domain import Norm, Vector
from shoal.ids import Digest
from shoal.secagg import Mode
from tests.cases import for_each
from tests.unit.analyzer.results.test_report_page import EVIL, ONE, Page
from tests.unit.analyzer.rounds.windows_of_sums import ANALYZER, rounds, serve, shown
from tests.worlds.tasks import PLAN, pairwise

Capture = pytest.CaptureFixture[str]
SUMMED, WITHHELD = shown(rounds(90, 110, 100), aborted={"too few joined": 2}), shown([])
STRICT = shown(
    rounds(100, 100),
    serve(pairwise(name="strict", pairwise=PLAN.__class__(Mode.STRICT, 100, 120, 80, 200_000, 32))),
)
# What no noise of today gives, and the format allows: a share alone proves nothing.
NOTHING: dict[str, Any] = {
    **SUMMED,
    "privacy": {**SUMMED["privacy"], "epsilon0": None},
    "rounds": {**SUMMED["rounds"], "epsilon_together": None},
}
SHAPES = [
    [SUMMED],
    [NOTHING],
    [WITHHELD],
    [STRICT, NOTHING, WITHHELD],
    [ONE, SUMMED],
    [NOTHING, ONE],
]


def run(capsys: Capture, *arguments: str, status: int = 0) -> str:
    code = main(["results", *arguments])
    seen = capsys.readouterr()
    assert code == status, seen.err
    assert "Traceback" not in seen.err
    return seen.out


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A store as the analyzer leaves it: window 0 published, window 1 without any round."""
    served = serve(
        pairwise(domain=Vector(3, Norm.L2, 10.0, 1_000, ("[bold]visits", "=1+1", "mean"), "visits"))
    )
    store = AnalyzerStore(tmp_path / FILE_NAME)
    sums = SumStore(store)
    for number in range(2):
        sums.add(
            served.task_id,
            0,
            StoredSum(Digest.of(bytes([number])), 110, np.full(3, 500, dtype=np.int64)),
        )
    sums.aborted(served.task_id, 0, "too few joined")
    for window in (0, 1):

        def conclude(
            found: Any, aborted: Any, earlier: Any, lost: int, window: int = window
        ) -> Any:
            made = conclude_sums(served, window, found, aborted, earlier, ANALYZER, lost)
            return made, bool(found)

        assert sums.finish(served.task_id, window, conclude)
    store.close()
    return str(tmp_path)


# --- the command ----------------------------------------------------------------------------------


def test_list_and_json(data: str, capsys: Capture) -> None:
    out = run(capsys, "list", "--data", data)
    assert out.count("moments") == 2
    assert "released" in out
    assert "withheld" in out
    found = json.loads(run(capsys, "list", "--data", data, "--json"), parse_constant=pytest.fail)
    assert [(one["window"], one["n"], one["rounds"]["rounds"]) for one in found] == [
        (0, 220, 2),
        (1, 0, 0),
    ]
    assert found[0]["rounds"]["aborted"] == {"too few joined": 1}
    assert [row["value"] for row in found[0]["estimates"]] == [10.0, 10.0, 10.0]
    assert found[1]["privacy"]["windows_composed"] == 2


def test_show_says_what_was_summed_and_against_whom_it_holds(data: str, capsys: Capture) -> None:
    """Markup in names is text. Planted: "reports" said of devices, or errors shown of what is
    withheld -> this fails.
    """
    out = " ".join(run(capsys, "show", "moments:0", "--data", data).split())
    assert "220 devices in the sums; rejected: none" in out
    assert "[bold]visits" in out
    assert "guaranteed for 70 honest devices of each round" in out
    assert "with the devices of the smallest round that came: " in out
    assert "mode default: 2 rounds added; ended without a sum: 1 too few joined" in out
    assert "standard error of each total" in out
    assert "shuffler and analyzer together: epsilon <= " in out
    out = run(capsys, "show", "moments:1", "--data", data)
    assert "withheld: no round of this window ended with a sum" in out
    assert "standard error" not in out


def test_exports(data: str, capsys: Capture, tmp_path: Path) -> None:
    for kind in set(Format) - {Format.release, *ARRAYS}:  # signed files, and long vectors
        run(
            capsys,
            "export",
            "--data",
            data,
            "--format",
            kind.value,
            "--out",
            str(tmp_path / f"out.{kind.value}"),
        )
    made = json.loads((tmp_path / "out.json").read_text(), parse_constant=pytest.fail)
    assert made == json.loads(run(capsys, "list", "--data", data, "--json"))
    lines = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert [line["label"] for line in lines] == ["[bold]visits", "'=1+1", "mean", ""]
    assert (lines[0]["n"], lines[0]["value"], lines[3]["withheld"]) == (
        "220",
        "10.0",
        "no round of this window ended with a sum",
    )
    Page((tmp_path / "out.html").read_text())


def test_an_epsilon0_that_is_none_is_shown_as_none(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """In tables "none", in CSV an empty cell, in JSON null. Planted: ``bound_text`` without None ->
    TypeError, and this fails.
    """
    monkeypatch.setattr(command, "read_releases", lambda *_: [NOTHING])
    monkeypatch.setattr(command, "check_damage", lambda *_: None)
    assert re.search(r"\bnone\b", run(capsys, "list", "--data", "x"))
    out = run(capsys, "show", "moments", "--data", "x")
    assert "epsilon0 = none" in out
    assert "shuffler and analyzer together: nothing is promised" in out
    assert next(csv.DictReader(io.StringIO(render([NOTHING], Format.csv))))["epsilon0"] == ""
    assert '"epsilon0": null' in render([NOTHING], Format.json)


def test_a_terminal_is_not_flooded(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """1,000 rows, and where the others are; CSV has every one. Planted: no limit -> this fails."""
    row = SUMMED["estimates"][0]
    many = {
        **SUMMED,
        "estimates": [{**row, "label": f"at {i}"} for i in range(terminal.MOST_ROWS + 7)],
    }
    monkeypatch.setattr(command, "read_releases", lambda *_: [many])
    monkeypatch.setattr(command, "check_damage", lambda *_: None)
    out = run(capsys, "show", "moments", "--data", "x")
    assert "at 999 " in out
    assert "at 1000 " not in out
    assert "and 7 more: shoal results export --format csv has them all" in out
    assert len(render([many], Format.csv).splitlines()) == terminal.MOST_ROWS + 8


# --- the page -------------------------------------------------------------------------------------


@for_each(
    "found",
    SHAPES,
    ids=["sum", "no epsilon0", "withheld", "sums", "with shuffled", "before shuffled"],
)
def test_the_page_renders_whatever_is_released_together(found: list[dict[str, Any]]) -> None:
    """Every element closed, every figure a number, no undefined name (the template is strict)."""
    text = render_report(found)
    page = Page(text)
    assert "nan" not in re.findall(r"\b\w+\b", page.text.lower())
    for tag, attributes in page.tags:
        for name in ("x", "x1", "x2", "cx", "y"):
            if tag != "li" and name in attributes:
                assert re.fullmatch(r"-?[0-9.]+", attributes[name] or ""), (tag, attributes)
    assert ("Devices per answer" in page.text) == (ONE in found)
    assert ("Totals" in page.text) == any("rounds" in one and one["estimates"] for one in found)


def test_the_page_says_how_privacy_came_about() -> None:
    """No shuffling where nothing was shuffled. Planted: the sentence on shuffled answers for all ->
    this fails.
    """
    alone, both, old = (
        Page(render_report(found)).text for found in ([SUMMED], [ONE, SUMMED], [ONE])
    )
    assert "How much privacy summing bought" in alone
    assert "masks that cancel in the sum" in alone
    assert "randomized its answer" not in alone
    assert "valid, distinct reports" not in alone
    assert "How much privacy shuffling and summing bought" in both
    assert "randomized its answer" in both
    assert "masks that cancel" in both
    assert "How much privacy shuffling bought" in old
    assert "masks" not in old
    assert "devices in the sums" not in old


def marks(text: str) -> tuple[int, int]:
    """(squares of epsilon0, dots of the guarantee) in the plot of epsilons."""
    plot = text[text.index("eps-d") : text.index('<ul class="key">')]
    return plot.count('class="local"'), plot.count('class="dot"')


def test_the_plot_leaves_out_an_epsilon0_that_is_none() -> None:
    """Everything else of the row is drawn. Planted: 0.0 for None -> a mark, or a logarithm of 0,
    and this fails.
    """
    assert marks(render_report([SUMMED])) == (1, 1)
    assert marks(render_report([NOTHING])) == (0, 1)
    assert marks(render_report([NOTHING, ONE, SUMMED])) == (2, 3)
    assert "epsilon0 none" in render_report([NOTHING])


def test_words_of_a_sum_tell_errors_and_colluders() -> None:
    """Planted: ``epsilon_together`` compared the other way round -> the first fails; figures of a
    withheld window -> the last.
    """
    text = Page(render_report([SUMMED])).text
    assert "Rounds added: 3." in text
    assert "Mode default: if shuffler and analyzer worked together, they could read" in text
    assert "2 rounds without a sum" in " ".join(text.split()) or "too few joined: 2" in text
    assert "Mode strict: the same holds" in Page(render_report([STRICT])).text
    text = Page(render_report([WITHHELD])).text
    assert "Withheld." in text
    assert "Rounds added" not in text


def test_a_coordinate_called_mean_is_a_total() -> None:
    """ "mean" is an axis of its own for shuffled numbers only. Planted: no look at "rounds" in
    ``_section`` -> this fails.
    """
    served = serve(pairwise(domain=Vector(3, Norm.L2, 10.0, 1_000, ("mean", EVIL[:60], "c"))))
    text = render_report([shown(rounds(100, 100), served)])
    assert "<h3>Mean</h3>" not in text
    assert "<h3>Totals</h3>" in text
    assert "<script" not in text


def test_the_page_of_a_long_vector_stays_small() -> None:
    """2,000 rows are drawn, and the caption says how many are not. Planted: no limit -> this
    fails.
    """
    row = SUMMED["estimates"][0]
    many = {**SUMMED, "estimates": [{**row, "label": f"at {i}"} for i in range(MOST_ROWS + 30)]}
    text = render_report([many])
    assert "30 more are not on this page" in text
    assert text.count('<th scope="row">at ') == MOST_ROWS
    assert f"and {MOST_ROWS + 18} more" in text
    assert "not on this page" not in render_report([SUMMED])


def test_truths_can_be_given_for_sums() -> None:
    """A demonstration knows them: inside or not is said by coordinate."""
    true = {row["label"]: row["value"] for row in SUMMED["estimates"]}
    true["visits"] = SUMMED["estimates"][0]["ci_high"] + 1.0
    text = render_report([SUMMED], {SUMMED["task_id"]: true})
    assert text.count("true value, known here") == 1
    assert (text.count("<td>yes</td>"), text.count("<td>no</td>")) == (2, 1)

"""``shoal plan``, ``audit``, ``epsilon`` and ``task`` where people get it wrong: one line that says
how to mend it, before any work.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.cli.plan.request import read_counts
from tests.cases import for_each

Capture = pytest.CaptureFixture[str]
YES_NO = ("plan", "yes_no", "--n", "500", "--epsilon", "1", "--mechanism", "binary_rr")
KEYS = ("key_authority", "shuffler", "analyzer")


def refused(capsys: Capture, *arguments: str) -> str:
    status = main(list(arguments))
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    return err


def said(capsys: Capture, *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


@for_each(
    "arguments, words",
    [
        ((*YES_NO, "--seed", "3"), "--seed goes with --simulate"),
        ((*YES_NO, "--min-batch", "0"), "--min-batch is at least 2 reports"),
        ((*YES_NO, "--changes", "5"), "0 to 0 times in 1, got 5: more windows?"),
        (
            ("plan", "yes_no", "--n", "2000000000", "--epsilon", "1", "--simulate", "9"),
            "n is 2 to 200000000 devices",
        ),
        ((*YES_NO, "--processes", "2"), "--processes goes with --simulate"),
        (
            ("audit", "krr", "--epsilon0", "1", "--k", "4", "--n", "1000000000000"),
            "--n must be at most 1,000,000",
        ),
        (("epsilon", "--mechanism", "binary_rr", "--epsilon0", "1"), "goes by the name rr here"),
        (
            ("epsilon", "--mechanism", "gaussian", "--epsilon0", "1", "--k", "8"),
            "give local_gaussian",
        ),
        (
            ("plan", "quantiles", "--n", "500", "--epsilon", "1", "--mechanism", "krr"),
            "choose a smaller unit",
        ),
        (
            ("plan", "quantiles", "--n", "500", "--epsilon", "1", "--mechanism", "unary"),
            "how a number is distributed\n",
        ),
    ],
)
def test_what_would_be_left_out_of_account_or_end_badly(
    arguments: tuple[str, ...], words: str, capsys: Capture
) -> None:
    """Planted, one check after another taken out -> its case fails."""
    assert words in refused(capsys, *arguments)


def test_what_fails_alike_is_said_once(capsys: Capture) -> None:
    """Planted: a reason for each of the 28 candidates -> 2,000 characters, and this fails."""
    line = refused(capsys, "plan", "yes_no", "--n", "500", "--error", "1e-12")
    assert line.count("its error stays above 1e-12") == 1
    assert "binary_rr, krr, local_hash olh and " in line
    assert len(line) < 200


def test_the_picture_never_takes_the_tasks_place(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: no comparison -> the task is written, drawn over, and announced; this fails."""
    monkeypatch.chdir(tmp_path)
    assert "name one file" in refused(
        capsys, *YES_NO, "--emit", "a.svg", "--plot", str(tmp_path / "a.svg")
    )
    assert not (tmp_path / "a.svg").exists()


def test_counts_as_spreadsheets_write_them(tmp_path: Path) -> None:
    """Planted: read as plain UTF-8 -> a byte order mark in the first label; quotes kept -> in the
    second; each fails this.
    """
    file = tmp_path / "counts.csv"
    file.write_bytes(
        '\ufeffbus,900\r\n"Paris, Texas",70\r\n"say ""hi""",3\r\nno answer,5\r\n'.encode()
    )
    assert read_counts(file) == (("bus", "Paris, Texas", 'say "hi"'), (900, 70, 3, 5))


@for_each(
    "text, words",
    [
        (
            "label,count\nbus,9\n",
            "line 1: 'count' is no whole number of at least 0: lines are LABEL,COUNT or COUNT, "
            "without a heading",
        ),
        ("bus,9\ncar,4\nbus,8\n", "line 3: 'bus' is there already"),
        ("bus,9\ncar,1_000\n", "line 2: '1_000' is no whole number"),
        ("bus,9\ncar,-4\n", "line 2: '-4' is no whole number"),
        (f"bus,9\ncar,{'9' * 5_000}\n", "line 2: '999"),
    ],
)
def test_a_wrong_line_of_counts_is_named(
    text: str, words: str, tmp_path: Path, capsys: Capture
) -> None:
    """Planted: int() alone -> 1_000 counts, and 5,000 digits are "a bug"; labels compared by the
    domain -> no line; each fails this.
    """
    file = tmp_path / "counts.csv"
    file.write_text(text, encoding="utf-8")
    assert words in refused(capsys, "plan", "categories", "--counts", str(file), "--epsilon", "1")


def test_a_planned_task_is_not_signed_before_it_says_what_for(
    tmp_path: Path, capsys: Capture
) -> None:
    """A signed task never changes, and owners consent to its purpose. Planted: no check of the
    texts -> signed, and this fails.
    """
    file, ca = tmp_path / "task.toml", tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----\n")
    said(capsys, *YES_NO, "--emit", str(file))
    text = file.read_text()
    for number, key in enumerate(KEYS, 1):
        text = text.replace(f'{key} = ""', f'{key} = "{str(number) * 64}"')
    file.write_text(text)
    said(capsys, "keys", "signing", "--out", str(tmp_path / "authority.key"))
    for arguments in (
        ("lint", str(file)),
        (
            "sign",
            str(file),
            "--key",
            str(tmp_path / "authority.key"),
            "--out",
            str(tmp_path / "a.task"),
        ),
    ):
        assert main(["task", *arguments]) == 2
        out, _ = capsys.readouterr()
        assert [
            line.split(" is still")[0] for line in out.splitlines() if line.startswith("error")
        ] == [
            "error: name",
            "error: purpose",
            "error: question",
        ]
    assert not (tmp_path / "a.task").exists()
    file.write_text(text.replace('"fill-in-a-name"', '"visits"').replace('"fill in"', '"health"'))
    assert "guaranteed central epsilon" in said(capsys, "task", "lint", str(file))
    signed = tmp_path / "visits.task"
    said(
        capsys,
        "task",
        "sign",
        str(file),
        "--key",
        str(tmp_path / "authority.key"),
        "--out",
        str(signed),
    )
    assert "no text in UTF-8" in refused(capsys, "task", "lint", str(signed))


def test_a_memory_is_promised_its_lifetime_epsilon(capsys: Capture) -> None:
    """Nothing below epsilon0 would be too good a promise of a kept answer. Planted: the words of
    other memoized tasks -> this fails.
    """
    asked = (
        "plan",
        "categories",
        "--k",
        "4",
        "--n",
        "1000",
        "--epsilon",
        "1",
        "--mechanism",
        "rappor",
        "--windows",
        "5",
        "--memoized",
    )
    repeated = next(
        line for line in said(capsys, *asked).splitlines() if line.startswith("Asked 5 times")
    )
    value = json.loads(said(capsys, *asked, "--json"))
    assert value["repeated"]["kept"]["lifetime_epsilon0"] > 1.5 * value["choice"]["epsilon0"]
    assert "nothing below the lifetime epsilon is promised" in repeated
    assert "epsilon0" not in repeated.split("Not memoized")[0]


def test_a_simulation_in_which_nothing_happens_decides_nothing(capsys: Capture) -> None:
    """Planted: compared all the same -> "the prediction lies OUTSIDE", and this fails."""
    out = said(
        capsys,
        "plan",
        "yes_no",
        "--n",
        "100",
        "--epsilon",
        "50",
        "--mechanism",
        "binary_rr",
        "--simulate",
        "2",
    )
    assert "observed 0: no coin changed an answer" in out
    assert "OUTSIDE" not in out


def test_bins_say_how_quantiles_are_read(capsys: Capture) -> None:
    """Their release has no quantiles of its own. Planted: nothing said -> this fails."""
    asked = ("plan", "quantiles", "--n", "500", "--epsilon", "1", "--high", "8", "--levels", "4")
    assert "The release counts the 4 bins" in said(capsys, *asked, "--mechanism", "krr")
    assert "The release counts" not in said(capsys, *asked, "--mechanism", "kmean")

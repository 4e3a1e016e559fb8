"""Releases of several answers together: counts of the batch, tables, and rows made of them."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import BatchState
from shoal.analyzer.results.records import of_batch, sentences
from shoal.analyzer.results.release import conclude, prepare
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.extras import PACKAGES
from shoal.cli.main import main
from shoal.domain import AnswerRecord, YesNo
from shoal.entropy import SeededEntropy
from shoal.mechanisms import Estimate, Tally
from shoal.mechanisms.several.registry import create
from shoal.questions.record import all_pairs
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.services.analyzer import World, make_world
from tests.worlds.tasks import ATTRIBUTES

Capture = pytest.CaptureFixture[str]
RECORD = AnswerRecord(ATTRIBUTES, all_pairs(3))
WORLD = make_world(domain=RECORD, epsilon0=6.0, target_epsilon=6.0)
COUNTS = [30 + cell * 7 % 11 for cell in range(RECORD.cells)]


def finish(store: AnalyzerStore, world: World, window: int, counts: list[int]) -> None:
    batch = store.accept(world.batch([bytes(world.row_size())] * 20, window).manifest_bytes)
    store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
    ready = prepare(world.served, batch, Opened(Tally(np.array(counts), sum(counts)), {}))
    assert store.finish(batch, lambda earlier: conclude(ready, earlier, world.analyzer))


@pytest.fixture
def data(tmp_path: Path) -> str:
    store = AnalyzerStore(tmp_path / FILE_NAME)
    finish(store, WORLD, 0, COUNTS)
    finish(store, WORLD, 1, [1] + [0] * 32)
    store.close()
    return str(tmp_path)


def shown(data: str) -> list[dict[str, Any]]:
    store = AnalyzerStore(Path(data) / FILE_NAME, read_only=True)
    try:
        return [to_json(decode_release(one.release)) for one in store.releases()]
    finally:
        store.close()


def test_counts_are_those_of_the_batch_and_errors_hold_the_coins_too() -> None:
    """1,000 devices, a third of them answers in each marginal; 60 (full: 600) runs of 33 cells:
    values are right on average, the mean square of z is 1 to 12 % (4 %), and 94 to 97 % of the
    intervals hold: a false alarm in fewer than 1 of 10^4 seeds.

    Planted: not multiplied by three; the variance without the coins -> fails.
    """
    runs, n, entropy = size(60, 600), 1_000, SeededEntropy("one of three")
    made = create(design_several("dummies", RECORD, 900, 1.0, 1e-6, windows=1), RECORD)
    answers = [(device % 2, device % 3 % 2, device % 7 % 3) for device in range(n)]
    truth = np.zeros(RECORD.cells)
    for one in answers:
        for at in range(3):
            truth[RECORD.cell_of(at, one)] += 1.0
    texts = [
        json.dumps(
            {"age": 50 * one[0], "sex": "fm"[one[1]], "health": ("good", "fair", "poor")[one[2]]}
        )
        for one in answers
    ]
    squares, held, total = 0.0, 0, np.zeros(RECORD.cells)
    for _ in range(runs):
        drawn = np.array([RECORD.encode(text, entropy) for text in texts])
        reports = made.randomize(drawn, entropy)
        found = of_batch(made.estimate(made.tally(reports.rows), n), RECORD, n)
        squares += float(np.mean(((found.values - truth) / found.stderr) ** 2))
        held += int(np.sum((found.ci_low <= truth) & (truth <= found.ci_high)))
        total += found.values
    assert abs(squares / runs - 1.0) < (0.12 if runs == 60 else 0.04)
    assert 0.94 < held / (runs * RECORD.cells) < 0.97
    assert np.max(np.abs(total / runs - truth)) < 5.0 * 3.0 * 12.0 / math.sqrt(runs)


def test_an_interval_ends_where_the_distance_is_its_reach() -> None:
    """(V - N)^2 = reach^2 + 1.96^2 N (h - 1), at either end. Planted: the coins of V in place of
    those of N -> fails.
    """
    values = np.array([-20.0, 0.0, 10.0, 400.0] + [1.0] * 29)
    sides = values - 25.0, values + 30.0
    found = of_batch(Estimate(RECORD.labels, values, np.full(33, 13.0), *sides), RECORD, 1_000)
    for end, reach in ((found.ci_low, 75.0), (found.ci_high, 90.0)):
        coins = np.where(end < 0.0, 0.0, 1.959964**2 * end * 2.0)
        assert np.allclose((3.0 * values - end) ** 2, reach**2 + coins)
    assert np.all((found.ci_low < found.values) & (found.values < found.ci_high))
    assert found.stderr[3] == pytest.approx(math.hypot(39.0, math.sqrt(2.0 * 1_000)))


def test_other_estimates_stay_as_they_are() -> None:
    """Planted: multiplied where a device answers in all marginals -> three times too many."""
    ones = np.ones(2)
    estimate = Estimate(("no", "yes"), ones, ones, ones, ones)
    whole = AnswerRecord(ATTRIBUTES, all_pairs(3), together=True)
    for domain in (YesNo(), whole):
        assert of_batch(estimate, domain, 5) is estimate
        assert sentences(domain) == []
    assert "3 times" in sentences(RECORD)[0]
    assert sentences(AnswerRecord(ATTRIBUTES, ((0, 1, 2),))) == []


def test_a_release_carries_its_record_and_shows_tables_that_agree(data: str) -> None:
    """Planted: no record in the signed bytes; tables of a withheld release -> fails."""
    released, withheld = shown(data)
    assert released["record"] == {
        "attributes": [
            {"name": one.name, "labels": list(one.answers.labels)} for one in ATTRIBUTES
        ],
        "marginals": [["age", "sex"], ["age", "health"], ["sex", "health"]],
    }
    first, second, third = (np.array(one["values"]) for one in released["tables"]["tables"])
    assert first.shape == (3, 3)
    assert np.allclose(first.sum(axis=1), second.sum(axis=1))
    assert np.allclose(first.sum(axis=0), third.sum(axis=1))
    assert math.isclose(float(first.sum()), released["n"])
    assert "processed" not in released
    assert sentences(RECORD)[0] in released["privacy"]["assumptions"]
    assert withheld["withheld"]
    assert not {"record", "tables"} & set(withheld)


def test_a_record_that_can_not_be_of_its_estimates_is_not_shown(data: str) -> None:
    store = AnalyzerStore(Path(data) / FILE_NAME, read_only=True)
    release = decode_release(next(iter(store.releases())).release)
    store.close()
    del release.estimates[-1]
    assert not {"record", "tables"} & set(to_json(release))
    release.record.attributes[0].name = ""
    assert "record" not in to_json(release)


def run(capsys: Capture, *arguments: str, status: int = 0) -> tuple[str, str]:
    code = main(["results", "synthesize", *arguments])
    told = capsys.readouterr()
    assert code == status, told.err
    assert "Traceback" not in told.err
    return told.out, told.err


def test_rows_are_made_of_a_release(data: str, capsys: Capture, tmp_path: Path) -> None:
    """From a store as CSV, and from an exported file as Parquet. Planted: the ending not looked at
    -> a Parquet file that is none.
    """
    out = tmp_path / "rows.csv"
    told, _ = run(capsys, "visits:0", "--out", str(out), "--rows", "70", "--data", data)
    with out.open() as file:
        rows = list(csv.reader(file))
    assert (rows[0], len(rows)) == (["age", "sex", "health"], 71)
    assert "70 rows of 3 attributes" in told
    assert "it can't answer:" in told
    export = tmp_path / "releases.json"
    export.write_text(json.dumps(shown(data)))
    out = tmp_path / "rows.parquet"
    told, _ = run(
        capsys, "visits:0", "--out", str(out), "--from", str(export), "--json", "--no-test"
    )
    found = json.loads(told)
    table = pyarrow.parquet.read_table(out)
    assert table.num_rows == found["rows"] == found["n"] == sum(COUNTS)
    assert (found["file"], found["held_out"]) == (str(out), [])


def test_without_the_extra_it_says_what_to_install(
    data: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: asked for after the release was read and fitted -> a bug is reported."""
    monkeypatch.setitem(PACKAGES, "tables", ("no_such_package_of_ours",))
    out = str(tmp_path / "rows.csv")
    _, error = run(capsys, "visits:0", "--out", out, "--data", data, status=2)
    assert "pip install 'shoal[tables]'" in error


def test_a_release_on_a_terminal_says_what_else_there_is(data: str, capsys: Capture) -> None:
    """Planted: said of a withheld window -> twice."""
    assert main(["results", "show", "visits", "--data", data]) == 0
    out = capsys.readouterr().out
    assert out.count("3 tables of these estimates that agree") == 1
    assert "shoal results synthesize visits:0 --out rows.csv" in out
    assert "age=young, sex=f" in out


@for_each(
    "arguments, mends",
    [
        (("visits:0", "--out", "rows.txt", "--data", "DATA"), "ends in .csv or .parquet"),
        (("visits", "--out", "rows.csv", "--data", "DATA"), "give one, as visits:0"),
        (("visits:1", "--out", "rows.csv", "--data", "DATA"), "withheld"),
        (("visits:0", "--out", "rows.csv"), "--data DIR or --config"),
        (("visits:0", "--out", "rows.csv", "--data", "DATA", "--from", "x.json"), "once"),
        (("other", "--out", "rows.csv", "--data", "DATA"), "no such release"),
        (("visits:0", "--out", "rows.csv", "--data", "DATA", "--rows", "0"), "another number"),
        (("visits:0", "--out", "DATA", "--data", "DATA"), "ends in .csv"),
    ],
)
def test_what_can_not_be_made_is_one_line(
    arguments: tuple[str, ...],
    mends: str,
    data: str,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: a file written before the release is looked at -> it is left behind, fails."""
    monkeypatch.chdir(tmp_path)
    given = [data if one == "DATA" else one for one in arguments]
    _, error = run(capsys, *given, status=2)
    assert mends in error
    assert error.count("\n") == 1
    assert not (tmp_path / "rows.csv").exists()

"""``shoal places``: planned, written as a task, played."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.domain import Places
from tests.cases import for_each

Capture = pytest.CaptureFixture[str]
BOX = ("--box", "48,11.3,48.3,11.8", "--rows", "6", "--columns", "5")


def run(capsys: Capture, *words: str, status: int = 0) -> tuple[str, str]:
    assert main(["places", *words]) == status
    shown = capsys.readouterr()
    return shown.out, shown.err


def test_a_plan_is_shown_and_written(tmp_path: Path, capsys: Capture) -> None:
    """The file states the map exactly. Planted: another way's integers in it -> fails."""
    file = tmp_path / "map.toml"
    out, _ = run(capsys, "plan", *BOX, "--n", "3000", "--way", "blocks", "--emit", str(file))
    assert "6 x 5 cells of 5,560 m (north-south) x 7,419 m" in out
    assert "blocks: as you chose; owners are asked by name" in out
    assert f"wrote {file}" in out
    text = file.read_text()
    assert 'kind = "places"\nsouth = 48.0\nwest = 11.3\nnorth = 48.3\neast = 11.8\n' in text
    found = json.loads(run(capsys, "plan", *BOX, "--n", "3000", "--json")[0])
    parameters = {way["mechanism"]: way["parameters"] for way in found["ways"]}
    assert f"side = {parameters['blocks']['side']}, " in text
    assert found["ways"][0]["error_rectangle"] == min(w["error_rectangle"] for w in found["ways"])
    assert {way["epsilon0"] is None for way in found["ways"]} == {True, False}
    again = run(capsys, "plan", *BOX, "--n", "3000", "--emit", str(file), status=2)
    assert "map.toml" in again[1]


def test_places_of_a_file_are_played(tmp_path: Path, capsys: Capture) -> None:
    """An empty line is a device without an answer. Planted: empty lines left out
    -> fails.
    """
    file = tmp_path / "places.txt"
    places = Places(48_000_000, 11_300_000, 48_300_000, 11_800_000, 6, 5)
    lines = [places.text_of(7)] * 900 + ["", "0, 0", '{"lat": 48.29, "lon": 11.79}'] * 100
    file.write_text("\n".join(lines) + "\n")
    asked = ("simulate", str(file), *BOX, "--seed", "1", "--way", "dummies")
    found = json.loads(run(capsys, *asked, "--json")[0])
    assert found["plan"]["n"] == 1_200
    truth = [row["truth"] for row in found["cells"]]
    assert (truth[7], truth[29], truth[30], sum(truth)) == (900, 100, 200, 1_200)
    out, _ = run(capsys, *asked)
    assert "|..@@......|" in out or "@@" in out
    assert "played (dummies): cells err by" in out
    assert "315 rectangles err by" in out


@for_each(
    "words, mends",
    [
        (("--box", "48,11.3,48.3"), "south, west, north and east"),
        (("--box", "48,11.3,48.3,x"), "6 digits"),
        (("--box", "48,179,48.3,-179"), "date line"),
        (("--rows", "0"), "fewer rows or columns"),
        (("--way", "best"), "one of "),
        (("--n", "1"), "two honest devices or more"),
        (("--honest-fraction", "2"), "honest"),
        (("--length", "1d"), "give --emit"),
    ],
)
def test_wrong_requests(words: tuple[str, ...], mends: str, capsys: Capture) -> None:
    """One line each."""
    out, err = run(capsys, "plan", *BOX, "--n", "3000", *words, status=2)
    assert out == ""
    assert mends in err
    assert err.count("\n") == 1


def test_wrong_files(tmp_path: Path, capsys: Capture) -> None:
    """The line is named, and nothing of what stands there is told."""
    file = tmp_path / "places.txt"
    for content, mends in (
        (b"48.1, 11.5\nhome 7\n", "places.txt, line 2: it takes a place as 48.137, 11.575"),
        (b"", "no place in it"),
        (b"\xff\xfe", "no text in UTF-8"),
    ):
        file.write_bytes(content)
        _, err = run(capsys, "simulate", str(file), *BOX, status=2)
        assert mends in err
        assert "home" not in err
        assert err.count("\n") == 1
    _, err = run(capsys, "simulate", str(tmp_path / "none"), *BOX, status=2)
    assert "cannot read" in err


def test_a_plan_says_from_how_many_devices_on_a_cell_is_seen(capsys: Capture) -> None:
    """Beside the share that a cell has if all are alike. Planted: one standard error for two ->
    half, fails; the advice whatever the share -> fails.
    """
    box = ("--box", "48,11.3,48.3,11.8", "--n", "3000", "--way", "krr", "--json")
    cell = {
        way["mechanism"]: way["error_cell"]
        for way in json.loads(run(capsys, "plan", *box)[0])["ways"]
    }["krr"]
    fine = " ".join(run(capsys, "plan", *box[:-1])[0].split())
    told = re.search(r"An even share is (\S+) devices .* clear from about (\S+) on: only", fine)
    assert told is not None
    assert float(told[1]) == pytest.approx(3_000 / 1_025, rel=0.01)
    assert float(told[2]) == pytest.approx(2 * cell, rel=0.01)
    assert "Give fewer rows and columns" in fine
    coarse = run(capsys, "plan", *box[:-1], "--rows", "4", "--columns", "4")[0]
    assert "An even share is" in coarse
    assert "fewer rows and columns" not in coarse


def test_a_heading_of_a_file_is_named(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "places.csv").write_text("latitude,longitude\n48.1,11.5\n")
    _, err = run(capsys, "simulate", str(tmp_path / "places.csv"), *BOX, status=2)
    assert "line 1" in err
    assert "heading" in err


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As some editors write it. Planted: read as plain UTF-8 -> the first line is no place."""
    from shoal.cli.plan.places.read import box_of, read_places

    path, box = tmp_path / "places.txt", box_of("48,11.3,48.3,11.8", 4, 4)
    path.write_bytes(b"\xef\xbb\xbf48.137, 11.575\n\n")
    plain = tmp_path / "plain.txt"
    plain.write_bytes(b"48.137, 11.575\n\n")
    assert read_places(path, box).tolist() == read_places(plain, box).tolist()

"""Releases from files that come from anywhere: read whole, or refused in one line."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.analyzer.results.release_files import read_release_files
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.results.report_page import render_report
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.unit.analyzer.results.test_report_page import MEAN, ONE, WITHHELD
from tests.unit.analyzer.results.test_sum_pages import SUMMED
from tests.worlds.words import SMALL, found_in, release_of, words_world

_WORDS = words_world()
_LEVEL = found_in(_WORDS, SMALL.level(0), ("cat",) * 300 + ("dog",) * 100, 0)
DISCOVERED = to_json(decode_release(release_of(_WORDS, _LEVEL)))
_ONCE = replace(SMALL, fresh=True)
_FRESH = words_world(_ONCE)
_DRAWN = found_in(_FRESH, _ONCE.level(0), ("cat",) * 300 + ("dog",) * 100, 0)
DRAWN = to_json(decode_release(release_of(_FRESH, _DRAWN)))
RELEASES = [ONE, MEAN, WITHHELD, SUMMED, DISCOVERED, DRAWN]
WRONG: list[Any] = [None, "x", -1, [], {}, [None], True, float("nan")]


def write(folder: Path, value: Any, name: str = "releases.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(value))
    return folder / name


def test_an_export_is_read_back_whole(tmp_path: Path) -> None:
    """From one file, and from a folder where two files share a release. Planted: each file's
    releases counted anew -> one is there twice.
    """
    file = write(tmp_path, RELEASES)
    found = read_release_files(file)
    assert {json.dumps(each) for each in found.releases} == {json.dumps(each) for each in RELEASES}
    write(tmp_path, ONE, "one.json")
    assert read_release_files(tmp_path) == found


def test_two_files_that_tell_different_things_are_refused(tmp_path: Path) -> None:
    """Planted: the last one wins -> which, depends on the names of files."""
    write(tmp_path, ONE, "a.json")
    write(tmp_path, {**ONE, "n": 3}, "b.json")
    with pytest.raises(ShoalError, match="is there twice") as caught:
        read_release_files(tmp_path)
    assert caught.value.kind is Kind.CONFLICT


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place of a release that a page may read."""
    if isinstance(value, dict):
        inner = [found for each in value.values() for found in _places(each)]
        return [(value, key) for key in value] + inner
    if isinstance(value, list) and value:
        return [(value, 0), *_places(value[0])]
    return []


def _read_or_refused(file: Path) -> None:
    try:
        found = read_release_files(file)
    except ShoalError as error:
        told = str(error)
    else:
        told = file.name
        assert render_report(found.releases)
    assert file.name in told
    assert "\n" not in told


def test_no_wrong_value_reaches_a_page(tmp_path: Path) -> None:
    """Each value of a release replaced by something else, or left out: refused in one line, or good
    enough for the page. Planted: quantiles not looked at -> the page fails with a TypeError; what
    was discovered not looked at -> with an AttributeError.
    """
    for release in RELEASES:
        for at in range(len(_places(release))):
            for wrong in WRONG:
                changed = copy.deepcopy(release)
                parent, key = _places(changed)[at]
                parent[key] = wrong
                _read_or_refused(write(tmp_path, changed))


@for_each("wrong", [None, "x", -1, 0, [], True, 1.5])
def test_a_number_of_windows_that_is_none_is_refused(tmp_path: Path, wrong: Any) -> None:
    """Planted: the number not looked at -> the page says "one of x windows", and this fails."""
    assert DRAWN["discovered"]["draws_one_of"] == _FRESH.task.windows.count
    changed = copy.deepcopy(DRAWN)
    changed["discovered"]["draws_one_of"] = wrong
    with pytest.raises(ShoalError, match="draws_one_of") as refused:
        read_release_files(write(tmp_path, changed))
    assert refused.value.kind is Kind.INVALID


@for_each(
    "text, said",
    [
        ("", "not JSON"),
        ("[1]", "no release"),
        ('{"tasks": [1]}', "no release"),
        ('{"tasks": [{"release": {}, "truth": {"a": "b"}}]}', "numbers by label"),
        ("[" * 100_000, "not JSON"),
        ('{"n": NaN}', "not JSON"),
        ('{"n": 1}', "task_id: missing"),
    ],
)
def test_what_is_no_release_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    """Planted: RecursionError not caught -> a trace for the page of brackets."""
    (tmp_path / "releases.json").write_text(text)
    with pytest.raises(ShoalError, match=said) as caught:
        read_release_files(tmp_path / "releases.json")
    assert caught.value.kind is Kind.INVALID


def test_a_folder_without_releases_and_a_file_that_there_is_not(tmp_path: Path) -> None:
    """Planted: an empty folder taken for no releases -> a console of nothing."""
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(ShoalError) as caught:
            read_release_files(path)
        assert caught.value.kind is Kind.CONFIG

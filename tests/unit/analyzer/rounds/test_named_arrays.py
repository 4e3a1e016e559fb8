"""The named arrays of a release of long vectors, read by everybody who reads one."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow
import pytest
from numpy.typing import NDArray

import shoal
from shoal.analyzer.results.files import exports
from shoal.analyzer.results.release_files import read_release_files
from shoal.errors import ShoalError
from shoal.questions.layout import NamedShape
from tests.unit.analyzer.rounds.windows_of_long_sums import (
    DIMENSION,
    SMALL,
    Capture,
    Kept,
    long_task,
    run,
    vector,
)

# across segments of 64: within one, over several, one number, and the rest
LAYOUT = (
    NamedShape("first.weight", (5, 9)),
    NamedShape("deep/second.weight", (17, 11, 3)),
    NamedShape("second.bias", ()),
    NamedShape("last", (DIMENSION - 5 * 9 - 17 * 11 * 3 - 1,)),
)


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of a thousand numbers in segments of 64, as arrays of ten million have segments."""
    for module in ("rounds.sums", "results.totals"):
        monkeypatch.setattr(f"shoal.analyzer.{module}.LIMITS", SMALL)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def by_name() -> dict[str, NDArray[np.float64]]:
    """What every reader must get."""
    exact = (vector(0) + vector(1)).astype(np.float64) * 0.01
    begin, arrays = 0, dict[str, NDArray[np.float64]]()
    for named in LAYOUT:
        arrays[named.name] = exact[begin : begin + named.size].reshape(named.shape)
        begin += named.size
    return arrays


def test_a_model_is_read_by_its_arrays(tmp_path: Path, capsys: Capture) -> None:
    """From Python, from an .npz by numpy alone, from Arrow's metadata; the terminal names them.
    Planted: a span that begins one number late; the cut of a segment taken from its own beginning;
    columns before rows -> fails.
    """
    kept = Kept(tmp_path, long_task(LAYOUT))
    kept.finish()
    exact, held = by_name(), ("--task", "moments:0", "--data", str(kept.folder))
    totals = shoal.read_release(kept.folder).array("moments:0")
    assert totals.layout == {named.name: named.shape for named in LAYOUT}
    npz, arrow = tmp_path / "totals.npz", tmp_path / "totals.arrow"
    run(capsys, "export", "--format", "npz", "--out", str(npz), *held)
    with np.load(npz) as loaded:
        assert set(loaded) == set(exact)
        for name, wanted in exact.items():
            for found in (totals[name], loaded[name]):
                assert found.shape == wanted.shape
                np.testing.assert_allclose(found, wanted, rtol=1e-15)
    run(capsys, "export", "--format", "arrow", "--out", str(arrow), *held)
    with pyarrow.memory_map(str(arrow)) as mapped:
        metadata = pyarrow.ipc.open_file(mapped).schema.metadata
    assert json.loads(metadata[b"layout"]) == [str(named) for named in LAYOUT]
    assert "deep/second.weight[17,11,3]" in run(capsys, "show", "moments:0", *held[2:])
    with pytest.raises(ValueError, match=r"no array 'third'; it has first\.weight"):
        totals["third"]


def test_arrays_that_are_not_there_are_not_written(kept: Kept, capsys: Capture) -> None:
    """Of a task without a layout, and of a damaged file: one line, and no .npz. Planted: segments
    read without a look at their hash -> fails.
    """
    kept.finish()
    out = kept.folder / "t.npz"
    options = ("export", "--format", "npz", "--task", "moments", "--out", str(out), "--data")
    assert "--format npy" in run(capsys, *options, str(kept.folder), status=2)
    assert not out.exists()
    other = kept.folder / "other"
    other.mkdir()
    named = Kept(other, long_task(LAYOUT))
    named.finish()
    with named.array.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x55")
    assert named.array.name in run(capsys, *options, str(other), status=1)
    assert not out.exists()


def test_the_reader_of_files_looks_at_a_layout(tmp_path: Path) -> None:
    """Planted: the sum of its arrays not compared with the length -> fails."""
    kept = Kept(tmp_path, long_task(LAYOUT))
    kept.finish()
    release, path = kept.release(), tmp_path / "r.json"
    schema = json.loads((Path(exports.__file__).parents[1] / "release.schema.json").read_text())
    jsonschema.validate([release], schema)
    good = release["array"]["layout"]
    for layout in ([], good[:-1], [*good, "more[1]"], ["x"], ["../x[1000]"], [3], "x[1000]"):
        path.write_text(json.dumps([{**release, "array": {**release["array"], "layout": layout}}]))
        with pytest.raises(ShoalError) as caught:
            read_release_files(path)
        assert "layout" in caught.value.message
        assert "\n" not in caught.value.message
    path.write_text(json.dumps([release]))
    assert read_release_files(path).releases == (release,)

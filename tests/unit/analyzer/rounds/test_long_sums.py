"""Sums of long vectors: their files, the array of their release, and whoever reads it."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow
import pytest
from starlette.testclient import TestClient

import shoal
from shoal import failpoints
from shoal.analyzer.results.files import exports
from shoal.analyzer.results.release_files import read_release_files
from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.results.report_page import render_report
from shoal.analyzer.results.totals import write_totals
from shoal.analyzer.rounds.sum_release import TOO_LARGE, added, conclude_sums
from shoal.analyzer.rounds.sums import DAMAGED, StoredSum, SumFile, SumStore, sum_form
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.console.operator.app import Sources, operator_app
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.storage import array_files
from shoal.storage.array_files import ArrayFile, ArrayForm, npy_header, write_array
from tests.cases import for_each
from tests.unit.analyzer.rounds.windows_of_long_sums import (
    DIMENSION,
    FORM,
    SEGMENT,
    SERVED,
    SMALL,
    Capture,
    Kept,
    long_task,
    one,
    run,
    vector,
)
from tests.unit.analyzer.rounds.windows_of_sums import ANALYZER
from tests.worlds.tasks import PAIRWISE

HERE = "127.0.0.1:7450"


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of a thousand numbers in segments of 64, as arrays of ten million have segments."""
    for module in ("rounds.sums", "results.totals"):
        monkeypatch.setattr(f"shoal.analyzer.{module}.LIMITS", SMALL)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


# --- files of sums --------------------------------------------------------------------------------


def test_a_sum_is_kept_in_words_of_its_width(kept: Kept) -> None:
    """And is there again after a restart; the same round again changes nothing, another sum under
    it is refused. Planted: files written as int64 -> the size is twice.
    """
    assert sum_form(SERVED.task) == FORM
    assert sum_form(PAIRWISE) is None
    assert [path.stat().st_size for path in kept.files] == [4 * DIMENSION] * 2
    kept.sums.add(SERVED.task_id, 0, one(0), FORM)
    with pytest.raises(ShoalError) as caught:
        kept.sums.add(SERVED.task_id, 0, replace(one(0), vector=vector(3)), FORM)
    assert caught.value.kind is Kind.CONFLICT
    kept.store.close()
    found = SumStore(AnalyzerStore(kept.folder / FILE_NAME)).of(SERVED.task_id, 0, FORM)
    assert sorted(stored.vector.tolist() for stored in found) == sorted(
        [vector(0).tolist(), vector(1).tolist()]
    )


def test_a_file_that_nobody_names_is_deleted(kept: Kept) -> None:
    """Its round ended between file and row. Planted: files that are named deleted too -> fails."""
    (kept.folder / "sums" / f"{bytes(32).hex()}.words").write_bytes(b"left over")
    kept.sums.drop_files()
    assert len(kept.files) == 2
    assert len(kept.sums.of(SERVED.task_id, 0, FORM)) == 2


@for_each("how", ["flipped", "cut", "longer", "gone"])
def test_a_damaged_sum_is_in_no_release_and_is_told(tmp_path: Path, how: str) -> None:
    """Planted: rows believed without their file -> the total is wrong: fails."""
    folder = tmp_path / how
    folder.mkdir()
    kept = Kept(folder)
    path = kept.folder / "sums" / f"{one(1).round_id.hex}.words"
    data = bytearray(path.read_bytes())
    if how == "flipped":
        data[3 * SEGMENT * 4 + 5] ^= 1
    path.write_bytes(data[:-1] if how == "cut" else data + b"x" if how == "longer" else data)
    if how == "gone":
        path.unlink()
    assert kept.sums.reasons(SERVED.task_id, 0, FORM) == {DAMAGED: 1}
    assert kept.sums.lost(SERVED.task_id, 0, 80, FORM) == 110
    kept.finish()
    release = kept.release()
    assert release["n"] == 110 if not release["withheld"] else release["withheld"]
    assert release["damaged"] == 110


# --- the release ----------------------------------------------------------------------------------


def test_the_release_names_the_array_and_what_holds_for_all_totals(kept: Kept) -> None:
    """The array holds the exact sums; files of sums are gone. Planted: the second round left out;
    hashes of other segments; first numbers of the last segment -> fails.
    """
    assert kept.finish()
    assert not kept.finish()
    exact = vector(0).astype(np.int64) + vector(1)
    loaded = np.load(kept.array, mmap_mode="r")
    assert loaded.dtype == np.dtype("<i8")
    assert loaded.tolist() == exact.tolist()
    release = kept.release()
    told = release["array"]
    assert release["estimates"] == []
    assert (told["length"], told["segment"], told["grid"]) == (DIMENSION, SEGMENT, 1_000)
    assert len(told["sha256"]) == 64 * -(-DIMENSION // SEGMENT)
    assert told["first"] == (exact[:8] * 10.0 / 1_000).tolist()
    assert told["norm"] == pytest.approx(float(np.linalg.norm(exact * 0.01)), rel=1e-12)
    assert told["stderr"] > 0
    assert told["reach"] == pytest.approx(1.96 * told["stderr"], rel=0.01)
    assert kept.files == []
    assert kept.sums.holds(one(0).round_id)


def test_sums_are_added_exactly_or_not_at_all() -> None:
    """Up to the ends of 64 bits; beyond them the release is withheld, never wrong. Planted: no look
    at signs -> fails.
    """
    most, least = (1 << 63) - 1, -(1 << 63)

    def of(*values: int) -> Sequence[StoredSum]:
        return [
            StoredSum(Digest.of(bytes([at])), 110, np.array([value], np.int64))
            for at, value in enumerate(values)
        ]

    for values in ((most, 0), (most, least), (least, most, -5, 5), (most - 7, 7), (least + 7, -7)):
        (part,) = added(of(*values))
        assert part.tolist() == [sum(values)]
    for values in ((most, 1), (least, -1), (1 << 62, 1 << 62), (most, most), (least, least)):
        with pytest.raises(OverflowError):
            list(added(of(*values)))


def test_totals_beyond_64_bits_are_withheld(tmp_path: Path) -> None:
    served = long_task(word_bits=64)
    vast = [
        StoredSum(Digest.of(bytes([at])), 110, np.full(DIMENSION, (1 << 63) - 1, np.int64))
        for at in range(2)
    ]
    made = decode_release(
        conclude_sums(served, 0, vast, {}, [], ANALYZER, arrays=tmp_path / "arrays").release
    )
    assert made.withheld == TOO_LARGE
    assert not made.HasField("array")
    assert not list((tmp_path / "arrays").iterdir())


def test_a_withheld_window_leaves_no_array(tmp_path: Path) -> None:
    made = conclude_sums(SERVED, 0, [], {}, [], ANALYZER, arrays=tmp_path / "arrays")
    assert decode_release(made.release).withheld
    assert not (tmp_path / "arrays").exists()


@for_each("point", ["analyzer.totals.rename", "analyzer.totals.renamed"])
def test_a_release_that_was_broken_off_is_made_anew(tmp_path: Path, point: str) -> None:
    """On a full disk, before and after the array was there: nothing is lost, and the next attempt
    releases the window. Planted: a disk error of the array passed over -> fails.
    """
    folder = tmp_path / point
    folder.mkdir()
    kept = Kept(folder)

    failpoints.arm(f"{point}=enospc@1")
    try:
        with pytest.raises(ShoalError) as caught:
            kept.finish()
    finally:
        failpoints.arm("")
    assert caught.value.kind is Kind.OVERLOADED
    assert kept.store.releases() == []
    assert len(kept.files) == 2
    assert not list(kept.folder.glob("arrays/.*"))
    assert kept.finish()
    assert kept.conclusions == 2
    assert np.load(kept.array).tolist() == (vector(0).astype(np.int64) + vector(1)).tolist()


# --- readers --------------------------------------------------------------------------------------


def test_people_see_a_summary_and_programs_the_array(
    kept: Kept, tmp_path: Path, capsys: Capture
) -> None:
    """On the terminal, on the page, as .npy, as Arrow, in a data frame."""
    kept.finish()
    data, told = str(kept.folder), kept.release()["array"]
    shown = run(capsys, "show", "moments:0", "--data", data)
    for figure in (f"{DIMENSION:,}", f"{told['norm']:,.6g}", f"{told['first'][1]:,.6g}"):
        assert figure in shown
    page = render_report([kept.release()])
    assert f"{told['norm']:,.6g}" in page
    npy, arrow = tmp_path / "totals.npy", tmp_path / "totals.arrow"
    held = ("--data", data)
    run(capsys, "export", "--format", "npy", "--task", "moments:0", "--out", str(npy), *held)
    assert npy.read_bytes() == kept.array.read_bytes()
    run(capsys, "export", "--format", "arrow", "--task", "moments", "--out", str(arrow), *held)
    with pyarrow.memory_map(str(arrow)) as mapped:
        table = pyarrow.ipc.open_file(mapped).read_all()
    exact = np.load(npy)
    assert table["steps"].to_numpy().tolist() == exact.tolist()
    np.testing.assert_allclose(table["value"].to_numpy(), exact * 0.01, rtol=1e-15)
    assert float(table.schema.metadata[b"stderr"]) == told["stderr"]
    again = ("export", "--format", "npy", "--out", str(npy), *held)
    assert "exists" in run(capsys, *again, "--task", "moments:0", status=2)
    assert "--task" in run(capsys, *again, status=2)
    for kind in ("json", "csv", "html"):
        run(capsys, "export", "--format", kind, "--out", str(tmp_path / f"o.{kind}"), *held)
    assert read_release_files(tmp_path / "o.json").releases[0]["array"] == told


def test_the_console_shows_the_summary(kept: Kept) -> None:
    """On the list, and on the page of the question. Planted: the table left out -> fails."""
    kept.finish()
    told = kept.release()["array"]
    app = operator_app(Sources(data_dir=kept.folder), HERE)
    with TestClient(app, base_url=f"http://{HERE}") as client:
        assert client.get("/releases").status_code == 200
        page = client.get("/releases/moments")
        assert page.status_code == 200
        assert f"{told['norm']:,.6g}" in page.text
        assert "export --format npy" in page.text


def test_the_schema_and_the_reader_of_files_know_an_array(kept: Kept, tmp_path: Path) -> None:
    """Each key of it, missing or wrong, is refused in one line that names it. Planted: a key
    without a check -> fails.
    """
    kept.finish()
    release = kept.release()
    schema = json.loads((Path(exports.__file__).parents[1] / "release.schema.json").read_text())
    jsonschema.validate([release], schema)
    path = tmp_path / "r.json"
    wrong: dict[str, list[Any]] = {
        "file": ["../x.npy", "x.npy", 3],
        "dtype": ["<f8", None],
        "length": [0, -1, 1.5, LIMITS.vector_words + 1, True],
        "segment": [0, -1, "64"],
        "sha256": ["", "x", release["array"]["sha256"][:-1], release["array"]["sha256"] + "00"],
        "clip": [0, -1.0, None],
        "grid": [0, 1.5],
        "stderr": [-1.0, None],
        "reach": [-1.0, "wide"],
        "norm": [-1.0, []],
        "first": [[1.0] * 9, [None], 3],
    }
    assert set(wrong) == set(release["array"])
    for key, values in wrong.items():
        changed = [{**release["array"], key: value} for value in values]
        changed.append({name: part for name, part in release["array"].items() if name != key})
        for array in changed:
            path.write_text(json.dumps([{**release, "array": array}]))
            with pytest.raises(ShoalError) as caught:
                read_release_files(path)
            assert key in caught.value.message
            assert "\n" not in caught.value.message


def test_writing_a_release_holds_segments_alone(tmp_path: Path) -> None:
    """However long the vector is: a tenth of a sum at most here. Planted: the sums read whole ->
    fails.
    """
    folder = tmp_path / "kept"
    folder.mkdir()
    kept = Kept(folder)
    kept.finish()  # tables and modules are there
    sums = [
        StoredSum(Digest.of(bytes([at])), 110, np.arange(1 << 20, dtype="<i4")) for at in range(2)
    ]
    form = ArrayForm("<i4", 1 << 20, 1 << 12)
    files = [
        SumFile(
            one.round_id,
            110,
            ArrayFile(
                tmp_path / str(at),
                form,
                write_array(
                    tmp_path / str(at), form, (one.vector[form.span(i)] for i in range(256)), ""
                ),
            ),
        )
        for at, one in enumerate(sums)
    ]
    tracemalloc.start()
    try:
        told = write_totals(
            tmp_path / "t.npy", 1 << 20, added(files), clip=1.0, grid=1, stderr=1.0, reach=2.0
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (4 << 20) / 10 + len(told.segments) * 3
    assert np.load(tmp_path / "t.npy").tolist() == (2 * np.arange(1 << 20)).tolist()


def test_an_analyst_reads_the_totals_as_they_are_asked_for(kept: Kept, tmp_path: Path) -> None:
    """From the analyzer's folder, or from JSON with the array beside it. Planted: slices of one
    segment alone; steps not scaled -> fails.
    """
    kept.finish()
    exact = (vector(0).astype(np.int64) + vector(1)) * 0.01
    totals = shoal.read_release(kept.folder).array("moments:0")
    assert len(totals) == DIMENSION
    for which in (slice(None), slice(60, 70), slice(None, None, -7), slice(5, 5), slice(-3, None)):
        np.testing.assert_allclose(totals[which], exact[which], rtol=1e-15)
    assert totals[-1] == pytest.approx(exact[-1])
    assert isinstance(totals[3], float)
    np.testing.assert_allclose(np.asarray(totals), exact, rtol=1e-15)
    assert sum(1 for _ in totals) == DIMENSION
    assert np.concatenate(list(totals.parts())).shape == exact.shape
    totals.check()
    for bad in (DIMENSION, -DIMENSION - 1):
        with pytest.raises(IndexError):
            totals[bad]
    with pytest.raises(TypeError):
        totals[1.5]  # type: ignore[index]  # that is the point
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "r.json").write_text(json.dumps([kept.release()]))
    with pytest.raises(ShoalError) as caught:
        shoal.read_release(alone / "r.json").array("moments")
    assert kept.array.name in caught.value.message
    (alone / kept.array.name).write_bytes(kept.array.read_bytes())
    table = shoal.read_release(alone / "r.json")
    assert table.array("moments")[5] == totals[5]
    with pytest.raises(ShoalError):
        table.plot("moments")


@for_each("how", ["flipped", "cut", "longer", "gone", "header"])
def test_a_damaged_array_is_refused_by_name(tmp_path: Path, capsys: Capture, how: str) -> None:
    """By who exports it and by who reads that part of it; the rest can be read. Planted: a copy
    without a check; segments compared with the hash of another -> fails.
    """
    folder = tmp_path / how
    folder.mkdir()
    kept = Kept(folder)
    kept.finish()
    data = bytearray(kept.array.read_bytes())
    data[-3 if how == "flipped" else 20] ^= 1 if how in ("flipped", "header") else 0
    changed = data[:-1] if how == "cut" else data + b"x" if how == "longer" else data
    kept.array.write_bytes(changed)
    if how == "gone":
        kept.array.unlink()
    out = tmp_path / f"{how}.npy"
    options = ("--format", "npy", "--task", "moments:0", "--data", str(kept.folder))
    said = run(capsys, "export", *options, "--out", str(out), status=1)
    assert kept.array.name in said
    assert said.count("\n") == 1
    assert not out.exists()
    assert not list(tmp_path.glob(".*"))
    if how != "gone":
        totals = shoal.read_release(kept.folder).array("moments")
        with pytest.raises(ShoalError) as caught:
            totals[-1]
        assert caught.value.kind is Kind.MISMATCH
        if how == "flipped":
            assert totals[0] == pytest.approx((vector(0)[0] + vector(1)[0]) * 0.01)


# --- the form -------------------------------------------------------------------------------------


@for_each("length", [1, 7, 99, 10**6, 10**7])
@for_each("dtype", ["<i4", "<i8"])
def test_the_header_is_numpys(length: int, dtype: str) -> None:
    wanted = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        wanted, {"descr": dtype, "fortran_order": False, "shape": (length,)}
    )
    assert npy_header(dtype, length) == wanted.getvalue()


def test_every_segment_is_found_whatever_its_length(tmp_path: Path) -> None:
    for length in range(1, 12):
        for segment in range(1, 13):
            form = ArrayForm("<i8", length, segment, npy=True)
            numbers = np.arange(length) - 5
            parts = [numbers[form.span(at)] for at in range(form.count)]
            path = tmp_path / f"{length}-{segment}.npy"
            file = ArrayFile(path, form, write_array(path, form, parts, ""))
            assert np.concatenate(list(file.segments())).tolist() == numbers.tolist()
            assert path.stat().st_size == form.file_size
            assert array_files.HASH_SIZE * form.count == len(file.hashes)

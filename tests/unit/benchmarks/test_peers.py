"""The benchmark beside other libraries, without them: a process in their place answers what a test
says. Nothing is installed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import peers, peers_child
from benchmarks.bench import Bench, Scale
from benchmarks.peers import Beside, Peers, Run

PROTOCOL = peers.Protocol("k-ary", "krr", "", ("pure-ldp", "multi-freq-ldpy"), ((4, 50),))
HALF = {"randomize_s": 0.5, "aggregate_s": 0.25}


def stand_in(folder: Path, code: str) -> Path:
    """An interpreter that runs ``code`` instead of what it is given."""
    script, python = folder / "stand_in.py", folder / "python"
    script.write_text(code)
    python.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{script}'\n")
    python.chmod(0o755)
    return python


ANSWERS = f"""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    counts = [asked["values"].count(cell) + 2.0 for cell in range(asked["cells"])]
    told = {{"error": "TypeError: no"}}
    if asked["library"] == "pure-ldp":
        told = {{**{HALF!r}, "counts": counts}}
    print(json.dumps(told), flush=True)
"""


def test_what_is_said_of_both(tmp_path: Path) -> None:
    """Their rates and errors are those that their process told; a library that failed is a note,
    and the others are measured.

    Planted: their sides exchanged, or reports left out of the error per report -> this fails.
    """
    bench, other = Bench(Scale.TINY, tmp_path), Peers(stand_in(tmp_path, ANSWERS))
    found = peers._Found(bench, other)
    try:
        found.measure(PROTOCOL, 4, 50)
    finally:
        other.close()
    rates = {figure.what: figure.median for figure in found.rates}
    assert rates["k-ary, 4 cells, pure-ldp: randomize"] == 50 / 0.5
    assert rates["k-ary, 4 cells, pure-ldp: estimate"] == 50 / 0.25
    assert rates["k-ary, 4 cells, pure-ldp: squared error per report"] == 2.0**2 / 50
    assert [figure.what.split(": ")[1] for figure in found.ratios] == [
        "squared error / its formula",
        "randomize, ours / pure-ldp",
        "estimate, ours / pure-ldp",
        "squared error of pure-ldp / our formula",
    ]
    assert all(figure.unit == "x" and figure.median > 0 for figure in found.ratios)
    assert found.notes == ["multi-freq-ldpy, k-ary, 4 cells: TypeError: no"]


def test_a_process_that_ends_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    other = Peers(stand_in(tmp_path, "raise SystemExit(1)"))
    try:
        with pytest.raises(RuntimeError, match="make peers"):
            other.run("pure-ldp", "krr", 4, np.arange(4))
    finally:
        other.close()


def test_without_their_environment_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And ours are measured. Planted: the note left out -> this fails."""
    monkeypatch.setenv("SHOAL_PEERS_PYTHON", str(tmp_path / "none"))
    monkeypatch.setattr(peers, "PROTOCOLS", (PROTOCOL,))
    outcome = peers.run(Bench(Scale.QUICK, tmp_path))
    assert outcome.notes[-1] == peers.INSTALL
    assert "make peers" in peers.INSTALL
    assert [figure.what for figure in outcome.figures if figure.unit == "x"] == [
        "k-ary, 4 cells: squared error / its formula"
    ]


def test_every_run_of_ours_stands_between_two_of_theirs() -> None:
    """Planted: the run before alone -> 2.0 and this fails."""
    order: list[str] = []

    def theirs() -> Run:
        order.append("theirs")
        return Run(100, 1.0 if len(order) == 1 else 0.5, 1.0, 0.0)

    def ours() -> Run:
        order.append("ours")
        return Run(100, 0.5, 0.1, 0.0)

    found = peers.beside(2, theirs, ours)
    assert isinstance(found, Beside)
    assert order == ["theirs", "ours", "theirs", "ours", "theirs"]
    assert found.against(0) == (200 / 150, 1.0)
    assert found.against(1) == pytest.approx((10.0, 10.0))


def test_the_devices_cells_are_the_same_in_every_run() -> None:
    values = peers.zipf(16, 10_000)
    assert np.array_equal(values, peers.zipf(16, 10_000))
    held = np.bincount(values, minlength=16)
    assert held.sum() == 10_000
    assert held[0] == pytest.approx(2 * held[1], abs=2)
    assert held[0] == pytest.approx(16 * held[15], abs=16)
    assert not np.array_equal(values[:100], np.sort(values[:100])), (
        "a warm-up sees all kinds of cells"
    )


def test_the_other_libraries_side() -> None:
    """Reports are drawn of every value after a warm-up, and collected once; what fails is told, and
    ends nothing.

    Planted: the warm-up's reports collected too -> this fails.
    """
    drawn: list[int] = []

    def draw(cell: int) -> int:
        drawn.append(cell)
        return cell

    told = peers_child.measure(
        peers_child.Pair(draw, lambda reports: [float(len(reports))]), list(range(30))
    )
    assert told["counts"] == [30.0]
    assert drawn == [*range(peers_child.WARM), *range(30)]
    assert min(told["randomize_s"], told["aggregate_s"]) >= 0.0
    asked = {"library": "another", "protocol": "krr", "cells": 2, "epsilon": 1.0, "values": [0]}
    assert peers_child.answer(json.dumps(asked)) == {"error": "KeyError: 'another'"}


def test_every_protocol_is_asked_of_a_library_that_is_known() -> None:
    for protocol in peers.PROTOCOLS:
        assert set(protocol.libraries) <= set(peers_child.LIBRARIES)
        assert list(protocol.sizes) == sorted(protocol.sizes)

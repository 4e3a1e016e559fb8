"""Replay tests/vectors/mechanisms/*.json: from the random bytes that are written there a device
makes the report that is written there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from shoal.domain import Categories, Domain, Numeric, Places, Words, YesNo
from shoal.mechanisms import REGISTRY, Mechanism, create, serves
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.worlds.tapes import Tape

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "vectors" / "mechanisms"


class Stream(Tape):
    """Serves the bytes in order, in whatever portions they are asked for."""

    def __init__(self, data: bytes) -> None:
        super().__init__(*(data[at : at + 1] for at in range(len(data))))


def cases(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())["cases"]
    assert found
    return found


def built(name: str, case: dict[str, Any]) -> Mechanism:
    cells = int(case["cells"])
    if cells == 1 << 62:
        return create(
            MechanismSpec.of(
                name, **{key: int(value) for key, value in case["parameters"].items()}
            ),
            Words(("any",)),
        )
    domain: Domain = Categories(tuple(map(str, range(cells - 1)))) if cells > 2 else YesNo()
    if {"rows", "columns", "height", "width"} <= set(case["parameters"]):
        rows, columns, height, width = (
            int(case["parameters"][side]) for side in ("rows", "columns", "height", "width")
        )
        # at the equator a microdegree is more than 100 millimetres
        domain = Places(
            0, 0, rows * (height // 100 + 1), columns * (width // 100 + 1), rows, columns
        )
    elif not serves(name, domain):
        domain = Numeric(0.0, 1.0, cells - 1)
    return create(
        MechanismSpec.of(name, **{key: int(value) for key, value in case["parameters"].items()}),
        domain,
    )


@for_each("name", sorted(REGISTRY))
def test_a_report_follows_from_the_random_bytes(name: str) -> None:
    """By the device's draw and by the array's; every byte is used. Planted: words read big-endian;
    a refused word kept -> fails.
    """
    for case in cases(name):
        mechanism = built(name, case)
        assert mechanism.report_size == case["report_size"]
        for entry in case["reports"]:
            report = tuple(bytes.fromhex(message) for message in entry["report"])
            for by_array in (False, True):
                stream = Stream(bytes.fromhex(entry["entropy"]))
                cell = int(entry["cell"])
                made = (
                    tuple(
                        message.tobytes()
                        for message in mechanism.randomize(np.array([cell]), stream)[0]
                    )
                    if by_array
                    else mechanism.randomize_one(cell, stream)
                )
                assert made == report
                assert stream.done()
            rows = np.frombuffer(b"".join(report), dtype=np.uint8).reshape(len(report), -1)
            assert mechanism.valid(rows).all()
        for row in case["refuse"]:
            assert not mechanism.valid(
                np.frombuffer(bytes.fromhex(row), dtype=np.uint8).reshape(1, -1)
            ).any()


def test_the_files_are_what_the_tool_writes(tmp_path: Path) -> None:
    """All of them, and no file more. Planted: one digit of one file changed -> this fails."""
    script = (
        "import sys, pathlib, vectors_mechanisms as made\nmade.FOLDER = "
        "pathlib.Path(sys.argv.pop())\nsys.argv[1:] = []\nmade.main()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT / "tools", check=True)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert {Path(name).stem for name in written} == set(REGISTRY)

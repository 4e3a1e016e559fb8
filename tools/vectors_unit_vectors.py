"""Make the test vectors of randomized vectors: ``python tools/vectors_unit_vectors.py`` writes
tests/vectors/shoal_unit_vectors_v1.json.

Entries of the table of Gaussian coordinates; first coordinates of candidates; and draws: a task's
integers, a quantized vector, the random bytes that a device drew (all requests joined) and the
report that it must make of them. docs/WIRE.md says how. The same at every run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from vectors_mechanisms import Recorder

from shoal.domain import Norm, Vector
from shoal.mechanisms.vectors.gaussian_table import DIGEST, candidates, table
from shoal.mechanisms.vectors.privunit import PrivUnit, lengthened

PATH = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "shoal_unit_vectors_v1.json"
_GRID = 1 << 20
_DRAWS = 8  # of each case
_ENTRIES = (0, 1, 2, 255, 4_096, 20_000, 32_766, 32_767, 32_768, 65_535)
CASES = (  # name, dimension, candidates, inside, uniform
    ("a pair", 1, 2, 1, 1 << 63),
    ("a plane", 2, 64, 8, 1 << 62),
    ("whole blocks", 7, 256, 16, 3 << 61),
    ("more than a block", 20, 1_024, 64, 4_240_743_540_436_022_921),
    ("many candidates", 3, 16_384, 1, 1 << 61),
    ("ties", 1, 4_096, 2_048, 1),
)


def _vector(dimension: int, number: int) -> list[int]:
    """The zero vector, the two longest along the first axis, then others. Of one coordinate mostly
    the longest below 0: of equal products the last candidate comes first.
    """
    if dimension == 1 and number > 2:
        return [-_GRID]
    if number == 0:
        return [0] * dimension
    if number <= 2:
        return [_GRID if number == 1 else -_GRID] + [0] * (dimension - 1)
    step = _GRID // (dimension + number)
    return [step * ((7 * i + number) % 5 - 2) // 2 for i in range(dimension)]


def text() -> str:
    """The file's text."""
    cases = []
    for title, dimension, count, inside, uniform in CASES:
        domain = Vector(dimension, Norm.L2, 1.0, _GRID)
        made = PrivUnit(domain, count, inside, uniform)
        draws = []
        for number in range(_DRAWS):
            recorder = Recorder(f"{title} {number}", 0)
            vector = _vector(dimension, number)
            (report,) = made.randomize_vector(np.array(vector, dtype=np.int64), recorder)
            index = int.from_bytes(report[16:], "big")
            named = candidates(report[:16], index, 1, dimension + 1)[0]
            draws.append(
                {
                    "vector": vector,
                    "lengthened": lengthened(np.array(vector, dtype=np.int64), _GRID).tolist(),
                    "random": recorder.drawn.hex(),
                    "report": report.hex(),
                    "named": named.tolist(),
                }
            )
        cases.append(
            {
                "name": title,
                "grid": _GRID,
                "parameters": {key: str(value) for key, value in made.spec.parameters},
                "report_size": made.report_size,
                "draws": draws,
            }
        )
    about = "Vectors that devices randomize; docs/WIRE.md, section 5.1, says how."
    entries = [{"cell": cell, "entry": int(table()[cell])} for cell in _ENTRIES]
    told = {"about": about, "table_sha256": DIGEST, "table": entries, "cases": cases}
    return json.dumps(told, indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(text())
    sys.stdout.write(f"{PATH}\n")

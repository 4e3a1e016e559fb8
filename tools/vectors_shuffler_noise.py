"""Make the test vectors of noise from the shuffler: ``python tools/vectors_shuffler_noise.py``
writes tests/vectors/shoal_shuffler_noise_v1.json.

A vector is a task's integers, the random bytes that were drawn for one batch (all requests joined)
and how many messages each cell gets. docs/WIRE.md, section 5, says how words are read. The same at
every run.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from vectors_mechanisms import Recorder

from shoal.domain import Categories
from shoal.mechanisms.several.cell_noise import CellNoise
from shoal.mechanisms.several.shuffler_noise import ShufflerNoise

PATH = Path(__file__).resolve().parent.parent / "tests/vectors/shoal_shuffler_noise_v1.json"
_BATCHES = 4  # of each case
CASES = (
    ("epsilon 1", 16, CellNoise(2605029361, 27)),
    ("no words are left over", 5, CellNoise(1 << 31, 1)),
    ("a short reach", 3, CellNoise(4294967000, 2)),
    ("a small epsilon", 4, CellNoise(4252231657, 300)),
)


def text() -> str:
    """The file's text."""
    cases = []
    for title, k, law in CASES:
        labels = Categories(tuple(f"c{number}" for number in range(k - 1))).labels
        made = ShufflerNoise(labels, law)
        batches = []
        for number in range(_BATCHES):
            recorder = Recorder(f"{title} {number}", 0)
            counts = Counter(made.added(recorder))
            cells = [cell.to_bytes(made.report_size, "big") for cell in range(k)]
            batches.append(
                {"random": recorder.drawn.hex(), "numbers": [counts[cell] for cell in cells]}
            )
        parameters = {key: str(value) for key, value in made.spec.parameters}
        cases.append({"name": title, "parameters": parameters, "batches": batches})
    about = "Noise that a shuffler adds; docs/WIRE.md, section 5, says how words are read."
    return json.dumps({"about": about, "cases": cases}, indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(text())
    sys.stdout.write(f"{PATH}\n")

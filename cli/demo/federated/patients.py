"""The demo's patients: 30 measurements of cells each, and whether the mass was malignant
(docs/DATA.md). One patient is one device.
"""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from importlib.resources import files

from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError

# Of each measurement the least and the largest, as the data set's description has published them:
# public before any device is asked.
_RANGES = (
    ("radius", (6.981, 28.11), (0.112, 2.873), (7.93, 36.04)),
    ("texture", (9.71, 39.28), (0.36, 4.885), (12.02, 49.54)),
    ("perimeter", (43.79, 188.5), (0.757, 21.98), (50.41, 251.2)),
    ("area", (143.5, 2501.0), (6.802, 542.2), (185.2, 4254.0)),
    ("smoothness", (0.053, 0.163), (0.002, 0.031), (0.071, 0.223)),
    ("compactness", (0.019, 0.345), (0.002, 0.135), (0.027, 1.058)),
    ("concavity", (0.0, 0.427), (0.0, 0.396), (0.0, 1.252)),
    ("concave points", (0.0, 0.201), (0.0, 0.053), (0.0, 0.291)),
    ("symmetry", (0.106, 0.304), (0.008, 0.079), (0.156, 0.664)),
    ("fractal dimension", (0.05, 0.097), (0.001, 0.03), (0.055, 0.208)),
)
_KINDS = "mean", "error", "worst"
FEATURES = tuple(f"{name[0]}, {kind}" for kind in _KINDS for name in _RANGES)
_HELD_OUT = 5  # one patient in so many is asked nothing, and tells how good the model is


@dataclass(frozen=True, slots=True, eq=False)
class Patients:
    """``rows``: float64[n, 30], every number in [-1, 1]. ``malignant``: bool[n]."""

    rows: NDArray[np.float64]
    malignant: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.malignant)

    def first(self, count: int) -> Patients:
        """The first ``count`` of them. Raises CONFIG if there are fewer."""
        if not 1 <= count <= len(self):
            raise ShoalError(
                Kind.CONFIG,
                f"--federated has {len(self)} patients to ask: give at most so many --devices",
            )
        return Patients(self.rows[:count], self.malignant[:count])


def load_patients() -> tuple[Patients, Patients]:
    """(those with a device: 455, those held out: 114), in the order of the source."""
    packed = files("shoal.cli.demo.federated").joinpath("wdbc.csv.gz").read_bytes()
    lines = list(csv.reader(io.StringIO(gzip.decompress(packed).decode())))[1:]
    table = np.array(lines, dtype=np.float64)
    rows, malignant = scaled(table[:, :-1]), table[:, -1] == 0.0
    held_out = np.arange(len(table)) % _HELD_OUT == 0
    return (
        Patients(rows[~held_out], malignant[~held_out]),
        Patients(rows[held_out], malignant[held_out]),
    )


def scaled(measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[n, 30] in [-1, 1]: square roots, as most measurements have long tails, between those
    of the published ends. ``measured``: float64[n, 30], 0 or more.
    """
    ends = np.array([name[1 + kind] for kind in range(len(_KINDS)) for name in _RANGES])
    low, high = np.sqrt(ends[:, 0]), np.sqrt(ends[:, 1])
    placed = 2.0 * (np.sqrt(measured) - low) / (high - low) - 1.0
    kept: NDArray[np.float64] = np.clip(placed, -1.0, 1.0)
    return kept

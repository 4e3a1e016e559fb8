"""Make cli/demo/randhie.csv.gz: one column of the RAND Health Insurance Experiment, from the file
inside the statsmodels wheel.

``python tools/demo_data.py [WHEEL]`` (default: pip downloads statsmodels into a temporary
directory; nothing is installed). docs/DATA.md says where the data come from and what the rows are.
"""

from __future__ import annotations

import csv
import gzip
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "cli" / "demo" / "randhie.csv.gz"
MEMBER = "statsmodels/datasets/randhie/randhie.csv"
COLUMN = "mdvis"
ROWS = 20_190


def column(wheel: Path) -> list[int]:
    """The number of outpatient visits of every person-year, in the order of the source."""
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as file:
        values = [int(row[COLUMN]) for row in csv.DictReader(io.TextIOWrapper(file, "ascii"))]
    if len(values) != ROWS or min(values) < 0:
        raise SystemExit(
            f"{wheel.name}: {len(values)} rows where {ROWS} non-negative counts were expected: not "
            "the known data"
        )
    return values


def pack(values: list[int]) -> bytes:
    """A gzipped CSV of one column with a header line; no file name and no time in it, so the same
    values give the same bytes.
    """
    text = "\n".join([COLUMN, *map(str, values), ""])
    return gzip.compress(text.encode("ascii"), compresslevel=9, mtime=0)


def main(arguments: list[str]) -> None:
    """Write the survey's data for the demo. ``arguments``: a wheel that has them; none: it is
    downloaded.
    """
    with tempfile.TemporaryDirectory() as folder:
        if arguments:
            wheel = Path(arguments[0])
        else:
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--no-deps",
                    "statsmodels",
                    "-d",
                    folder,
                ],
                check=True,
            )
            wheel = next(Path(folder).glob("statsmodels-*.whl"))
        OUT.write_bytes(pack(column(wheel)))
    print(f"{OUT.relative_to(ROOT)}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])

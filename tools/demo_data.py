"""Make cli/demo/randhie.csv.gz, one column of the RAND Health Insurance Experiment, and
cli/demo/randhie_records.csv.gz, eight of its columns as answers to choose from, from the files
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
from bisect import bisect_right
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "cli" / "demo" / "randhie.csv.gz"
MEMBER = "statsmodels/datasets/randhie/randhie.csv"
COLUMN = "mdvis"
ROWS = 20_190
RECORDS = ROOT / "cli" / "demo" / "randhie_records.csv.gz"
WHOLE = "statsmodels/datasets/randhie/src/randhie.csv"  # with all columns
# Of each attribute: the column, the lowest value of each answer, and the answers.
ATTRIBUTES: dict[str, tuple[str, tuple[float, ...], tuple[str, ...]]] = {
    "age": ("xage", (0, 6, 18, 35, 50), ("0-5", "6-17", "18-34", "35-49", "50+")),
    "sex": ("female", (0, 1), ("male", "female")),
    "education": ("educdec", (0, 12, 13, 16), ("below 12", "12", "13-15", "16+")),
    "income": ("income", (0, 5_000, 8_000, 11_000), ("below 5", "5-8", "8-11", "11+")),
    "own share": ("coins", (0, 1, 26, 51), ("0 %", "25 %", "50 %", "95 % or more")),
    "health": ("health", (0, 1, 2, 3), ("excellent", "good", "fair", "poor")),
    "limitation": ("physlm", (0, 0.5), ("no", "yes")),
    "visits": ("mdvis", (0, 1, 2, 3, 5, 10), ("0", "1", "2", "3-4", "5-9", "10+")),
}


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


def records(wheel: Path) -> list[list[str]]:
    """The answers of every person-year to each of ``ATTRIBUTES``, in the order of the source; empty
    where the source has none.
    """
    with zipfile.ZipFile(wheel) as archive, archive.open(WHOLE) as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file, "ascii")))
    if len(rows) != ROWS:
        raise SystemExit(f"{wheel.name}: {len(rows)} rows of all columns: not the known data")
    found = []
    for row in rows:
        health = sum(at * int(row[name]) for at, name in enumerate(("hlthg", "hlthf", "hlthp"), 1))
        row["health"] = str(health)
        found.append(
            [
                "" if not row[column] else labels[bisect_right(lowest, float(row[column])) - 1]
                for column, lowest, labels in ATTRIBUTES.values()
            ]
        )
    return found


def pack_records(rows: list[list[str]]) -> bytes:
    """As ``pack``, a column for each attribute."""
    lines = [",".join(ATTRIBUTES), *map(",".join, rows), ""]
    return gzip.compress("\n".join(lines).encode("ascii"), compresslevel=9, mtime=0)


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
        RECORDS.write_bytes(pack_records(records(wheel)))
    for file in (OUT, RECORDS):
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])

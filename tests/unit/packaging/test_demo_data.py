"""The bundled survey is what docs/DATA.md says it is: every figure that the demo calls "truth"
rests on it.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "cli" / "demo" / "randhie.csv.gz"
PATIENTS = ROOT / "cli" / "demo" / "federated" / "wdbc.csv.gz"


def visits() -> list[int]:
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(FILE.read_bytes()).decode("ascii"))))
    assert set(rows[0]) == {"mdvis"}, "the extract holds one column and no more"
    return [int(row["mdvis"]) for row in rows]


def category(count: int) -> str:
    return next(
        label
        for bound, label in ((10, "10+"), (5, "5-9"), (3, "3-4"), (2, "2"), (1, "1"), (0, "0"))
        if count >= bound
    )


def test_size_and_truth() -> None:
    """Planted: dropping the last row, or counting mdvis >= 0 as a visit -> this fails."""
    counts = visits()
    assert len(counts) == 20_190
    assert min(counts) == 0
    assert max(counts) == 77
    assert sum(count > 0 for count in counts) == 13_882
    assert round(100 * 13_882 / 20_190, 3) == 68.757
    assert Counter(map(category, counts)) == {
        "0": 6308,
        "1": 3817,
        "2": 2797,
        "3-4": 3229,
        "5-9": 2883,
        "10+": 1156,
    }
    assert round(sum(min(count, 20) for count in counts) / len(counts), 4) == 2.7442


def test_documented_figures_are_the_data() -> None:
    """The numbers in docs/DATA.md are recomputed, so that the page can't drift from the file."""
    counts = visits()
    page = (ROOT / "docs" / "DATA.md").read_text()
    yes = sum(count > 0 for count in counts)
    by_label = Counter(map(category, counts))
    assert f"{yes:,} yes ({100 * yes / len(counts):.3f} %)" in page
    assert (
        "; ".join(f"{by_label[label]:,}" for label in ("0", "1", "2", "3-4", "5-9", "10+")) in page
    )
    clipped, plain = (
        sum(min(count, 20) for count in counts) / len(counts),
        sum(counts) / len(counts),
    )
    above = sum(count > 20 for count in counts)
    assert (
        f"{clipped:.4f} (unclipped {plain:.4f}; {above} rows are above 20, the largest is "
        f"{max(counts)})" in page
    )
    assert re.search(r"Rows are person-years; the demo treats each as a device", page)


def test_the_file_is_small_and_says_nothing_but_the_column() -> None:
    """No time and no file name in the gzip header (RFC 1952 section 2.3: FLG and MTIME), so that it
    is reproducible.
    """
    data = FILE.read_bytes()
    assert len(data) < 16_384
    assert data[:2] == b"\x1f\x8b"
    assert data[3] == 0
    assert data[4:8] == bytes(4)


def test_the_patients_are_those_of_the_page() -> None:
    """Planted: a row left out, benign and malignant exchanged -> this fails."""
    data = PATIENTS.read_bytes()
    assert data[3] == 0
    assert len(data) < 65_536
    rows = list(csv.reader(io.StringIO(gzip.decompress(data).decode("ascii"))))
    assert rows[0] == [*(f"f{at}" for at in range(30)), "benign"]
    benign = sum(row[-1] == "1" for row in rows[1:])
    assert (len(rows) - 1, benign) == (569, 357)
    assert rows[1][:3] == ["17.99", "10.38", "122.8"]
    page = (ROOT / "docs" / "DATA.md").read_text()
    assert "569 rows,\none per patient" in page
    assert f"benign ({benign}) or malignant ({569 - benign})" in page
    assert f"({len(data) / 1_000:.1f} kB)" in page

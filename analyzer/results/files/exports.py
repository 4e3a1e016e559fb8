"""Releases as a file: JSON, CSV, Parquet, or a page with plots. The totals of a long vector, as an
array, are ``totals``'.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

CHECKABLE = "shoal-release"  # the format of a release file (docs/VERIFY.md)
CHECKABLE_SUFFIX = ".release.json"
COLUMNS = (
    *(
        "task_id",
        "name",
        "window",
        "n",
        "rejected",
        "withheld",
        "label",
        "value",
        "stderr",
        "ci_low",
        "ci_high",
        "epsilon0",
    ),
    *(
        "epsilon_upper",
        "epsilon_lower",
        "delta",
        "n_certified",
        "epsilon_at_received_n",
        "epsilon_cumulative_upper",
        "delta_cumulative",
    ),
    "manifest_hash",
    "lifetime_epsilon",  # of memoized tasks alone
    "processed",  # for readers: sums are made of value
    "damaged",  # reports that a service's disk lost
)


class Format(StrEnum):
    """What ``--format`` takes."""

    json = "json"
    csv = "csv"
    html = "html"
    parquet = "parquet"
    release = "release"
    npy = "npy"
    npz = "npz"
    arrow = "arrow"


ARRAYS = frozenset({Format.npy, Format.npz, Format.arrow})  # of the totals of one long vector


def file_of(releases: list[dict[str, Any]], kind: Format) -> bytes:
    """The releases as the bytes of a file."""
    if kind is Format.parquet:
        from shoal.analyzer.results.files.parquet import parquet_of

        return parquet_of(COLUMNS, rows_of(releases))
    return render(releases, kind).encode()


def render(releases: list[dict[str, Any]], kind: Format) -> str:
    """The releases as the text of a file, of a kind that is text."""
    if kind is Format.json:
        return json.dumps(releases, indent=2) + "\n"
    if kind is Format.release:
        raise ValueError("release files hold signed bytes: see shoal.analyzer.results.checkable")
    if kind is Format.csv:
        return _csv(releases)
    from shoal.analyzer.results.report_page import render_report

    return render_report(releases)


def rows_of(releases: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row per estimate, then one per quantile (without a standard error), with what is said of
    the whole release beside; a withheld release is one row without an estimate.
    """
    for release in releases:
        whole: dict[str, Any] = {
            **release["privacy"].get("memoized", {}),
            **release["privacy"],
            **release,
            "rejected": sum(release["rejected"].values()),
            "withheld": release["withheld"] or "",
        }
        estimates: list[dict[str, Any]] = release["estimates"] or [{}]
        counts = release.get("processed", {}).get("counts", [None] * len(estimates))
        for estimate, count in zip(estimates, counts, strict=True):
            yield {**whole, **estimate, "processed": count}
        for row in release.get("quantiles", ()):
            label = f"quantile {row['share']:g}"
            yield {**whole, **row, "label": label, "processed": None}


def _csv(releases: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows_of(releases):
        writer.writerow({name: quoted(value) for name, value in row.items()})
    return text.getvalue()


def quoted(value: Any) -> Any:
    """Labels come from tasks: one that a spreadsheet would take for a formula is quoted."""
    return (
        f"'{value}"
        if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}
        else value
    )

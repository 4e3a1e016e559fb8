"""Releases as the text of a file: JSON, CSV, or a page with plots."""

from __future__ import annotations

import csv
import io
import json
from enum import StrEnum
from typing import Any

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


def render(releases: list[dict[str, Any]], kind: Format) -> str:
    """The releases as the text of a file."""
    if kind is Format.json:
        return json.dumps(releases, indent=2) + "\n"
    if kind is Format.csv:
        return _csv(releases)
    from shoal.analyzer.results.report_page import render_report

    return render_report(releases)


def _csv(releases: list[dict[str, Any]]) -> str:
    """One line per estimate, then one per quantile (without a standard error); a withheld release
    is one line without one.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for release in releases:
        whole: dict[str, Any] = {
            **release["privacy"].get("memoized", {}),
            **release["privacy"],
            **release,
            "rejected": sum(release["rejected"].values()),
            "withheld": release["withheld"] or "",
        }
        estimates: list[dict[str, Any]] = release["estimates"] or [{}]
        counts = release.get("processed", {}).get("counts", [""] * len(estimates))
        for estimate, count in zip(estimates, counts, strict=True):
            writer.writerow(
                {
                    name: _cell(value)
                    for name, value in {**whole, **estimate, "processed": count}.items()
                }
            )
        for row in release.get("quantiles", ()):
            writer.writerow(
                {
                    name: _cell(value)
                    for name, value in {
                        **whole,
                        **row,
                        "label": f"quantile {row['share']:g}",
                    }.items()
                }
            )
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Labels come from tasks: one that a spreadsheet would take for a formula is quoted."""
    return (
        f"'{value}"
        if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}
        else value
    )

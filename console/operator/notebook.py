"""A notebook that draws a release's figures again, from the release itself, which it holds.

It wants Jupyter and Shoal, and no service and no network.
"""

from __future__ import annotations

import json
from typing import Any

_TITLE = """\
# Released statistics

Made by Shoal's console. The releases are in the next cell, as they were published; everything below
is computed from them. It wants `shoal[plot]` and Jupyter, and no network."""
_LOAD = """\
import json
from IPython.display import display

releases = json.loads({releases})
print(len(releases), "releases")"""
_TABLE_WORDS = """\
## Estimates

With all their digits, and 95 % intervals; about 1 in 20 is expected not to hold the true figure."""
_TABLE = """\
for release in releases:
    print(f"{release['name']}, window {release['window']}: n = {release['n']:,}")
    if release["withheld"]:
        print("  withheld:", release["withheld"])
    for row in release["estimates"]:
        interval = f"{row['ci_low']:,.6g} to {row['ci_high']:,.6g}"
        print(f"  {row['label']:<20} {row['value']!r:>22}   {interval}")"""
_PROMISE_WORDS = """\
## What they promise

How often somebody who would bet 50:50 on one device's answer is right at most."""
_PROMISE = """\
from shoal.accounting.meaning import best_guess, bound_text, percent_text

for release in releases:
    privacy = release["privacy"]
    odds = percent_text(best_guess(privacy["epsilon_upper"], privacy["delta"]))
    epsilon = bound_text(privacy["epsilon_upper"])
    where = f"{release['name']}, window {release['window']}"
    print(f"{where}: epsilon <= {epsilon}, right at most {odds}")"""
_PLOT_WORDS = "## The figures"
_PLOT = """\
from html import escape
from shoal.analyzer.results.report_page import render_report

page = escape(render_report(releases), quote=True)
frame = f'<iframe srcdoc="{page}" width="100%" height="900" style="border: 0"></iframe>'
display({"text/html": frame}, raw=True)"""


def notebook(releases: list[dict[str, Any]]) -> bytes:
    """The file (nbformat 4.5). releases: in the shape of ``release.to_json``."""
    text = json.dumps(releases)
    cells = (
        ("markdown", _TITLE),
        ("code", _LOAD.format(releases=repr(text))),
        ("markdown", _TABLE_WORDS),
        ("code", _TABLE),
        ("markdown", _PROMISE_WORDS),
        ("code", _PROMISE),
        ("markdown", _PLOT_WORDS),
        ("code", _PLOT),
    )
    return json.dumps(
        {
            "cells": [_cell(at, kind, source) for at, (kind, source) in enumerate(cells)],
            "metadata": {
                "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                "language_info": {"name": "python"},
            },
            "nbformat": 4,
            "nbformat_minor": 5,
        },
        indent=1,
    ).encode()


def _cell(at: int, kind: str, source: str) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": kind,
        "id": f"shoal-{at}",
        "metadata": {},
        "source": source.splitlines(keepends=True),
    }
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}

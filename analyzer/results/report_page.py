"""Releases as one self-contained HTML page: plots with the tables beside them, the certificate in
numbers and in plain words.

Nothing is loaded from anywhere (a content security policy in the page says so too), all text is
escaped, and it can be read in light and dark, on paper and by a screen reader.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shoal.accounting.certificate import Certificate
from shoal.accounting.composition.memoized import sentences as memoized_sentences
from shoal.accounting.meaning import bound_text, sentences, sum_sentences
from shoal.accounting.several_messages.messages import MessagesBound
from shoal.accounting.several_messages.of_mechanism import METHODS
from shoal.analyzer.results.cumulative import COMPOSED_MEMOIZED
from shoal.analyzer.results.maps.drawing import MapPicture, largest, picture_of
from shoal.analyzer.results.maps.tree import PlaceMap, place_map, tree_picture
from shoal.analyzer.results.plots import Histogram, RowPlot, histogram, plot
from shoal.analyzer.results.processed import MEANS, OUTSIDE, beside, readable_note
from shoal.analyzer.results.totals import array_words
from shoal.errors import Kind, ShoalError
from shoal.pictures.axes import number
from shoal.pictures.templates import render
from shoal.task import PPM

# ``up`` and ``down``: the side to which a bound is rounded.
_FILTERS = (
    ("number", number),
    ("up", bound_text),
    ("down", functools.partial(bound_text, up=False)),
)
# of one list of estimates: browsers draw no more with comfort, and programs read CSV
MOST_ROWS = 2_000
Truths = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Estimates:
    """Estimates that share an axis. ``rows``: label, value, low, high, truth (None: not given),
    inside (None: no truth), count.

    ``processed``: how the counts were made, in words; empty where there are none.
    """

    title: str
    summary: str
    plot: RowPlot
    rows: tuple[dict[str, Any], ...]
    has_truth: bool
    left_out: int  # rows of a long list that the page does not show
    processed: str
    notes: str  # what the intervals mean, and estimates below 0


@dataclass(frozen=True, slots=True)
class PictureShape:
    """How a number is distributed. ``plot``: None over bins, whose counts are above. ``quantiles``:
    (share in percent, value, ends of its interval or None); an end is None where there is none.
    """

    plot: Histogram | None
    summary: str
    quantiles: tuple[tuple[str, float, tuple[float, float | None] | None], ...]
    words: str


@dataclass(frozen=True, slots=True)
class ReportSection:
    """One release as the page shows it. ``release``: its JSON; ``anchor``: the id to link to;
    ``shape``: None without a distribution; ``words``: what else is said of it, a paragraph each;
    ``array``: of a long vector, headings and words.
    """

    release: Mapping[str, Any]
    anchor: str
    title: str
    estimates: tuple[Estimates, ...]
    shape: PictureShape | None
    words: tuple[str, ...]
    map: MapPicture | None = None
    array: tuple[tuple[str, str], ...] = ()


def render_report(releases: Sequence[Mapping[str, Any]], truths: Truths | None = None) -> str:
    """The page for releases in the shape of ``release_json.to_json``.

    ``truths``: true values by label, by task id in hex, where somebody knows them (a demonstration,
    a test).
    """
    sections = [
        section_of(i, release, (truths or {}).get(release["task_id"], {}))
        for i, release in enumerate(releases)
    ]
    shuffled = [release for release in releases if "rounds" not in release]
    last = max(
        releases, key=lambda release: int(release["privacy"]["windows_composed"]), default=None
    )
    return render(
        "shoal.analyzer.results",
        "report.html.j2",
        _FILTERS,
        sections=sections,
        epsilons=_epsilons(sections),
        composed=None if last is None else last["privacy"],
        repeated=last is not None and COMPOSED_MEMOIZED in last["privacy"]["assumptions"],
        tasks=len({release["task_id"] for release in releases}),
        shuffled=bool(shuffled),
        randomized=any(release["privacy"]["epsilon0"] is not None for release in shuffled),
        mixed=any(release["privacy"]["epsilon0"] is None for release in shuffled),
        summed=any("rounds" in release for release in releases),
        maps=_maps(releases),
    )


def _maps(releases: Sequence[Mapping[str, Any]]) -> list[tuple[str, PlaceMap, str]]:
    """Of every discovery of places: its name, what it found in all its windows, and the picture."""
    tasks = dict[str, list[Mapping[str, Any]]]()
    for release in releases:
        if _has_cells(release):
            tasks.setdefault(release["task_id"], []).append(release)
    found = [(of_task[0]["name"], place_map(of_task)) for of_task in tasks.values()]
    return [(name, one, tree_picture(one, name)) for name, one in found]


def _has_cells(release: Mapping[str, Any]) -> bool:
    """Whether it is a level of a discovery of places."""
    found = release.get("discovered")
    return isinstance(found, Mapping) and "cells" in found


def section_of(index: int, release: Mapping[str, Any], truth: Mapping[str, float]) -> ReportSection:
    """One release as the page shows it: its ``index`` there, its JSON, true values by label."""
    summed = "rounds" in release
    processed = release.get("processed")
    rows = list(release["estimates"])
    if processed is not None:
        rows = [
            {**row, "count": count} for row, count in zip(rows, processed["counts"], strict=True)
        ]
    if "map" in release or _has_cells(release):
        rows = largest(rows)
    # means are in the domain's unit, while others count devices: they get an axis of their own
    raw_only = not summed and processed is None
    groups = [
        ("Mean", [row for row in rows if raw_only and row["label"] in MEANS]),
        (
            "Totals" if summed else "Devices per answer",
            [row for row in rows if not (raw_only and row["label"] in MEANS)],
        ),
    ]
    how = "" if processed is None else f"{processed['method']}: {readable_note(processed)}"
    notes = ". ".join(beside(release))
    left_out = len(release["estimates"]) - len(rows)
    estimates = tuple(
        _estimates(title, rows, truth, how, notes, left_out) for title, rows in groups if rows
    )
    return ReportSection(
        release,
        f"r{index}",
        _title(release),
        estimates,
        _shape(release),
        tuple(words_of(release)),
        picture_of(release),
        tuple(array_words(release["array"])) if "array" in release else (),
    )


def _shape(release: Mapping[str, Any]) -> PictureShape | None:
    distribution, exact = release.get("distribution"), release.get("quantiles")
    quantiles: tuple[tuple[str, float, tuple[float, float | None] | None], ...]
    if exact is not None:
        quantiles = tuple(
            (f"{row['share']:.0%}", row["value"], (row["ci_low"], row["ci_high"])) for row in exact
        )
    elif distribution is not None:
        quantiles = tuple(
            (f"{float(q):.0%}", value, None) for q, value in distribution["quantiles"].items()
        )
    else:
        return None
    summary = "; ".join(f"{share} at or below {number(value)}" for share, value, _ in quantiles)
    if distribution is None:
        return PictureShape(None, summary, quantiles, f"Of the devices that answered. {OUTSIDE}.")
    answered = (
        ""
        if distribution["answered"] is None
        else f" Of the devices that answered, an estimated {distribution['answered']:.1%} of all."
    )
    return PictureShape(
        histogram(
            distribution["edges"],
            distribution["shares"],
            {share: value for share, value, _ in quantiles},
        ),
        summary,
        quantiles,
        f"{distribution['method']}, {readable_note(distribution)}.{answered}"
        + (f" Intervals of the quantiles are unprocessed. {OUTSIDE}." if exact else ""),
    )


def words_of(release: Mapping[str, Any]) -> list[str]:
    """What a release promises, in plain words: a sentence or two an item."""
    privacy, rounds = release["privacy"], release.get("rounds")
    if rounds is None:
        memoized = privacy.get("memoized")
        # Before the sentences about this release: they are about its window seen alone.
        first = (
            []
            if memoized is None
            else memoized_sentences(
                memoized["lifetime_epsilon"], memoized["windows"], privacy["epsilon0"]
            )
        )
        by_distance = privacy.get("metric", {"words": []})["words"]
        return [*first, *sentences(certificate_of(privacy)), *by_distance]
    words = sum_sentences(
        privacy["epsilon_upper"],
        privacy["delta"],
        privacy["n_certified"],
        rounds["epsilon_together"],
        rounds["mode"],
    )
    if release["withheld"]:
        return words
    noise, one_round, rounding = (
        number(rounds[key]) for key in ("noise_stderr", "one_round_noise_stderr", "rounding_stderr")
    )
    return [
        *words,
        f"Rounds added: {rounds['rounds']}. Each total has a standard error of {noise} from their "
        "noise, where one round of the same "
        f"devices would have {one_round}, and at most {rounding} from rounding.",
    ]


def _title(release: Mapping[str, Any]) -> str:
    return f"{release['name']}, window {release['window']}"


def _estimates(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    truth: Mapping[str, float],
    processed: str,
    said: str,
    left_out: int,
) -> Estimates:
    shown = []
    marks = []
    for row in rows[:MOST_ROWS]:
        true = truth.get(row["label"])
        inside = None if true is None else bool(row["ci_low"] <= true <= row["ci_high"])
        shown.append(
            {
                **{
                    "label": row["label"],
                    "value": row["value"],
                    "low": row["ci_low"],
                    "high": row["ci_high"],
                },
                **{"truth": true, "inside": inside, "count": row.get("count")},
            }
        )
        known = {} if true is None else {"truth": true}
        marks.append(
            (
                str(row["label"]),
                {"value": row["value"], "low": row["ci_low"], "high": row["ci_high"], **known},
            )
        )
    summary = "; ".join(
        f"{row['label']}: {number(row['value'])}, from {number(row['low'])} to "
        f"{number(row['high'])}"
        for row in shown[:12]
    )
    more = f"; and {len(rows) - 12} more" if len(rows) > 12 else ""
    has_truth = any(row["truth"] is not None for row in shown)
    return Estimates(
        title,
        summary + more,
        plot(marks),
        tuple(shown),
        has_truth,
        len(rows) - len(shown) + left_out,
        processed,
        said,
    )


def _epsilons(sections: Sequence[ReportSection]) -> RowPlot:
    """Local against central epsilon, one row per release; logarithmic, because the point is how
    many times smaller it became.
    """
    names = {
        "epsilon0": "epsilon0",
        "upper": "epsilon_upper",
        "lower": "epsilon_lower",
        "received": "epsilon_at_received_n",
    }
    rows = [
        (
            section.title,
            {
                mark: float(section.release["privacy"][key])
                for mark, key in names.items()
                if section.release["privacy"][key] is not None
            },
        )
        for section in sections
    ]
    return plot(rows, logarithmic=True)


def certificate_of(privacy: Mapping[str, Any]) -> Certificate | MessagesBound:
    """The guarantee as the accountant's own object; of several messages with at
    least one of each device, and with epsilon0 None where it is infinite. n is the smallest batch
    of which the honest share is n_certified. Raises INVALID where the figures are those of
    neither.
    """
    share = Fraction(round(privacy["honest_fraction"] * PPM), PPM)
    n = max(1, math.ceil(privacy["n_certified"] / share))
    if privacy["epsilon0"] is None and privacy["method"] not in METHODS:
        raise ShoalError(Kind.INVALID, "epsilon0: a number is wanted")
    if privacy["method"] in METHODS:
        return MessagesBound(
            epsilon_upper=privacy["epsilon_upper"],
            epsilon_lower=privacy["epsilon_lower"],
            delta=privacy["delta"],
            n=n,
            honest_fraction=share,
            method=privacy["method"],
            messages_per_device=Fraction(1),
            assumptions=tuple(privacy["assumptions"]),
            relation=privacy["relation"],
            epsilon0=math.inf if privacy["epsilon0"] is None else privacy["epsilon0"],
        )
    return Certificate(
        epsilon_upper=privacy["epsilon_upper"],
        epsilon_lower=privacy["epsilon_lower"],
        epsilon0=privacy["epsilon0"],
        delta=privacy["delta"],
        n=n,
        honest_fraction=share,
        method=privacy["method"],
        assumptions=tuple(privacy["assumptions"]),
        relation=privacy["relation"],
    )
